package toll_test

import (
	"os"
	"os/exec"
	"path"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/tollhq/toll/internal/must"
)

// A binaryRun is one run of a test binary, as scripts/test.sh -list prints it.
type binaryRun struct {
	lane, pkg string
	run, skip [][]*regexp.Regexp // alternatives, with one expression for each level of a name
}

// level matches the separators of a test pattern that are outside parentheses, as long as parentheses are not nested.
var level = regexp.MustCompile(`(\([^)]*\)|[^|/])*[|/]?`)

func pattern(text string) (alternatives [][]*regexp.Regexp) {
	var levels []*regexp.Regexp
	for _, part := range level.FindAllString(text, -1) {
		element, alternative := strings.CutSuffix(part, "|")
		levels = append(levels, regexp.MustCompile(strings.TrimSuffix(element, "/")))
		if alternative {
			alternatives = append(alternatives, levels)
			levels = nil
		}
	}
	return append(alternatives, levels)
}

// match works like package testing: the first alternative that matches the name decides, and it is partial if it has more levels.
func match(alternatives [][]*regexp.Regexp, name []string) (ok, partial bool) {
	for _, levels := range alternatives {
		ok = true
		for i, element := range name {
			ok = ok && (i >= len(levels) || levels[i].MatchString(element))
		}
		if ok {
			return true, len(name) < len(levels)
		}
	}
	return false, false
}

func (r binaryRun) runs(test string) bool {
	name := strings.Split(test, "/")
	for depth := 1; depth <= len(name); depth++ {
		if ok, _ := match(r.run, name[:depth]); !ok {
			return false
		}
		if ok, partial := match(r.skip, name[:depth]); r.skip != nil && ok && !partial {
			return false
		}
	}
	return true
}

// listed returns the lines that scripts/test.sh -list prints, and the runs that they describe.
func listed(t *testing.T, long bool, args ...string) (lines []string, runs []binaryRun) {
	t.Helper()
	cmd := exec.Command("sh", append([]string{"scripts/test.sh", "-list"}, args...)...)
	cmd.Env, cmd.Stderr = append(os.Environ(), "TOLL_TEST_ALL="), os.Stderr
	if long {
		cmd.Env = append(os.Environ(), "TOLL_TEST_ALL=1")
	}
	for line := range strings.Lines(string(must.Get(cmd.Output())(t))) {
		part := strings.Fields(line)
		r := binaryRun{lane: part[0], pkg: part[1], run: pattern(strings.TrimPrefix(part[3], "-test.run="))}
		if skip := strings.TrimPrefix(part[2], "-test.skip="); skip != "" {
			r.skip = pattern(skip)
		}
		lines, runs = append(lines, line), append(runs, r)
	}
	return lines, runs
}

var (
	testFunction   = regexp.MustCompile(`(?m)^func ((?:Test|Fuzz|Example)\w*)\(`)
	importsHarness = regexp.MustCompile(`(?m)^\t(?:\w+ )?"github.com/tollhq/toll/.*/(storetest|servertest|chaintest)"$`)
)

// Each test runs in a lane, on each store and with each kind of chain, and each test binary is linked once for each build mode.
func TestLanes(t *testing.T) {
	functions, harness := map[string][]string{}, map[string]bool{}
	for _, file := range goFiles(t, ".") {
		if strings.HasSuffix(file, "_test.go") {
			text, pkg := string(must.Get(os.ReadFile(file))(t)), path.Join("github.com/tollhq/toll", path.Dir(file))
			for _, f := range testFunction.FindAllStringSubmatch(text, -1) {
				functions[pkg] = append(functions[pkg], f[1])
			}
			harness[pkg] = harness[pkg] || importsHarness.MatchString(text)
		}
	}
	for _, mode := range []struct {
		name        string
		long        bool
		args        []string
		partitioned []string // suffixes of packages whose tests run on partitions; none for all packages
	}{
		{"make test", false, nil, []string{"/internal/ledger", "/internal/store", "/internal/pay", "/internal/server", "/internal/cli", "/interop"}},
		{"make test-all", true, nil, nil},
		{"make test-short", false, []string{"-short"}, nil},
	} {
		t.Run(mode.name, func(t *testing.T) {
			_, runs := listed(t, mode.long, mode.args...)
			byPackage, built := map[string][]binaryRun{}, map[string]string{}
			for _, r := range runs {
				byPackage[r.pkg] = append(byPackage[r.pkg], r)
				if before := built[r.pkg]; r.lane != "race" {
					if before != "" && before != r.lane {
						t.Errorf("the lanes %s and %s both link %s", before, r.lane, r.pkg)
					}
					built[r.pkg] = r.lane
				}
			}
			for pkg, tests := range functions {
				subtests := []string{"", "/other"}
				if harness[pkg] {
					subtests = append(subtests, "/sqlite", "/postgres", "/embedded", "/anvil", "/other/sqlite", "/other/postgres", "/a/b/postgres")
					suffix := func(s string) bool { return strings.HasSuffix(pkg, s) }
					if mode.partitioned == nil || slices.ContainsFunc(mode.partitioned, suffix) {
						subtests = append(subtests, "/partitioned", "/other/partitioned")
					}
				}
				for _, test := range tests {
					for _, sub := range subtests {
						if test == "TestMain" || test == "TestOnAnvil" && sub != "" {
							continue // TestOnAnvil needs no suite: it runs on anvil only
						}
						if !slices.ContainsFunc(byPackage[pkg], func(r binaryRun) bool { return r.runs(test + sub) }) {
							t.Errorf("%s: %s%s is in none of the lanes", pkg, test, sub)
						}
					}
				}
			}
		})
	}
	some := []string{"./internal/ledger", "./internal/server", "./internal/cli", "./interop", "./x402"}
	all, _ := listed(t, false, some...)
	var union []string
	for _, lane := range []string{"race", "plain", "stores", "interop"} {
		lines, _ := listed(t, false, append([]string{"-lane", lane}, some...)...)
		if len(lines) == 0 {
			t.Errorf("the lane %s is empty", lane)
		}
		union = append(union, lines...)
	}
	slices.Sort(all)
	slices.Sort(union)
	if !slices.Equal(all, union) {
		t.Errorf("make test runs\n%s\nand the lanes run\n%s", strings.Join(all, ""), strings.Join(union, ""))
	}
}
