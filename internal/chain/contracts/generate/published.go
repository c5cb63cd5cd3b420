package main

import (
	"bytes"
	"context"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"regexp"

	"github.com/ethereum/go-ethereum/common"
	"github.com/ethereum/go-ethereum/common/hexutil"
	"github.com/ethereum/go-ethereum/crypto"

	"github.com/tollhq/toll/internal/chain/contracts"
)

var (
	entryPointSalt = common.HexToHash("0x90d8084deab30c2a37c45e8d47f49f2f7965183cb6990a98943ef94940681de3")
	frameworkSalt  = common.BytesToHash(common.RightPadBytes([]byte("GATOR"), 32))
	managerOwner   = common.HexToAddress("0xB0403B32f54d0Bd752113f4009e8B534C6669f44")
)

// framework lists the contracts of the delegation framework, version 1.3.0, with the metadata hashes of the deployed code.
var framework = []struct{ name, deployed, metadata string }{
	{"DelegationManager", "DelegationManager", "c2284ea0163aafd9aee402e7645e9db93d0c27667921732dd0458883520a4752"},
	{"EIP7702StatelessDeleGator", "EIP7702StatelessDeleGatorImpl", "d057b8f9a4d5cb46c51c1004ce8cae8dcd3c06323da26ccdfd3dd38584a43adb"},
	{"ERC20TransferAmountEnforcer", "ERC20TransferAmountEnforcer", "c41875b732e3b48749e6357d2d1452efe720957c650141af2df143c50d966250"},
	{"NativeTokenTransferAmountEnforcer", "NativeTokenTransferAmountEnforcer", "24cad96a7227a2b90e98242180a662fd4fbc57d3e5f57735ca4faddc936bc47d"},
	{"TimestampEnforcer", "TimestampEnforcer", "937c24aea9e01f448cb62e2b3be0bdd7f808e5688cca18b12ff45cb1dabdc7b0"},
	{"LimitedCallsEnforcer", "LimitedCallsEnforcer", "2c3f46b0859baa05ad68ac999840f0730e6a8b3553b600a51784470af7b87c1d"},
	{"AllowedCalldataEnforcer", "AllowedCalldataEnforcer", "860b8be6a7e9f218173e7b97e4f7d5d6522ab0118af89a815fcf60520e952ed4"},
}

func create2(d *contracts.Artifact) common.Address {
	return crypto.CreateAddress2(contracts.Create2Deployer, d.Salt, crypto.Keccak256(d.CreationCode, d.Arguments))
}

func fetchEntryPoint(ctx context.Context, dir string) (d contracts.Artifact, err error) {
	const file = "artifacts/EntryPoint.json"
	files, err := accountAbstraction.fetch(ctx, dir, file)
	if err != nil {
		return d, err
	}
	var artifact struct {
		Bytecode hexutil.Bytes `json:"bytecode"`
	}
	if err := json.Unmarshal(files[file], &artifact); err != nil {
		return d, fmt.Errorf("%s: %w", file, err)
	}
	d = contracts.Artifact{Name: "EntryPoint", Package: accountAbstraction.name, Salt: entryPointSalt, CreationCode: artifact.Bytecode}
	if d.Address = create2(&d); d.Address != contracts.EntryPoint {
		err = fmt.Errorf("the code of the EntryPoint belongs at %s, want %s", d.Address, contracts.EntryPoint)
	}
	return d, err
}

// fetchFramework takes the addresses from the list that the authors publish.
func fetchFramework(ctx context.Context, dir string) ([]contracts.Artifact, error) {
	const list = "dist/index.cjs"
	files, err := delegationDeployments.fetch(ctx, dir, list)
	if err != nil {
		return nil, err
	}
	addresses, err := deployed(files[list])
	if err != nil {
		return nil, fmt.Errorf("%s: %w", delegationDeployments.name, err)
	}
	var wanted []string
	for _, c := range framework {
		wanted = append(wanted, "dist/bytecode/"+c.name+".cjs")
	}
	if files, err = delegationABIs.fetch(ctx, dir, wanted...); err != nil {
		return nil, err
	}
	arguments := map[string][]byte{
		"DelegationManager": common.LeftPadBytes(managerOwner[:], 32),
		"EIP7702StatelessDeleGator": append(common.LeftPadBytes(addresses["DelegationManager"].Bytes(), 32),
			common.LeftPadBytes(addresses["EntryPoint"].Bytes(), 32)...),
	}
	var out []contracts.Artifact
	for _, c := range framework {
		d := contracts.Artifact{
			Name: c.name, Package: delegationABIs.name, Address: addresses[c.deployed], Salt: frameworkSalt,
			Metadata: common.FromHex(c.metadata), Arguments: arguments[c.name],
		}
		if d.CreationCode, err = bytecode(files["dist/bytecode/"+c.name+".cjs"]); err != nil {
			return nil, fmt.Errorf("%s: %w", c.name, err)
		}
		if err := exchange(d.CreationCode, d.Metadata); err != nil {
			return nil, fmt.Errorf("%s: %w", c.name, err)
		}
		if got := create2(&d); got != d.Address {
			return nil, fmt.Errorf("the code of the %s belongs at %s, but it is at %s", c.name, got, d.Address)
		}
		out = append(out, d)
	}
	return out, nil
}

// exchange puts the hash of the source into the CBOR metadata at the end of the code (Solidity, "Contract Metadata"). It
// changes no instruction.
func exchange(code, hash []byte) error {
	marker := []byte{0xa2, 0x64, 'i', 'p', 'f', 's', 0x58, 0x22, 0x12, 0x20}
	at := bytes.LastIndex(code, marker)
	if at < 0 || len(code) < at+len(marker)+32 || len(hash) != 32 {
		return fmt.Errorf("no metadata of 32 bytes to exchange")
	}
	copy(code[at+len(marker):], hash)
	return nil
}

// literal returns what stands between two texts of a script.
func literal(script []byte, before, after string) ([]byte, error) {
	_, rest, found := bytes.Cut(script, []byte(before))
	end := bytes.Index(rest, []byte(after))
	if !found || end < 0 {
		return nil, fmt.Errorf("no %q in the file", before)
	}
	return rest[:end], nil
}

func bytecode(script []byte) ([]byte, error) {
	text, err := literal(script, "const bytecode = \"0x", "\"")
	if err != nil {
		return nil, err
	}
	return hex.DecodeString(string(text))
}

var entry = regexp.MustCompile(`(\w+): "(0x[0-9a-fA-F]{40})"`)

func deployed(script []byte) (map[string]common.Address, error) {
	text, err := literal(script, "var DEPLOYMENTS_1_3_0 = {", "};")
	if err != nil {
		return nil, err
	}
	addresses := make(map[string]common.Address)
	for _, m := range entry.FindAllSubmatch(text, -1) {
		addresses[string(m[1])] = common.HexToAddress(string(m[2]))
	}
	return addresses, nil
}
