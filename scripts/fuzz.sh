#!/bin/sh
# Runs every fuzz target of the module for the given time (default 30s). It writes new findings to testdata/fuzz.
set -eu
cd "$(dirname "$0")/.."
for file in $(grep -rlE '^func Fuzz' --include='*_test.go' .); do
    for target in $(sed -nE 's/^func (Fuzz[A-Za-z0-9_]+)\(.*/\1/p' "$file"); do
        echo "$(dirname "$file") $target"
        # Minimizing the large seeds would take the whole time.
        go test -run '^$' -fuzz "^$target\$" -fuzztime "${1:-30s}" -fuzzminimizetime 1x "$(dirname "$file")"
    done
done
