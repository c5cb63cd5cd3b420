package gateway_test

import (
	"encoding/json"
	"os"
	"regexp"
	"slices"
	"testing"

	"github.com/tollhq/toll/gateway"
	"github.com/tollhq/toll/internal/must"
	"github.com/tollhq/toll/x402"
)

// firstCells returns the words in code quotes of the first cell of each row below a heading.
func firstCells(t *testing.T, page, heading string) (words []string) {
	t.Helper()
	text := must.Get(os.ReadFile(page))(t)
	section := regexp.MustCompile(`(?s)\n## ` + heading + `\n(.*?)(\n## |$)`).FindSubmatch(text)
	if section == nil {
		t.Fatalf("%s has no heading %s", page, heading)
	}
	for _, row := range regexp.MustCompile("(?m)^\\| (`[^|]*) \\|").FindAllSubmatch(section[1], -1) {
		for _, word := range regexp.MustCompile("`([^`]+)`").FindAllSubmatch(row[1], -1) {
			words = append(words, string(word[1]))
		}
	}
	slices.Sort(words)
	return words
}

// TestDocs_PluginTables: the page of the plugin lists the tools of the registry and the fields of
// the configuration, and no others.
func TestDocs_PluginTables(t *testing.T) {
	files := must.Get(gateway.Manifest(x402.Default))(t)
	var m struct {
		Contracts    struct{ Tools []string }
		ConfigSchema struct{ Properties map[string]any }
	}
	must.Do(t, json.Unmarshal(files[gateway.ManifestFile], &m))
	var fields []string
	for name := range m.ConfigSchema.Properties {
		fields = append(fields, name)
	}
	slices.Sort(fields)
	slices.Sort(m.Contracts.Tools)
	if got := firstCells(t, "openclaw/README.md", "Tools"); !slices.Equal(got, m.Contracts.Tools) {
		t.Errorf("tools: %q, want %q", got, m.Contracts.Tools)
	}
	if got := firstCells(t, "openclaw/README.md", "Fields"); !slices.Equal(got, fields) {
		t.Errorf("fields: %q, want %q", got, fields)
	}
}

// TestDocs_Errors: docs/CHAT.md has a row for each code of a tool.
func TestDocs_Errors(t *testing.T) {
	source := must.Get(os.ReadFile("errors.go"))(t)
	var words []string
	for _, m := range regexp.MustCompile(`(?m)^\t\w+ +Word = "(\w+)"(?: \+ "(\w+)")?`).FindAllSubmatch(source, -1) {
		words = append(words, string(m[1])+string(m[2]))
	}
	slices.Sort(words)
	if got := firstCells(t, "../docs/CHAT.md", "Errors"); len(words) < 10 || !slices.Equal(got, words) {
		t.Errorf("codes: %q, want %q", got, words)
	}
}
