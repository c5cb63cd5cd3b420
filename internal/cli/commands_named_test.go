package cli

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/cobra"

	"github.com/tollhq/toll/internal/must"
)

// commandIn finds commands of the program in texts, up to the end of the command: where code, a string, or a pipe ends.
var commandIn = regexp.MustCompile("(?:^|[`\"'>$(|;&]|\\s)toll((?: [^\\s`\"'|;&<>()\\\\,]+)+)")

// inCode are the parts of documents that hold commands: spans and blocks of code.
var inCode = regexp.MustCompile("(?s)```.*?```|`[^`\n]+`")

// TestNamedCommands resolves each command and flag of the program that pages, documents, and hints name.
func TestNamedCommands(t *testing.T) {
	root := treeOf(t)
	commands := 0
	check := func(file, text string) {
		for _, m := range commandIn.FindAllStringSubmatch(text, -1) {
			if m[1] == " gateway login 1" || m[1] == " key id" {
				continue // a label in cryptography
			}
			if wrong, is := unresolved(root, strings.Fields(m[1])); wrong != "" {
				t.Errorf("%s: toll%s: %s", file, m[1], wrong)
			} else if is {
				commands++
			}
		}
	}
	for _, dir := range []string{"../../docs", "../../README.md", "../../gateway", "../../deploy", "../../internal", "../../sdk", "../../paidmcp", "../../paid", "../../codes.go"} {
		must.Do(t, filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
			if err != nil || d.IsDir() {
				if err == nil && slices.Contains([]string{"node_modules", "testdata", "decisions"}, d.Name()) {
					return fs.SkipDir
				}
				return err
			}
			ext := filepath.Ext(path)
			if !slices.Contains([]string{".md", ".html", ".go", ".txt", ".json"}, ext) || strings.HasSuffix(path, "_test.go") {
				return nil
			}
			b, err := os.ReadFile(path)
			switch ext {
			case ".md":
				for _, code := range inCode.FindAllString(string(b), -1) {
					check(path, code)
				}
			case ".go":
				for _, s := range literals(string(b)) {
					check(path, s)
				}
			default:
				check(path, string(b))
			}
			return err
		}))
	}
	if commands < 300 {
		t.Errorf("%d commands are found", commands)
	}
	for _, wrong := range []string{"agents register --help", "plans register", "serve --no-such-flag", "gateway nothing"} {
		if why, _ := unresolved(root, strings.Fields(wrong)); why == "" {
			t.Errorf("toll %s resolves", wrong)
		}
	}
}

var (
	commandWord = regexp.MustCompile(`^[a-z][a-z-]*$`)
	flagWord    = regexp.MustCompile(`^[a-z0-9-]*`)
	// afterGroups are words of sentences that follow a group of commands: "toll price makes prices".
	afterGroups = []string{"makes", "what", "prices", "for"}
)

var goString = regexp.MustCompile("(?s)\"(?:[^\"\\\\\n]|\\\\.)*\"|`[^`]*`")

// literals returns the string literals of Go source.
func literals(source string) []string {
	var code strings.Builder
	for line := range strings.Lines(source) {
		if !strings.HasPrefix(strings.TrimSpace(line), "//") {
			code.WriteString(line)
		}
	}
	all := goString.FindAllString(code.String(), -1)
	for i := range all {
		all[i] = strings.NewReplacer(`\n`, "\n", `\"`, `"`).Replace(all[i])
	}
	return all
}

// unresolved says what of a command line does not exist; "" when all of it does. is reports whether it names a command at all:
// "toll is" in a sentence does not.
func unresolved(root *cobra.Command, words []string) (why string, is bool) {
	c := root
	for i, word := range words {
		word = strings.TrimRight(word, ".:;?!")
		if name, long := strings.CutPrefix(word, "--"); long {
			name, _, _ = strings.Cut(name, "=")
			name = flagWord.FindString(name)
			if c != root && name != "" && name != "help" && c.Flags().Lookup(name) == nil && c.InheritedFlags().Lookup(name) == nil {
				return "there is no flag --" + name, true
			}
			continue
		}
		if c.HasSubCommands() && i == depth(c) {
			next := child(c, word)
			if next == nil {
				if c == root || !commandWord.MatchString(word) || slices.Contains(afterGroups, word) {
					return "", is
				}
				return "there is no command " + word, true
			}
			c, is = next, true
		}
	}
	return "", is
}

func depth(c *cobra.Command) int { return len(strings.Fields(c.CommandPath())) - 1 }

func child(c *cobra.Command, name string) *cobra.Command {
	for _, sub := range c.Commands() {
		if sub.Name() == name || sub.HasAlias(name) {
			return sub
		}
	}
	return nil
}
