// Testsum reads the output of go test -json and prints what a person wants to see of it: a line for every package, the
// output of every test that failed, the name of every test that was skipped, how each suite went, and the counts. It fails
// when a test failed, or, with -strict, when a test was skipped or a suite did not run.
package main

import (
	"bufio"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"sort"
	"strings"
	"time"
)

// suites are the stores and the chains on which tests run, as subtests of these names.
var suites = []string{"sqlite", "postgres", "partitioned", "embedded", "anvil"}

type event struct {
	Action  string
	Package string
	Test    string
	Elapsed float64
	Output  string
}

type test struct{ pkg, name string }

type counts struct{ passed, failed, skipped int }

func (c *counts) add(action string) {
	switch action {
	case "pass":
		c.passed++
	case "fail":
		c.failed++
	case "skip":
		c.skipped++
	}
}

func (c counts) String() string {
	return fmt.Sprintf("%d passed, %d failed, %d skipped", c.passed, c.failed, c.skipped)
}

type summary struct {
	began  time.Time
	output map[test][]string
	times  map[test]float64
	all    counts
	suites map[string]*counts
	skips  []string
	broken []string // packages that failed
}

func newSummary() *summary {
	s := &summary{began: time.Now(), output: map[test][]string{}, times: map[test]float64{}, suites: map[string]*counts{}}
	for _, name := range suites {
		s.suites[name] = &counts{}
	}
	return s
}

func main() {
	strict := flag.Bool("strict", false, "fail when a test was skipped or a suite did not run")
	slow := flag.Int("slow", 10, "how many of the slowest tests to name")
	flag.Parse()
	s := newSummary()
	in := bufio.NewScanner(os.Stdin)
	in.Buffer(make([]byte, 1<<20), 16<<20)
	for in.Scan() {
		var e event
		if json.Unmarshal(in.Bytes(), &e) != nil {
			fmt.Println(in.Text()) // not an event: go itself has something to say
			continue
		}
		s.event(e)
	}
	if err := in.Err(); err != nil {
		fmt.Println("testsum:", err)
		s.broken = append(s.broken, "(the output of go test)")
	}
	if !s.print(*slow, *strict) {
		os.Exit(1)
	}
}

func (s *summary) event(e event) {
	t := test{e.Package, e.Test}
	switch e.Action {
	case "output":
		s.output[t] = append(s.output[t], e.Output)
	case "build-output":
		fmt.Print(e.Output)
	case "pass", "fail", "skip":
		text := strings.Join(s.output[t], "")
		delete(s.output, t)
		if e.Test == "" {
			s.pkg(e, text)
			return
		}
		s.times[t] = e.Elapsed
		s.all.add(e.Action)
		for part := range strings.SplitSeq(e.Test, "/") {
			if c := s.suites[part]; c != nil {
				c.add(e.Action)
			}
		}
		if e.Action == "fail" {
			fmt.Print(text)
		}
		if e.Action == "skip" {
			s.skips = append(s.skips, e.Package+" "+e.Test+"\n"+text)
		}
	}
}

func (s *summary) pkg(e event, text string) {
	switch e.Action {
	case "pass":
		fmt.Printf("ok    %s  %.1fs\n", e.Package, e.Elapsed)
	case "fail":
		s.broken = append(s.broken, e.Package)
		fmt.Printf("%sFAIL  %s  %.1fs\n", text, e.Package, e.Elapsed)
	}
}

// print returns whether everything passed.
func (s *summary) print(slow int, strict bool) bool {
	for t, out := range s.output { // a test that never ended: its process died
		if t.name != "" {
			s.all.failed++
			fmt.Printf("never ended: %s %s\n%s", t.pkg, t.name, strings.Join(out, ""))
		}
	}
	s.printSlow(slow)
	for _, text := range s.skips {
		fmt.Print("skipped: ", text)
	}
	ok := s.all.failed == 0 && len(s.broken) == 0 && s.all.passed > 0
	if len(s.broken) > 0 {
		fmt.Println("failed packages:", strings.Join(s.broken, " "))
	}
	for _, name := range suites {
		c := s.suites[name]
		note := ""
		if c.passed == 0 {
			note = "   DID NOT RUN"
			ok = ok && !strict
		}
		fmt.Printf("suite %-12s %s%s\n", name+":", c, note)
	}
	if strict && s.all.skipped > 0 {
		fmt.Println("CI=true allows no skipped test")
		ok = false
	}
	fmt.Printf("all packages took %s\n", time.Since(s.began).Round(time.Second))
	fmt.Println(s.all)
	return ok
}

func (s *summary) printSlow(n int) {
	var ts []test
	for t := range s.times {
		if !strings.Contains(t.name, "/") {
			ts = append(ts, t)
		}
	}
	sort.Slice(ts, func(i, j int) bool { return s.times[ts[i]] > s.times[ts[j]] })
	for _, t := range ts[:min(n, len(ts))] {
		fmt.Printf("slow: %6.1fs %s %s\n", s.times[t], t.pkg, t.name)
	}
}
