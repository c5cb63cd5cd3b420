#!/bin/sh
# Fails when a name in a pattern of tests ("TestA|TestB") matches no test function, so that a renamed test cannot drop out of a run.
#
#   scripts/named.sh PATTERN...
set -eu
cd "$(dirname "$0")/.."
status=0
for name in $(echo "$*" | tr '|^$()' ' '); do
    if ! grep -rqE --include='*_test.go' "^func $name\(" .; then
        echo "named.sh: no test is named $name" >&2
        status=1
    fi
done
exit $status
