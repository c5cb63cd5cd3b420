#!/bin/sh
# Passes every test: format, vet, staticcheck, build, and all suites on SQLite, PostgreSQL and hash-partitioned PostgreSQL
# with the race detector. It installs PostgreSQL through apt when it is missing and may, starts a cluster of its own, and
# stops it at the end. What cannot be had is named and its suites are skipped, visibly; with CI=true that is a failure.
#
#   scripts/test.sh              everything
#   scripts/test.sh -short       without the race detector, and with fewer rounds of the crash tests
set -eu
cd "$(dirname "$0")/.."

say() { echo "test.sh: $*" >&2; }
short=
if [ "${1:-}" = -short ]; then short=1; fi
strict=
if [ "${CI:-}" = true ]; then strict=-strict; fi

if grep -nE '^(replace|exclude)' go.mod; then
    say "go.mod has a replace or an exclude line, so that go install of the module fails for everybody else"
    exit 1
fi
bad=$(gofmt -l .)
if [ -n "$bad" ]; then
    say "gofmt would change: $bad"
    exit 1
fi
say "vet, staticcheck, build"
go vet ./...
go run honnef.co/go/tools/cmd/staticcheck@v0.8.2 ./...
go build ./...

dir=
stop() {
    if [ -n "$dir" ]; then sh scripts/postgres.sh stop "$dir" || true; fi
}
trap stop EXIT
trap 'exit 130' INT TERM
if [ -z "${TOLL_TEST_POSTGRES:-}" ]; then
    parent=$(mktemp -d)
    chmod 755 "$parent"
    if dsn=$(sh scripts/postgres.sh start "$parent/cluster"); then
        dir=$parent/cluster
        export TOLL_TEST_POSTGRES="$dsn"
    else
        say "PostgreSQL is not to be had: the suites postgres and partitioned are SKIPPED"
    fi
fi

say "tests"
race=-race
args=
if [ -n "$short" ]; then
    race=
    args="-short"
fi
status=0
# One package at a time: the crash and shutdown tests run services under load, and two of them on two cores starve
# each other.
{ go test $race $args -json -timeout 25m -p 1 -count=1 ./... || true; } | go run ./scripts/testsum $strict || status=$?
exit $status
