#!/bin/sh
# Runs a temporary PostgreSQL for tests: durable (fsync on), on loopback only, as an unprivileged user.
#
#   scripts/postgres.sh start [DIR]      start a cluster in DIR (default: a new temporary directory) and print its DSN
#   scripts/postgres.sh stop DIR         stop it and delete DIR
#   scripts/postgres.sh crash DIR        kill all its processes at once (SIGKILL); "start DIR" recovers it on the same port
#   scripts/postgres.sh dsn DIR          print its DSN
#   scripts/postgres.sh run COMMAND...   start a cluster, run COMMAND with TOLL_TEST_POSTGRES set to its DSN, and stop the cluster
#
# Messages go to stderr. "start" without DIR prints the directory there. TOLL_PG_ARGS adds settings to a new cluster.
set -eu

say() { echo "postgres.sh: $*" >&2; }
die() { say "$*"; exit 1; }

find_bin() {
    if command -v initdb >/dev/null 2>&1; then
        dirname "$(command -v initdb)"
        return
    fi
    ls -d /usr/lib/postgresql/*/bin /usr/local/pgsql/bin /opt/homebrew/opt/postgresql*/bin 2>/dev/null | sort -V | tail -n 1
}

need_bin() {
    bin=$(find_bin)
    if [ -z "$bin" ] || [ ! -x "$bin/initdb" ]; then
        command -v apt-get >/dev/null 2>&1 || die "no initdb found; install PostgreSQL 13 or later"
        [ "$(id -u)" = 0 ] || die "no initdb found; run: sudo apt-get install postgresql"
        say "installing PostgreSQL"
        # The package would start a cluster of its own; the tests use theirs.
        mkdir -p /etc/postgresql-common
        [ -e /etc/postgresql-common/createcluster.conf ] || echo "create_main_cluster = false" >/etc/postgresql-common/createcluster.conf
        DEBIAN_FRONTEND=noninteractive apt-get update -qq >&2
        DEBIAN_FRONTEND=noninteractive apt-get install -y -qq postgresql >&2
        bin=$(find_bin)
    fi
    [ -n "$bin" ] && [ -x "$bin/initdb" ] || die "no initdb found"
}

# postgres refuses to run as root.
user=
if [ "$(id -u)" = 0 ]; then
    user=postgres
    id postgres >/dev/null 2>&1 || user=tollpg
fi
as() {
    if [ -n "$user" ]; then (cd / && runuser -u "$user" -- "$@"); else "$@"; fi
}

cluster() { # checks that DIR is one of ours, as stop deletes it
    [ -n "${1:-}" ] || die "DIR is missing"
    dir=$1
    [ -f "$dir/toll-test-cluster" ] || die "$dir is not a cluster that this script created"
    . "$dir/toll-test-cluster"
}

dsn() { echo "postgres://toll:$password@127.0.0.1:$port/postgres?sslmode=disable"; }

random() { od -An -N"$1" -tu4 /dev/urandom | tr -d ' \n'; }

up() { as "$bin/pg_ctl" -D "$dir/data" -l "$dir/log" -w -t 300 -o "-p $1" start >/dev/null 2>&1; }

start() {
    need_bin
    if [ -n "$user" ] && ! id "$user" >/dev/null 2>&1; then useradd --system --no-create-home --shell /usr/sbin/nologin "$user"; fi
    dir=${1:-}
    if [ -n "$dir" ] && [ -f "$dir/toll-test-cluster" ]; then
        cluster "$dir"
        up "$port" || { tail -n 20 "$dir/log" >&2; die "the cluster in $dir did not start"; }
        dsn
        return
    fi
    if [ -z "$dir" ]; then
        dir=$(mktemp -d "${TMPDIR:-/tmp}/toll-pg.XXXXXX")
        say "directory $dir"
    fi
    mkdir -p "$dir"
    [ -z "$(ls -A "$dir")" ] || die "$dir is not empty"
    password=$(random 4)$(random 4)
    (umask 077 && echo "$password" >"$dir/pw")
    if [ -n "$user" ]; then chown -R "$user" "$dir"; fi
    as "$bin/initdb" -D "$dir/data" -U toll -A scram-sha-256 --pwfile="$dir/pw" -E UTF8 --locale=C >"$dir/initdb.log" 2>&1 ||
        { cat "$dir/initdb.log" >&2; die "initdb failed"; }
    rm "$dir/pw"
    {
        cat <<CONF
listen_addresses = '127.0.0.1'
unix_socket_directories = ''
max_connections = 300
shared_buffers = 256MB
max_wal_size = 2GB
fsync = on
synchronous_commit = on
full_page_writes = on
CONF
        for setting in ${TOLL_PG_ARGS:-}; do echo "$setting"; done
    } >>"$dir/data/postgresql.conf"
    try=0
    while :; do
        port=$((20000 + $(random 4) % 12000)) # below the range of ephemeral ports
        if up "$port"; then break; fi
        try=$((try + 1))
        [ $try -lt 10 ] || { tail -n 20 "$dir/log" >&2; die "the cluster did not start"; }
    done
    printf 'port=%s\npassword=%s\n' "$port" "$password" >"$dir/toll-test-cluster"
    chmod 600 "$dir/toll-test-cluster"
    dsn
}

down() {
    need_bin
    cluster "$1"
    as "$bin/pg_ctl" -D "$dir/data" -m immediate -w stop >/dev/null 2>&1 || true
    rm -rf "$dir"
}

crash() {
    need_bin
    cluster "$1"
    [ -f "$dir/data/postmaster.pid" ] || die "the cluster in $dir is not running"
    pid=$(head -n 1 "$dir/data/postmaster.pid")
    children=$(pgrep -P "$pid" || true)
    # shellcheck disable=SC2086 # one word for each process
    kill -9 "$pid" $children 2>/dev/null || true
    while kill -0 "$pid" 2>/dev/null; do sleep 0.05; done
    rm -f "$dir/data/postmaster.pid"
}

case ${1:-} in
start) shift && start "$@" ;;
stop) shift && down "${1:-}" ;;
crash) shift && crash "${1:-}" ;;
dsn) cluster "${2:-}" && dsn ;;
run)
    shift
    [ $# -gt 0 ] || die "COMMAND is missing"
    made=$(mktemp -d "${TMPDIR:-/tmp}/toll-pg.XXXXXX")
    trap 'down "$made"' EXIT
    trap 'exit 130' INT TERM
    TOLL_TEST_POSTGRES=$(start "$made")
    export TOLL_TEST_POSTGRES
    "$@"
    ;;
*)
    sed -n '2,11s/^# \{0,1\}//p' "$0"
    exit 2
    ;;
esac
