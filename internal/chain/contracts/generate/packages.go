package main

import (
	"bytes"
	"context"
	"crypto/sha512"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
)

// pinned is a version of an npm package, whose archive has the integrity (Subresource Integrity, SHA-512 only).
type pinned struct {
	name      string
	integrity string
}

var (
	accountAbstraction = pinned{"@account-abstraction/contracts@0.7.0",
		"sha512-Bt/66ilu3u8I9+vFZ9fTd+cWs55fdb9J5YKfrhsrFafH1drkzwuCSL/xEot1GGyXXNJLQuXbMRztQPyelNbY1A=="}
	delegationABIs = pinned{"@metamask/delegation-abis@2.0.0",
		"sha512-3LW1mC/wrtgceMtou4kTJWlS683IXRRWzKY/fVnW9PieN5dayrDyZhJBP+1MJy7LyO19+E2l/IP+g9TES1ua2Q=="}
	delegationDeployments = pinned{"@metamask/delegation-deployments@2.0.0",
		"sha512-DnI1eZ2fCZtkfrq9+G4NKh2S4WOVczKkrTh+JVTgBCS4bCmObxN1pDvdxbTA9WPl9TZoL0XamRhjfYSRXIq6wA=="}
	solc = pinned{"solc@0.8.37",
		"sha512-ieUYdPDRGNKMsZpCfi9tY64Q+ASoL8tyhLuvf9cFiqDs+6ijlx8Wn2CRi0N71AlCvRx0V092rlUYu3b3PuxWlA=="}
)

// errFetch says that npm is missing, or its registry is not reached.
var errFetch = errors.New("npm pack")

// fetch returns the wanted files of the package by their paths. The package is neither installed nor run.
func (p pinned) fetch(ctx context.Context, dir string, wanted ...string) (map[string][]byte, error) {
	var out, log bytes.Buffer
	npm := exec.CommandContext(ctx, "npm", "pack", "--json", "--prefer-offline", "--ignore-scripts", "--fetch-retries", "1", "--pack-destination", ".", p.name)
	npm.Dir, npm.Stdout, npm.Stderr = dir, &out, &log
	if err := npm.Run(); err != nil {
		return nil, fmt.Errorf("%w %s: %w: %s", errFetch, p.name, err, log.Bytes())
	}
	var packed []struct {
		Filename string `json:"filename"`
	}
	if err := json.Unmarshal(out.Bytes(), &packed); err != nil || len(packed) != 1 {
		return nil, fmt.Errorf("npm pack %s: no archive in its answer (%v)", p.name, err)
	}
	archive, err := os.ReadFile(filepath.Join(dir, filepath.Base(packed[0].Filename)))
	if err != nil {
		return nil, err
	}
	return p.unpack(archive, wanted...)
}

// unpack checks the archive before it reads it.
func (p pinned) unpack(archive []byte, wanted ...string) (map[string][]byte, error) {
	sum := sha512.Sum512(archive)
	if got := "sha512-" + base64.StdEncoding.EncodeToString(sum[:]); got != p.integrity {
		return nil, fmt.Errorf("%s has the integrity %s, want %s", p.name, got, p.integrity)
	}
	files := make(map[string][]byte)
	for _, name := range wanted {
		tar := exec.Command("tar", "-xzOf", "-", "package/"+name)
		tar.Stdin = bytes.NewReader(archive)
		file, err := tar.Output()
		if err != nil {
			return nil, fmt.Errorf("%s has no file %s: %w", p.name, name, err)
		}
		files[name] = file
	}
	return files, nil
}
