package rounds_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/tollhq/toll/internal/must"
	"github.com/tollhq/toll/internal/store/rounds"
)

var (
	onlyMutants = flag.String("mutants", "", "run only mutants whose name or package matches this pattern")
	mutantJobs  = flag.Int("mutant-jobs", runtime.NumCPU(), "mutants that run at the same time")
	mutantLog   = flag.String("mutant-log", "", "append one line per result to this file, and skip mutants that it names")
)

const (
	fewestMutants = 200 // issue 33, point 38
	fewestKilled  = 90  // percent of the mutants that ran
	mutantTime    = "5m"
)

// mutant is one small change of the code, and the tests that must notice it.
type mutant struct {
	name, dir, file string
	old, new        string
	in, tests       string // directory of the tests, and a pattern for -run
}

// readMutants reads testdata/mutants.txt. "@ DIRECTORY/FILE PATTERN" begins the mutants of a file and names their tests, which are in
// the same directory unless "./DIRECTORY" stands before the pattern. "= NAME" begins a mutant, "-" a line of its old text, "+" a line of its new text, and "! PATTERN" names the tests of one mutant. "#" is a comment.
func readMutants(t *testing.T) (list []mutant) {
	t.Helper()
	text := must.Get(os.ReadFile("testdata/mutants.txt"))(t)
	var of mutant // directory, file and tests of the next mutants
	add := func(to *string, line string) {
		if *to != "" {
			*to += "\n"
		}
		*to += line
	}
	for i, line := range strings.Split(string(text), "\n") {
		m := &mutant{}
		if len(list) > 0 {
			m = &list[len(list)-1]
		}
		switch {
		case strings.HasPrefix(line, "@ "):
			path, tests, _ := strings.Cut(line[2:], " ")
			of.dir, of.file = filepath.Split(path)
			of.dir = filepath.Clean(of.dir)
			of.in, of.tests = testsOf(of.dir, tests)
		case strings.HasPrefix(line, "= "):
			list = append(list, of)
			list[len(list)-1].name = line[2:]
		case strings.HasPrefix(line, "! "):
			m.in, m.tests = testsOf(m.in, line[2:])
		case strings.HasPrefix(line, "-"):
			add(&m.old, line[1:])
		case strings.HasPrefix(line, "+"):
			add(&m.new, line[1:])
		case line != "" && !strings.HasPrefix(line, "#"):
			t.Fatalf("line %d is not part of a mutant: %s", i+1, line)
		}
	}
	return list
}

// testsOf reads "PATTERN" or "./DIRECTORY PATTERN".
func testsOf(dir, text string) (in, pattern string) {
	if in, pattern, there := strings.Cut(text, " "); there {
		return filepath.Clean(in), pattern
	}
	return dir, text
}

var testFunction = regexp.MustCompile(`(?m)^func (Test\w+)\(`)

// listedMutants returns the directory of the module, its mutants, and the changed file of each. It reports mutants whose old text does
// not occur exactly once and whose tests do not exist.
func listedMutants(t *testing.T) (root string, all []mutant, changed map[string][]byte) {
	t.Helper()
	root = must.Get(filepath.Abs("../../.."))(t)
	all, changed = readMutants(t), map[string][]byte{}
	tests := map[string][]string{} // names of test functions by directory
	for _, m := range all {
		code := must.Get(os.ReadFile(filepath.Join(root, m.dir, m.file)))(t)
		if n := strings.Count(string(code), m.old); n != 1 || m.old == m.new || changed[m.name] != nil {
			t.Errorf("%s: the old text occurs %d times in %s/%s, want once, with a different new text and a unique name", m.name, n, m.dir, m.file)
		}
		changed[m.name] = []byte(strings.Replace(string(code), m.old, m.new, 1))
		if tests[m.in] == nil {
			files, _ := filepath.Glob(filepath.Join(root, m.in, "*_test.go"))
			for _, file := range files {
				text := must.Get(os.ReadFile(file))(t)
				for _, f := range testFunction.FindAllSubmatch(text, -1) {
					tests[m.in] = append(tests[m.in], string(f[1]))
				}
			}
		}
		for pattern := range strings.SplitSeq(m.tests, "|") {
			if re, err := regexp.Compile(pattern); err != nil || !slices.ContainsFunc(tests[m.in], re.MatchString) {
				t.Errorf("%s: %q matches no test in %s (%v)", m.name, pattern, m.in, err)
			}
		}
	}
	return root, all, changed
}

// TestMutants_Listed checks the list in make test: changes of the code and of the names of tests must keep it up to date.
func TestMutants_Listed(t *testing.T) {
	if _, all, _ := listedMutants(t); len(all) < fewestMutants {
		t.Errorf("%d mutants, want at least %d", len(all), fewestMutants)
	}
}

// TestMutants applies mutants one at a time, as overlays of the compiler, and runs the tests that must fail. It never changes the tree.
// It fails for a mutant that does not compile, for tests that fail without a mutant, and when less than 90 % are killed.
func TestMutants(t *testing.T) {
	if rounds.Deferred(t) {
		return
	}
	root, all, changed := listedMutants(t)
	if t.Failed() {
		return
	}

	done, _ := os.ReadFile(*mutantLog)
	only := regexp.MustCompile(*onlyMutants)
	chosen := slices.DeleteFunc(slices.Clone(all), func(m mutant) bool {
		return !only.MatchString(m.name) && !only.MatchString(m.dir) || bytes.Contains(done, []byte(" "+m.name+":"))
	})
	unchanged := map[string]string{} // directory: pattern of all its tests
	for _, m := range chosen {
		unchanged[m.in] = strings.TrimPrefix(unchanged[m.in]+"|"+m.tests, "|")
	}
	for dir, tests := range unchanged {
		if _, out, err := runMutant(t, root, mutant{in: dir, tests: tests}, nil); err != nil {
			t.Errorf("%s without a mutant: %v\n%s", dir, err, tail(out))
		}
	}
	if t.Failed() {
		return
	}

	var mu sync.Mutex
	var killed, survived []string
	work := make(chan mutant)
	var workers sync.WaitGroup
	for range *mutantJobs {
		workers.Go(func() {
			for m := range work {
				began := time.Now()
				compiled, out, err := runMutant(t, root, m, changed[m.name])
				result := fmt.Sprintf("survived %s: %s", m.name, m.tests)
				mu.Lock()
				switch {
				case !compiled:
					t.Errorf("%s does not compile: %v\n%s", m.name, err, tail(out))
					result = ""
				case err == nil:
					survived = append(survived, m.name)
				default:
					killed = append(killed, m.name)
					result = fmt.Sprintf("killed %s: %s", m.name, failedTest(out))
				}
				if result != "" {
					t.Logf("%s (%v)", result, time.Since(began).Round(100*time.Millisecond))
					note(t, result)
				}
				mu.Unlock()
			}
		})
	}
	for _, m := range chosen {
		work <- m
	}
	close(work)
	workers.Wait()

	ran := len(killed) + len(survived)
	if ran == 0 {
		t.Fatal("no mutant ran")
	}
	slices.Sort(survived)
	t.Logf("mutants: %d listed, %d ran, %d killed (%.1f %%), %d survived: %s",
		len(all), ran, len(killed), 100*float64(len(killed))/float64(ran), len(survived), strings.Join(survived, " "))
	if 100*len(killed) < fewestKilled*ran {
		t.Errorf("%d of %d mutants were killed, want %d %%", len(killed), ran, fewestKilled)
	}
}

// runMutant compiles the tests of a package with the changed file and runs them; without a file it runs them as they are. err is nil
// when the tests passed.
func runMutant(t *testing.T, root string, m mutant, file []byte) (compiled bool, out []byte, err error) {
	dir, err := os.MkdirTemp(t.TempDir(), "")
	if err != nil {
		return false, nil, err
	}
	defer os.RemoveAll(dir)
	overlay := map[string]map[string]string{"Replace": {}}
	if file != nil {
		with := filepath.Join(dir, m.file)
		overlay["Replace"][filepath.Join(root, m.dir, m.file)] = with
		err = os.WriteFile(with, file, 0o600)
	}
	text, _ := json.Marshal(overlay)
	list := filepath.Join(dir, "overlay.json")
	if err = errors.Join(err, os.WriteFile(list, text, 0o600)); err != nil {
		return false, nil, err
	}
	program := filepath.Join(dir, "mutant.test")
	build := exec.Command("go", "test", "-c", "-vet=off", "-ldflags=-s -w", "-overlay="+list, "-o", program, "./"+m.in)
	build.Dir = root
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err = build.CombinedOutput(); err != nil {
		return false, out, err
	}
	tests := exec.Command(program, "-test.failfast", "-test.timeout="+mutantTime, "-test.run=^("+m.tests+")$")
	tests.Dir = filepath.Join(root, m.in)
	for _, v := range os.Environ() { // a database or long rounds would take hours
		if !strings.HasPrefix(v, "TOLL_TEST_") {
			tests.Env = append(tests.Env, v)
		}
	}
	tests.Env = append(tests.Env, "TMPDIR="+dir)
	out, err = tests.CombinedOutput()
	if err == nil && bytes.Contains(out, []byte("no tests to run")) {
		return true, out, errors.New("no test has this name: " + m.tests)
	}
	return true, out, err
}

var failed = regexp.MustCompile(`(?m)^--- FAIL: (\w+)`)

// failedTest returns the name of the first test that failed, or the first line of a panic or a time-out.
func failedTest(out []byte) string {
	if found := failed.FindSubmatch(out); found != nil {
		return string(found[1])
	}
	if at := bytes.Index(out, []byte("panic: ")); at >= 0 {
		out = out[at:]
	}
	line, _, _ := bytes.Cut(out, []byte("\n"))
	return string(line)
}

// tail returns the last 2,000 bytes.
func tail(out []byte) []byte { return out[max(len(out)-2_000, 0):] }

// note appends a result to the file of -mutant-log.
func note(t *testing.T, result string) {
	if *mutantLog == "" {
		return
	}
	f, err := os.OpenFile(*mutantLog, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err == nil {
		_, err = f.WriteString(result + "\n")
		err = errors.Join(err, f.Close())
	}
	must.Check(t, err)
}
