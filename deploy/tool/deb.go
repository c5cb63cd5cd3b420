package main

import (
	"bytes"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"

	"github.com/goreleaser/nfpm/v2"
	_ "github.com/goreleaser/nfpm/v2/deb"
	"go.yaml.in/yaml/v3"
)

// deb writes a Debian package as the section nfpms of .goreleaser.yaml describes it, and prints its path.
// The time of its files is SOURCE_DATE_EPOCH.
func deb(f *flag.FlagSet, args []string) error {
	program := f.String("program", "", "path of the toll program")
	version := f.String("version", "", "version of the program")
	arch := f.String("arch", "", "architecture of the program (GOARCH)")
	out := f.String("out", "build", "output directory")
	if err := f.Parse(args); err != nil {
		return err
	}
	text, err := os.ReadFile(".goreleaser.yaml")
	if err != nil {
		return err
	}
	var release struct {
		NFPMs []map[string]any `yaml:"nfpms"`
	}
	if err := yaml.Unmarshal(text, &release); err != nil {
		return err
	}
	if len(release.NFPMs) != 1 {
		return fmt.Errorf(".goreleaser.yaml has %d nfpms sections, want 1", len(release.NFPMs))
	}
	section := release.NFPMs[0]
	contents, _ := section["contents"].([]any)
	section["contents"] = append(contents, map[string]any{
		"src": *program, "dst": "/usr/bin/toll", "file_info": map[string]any{"mode": 0o755},
	})
	section["name"], section["version"], section["arch"] = section["package_name"], *version, *arch
	for _, own := range []string{"package_name", "ids", "formats", "mtime"} { // goreleaser's own, or a template of it
		delete(section, own)
	}
	if text, err = yaml.Marshal(section); err != nil {
		return err
	}
	config, err := nfpm.Parse(bytes.NewReader(text))
	if err != nil {
		return err
	}
	info, err := config.Get("deb")
	if err != nil {
		return err
	}
	info = nfpm.WithDefaults(info)
	packager, err := nfpm.Get("deb")
	if err != nil {
		return err
	}
	path := filepath.Join(*out, packager.ConventionalFileName(info))
	file, err := os.Create(path)
	if err != nil {
		return err
	}
	if err := errors.Join(packager.Package(info, file), file.Close()); err != nil {
		return err
	}
	fmt.Println(path)
	return nil
}
