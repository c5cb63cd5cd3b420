package toll_test

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/tollhq/toll/internal/must"
)

const thirdParty = "licenses/THIRD-PARTY.txt"

var licenseFile = regexp.MustCompile(`(?i)^(mit-)?(licen[cs]e|copying|notice|patents)([.-].*)?$`)

// statedElsewhere are modules under the MIT licence that have no file with its text, and the file that states it in its header.
var statedElsewhere = map[string]string{"github.com/holiman/bloomfilter/v2": "bloomfilter.go"}

// Every package of Toll has the licence texts of the modules that are linked into the program. Rewrite them with
//
//	go test . -run TestLicenses -update
func TestLicenses(t *testing.T) {
	cmd := exec.Command("go", "list", "-deps", "-f", "{{with .Module}}{{if not .Main}}{{.Path}} {{.Version}}\t{{.Dir}}{{end}}{{end}}", "./cmd/toll")
	cmd.Env = append(os.Environ(), "GOOS=linux", "CGO_ENABLED=0") // as in a release
	out := must.Get(cmd.Output())(t)
	modules := map[string]string{}
	for _, line := range strings.Split(strings.TrimSpace(string(out)), "\n") {
		if name, dir, ok := strings.Cut(line, "\t"); ok {
			modules[name] = dir
		}
	}
	users := map[string][]string{} // by text
	for name, dir := range modules {
		entries := must.Get(os.ReadDir(dir))(t)
		found := false
		for _, e := range entries {
			if !licenseFile.MatchString(e.Name()) || e.IsDir() {
				continue
			}
			text := must.Get(os.ReadFile(filepath.Join(dir, e.Name())))(t)
			plain := strings.TrimSpace(strings.ReplaceAll(string(text), "\r\n", "\n"))
			users[plain] = append(users[plain], name+", "+e.Name())
			found = true
		}
		path, _, _ := strings.Cut(name, " ")
		if file, ok := statedElsewhere[path]; ok && !found {
			source := must.Get(os.ReadFile(filepath.Join(dir, file)))(t)
			header, _, _ := strings.Cut(string(source), "\npackage ")
			mit, err := os.ReadFile("licenses/MIT.txt")
			if err != nil || !strings.Contains(header, "MIT") {
				t.Fatalf("%s states no MIT licence: %v", name, err)
			}
			plain := strings.TrimSpace(header) + "\n\n" + strings.TrimSpace(string(mit[bytes.Index(mit, []byte("Permission is")):]))
			users[plain], found = append(users[plain], name+", "+file), true
		}
		if !found {
			t.Errorf("%s has no licence text", name)
		}
	}
	texts := make([]string, 0, len(users))
	for text := range users {
		slices.Sort(users[text])
		texts = append(texts, text)
	}
	slices.SortFunc(texts, func(a, b string) int { return strings.Compare(users[a][0], users[b][0]) })
	var b strings.Builder
	fmt.Fprintf(&b, "Licence texts of the %d Go modules that are linked into toll, and of the Go runtime (BSD-3-Clause, as golang.org/x/sys).\n", len(modules))
	for _, text := range texts {
		fmt.Fprintf(&b, "\n%s\n%s\n%s\n\n%s\n", strings.Repeat("=", 80), strings.Join(users[text], "\n"), strings.Repeat("-", 80), text)
	}
	if *updateDocs {
		must.Do(t, os.WriteFile(thirdParty, []byte(b.String()), 0o644))
	}
	if text, err := os.ReadFile(thirdParty); err != nil || string(text) != b.String() {
		t.Errorf("%s is not the texts of the linked modules: run this test with -update (%v)", thirdParty, err)
	}
	// The LGPL of go-ethereum asks for its text and for a way to link another version (section 4 d).
	notice, err := os.ReadFile("NOTICE")
	if err != nil || !strings.Contains(string(notice), "go mod edit -replace github.com/ethereum/go-ethereum=") {
		t.Errorf("NOTICE does not say how to link another go-ethereum: %v", err)
	}
	for text, in := range map[string]string{"GNU LESSER GENERAL PUBLIC LICENSE": thirdParty, "GNU GENERAL PUBLIC LICENSE": "licenses/GPL-3.0.txt"} {
		if read, err := os.ReadFile(in); err != nil || !strings.Contains(string(read), text) {
			t.Errorf("%s lacks the %s: %v", in, text, err)
		}
	}
}
