package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"

	"github.com/ethereum/go-ethereum/common/hexutil"
)

// compiled is a contract of ours.
type compiled struct {
	Creation   []byte
	Runtime    []byte // with zeros where immutables go
	Immutables []int  // offsets of words in Runtime
}

// compileScript asks the compiler, which is one script without dependencies, for standard JSON.
const compileScript = `const solc = require(process.argv[1]);
const compile = solc.cwrap('solidity_compile', 'string', ['string', 'number', 'number']);
process.stdout.write(compile(require('fs').readFileSync(0, 'utf8'), 0, 0));`

// compile returns the contracts of the folder by name. Their code has no metadata, so that a comment moves no address.
func compile(ctx context.Context, dir, sources string) (map[string]compiled, error) {
	const file = "soljson.js"
	files, err := solc.fetch(ctx, dir, file)
	if err != nil {
		return nil, err
	}
	compiler, err := filepath.Abs(filepath.Join(dir, file))
	if err != nil {
		return nil, err
	}
	if err := os.WriteFile(compiler, files[file], 0o600); err != nil {
		return nil, err
	}
	input, err := standardInput(sources)
	if err != nil {
		return nil, err
	}
	var log bytes.Buffer
	node := exec.CommandContext(ctx, "node", "-e", compileScript, compiler)
	node.Stdin, node.Stderr = bytes.NewReader(input), &log
	out, err := node.Output()
	if err != nil {
		return nil, fmt.Errorf("%s: %w: %s", solc.name, err, log.Bytes())
	}
	return parseOutput(out)
}

func standardInput(sources string) ([]byte, error) {
	type source struct {
		Content string `json:"content"`
	}
	paths, err := filepath.Glob(filepath.Join(sources, "*.sol"))
	if err != nil {
		return nil, err
	}
	contents := make(map[string]source)
	for _, path := range paths {
		text, err := os.ReadFile(path)
		if err != nil {
			return nil, err
		}
		contents[filepath.Base(path)] = source{string(text)}
	}
	return json.Marshal(map[string]any{
		"language": "Solidity",
		"sources":  contents,
		"settings": map[string]any{
			"evmVersion":      "cancun",
			"optimizer":       map[string]any{"enabled": true, "runs": 200},
			"metadata":        map[string]any{"appendCBOR": false},
			"outputSelection": map[string]any{"*": map[string]any{"*": []string{"evm.bytecode.object", "evm.deployedBytecode"}}},
		},
	})
}

func parseOutput(out []byte) (map[string]compiled, error) {
	type object struct {
		Object     string `json:"object"`
		References map[string][]struct {
			Start int `json:"start"`
		} `json:"immutableReferences"`
	}
	var output struct {
		Errors []struct {
			Message string `json:"formattedMessage"`
		} `json:"errors"`
		Contracts map[string]map[string]struct {
			EVM struct {
				Bytecode object `json:"bytecode"`
				Deployed object `json:"deployedBytecode"`
			} `json:"evm"`
		} `json:"contracts"`
	}
	if err := json.Unmarshal(out, &output); err != nil {
		return nil, fmt.Errorf("%s: %w", solc.name, err)
	}
	for _, e := range output.Errors {
		return nil, fmt.Errorf("%s: %s", solc.name, e.Message)
	}
	all := make(map[string]compiled)
	for _, of := range output.Contracts {
		for name, c := range of {
			creation, err := hexutil.Decode("0x" + c.EVM.Bytecode.Object)
			if err != nil {
				return nil, fmt.Errorf("%s: %w", name, err)
			}
			runtime, err := hexutil.Decode("0x" + c.EVM.Deployed.Object)
			if err != nil {
				return nil, fmt.Errorf("%s: %w", name, err)
			}
			one := compiled{Creation: creation, Runtime: runtime}
			if len(c.EVM.Deployed.References) > 1 {
				return nil, fmt.Errorf("%s has more than one immutable", name)
			}
			for _, places := range c.EVM.Deployed.References {
				for _, place := range places {
					one.Immutables = append(one.Immutables, place.Start)
				}
			}
			all[name] = one
		}
	}
	return all, nil
}
