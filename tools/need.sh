#!/usr/bin/env bash
# Installs from Debian's packages whatever of the named programs is missing. Programs are named as they are called, libraries
# by a header of theirs, libraries of Python as Debian names them.
set -euo pipefail
declare -A package=([cc]=build-essential [varnishtest]=varnish [haproxy]=haproxy [nginx]=nginx-light [wrk]=wrk
    [curl]=curl [strace]=strace [postgres]=postgresql [mariadbd]=mariadb-server [openssl/ssl.h]=libssl-dev
    [h2load]=nghttp2-client [nghttp]=nghttp2-client [node]=nodejs)
# Debian keeps the daemons of each version of PostgreSQL in a directory of its own.
PATH=$PATH:/usr/sbin:/usr/local/sbin:$(echo /usr/lib/postgresql/*/bin)
# Tools of which Debian has no package are built from their sources with Go: an authority for tests of ACME, the suite of the
# protocol for HTTP/2, and a client and a server of gRPC. Tests that need one say so and pass where it cannot be built.
declare -A source=([pebble]=github.com/letsencrypt/pebble/v2/cmd/pebble@v2.10.1
    [h2spec]=github.com/summerwind/h2spec/cmd/h2spec@v2.2.1+incompatible
    [grpc-interop-client]=google.golang.org/grpc/interop/client@v1.70.0
    [grpc-interop-server]=google.golang.org/grpc/interop/server@v1.70.0)
need_source() {
    local go_bin="${GOBIN:-${GOPATH:-$HOME/go}/bin}"
    [ "$1" = pebble ] && [ -n "${PEBBLE:-}" ] || [ -x "$go_bin/$1" ] && return
    if ! command -v go >/dev/null 2>&1; then
        echo "$1 is not installed: it needs Go 1.24 or newer (https://go.dev/dl). The tests that use it are skipped." >&2
        return
    fi
    # Go names a program after its directory, which is `client` for more than one.
    local made name
    made=$(mktemp -d) name=${source[$1]%@*}
    if GOBIN="$made" go install "${source[$1]}"; then
        mkdir -p "$go_bin" && mv "$made/${name##*/}" "$go_bin/$1"
    else
        echo "$1 cannot be built with $(go version): Go 1.24 or newer does. The tests that use it are skipped." >&2
    fi
    rm -rf "$made"
}
missing=()
for program in "$@"; do
    command -v "$program" >/dev/null 2>&1 && continue
    case $program in
    pebble | h2spec | grpc-*) need_source "$program" && continue ;;
    php-fpm) compgen -G "/usr/sbin/php-fpm*" >/dev/null && continue ;;&
    */*.h) echo "#include <$program>" | cc -E - >/dev/null 2>&1 && continue ;;&
    python3-*) /usr/bin/python3 -c "import ${program#python3-}" 2>/dev/null && continue ;;&
    llvm-profdata-*) missing+=("llvm-${program##*-}") ;;
    *) missing+=("${package[$program]:-$program}") ;;
    esac
done
if ! command -v cargo >/dev/null 2>&1; then
    echo "Rust is missing: install it with rustup (https://rustup.rs), then run this again." >&2
    exit 1
fi
[ ${#missing[@]} -eq 0 ] && exit 0
if ! command -v apt-get >/dev/null 2>&1; then
    echo "please install: ${missing[*]}" >&2
    exit 1
fi
sudo=()
[ "$(id -u)" -eq 0 ] || sudo=(sudo)
echo "installing ${missing[*]}"
export DEBIAN_FRONTEND=noninteractive
"${sudo[@]}" apt-get update -qq
# The daemons that some of these packages start on installation are not wanted.
policy=/usr/sbin/policy-rc.d
made=
if [ ! -e $policy ]; then
    printf '#!/bin/sh\nexit 101\n' | "${sudo[@]}" tee $policy >/dev/null
    "${sudo[@]}" chmod +x $policy
    made=1
fi
"${sudo[@]}" apt-get install -y -qq --no-install-recommends "${missing[@]}" >/dev/null
[ -z "$made" ] || "${sudo[@]}" rm -f $policy
