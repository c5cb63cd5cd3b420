#!/bin/sh
# Builds packages and container images of the program, in build/ and, for a release, in dist/.
#
#   scripts/package.sh deb [VERSION]       build a Debian package for the architecture of this machine
#   scripts/package.sh image [VERSION]     build a container image as an OCI layout in build/image, without a daemon
#   scripts/package.sh release [ARGUMENTS] build everything in .goreleaser.yaml, then the image; ARGUMENTS such as --snapshot
#   scripts/package.sh goreleaser ...      run the pinned version of goreleaser
#   scripts/package.sh docs                build manual pages, completions, and the changelog for the packages
#
# VERSION defaults to the latest tag. PROGRAM=FILE packages an existing program instead of building it. The Debian package and the image are
# for services, so their program has no embedded chain (build tag nodevchain). The archives of a release contain the complete program.
set -eu
cd "$(dirname "$0")/.."
goreleaser=github.com/goreleaser/goreleaser/v2@v2.15.0
sbom=github.com/CycloneDX/cyclonedx-gomod/cmd/cyclonedx-gomod@v1.10.0

what=${1:-}
[ $# = 0 ] || shift
arch=$(go env GOARCH)
tag=$(git describe --tags --abbrev=0 2>/dev/null || echo v0.0.0)
version=${1:-${tag#v}}
SOURCE_DATE_EPOCH=${SOURCE_DATE_EPOCH:-$(git log -1 --format=%ct 2>/dev/null || echo 0)}
export SOURCE_DATE_EPOCH CGO_ENABLED=0
mkdir -p build

# Go does not find the commit in a work tree of git worktree, so the version contains it.
program() { # $1 = architecture: builds the program of packages as a release does
    GOARCH=$1 go build -trimpath -buildvcs=false -tags nodevchain \
        -ldflags "-s -w -X github.com/tollhq/toll/internal/cli.Release=$version+$(git rev-parse HEAD | cut -c -12)" \
        -o "build/toll-$1" ./cmd/toll
}

own() { # builds or copies the program for the architecture of this machine
    if [ -n "${PROGRAM:-}" ]; then
        cp "$PROGRAM" "build/toll-$arch"
    else
        program "$arch"
    fi
}

docs() { # $1 = a program that runs here
    rm -rf build/man build/completion
    mkdir -p build/completion
    "$1" man build/man
    gzip -9n build/man/*
    for shell in bash zsh fish; do "$1" completion $shell >build/completion/toll.$shell; done
    gzip -9nc CHANGELOG.md >build/changelog.gz
}

image() { # "$@" = GOARCH=FILE for each program
    go run -C deploy/tool . image -out build/image -version "$version" -commit "$(git rev-parse HEAD 2>/dev/null || true)" "$@"
}

tools() { # installs what a release needs into build/bin
    GOBIN=$PWD/build/bin go install $goreleaser
    GOBIN=$PWD/build/bin go install $sbom
    PATH=$PWD/build/bin:$PATH
    # In a clone without a remote, goreleaser does not find the commit either.
    if ! git ls-remote --get-url >/dev/null 2>&1; then
        export GIT_CONFIG_COUNT=1 GIT_CONFIG_KEY_0=remote.origin.url GIT_CONFIG_VALUE_0=https://github.com/tollhq/toll
    fi
}

case $what in
docs)
    own
    docs "build/toll-$arch"
    ;;
deb)
    own
    docs "build/toll-$arch"
    go run -C deploy/tool . deb -program "build/toll-$arch" -version "$version" -arch "$arch" -out build
    ;;
image)
    own
    image "$arch=build/toll-$arch"
    ;;
release)
    case " $* " in
    *" --snapshot "*) ;;
    *) if grep -q '"released": false' sdk/packages/index.json; then
        echo "a package of the SDKs is not marked as released: run python3 sdk/build.py --release, and commit sdk/packages" >&2
        exit 1
    fi ;;
    esac
    tools
    goreleaser release --clean "$@"
    version=$(sed -n 's/.*"version":"\([^"]*\)".*/\1/p' dist/metadata.json)
    set --
    for file in dist/package_*/toll; do
        case $file in
        *_amd64*) set -- "$@" "amd64=$file" ;;
        *_arm64*) set -- "$@" "arm64=$file" ;;
        esac
    done
    image "$@"
    ;;
goreleaser)
    tools
    goreleaser "$@"
    ;;
*)
    sed -n '2,/^set /s/^# \{0,1\}//p' "$0" >&2
    exit 2
    ;;
esac
