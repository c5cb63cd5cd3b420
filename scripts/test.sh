#!/bin/sh
# Runs every test: format, vet, staticcheck, build, the demonstration, and all suites on SQLite, with the race detector, on PostgreSQL,
# and on hash-partitioned PostgreSQL. As root on Debian, it installs missing tools with apt. It starts a temporary PostgreSQL cluster and
# always deletes it at the end. If a tool is not available, it reports the skipped suites; with CI=true, it fails.
#
#   scripts/test.sh [PACKAGES]            run everything, or the tests of some packages
#   scripts/test.sh -all [PACKAGES]       the same with long rounds (TOLL_TEST_ALL=1)
#   scripts/test.sh -short [PACKAGES]     without the race detector
#   scripts/test.sh -lint                 only format, vet, and staticcheck
#   scripts/test.sh -lane LANE [PACKAGES] one of four lanes, which together run everything: race, plain, stores, or interop
#   scripts/test.sh -list [PACKAGES]      only print each run of a test binary: its lane, its package, and its flags
set -eu
cd "$(dirname "$0")/.."

say() { echo "test.sh: $*" >&2; }
die() { say "$*"; exit 1; }
short=
lint=
list=
lane=
timeout=60m
while :; do
    case ${1:-} in
    -short) short=1 ;;
    -lint) lint=1 ;;
    -list) list=1 ;;
    -all) export TOLL_TEST_ALL=1 && timeout=4h ;;
    -lane)
        lane=${2:-}
        case $lane in race | plain | stores | interop) shift ;; *) die "LANE must be race, plain, stores, or interop" ;; esac
        ;;
    -*) die "unknown option $1; use -all, -short, -lint, -list, or -lane LANE" ;;
    *) break ;;
    esac
    shift
done
[ $# -gt 0 ] || set -- ./...
if [ "$short$lane" = 1race ]; then die "-short leaves out the race detector, and so the lane race"; fi
strict=
if [ "${CI:-}" = true ]; then strict=1; fi
# Without VCS stamping, Go does not run git, which fails if the checkout belongs to another user.
export GOFLAGS="${GOFLAGS:+$GOFLAGS }-buildvcs=false"

# Test databases are in memory if there is room, because a disk is slower and proves nothing more: data that must survive a crash is in
# files either way, and the tests of failing disks use their own. TOLL_TEST_DISK=1 keeps the databases on the disk.
roomy() {
    [ -z "${TOLL_TEST_DISK:-}" ] && [ -d "$1" ] && [ -w "$1" ] && [ "$(df -Pk "$1" | awk 'NR == 2 {print $4}')" -gt 6000000 ] || return 1
    probe=$(mktemp -p "$1") && printf '#!/bin/sh\n' >"$probe" && chmod 700 "$probe" && "$probe" 2>/dev/null
    runs=$?
    rm -f "$probe"
    return $runs
}
if roomy /dev/shm; then
    export GOTMPDIR="${TMPDIR:-/tmp}"
    work=$(mktemp -d -p /dev/shm)
else
    work=$(mktemp -d)
fi
mkdir "$work/tmp"
chmod 755 "$work" "$work/tmp" # for the user of PostgreSQL
export TMPDIR="$work/tmp" # so that killed processes leave no files
log=$work/log
cluster=
tests=
demonstration=
stop() {
    if [ -n "$demonstration" ]; then
        kill "$demonstration" 2>/dev/null || true
        wait "$demonstration" || true
    fi
    if [ -n "$tests" ]; then
        kill -- "$tests" 2>/dev/null || true
        wait || true
    fi
    if [ -n "$cluster" ]; then sh scripts/postgres.sh stop "$cluster" || true; fi
    rm -rf "$work"
}
trap stop EXIT
trap 'exit 130' INT
trap 'exit 143' TERM HUP
# Runs one step and shows its output if it fails.
step() {
    what=$1
    shift
    start=$(date +%s)
    if ! "$@" >"$log" 2>&1; then
        cat "$log" >&2
        die "$what: failed"
    fi
    say "$what: ok, $(($(date +%s) - start)) s"
}

command -v go >/dev/null || die "go is missing: see https://go.dev/doc/install for the version in go.mod"
race=
if [ -z "$short$lint" ] && { [ -z "$lane" ] || [ "$lane" = race ]; }; then
    # The race detector skips packages that only compute: the SQLite engine, which is C translated to Go, and the interpreter, curve,
    # numbers and hashes of the EVM. They take up to half of the time of a suite and share no memory with our code. It also skips
    # the state of go-ethereum, where several goroutines write one error field when a trie node is missing (StateDB.setError, v1.17.10).
    # servertest builds the program with the same flags, so that compiled packages are shared.
    race=$(tr '\n' ' ' <scripts/race.flags)
    if [ -z "$list" ] && ! command -v "${CC:-gcc}" >/dev/null; then
        if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
            say "installing gcc, which the race detector needs"
            apt-get update -qq >&2
            DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends gcc libc6-dev >&2
        else
            die "the race detector needs gcc: install gcc and libc6-dev, or run scripts/test.sh -short"
        fi
    fi
fi

# Packages that take long start first.
order='interop internal/server internal/chain internal/ledger internal/store internal/pay internal/cli internal/card internal/checkout internal/api'
# Whole services: the race detector watches the tests named here, because a service with a chain is ten times slower under it. It watches
# the packages of which a service consists by themselves.
whole='/(internal/(server|cli)|interop)$'
watched='^(TestLinearizable|TestClockMovedAtOnce|TestChainEndsWithTheService|TestCryptoTopUps|TestNothingIsLeft)$'
# Tests with many megabytes or many rows, whose code the race detector watches in smaller tests; the short run of the benchmarks, which
# are not part of the service; and mutants, which are compiled without it.
large='TestOversizedAnswer|TestIDOfLargeMessage|TestSlowReadersInMemory|TestBodies_AsDecode|TestRun|TestMutants'
# Tests that only compute, which the race detector makes ten times slower. It watches them in the long rounds alone.
slow='TestAnswersByHandAreThoseOfTheStrictDecoder|TestBodies_Bounded|TestQueryAgent_Bounds|TestIndentedAnswer'
slow="$slow|TestRightsOfRoles|TestRightOfEveryRoute|TestRequests_Bounded|TestLists_Index|TestEventRuns_List"
slow="$slow|TestDocumentsGiveWayOneByOne|TestBooks_RandomHistories|TestUsage_EqualsEntries|TestMassExpiry"
slow="$slow|TestWords|TestLanes|TestRooms|TestHouse|TestDocs_Threats|TestPlanKind_IsNamedInFewFiles"
slow="$slow|TestNothingIsPaidByAModelAlone|TestRevenue_Bound|TestTokenCacheIsBounded|TestGeneratedFileIsCurrent"
sh scripts/named.sh "$watched" "$large" "$slow" || die "correct the lists of tests in scripts/test.sh"
# The suites that must run.
case $lane in
'') suites="sqlite postgres partitioned embedded anvil chromium openclaw python typescript" ;;
race) suites="sqlite embedded" ;;
plain) suites="sqlite postgres embedded anvil" ;;
stores) suites="sqlite postgres partitioned anvil" ;;
interop) suites="chromium openclaw python typescript" ;;
esac
# subtests prints a pattern for -skip: subtests with these names, up to three levels below a test. A pattern with more levels than the name
# of a test hides the patterns after it: a -skip contains the result of this once, at its end.
subtests() { echo "|/^($1)\$|//^($1)\$|///^($1)\$"; }
# Our code is the same on each store and with each kind of chain, so the race detector watches it on SQLite and on the embedded chain, and
# these tests do not run again without it. The long rounds run everything in both ways.
once=
race_skip=
if [ -z "$short" ] && [ -z "${TOLL_TEST_ALL:-}" ]; then
    once=1 race_skip="|^TestOnAnvil\$$(subtests 'postgres|partitioned|anvil')" large="$large|$slow"
fi
large="^($large)\$"

go list "$@" >"$work/packages"
for package in $order; do grep -E "toll/$package\$" "$work/packages" || true; done >"$work/first"
grep -vxFf "$work/first" "$work/packages" >"$work/then" || true
# Each line of runs is one run of a test binary: the lane, the package, and flags. A package is in one lane for each build mode, and so it
# is linked once for each build mode.
run() { # $1 = the lane, $2 = the package, $3 = tests to skip, $4 = tests to run
    if [ "$1" = race ] && [ -n "$short" ]; then return; fi
    if [ -z "$lane" ] || [ "$lane" = "$1" ]; then echo "$1 $2 -test.skip=${3#|} -test.run=$4"; fi
}
cat "$work/first" "$work/then" | xargs -r go list -f '{{.ImportPath}} {{.Dir}} {{.Imports}}{{.TestImports}}{{.XTestImports}}' |
    while read -r package dir imports; do
        case $package in
        */interop) run interop "$package" '' '' ;;
        */internal/cli) run plain "$package" '' '' ;;
        */internal/server)
            run race "$package" "$race_skip" "$watched"
            run plain "$package" '' ''
            ;;
        *)
            run race "$package" "|$large$race_skip" ''
            if [ -z "$once" ]; then
                run stores "$package" '' ''
                continue
            fi
            # Without the race detector: tests on PostgreSQL and anvil, and large tests. Partitions matter to statements on tables of
            # the ledger, which are in three packages; the long rounds run all packages on partitions.
            case $package in
            */internal/ledger | */internal/store | */internal/pay) watched_skip='sqlite|embedded' ;;
            *) watched_skip='sqlite|embedded|partitioned' ;;
            esac
            if echo "$imports" | grep -qE '/(storetest|servertest|chaintest)[] ]'; then
                run stores "$package" "|$large$(subtests "$watched_skip")" ''
            fi
            if cat "$dir"/*_test.go 2>/dev/null | sed -n 's/^func \(Test[^(]*\)(.*/\1/p' | grep -qE "$large"; then
                run stores "$package" '' "$large"
            fi
            ;;
        esac
    done >"$work/runs"
if [ -n "$list" ]; then
    cat "$work/runs"
    exit
fi

# anvil and the software that the interop tests run against come from npm and run on node.
if [ -z "$lint" ] && ! { command -v node && command -v npm; } >/dev/null; then
    if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
        say "installing node, which tests of chains, pages, and interop need"
        apt-get update -qq >&2 && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends nodejs npm >&2 ||
            say "node cannot be installed: the suites that need it are SKIPPED"
    else
        say "node and npm are missing: the suites that need them are SKIPPED"
    fi
fi

# The browser in which interop tests open pages, headless if possible.
if [ -z "$lint" ] && { [ -z "$lane" ] || [ "$lane" = interop ]; } && ! command -v chromium-headless-shell >/dev/null; then
    if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
        say "installing chromium, which the page tests need"
        apt-get update -qq >&2 && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends chromium-headless-shell >&2 || true
    fi
    command -v chromium-headless-shell >/dev/null || command -v chromium >/dev/null || say "chromium cannot be installed: the suite chromium is SKIPPED"
fi

# Python frameworks for the tests of the Python package. They use the system interpreter, for which Debian builds its packages.
python="python3-fastapi python3-starlette python3-flask python3-django python3-uvicorn python3-httpx python3-requests python3-pytest
    mypy python3-hatchling python3-build python3-pip python3-venv python3-ecdsa python3-pycryptodome"
modules="fastapi, starlette, flask, django, uvicorn, httpx, requests, pytest, mypy, hatchling, build, pip, ecdsa, Cryptodome"
if [ -z "$lint" ] && { [ -z "$lane" ] || [ "$lane" = interop ]; } && ! "${TOLL_TEST_PYTHON:-/usr/bin/python3}" -c "import $modules" 2>/dev/null; then
    if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
        say "installing Python frameworks, which the tests of the Python package need"
        # shellcheck disable=SC2086 # one word for each package
        apt-get update -qq >&2 && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends python3 $python >&2 ||
            say "Debian packages cannot be installed: the suite python is SKIPPED"
    else
        say "Debian packages for Python are missing: the suite python is SKIPPED"
    fi
fi

# Processor time is short and memory is not: compilers, tests, and the services that they start collect garbage half as often.
export GOGC=200

# What is released is built without C, and so is everything here but the race detector, which needs it: dependencies are
# then compiled twice and not three times.
export CGO_ENABLED=0

formatted() { out=$(gofmt -l .) && [ -z "$out" ] || { echo "gofmt would change: $out"; return 1; }; }
# go install of a version of the module refuses these lines.
installable() { ! grep -nE '^[[:space:]]*(replace|exclude)' go.mod; }
# Programs are linked once, and so they are built after the other packages.
built() {
    mkdir "$work/programs"
    go list -f '{{if ne .Name "main"}}{{.ImportPath}}{{end}}' ./... | xargs go build && go build -o "$work/programs/" ./...
}
demonstrated() { wait "$demonstration" || { cat "$work/demonstration"; return 1; } && demonstration=; }
checks() {
    step "module can be installed" installable
    step gofmt formatted
    if [ -z "$lint" ]; then
        step build built
        # It mostly waits for blocks: the other checks run beside it.
        "$work/programs/toll" dev --once >"$work/demonstration" 2>&1 &
        demonstration=$!
    fi
    step vet go vet ./...
    # Pinned, and not in go.mod: users of the module do not depend on it.
    staticcheck=honnef.co/go/tools/cmd/staticcheck@v0.8.2
    if go run $staticcheck -version >"$log" 2>&1; then
        step staticcheck go run $staticcheck ./...
    elif [ -n "$strict" ]; then
        cat "$log" >&2
        die "staticcheck cannot be installed"
    else
        say "staticcheck cannot be installed: SKIPPED"
    fi
    if [ -n "$lint" ]; then exit 0; fi
    step "build without the embedded chain" go build -tags nodevchain -o /dev/null ./cmd/toll
    step "test without the embedded chain" go test -tags nodevchain -count=1 -vet=off -run TestScript_NoChain ./internal/cli
    step "demonstration (toll dev --once)" demonstrated
}
times >"$work/checks"
began=$(date +%s)
if [ -z "$lane" ] || [ "$lane" = plain ]; then checks; fi
# The processor time of this shell and of its commands, before and after the checks, and the seconds between.
times >>"$work/checks"
echo "$(($(date +%s) - began))" >>"$work/checks"

if [ -z "${TOLL_TEST_POSTGRES:-}" ]; then
    cluster=$work/cluster
    # PostgreSQL searches all buffers when it drops a database, and tests need few buffers.
    if dsn=$(TOLL_PG_ARGS="shared_buffers=64MB ${TOLL_PG_ARGS:-}" sh scripts/postgres.sh start "$cluster"); then
        export TOLL_TEST_POSTGRES="$dsn"
    else
        cluster=
        say "PostgreSQL is not available: the suites postgres and partitioned are SKIPPED"
    fi
fi

# go test runs each test binary with this script, in the directory of its package. It makes the runs of the package, which is linked only
# once, and adds their processor time to the lane.
cat >"$work/binary" <<'BINARY'
# $1 = the directory of the lists, $2 = the directory of the module, $3 = the lanes, then the test binary and its flags
work=$1 root=$2 lanes=$3
shift 3
package=github.com/tollhq/toll${PWD#"$root"}
ran= status=0
while read -r lane name flags; do
    case " $lanes " in *" $lane "*) ;; *) continue ;; esac
    if [ "$name" != "$package" ]; then continue; fi
    ran=$lane
    # shellcheck disable=SC2086 # one word for each flag
    (set -f && exec "$@" $flags) </dev/null || status=1
done <"$work/runs"
if [ -z "$ran" ]; then
    echo "no run of $package is in the lanes $lanes"
    exit 1
fi
times >>"$work/times.$ran"
exit $status
BINARY
# go vet has run. Linking takes less time without symbols, and panics look the same.
flags="-json -timeout $timeout -count=1 -vet=off -ldflags=-s"
cat >"$work/run" <<'RUN'
# $1 = the directory of the lists, $2 = flags of go test, $3 = flags of the race detector
work=$1 flags=$2 race=$3
tests() { # $1 = lanes, then flags
    lanes=$1
    shift
    packages=$(while read -r lane package _; do case " $lanes " in *" $lane "*) echo "$package" ;; esac; done <"$work/runs" | uniq)
    if [ -z "$packages" ]; then return 0; fi
    for lane in $lanes; do date +%H:%M:%S >"$work/began.$lane"; done
    # shellcheck disable=SC2086 # one word for each flag and package
    go test $flags -exec "sh $work/binary $work $PWD '$lanes'" "$@" $packages
}
# Both build modes run at the same time, and the events of the race detector are printed last. Tests also wait for databases, blocks, and
# pages: two packages of each mode keep two cores busy, or three packages that mostly wait for PostgreSQL. With more packages, third-party
# software timed out.
(
    status=0
    export CGO_ENABLED=1
    tests race -p 2 $race || status=1
    times >"$work/total.race"
    exit $status
) >"$work/race.json" &
raced=$!
{
    status=0
    tests 'plain interop' -p 2 || status=1
    tests stores -p 3 || status=1
    times >"$work/total.plain"
    echo $status >"$work/status"
} | tee "$work/plain.json"
status=$(cat "$work/status")
wait $raced || status=1
cat "$work/race.json"
exit "$status"
RUN
gotestsum=gotest.tools/gotestsum@v1.13.0 # pinned as staticcheck is
events=$work/events
set -- sh "$work/run" "$work" "$flags" "$race"
if GOBIN="$work" go install $gotestsum >"$log" 2>&1; then
    set -- "$work/gotestsum" --format pkgname --format-icons text --jsonfile "$events" --raw-command -- "$@"
elif [ -n "$strict" ]; then
    cat "$log" >&2
    die "gotestsum cannot be installed"
else
    say "gotestsum cannot be installed: showing the plain output of go test"
    cat >"$work/show" <<'PLAIN'
events=$1
shift
mkfifo "$events.fifo"
tee "$events" <"$events.fifo" | sed -n 's/.*"Output":"\(.*\)\\n"}$/\1/p' &
"$@" >"$events.fifo"
status=$?
wait
exit $status
PLAIN
    set -- sh "$work/show" "$events" "$@"
fi
say "tests"
began=$(date +%s)
# In a group of its own, so that stop reaches the services that tests have started.
group=$(command -v setsid || true)
$group "$@" &
tests=$!
if [ -n "$group" ]; then tests=-$tests; fi
status=0
wait "${tests#-}" || status=$?
tests=

# The last lines are what a page that keeps only those must show: how each suite went, and what failed.
ended() { grep -cE "\"Action\":\"$1\".*\"Test\":\"$2" "$events" || true; }
# logged prints the names of the tests that logged a line with this text, one line for each time.
logged() { sed -nE "s/.*\"Action\":\"output\".*\"Test\":\"([^\"]*)\".*_test\.go:[0-9]+: $1.*/\1/p" "$events"; }
result() { # $1 = what, $2 = the beginning of the names of its tests, $3 = how many of them only returned
    passed=$(($(ended pass "$2") - ${3:-0})) skipped=$(ended skip "$2")
    say "$1: $passed passed, $(ended fail "$2") failed, $skipped skipped"
}
for suite in $suites; do
    result "suite $suite" "([^\"]*/)?$suite[/\"]"
    if [ "$passed" = 0 ]; then
        say "suite $suite: DID NOT RUN"
        if [ -n "$strict" ]; then status=1; fi
    fi
done
logged 'attempt [0-9]+ failed' | sort | uniq -c | while read -r n name; do say "repeated: $name, $n failed attempts"; done
deferred=$(logged 'deferred to make test-all' | wc -l)
if [ "$deferred" != 0 ]; then say "deferred to make test-all: $deferred: $(logged 'deferred to make test-all' | sort -u | tr '\n' ' ')"; fi
result "all packages, $(($(date +%s) - began)) s" '' "$deferred"
if [ "$passed" = 0 ]; then status=1; fi
(cd "$work" && awk -f "$OLDPWD/scripts/table.awk" checks $(ls began.* times.* total.* 2>/dev/null) runs plain.json race.json) >&2
if [ "$skipped" != 0 ] && [ -n "$strict" ]; then
    say "with CI=true, no test may be skipped"
    status=1
fi
if [ "$status" != 0 ] && [ -x "$work/gotestsum" ]; then
    "$work/gotestsum" --format none --hide-summary skipped,output --raw-command -- cat "$events" || true
fi
exit $status
