#!/bin/sh
# Runs verify and settle of this tree and of the commit in bench/BASE in turn, prints a comparison, and fails if one of them does less
# than 0.8 of the base in the same processor time three times. It skips the comparison in a clone without that commit.
set -eu
cd "$(dirname "$0")/.."
say() { echo "bench-guard.sh: $*" >&2; }
base=$(cat bench/BASE)
if ! why=$(git cat-file -e "$base^{commit}" 2>&1); then
    say "SKIPPED: this clone does not contain the commit $base from bench/BASE (is the clone shallow?): $why"
    exit 0
fi
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
trap 'exit 130' INT
trap 'exit 143' TERM HUP
export CGO_ENABLED=0 GOFLAGS="${GOFLAGS:+$GOFLAGS }-buildvcs=false"
mkdir "$work/base" "$work/tmp"
git archive "$base" | tar -x -C "$work/base"
(cd "$work/base" && go build -o "$work/bench-base" ./bench)
go build -o "$work/bench-this" ./bench
say "comparing this tree with $base"
TMPDIR="$work/tmp" "$work/bench-this" -guard "$work/bench-base"
