package toll_test

import (
	"flag"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/tollhq/toll/internal/must"
)

var updateDocs = flag.Bool("update", false, "rewrite docs/ROOMS.md, and the rooms in the table of docs/TESTING.md")

func markdown(t *testing.T) map[string]string {
	t.Helper()
	pages := map[string]string{}
	err := filepath.WalkDir(".", func(p string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if name := d.Name(); d.IsDir() && p != "." && (strings.HasPrefix(name, ".") || name == "node_modules" || name == "testdata") {
			return filepath.SkipDir
		}
		if strings.HasSuffix(p, ".md") {
			text, err := os.ReadFile(p)
			if err != nil {
				return err
			}
			pages[filepath.ToSlash(p)] = string(text)
		}
		return nil
	})
	if err != nil || len(pages) == 0 {
		t.Fatal("no pages", err)
	}
	return pages
}

// anchors returns the anchors of the headings of a page, as GitHub makes them.
func anchors(text string) (all []string) {
	text = regexp.MustCompile("(?ms)^```.*?^```").ReplaceAllString(text, "")
	dropped := regexp.MustCompile(`\]\([^)]*\)|[^\w\- ]`)
	for _, m := range regexp.MustCompile(`(?m)^#+ (.+)$`).FindAllStringSubmatch(text, -1) {
		all = append(all, strings.ReplaceAll(dropped.ReplaceAllString(strings.ToLower(m[1]), ""), " ", "-"))
	}
	return all
}

// Links between the pages lead somewhere, and every decision record is in the index.
func TestDocs_Links(t *testing.T) {
	link := regexp.MustCompile(`\]\(([^)\s]+)\)`)
	pages := markdown(t)
	for page, text := range pages {
		for _, m := range link.FindAllStringSubmatch(text, -1) {
			target, anchor, _ := strings.Cut(m[1], "#")
			if strings.Contains(target, "://") || strings.HasPrefix(target, "mailto:") {
				continue
			}
			to := page
			if target != "" {
				to = path.Join(path.Dir(page), target)
			}
			if _, err := os.Stat(filepath.FromSlash(to)); err != nil {
				t.Errorf("%s: a link leads nowhere: %s", page, m[1])
			}
			if other, ok := pages[to]; ok && anchor != "" && !slices.Contains(anchors(other), anchor) {
				t.Errorf("%s: no heading has the anchor of the link %s", page, m[1])
			}
		}
	}
	index := pages["docs/decisions/README.md"]
	numbers := map[string]string{}
	for page := range pages {
		name, ok := strings.CutPrefix(page, "docs/decisions/")
		if !ok || name == "README.md" {
			continue
		}
		if !strings.Contains(index, "("+name+")") {
			t.Errorf("docs/decisions/README.md does not list %s", name)
		}
		number, _, _ := strings.Cut(name, "-")
		if other, twice := numbers[number]; twice {
			t.Errorf("two decisions have the number %s: %s and %s", number, name, other)
		}
		numbers[number] = name
	}
}

// TestDocs_Program: the program in docs/GO.md compiles, and contains the lines of the README in their order.
func TestDocs_Program(t *testing.T) {
	inGo := regexp.MustCompile("(?ms)^```go\n(.*?)^```$")
	pages := markdown(t)
	shown, program := inGo.FindStringSubmatch(pages["README.md"]), inGo.FindStringSubmatch(pages["docs/GO.md"])
	if shown == nil || program == nil {
		t.Fatal("README.md or docs/GO.md has no block of Go")
	}
	rest := program[1]
	for line := range strings.Lines(shown[1]) {
		var found bool
		if _, rest, found = strings.Cut(rest, line); !found {
			t.Fatalf("docs/GO.md lacks this line of README.md, or has it earlier: %s", line)
		}
	}
	file := filepath.Join(t.TempDir(), "main.go")
	must.Do(t, os.WriteFile(file, []byte(program[1]), 0o600))
	if out, err := exec.CommandContext(t.Context(), "go", "vet", file).CombinedOutput(); err != nil {
		t.Errorf("the program of docs/GO.md: %v\n%s", err, out)
	}
}

// docs/ROOMS.md is the table that TestRooms enforces.
func TestDocs_Rooms(t *testing.T) {
	const page = "docs/ROOMS.md"
	var b strings.Builder
	b.WriteString("# Rooms\n\nEach directory with Go files is a room. `go test . -run TestDocs_Rooms -update` generates this table from `rooms_test.go`, whose\n" +
		"tests enforce the imports. `testdata/rooms/ceilings.txt` has the most lines of each layer, without tests and generated code.\n\n" +
		"| Room | Layer | Contents | Imports of ours | Third-party imports |\n|---|---|---|---|---|\n")
	for _, name := range slices.Sorted(maps.Keys(rooms)) {
		r := rooms[name]
		ours := strings.Join(strings.Fields(strings.ReplaceAll(r.ours, "internal/", "")), ", ")
		var third []string
		for _, m := range r.third {
			third = append(third, strings.TrimPrefix(m, "github.com/"))
		}
		fmt.Fprintf(&b, "| `%s` | %s | %s | %s | %s |\n", name, r.layer, r.what, ours, strings.Join(third, ", "))
		if r.what == "" {
			t.Errorf("room %s: say what is in it", name)
		}
	}
	if *updateDocs {
		must.Do(t, os.WriteFile(page, []byte(b.String()), 0o644))
	}
	if text, err := os.ReadFile(page); err != nil || string(text) != b.String() {
		t.Errorf("%s is not the table of rooms_test.go: run this test with -update (%v)", page, err)
	}
}

// covered are the threats, faults, and invariants that need a test in make test: "T01 T04-T07" and so on.
const covered = "T01-T137 T150-T162 T166 T167 T169 T170 T173-T184 F01-F19 F21-F26 F28 I06 I12 I13 I16 I20 I23 I25"

func ids(t *testing.T, ranges string) []string {
	t.Helper()
	var out []string
	for _, r := range strings.Fields(ranges) {
		first, last, ok := strings.Cut(r, "-")
		if !ok {
			last = first
		}
		from, err1 := strconv.Atoi(first[1:])
		to, err2 := strconv.Atoi(last[1:])
		if err1 != nil || err2 != nil || from > to {
			t.Fatalf("not a range: %s", r)
		}
		for n := from; n <= to; n++ {
			out = append(out, fmt.Sprintf("%c%02d", first[0], n))
		}
	}
	return out
}

var (
	threatTest = regexp.MustCompile(`(?m)^// ([TFI]\d{2,3}(?: [TFI]\d{2,3})*)\nfunc Test\w+\(t \*testing\.T\) \{.*\n(.*)`)
	deferred   = regexp.MustCompile(`^\tif (rounds\.Deferred\(t\)|!needs\(t, .*\)) \{$`)
	threatRow  = regexp.MustCompile(`(?m)^\| ([TFI]\d{2,3}) \| (.*?) \| (.*?) \|$`)
)

// threatTests returns, for each threat, the rooms with a test of it: the last line of its comment has the ids, as in "// T20 F03". Tests
// that make test leaves to make test-all do not count.
func threatTests(t *testing.T) map[string][]string {
	t.Helper()
	rooms := map[string]map[string]bool{}
	for _, file := range goFiles(t, ".") {
		if !strings.HasSuffix(file, "_test.go") {
			continue
		}
		text := must.Get(os.ReadFile(file))(t)
		room := strings.TrimPrefix(filepath.ToSlash(filepath.Dir(file)), "internal/")
		if room == "." {
			room = "toll"
		}
		for _, m := range threatTest.FindAllStringSubmatch(string(text), -1) {
			if deferred.MatchString(m[2]) {
				continue
			}
			for _, id := range strings.Fields(m[1]) {
				if rooms[id] == nil {
					rooms[id] = map[string]bool{}
				}
				rooms[id][room] = true
			}
		}
	}
	out := map[string][]string{}
	for id, in := range rooms {
		out[id] = slices.Sorted(maps.Keys(in))
	}
	return out
}

// TestDocs_Threats: every threat, fault, and invariant in covered has a test, and docs/TESTING.md lists the rooms of these tests. Update its
// table with go test -run TestDocs_Threats . -update
func TestDocs_Threats(t *testing.T) {
	tests := threatTests(t)
	for _, id := range ids(t, covered) {
		if len(tests[id]) == 0 {
			t.Errorf("no test has // %s as the last line of its comment", id)
		}
	}
	const page = "docs/TESTING.md"
	text := must.Get(os.ReadFile(page))(t)
	if *updateDocs {
		text = threatRow.ReplaceAllFunc(text, func(row []byte) []byte {
			m := threatRow.FindStringSubmatch(string(row))
			return fmt.Appendf(nil, "| %s | %s | %s |", m[1], m[2], strings.Join(tests[m[1]], ", "))
		})
		must.Do(t, os.WriteFile(page, text, 0o644))
	}
	listed := map[string]bool{}
	for _, m := range threatRow.FindAllStringSubmatch(string(text), -1) {
		listed[m[1]] = true
		for _, room := range strings.Split(m[3], ", ") {
			if !slices.Contains(tests[m[1]], room) {
				t.Errorf("%s says that %s is tested in %q; run this test with -update", page, m[1], room)
			}
		}
	}
	for id := range tests {
		if !listed[id] {
			t.Errorf("%s has no row for %s", page, id)
		}
	}
}

// The table of states in docs/ARCHITECTURE.md names each file that changes the state of a paid order, and eight at most.
func TestDocs_StatesOfOrders(t *testing.T) {
	change := regexp.MustCompile(`(?m)\b(?:op|o|now|next|order)\.(?:State|Status)\b[^=\n:(!<]* = `)
	others := []string{
		"chain/documents.go", // reads rows
		"chain/wallet.go",    // revocations of delegations
	}
	var changes []string
	for _, room := range []string{"checkout", "chain"} {
		files := must.Get(filepath.Glob(filepath.Join("internal", room, "*.go")))(t)
		for _, name := range files {
			text := must.Get(os.ReadFile(name))(t)
			short := room + "/" + filepath.Base(name)
			if !strings.HasSuffix(name, "_test.go") && !slices.Contains(others, short) && change.Match(text) {
				changes = append(changes, short)
			}
		}
	}
	_, table, _ := strings.Cut(markdown(t)["docs/ARCHITECTURE.md"], "| State | File |")
	table, _, _ = strings.Cut(table, "\n\n")
	named := map[string]bool{}
	for _, m := range regexp.MustCompile("`((?:chain|checkout)/[a-z]+[.]go)`").FindAllStringSubmatch(table, -1) {
		named[m[1]] = true
	}
	if got := slices.Sorted(maps.Keys(named)); !slices.Equal(got, slices.Sorted(slices.Values(changes))) || len(got) > 8 {
		t.Errorf("the table names %v, and the state is changed in %v", got, changes)
	}
}

// Every metric of the service stands on the page for operators, and every metric on the page exists.
func TestDocs_Metrics(t *testing.T) {
	var code []byte
	for _, name := range []string{"metrics.go", "money.go"} {
		part := must.Get(os.ReadFile("internal/metrics/" + name))(t)
		code = append(code, part...)
	}
	metric := regexp.MustCompile(`toll_[a-z]+_[a-z_]+`)
	pages := markdown(t)
	exist := metric.FindAllString(string(code), -1)
	shown := metric.FindAllString(pages["docs/OPERATING.md"], -1)
	for _, name := range exist {
		if !slices.Contains(shown, name) {
			t.Errorf("docs/OPERATING.md lacks %s", name)
		}
	}
	for _, name := range append(shown, regexp.MustCompile("`"+metric.String()).FindAllString(pages["README.md"], -1)...) {
		if name = strings.TrimPrefix(name, "`"); !slices.Contains(exist, name) {
			t.Errorf("there is no metric %s", name)
		}
	}
}

// The packages for other languages have the version of the release at the top of the changelog, and ask for its API version.
func TestDocs_Versions(t *testing.T) {
	changelog := markdown(t)["CHANGELOG.md"]
	m := regexp.MustCompile(`(?m)^## (\S+).*\n+.*API version ([0-9.]+)`).FindStringSubmatch(changelog)
	if m == nil {
		t.Fatal("the changelog begins with no release")
	}
	for file, want := range map[string]string{
		"gateway/openclaw/package.json":    `"version": "` + m[1] + `"`,
		"sdk/python/pyproject.toml":        `version = "` + m[1] + `"`,
		"sdk/python/src/toll/_core.py":     `RELEASE = "` + m[1] + `"`,
		"sdk/typescript/package.json":      `"version": "` + m[1] + `"`,
		"sdk/typescript/src/core.ts":       `release = "` + m[1] + `"`,
		"sdk/typescript/src/generated.ts":  `apiVersion = "` + m[2] + `"`,
		"sdk/typescript/package-lock.json": `"version": "` + m[1] + `"`,
		"sdk/x402/package.json":            `"version": "` + m[1] + `"`,
	} {
		text := must.Get(os.ReadFile(file))(t)
		if !strings.Contains(string(text), want) {
			t.Errorf("%s lacks %s", file, want)
		}
	}
}
