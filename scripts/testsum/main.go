// Testsum reads the output of go test -json and prints what a person wants to see of it: a line for every package, the
// output of every test that failed, the name of every test that was skipped, and the counts. It fails when a test failed,
// or, with -strict, when one was skipped.
package main

import (
	"bufio"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"sort"
	"strings"
)

type event struct {
	Action     string
	Package    string
	ImportPath string // of a package that does not build
	Test       string
	Elapsed    float64
	Output     string
}

type test struct{ pkg, name string }

func main() {
	strict := flag.Bool("strict", false, "fail when a test was skipped")
	slow := flag.Int("slow", 10, "how many of the slowest tests to name")
	flag.Parse()
	output := map[test][]string{}
	times := map[test]float64{}
	var passed, failed, skipped int
	var skips, broken []string
	in := bufio.NewScanner(os.Stdin)
	in.Buffer(make([]byte, 1<<20), 16<<20)
	for in.Scan() {
		var e event
		if json.Unmarshal(in.Bytes(), &e) != nil {
			fmt.Println(in.Text()) // not an event: go itself has something to say
			continue
		}
		t := test{e.Package, e.Test}
		switch e.Action {
		case "output":
			output[t] = append(output[t], e.Output)
		case "build-output":
			fmt.Print(e.Output)
		case "pass", "fail", "skip":
			if e.Test == "" {
				if e.Action == "fail" {
					broken = append(broken, e.Package)
					fmt.Print(strings.Join(output[t], ""))
				}
				if e.Action != "skip" {
					fmt.Printf("%-5s %s  %.1fs\n", map[string]string{"pass": "ok", "fail": "FAIL"}[e.Action], e.Package, e.Elapsed)
				}
				delete(output, t)
				continue
			}
			times[t] = e.Elapsed
			switch e.Action {
			case "pass":
				passed++
			case "fail":
				failed++
				fmt.Print(strings.Join(output[t], ""))
			case "skip":
				skipped++
				skips = append(skips, e.Package+" "+e.Test+"\n"+strings.Join(output[t], ""))
			}
			delete(output, t)
		}
	}
	for t, out := range output { // a test that never ended: its process died
		if t.name != "" {
			failed++
			fmt.Printf("never ended: %s %s\n%s", t.pkg, t.name, strings.Join(out, ""))
		}
	}
	printSlow(times, *slow)
	for _, s := range skips {
		fmt.Print("skipped: ", s)
	}
	if len(broken) > 0 {
		fmt.Println("failed packages:", strings.Join(broken, " "))
	}
	fmt.Printf("%d passed, %d failed, %d skipped\n", passed, failed, skipped)
	if failed > 0 || len(broken) > 0 || passed == 0 || *strict && skipped > 0 {
		os.Exit(1)
	}
}

func printSlow(times map[test]float64, n int) {
	var ts []test
	for t := range times {
		if !strings.Contains(t.name, "/") {
			ts = append(ts, t)
		}
	}
	sort.Slice(ts, func(i, j int) bool { return times[ts[i]] > times[ts[j]] })
	for _, t := range ts[:min(n, len(ts))] {
		fmt.Printf("slow: %6.1fs %s %s\n", times[t], t.pkg, t.name)
	}
}
