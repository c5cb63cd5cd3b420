package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
)

const (
	guardLeast = 0.8 // of what the base does in the same processor time
	guardTries = 3
	guardPairs = 2 // of runs, interleaved, in a try
)

// slower names the rows that were below guardLeast of the base in every try.
func slower(tries []map[string]float64) []string {
	var out []string
	for _, name := range slices.Sorted(maps.Keys(tries[0])) {
		if !slices.ContainsFunc(tries, func(t map[string]float64) bool { return t[name] >= guardLeast }) {
			out = append(out, name)
		}
	}
	return out
}

// guard runs verify and settle with this program and with that of another commit in turn, and compares the processor time of the
// service for a request: rates of one program differ by a factor of four on a machine that others use. It fails when the same row
// is too slow in every try. Time that requests only wait is not seen: rates are printed for that.
func guard(ctx context.Context, base string, out, errs io.Writer) error {
	self, err := os.Executable()
	if err != nil {
		return err
	}
	dir, err := os.MkdirTemp("", "toll-guard-")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	var tries []map[string]float64
	for range guardTries {
		ratio, rate := map[string][]float64{}, map[string][]float64{}
		for range guardPairs {
			was, err := guardRun(ctx, base, dir, errs)
			if err != nil {
				return fmt.Errorf("the program of the base commit: %w", err)
			}
			is, err := guardRun(ctx, self, dir, errs)
			if err != nil {
				return err
			}
			for name, row := range is {
				if before := was[name]; before != nil && row.CPU > 0 && before.PerSec > 0 {
					ratio[name] = append(ratio[name], before.CPU/row.CPU)
					rate[name] = append(rate[name], row.PerSec/before.PerSec)
				}
			}
		}
		try := map[string]float64{}
		for name, r := range ratio {
			try[name] = median(r)
			fmt.Fprintf(out, "%s: %.2f times the requests per processor time of the base, %.2f times its rate\n",
				name, try[name], median(rate[name]))
		}
		if len(try) == 0 {
			return errors.New("this program and the base have no scenario in common")
		}
		if tries = append(tries, try); len(slower(tries)) == 0 {
			return nil
		}
	}
	return fmt.Errorf("slower than %g times the base commit in each of %d tries: %s", guardLeast, guardTries, strings.Join(slower(tries), ", "))
}

func guardRun(ctx context.Context, program, dir string, errs io.Writer) (map[string]*row, error) {
	file := filepath.Join(dir, "results.json")
	cmd := exec.CommandContext(ctx, program, "-no-postgres", "-rounds", "1", "-seconds", "0.7", "-accounts", "64",
		"-data", dir, "-json", file, "-scenario", "^(verify|settle)-sqlite$")
	cmd.Stderr = errs
	if err := cmd.Run(); err != nil {
		return nil, err
	}
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	var r report
	if err := json.Unmarshal(text, &r); err != nil {
		return nil, err
	}
	out := map[string]*row{}
	for _, w := range r.Rows {
		if w.Name != yardstick { // it is no part of the service
			out[w.Name] = w
		}
	}
	return out, nil
}
