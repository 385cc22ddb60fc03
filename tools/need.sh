#!/usr/bin/env bash
# Installs from Debian's packages whatever of the named programs is missing. Programs are named as they are called, libraries
# by a header of theirs.
set -euo pipefail
declare -A package=([cc]=build-essential [varnishtest]=varnish [haproxy]=haproxy [nginx]=nginx-light [wrk]=wrk
    [curl]=curl [strace]=strace [postgres]=postgresql [mariadbd]=mariadb-server [openssl/ssl.h]=libssl-dev)
# Debian keeps the daemons of each version of PostgreSQL in a directory of its own.
PATH=$PATH:/usr/sbin:/usr/local/sbin:$(echo /usr/lib/postgresql/*/bin)
missing=()
for program in "$@"; do
    command -v "$program" >/dev/null 2>&1 && continue
    case $program in
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
