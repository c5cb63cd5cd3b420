// Command generate makes contracts.gen.json: it fetches the pinned npm packages, puts back the metadata
// hashes that the deployed code has, checks that the code belongs to its address, and compiles the Solidity of this
// repository. It runs by hand, from the root of the repository, and needs node, npm and tar:
//
//	go run ./internal/chain/contracts/generate
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"

	"github.com/tollhq/toll/internal/chain/contracts"
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
	document, err := generate(ctx, room)
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(room, generated), document, 0o644)
}

// generated is the name of the generated file in the room of the contracts.
const generated = "contracts.gen.json"

// generate returns the content of the generated file.
func generate(ctx context.Context, room string) ([]byte, error) {
	dir, err := os.MkdirTemp("", "contracts")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)

	entryPoint, err := fetchEntryPoint(ctx, dir)
	if err != nil {
		return nil, err
	}
	framework, err := fetchFramework(ctx, dir)
	if err != nil {
		return nil, err
	}
	ours, err := compile(ctx, dir, filepath.Join(room, "solidity"))
	if err != nil {
		return nil, err
	}
	return encode(append([]contracts.Artifact{entryPoint}, framework...), ours)
}
