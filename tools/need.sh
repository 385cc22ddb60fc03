#!/usr/bin/env bash
# Installs from Debian's packages whatever of the named programs is missing. Programs are named as they are called, libraries
# by a header of theirs.
set -euo pipefail
declare -A package=([cc]=build-essential [varnishtest]=varnish [haproxy]=haproxy [nginx]=nginx-light [wrk]=wrk
    [curl]=curl [strace]=strace [postgres]=postgresql [mariadbd]=mariadb-server [openssl/ssl.h]=libssl-dev)
# Debian keeps the daemons of each version of PostgreSQL in a directory of its own.
PATH=$PATH:/usr/sbin:/usr/local/sbin:$(echo /usr/lib/postgresql/*/bin)
# An authority for tests of ACME, from its sources: no package of Debian has it. Tests that need it say so and pass where it
# cannot be built.
pebble=github.com/letsencrypt/pebble/v2/cmd/pebble@v2.10.1
need_pebble() {
    local go_bin="${GOBIN:-${GOPATH:-$HOME/go}/bin}"
    [ -n "${PEBBLE:-}" ] || [ -x "$go_bin/pebble" ] && return
    if ! command -v go >/dev/null 2>&1; then
        echo "pebble is not installed: it needs Go 1.24 or newer (https://go.dev/dl). Tests of ACME against it are skipped." >&2
    elif ! GOBIN="$go_bin" go install "$pebble"; then
        echo "pebble cannot be built with $(go version): Go 1.24 or newer does. Tests of ACME against it are skipped." >&2
    fi
}
missing=()
for program in "$@"; do
    command -v "$program" >/dev/null 2>&1 && continue
    case $program in
    pebble) need_pebble && continue ;;
    */*.h) echo "#include <$program>" | cc -E - >/dev/null 2>&1 && continue ;;&
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
