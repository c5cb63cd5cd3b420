// Command generate makes contracts.gen.json and the bindings: it fetches the pinned npm packages, puts back the metadata
// hashes that the deployed code has, checks that the code belongs to its address, and compiles the Solidity of this
// repository. It runs by hand, from the root of the repository, and needs node and npm:
//
//	go run ./internal/chain/contracts/generate
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx, filepath.Join("internal", "chain", "contracts")); err != nil {
		fmt.Fprintln(os.Stderr, "generate:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, room string) error {
	files, err := generate(ctx, room)
	if err != nil {
		return err
	}
	for name, content := range files {
		path := filepath.Join(room, filepath.FromSlash(name))
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			return err
		}
		if err := os.WriteFile(path, content, 0o644); err != nil {
			return err
		}
	}
	return nil
}

// generate returns the generated files by their path in the room of the contracts.
func generate(ctx context.Context, room string) (map[string][]byte, error) {
	dir, err := os.MkdirTemp("", "contracts")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)

	var published []deployment
	abis := make(map[string][]byte)
	entryPoint, abi, err := fetchEntryPoint(ctx, dir)
	if err != nil {
		return nil, err
	}
	published, abis[entryPoint.Name] = append(published, entryPoint), abi
	framework, frameworkABIs, err := fetchFramework(ctx, dir)
	if err != nil {
		return nil, err
	}
	published = append(published, framework...)
	for name, abi := range frameworkABIs {
		abis[name] = abi
	}
	ours, err := compile(ctx, dir, filepath.Join(room, "solidity"))
	if err != nil {
		return nil, err
	}
	abis["Token"], abis["CreditMirror"] = ours["DevUSDC"].ABI, ours["CreditMirror"].ABI

	document, err := encode(published, ours)
	if err != nil {
		return nil, err
	}
	bindings, err := bind(abis)
	if err != nil {
		return nil, err
	}
	return map[string][]byte{"contracts.gen.json": document, "bindings/bindings.gen.go": bindings}, nil
}
