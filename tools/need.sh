#!/usr/bin/env bash
# Installs the Debian packages of the named programs that are missing, after printing the list. Programs are named by their command,
# libraries by one of their headers, Python libraries by their Debian package.
#
#     tools/need.sh [-n] NAME…          -n prints the missing packages, fails if there are any, and installs nothing
set -euo pipefail
declare -A package=([cc]=build-essential [varnishtest]=varnish [haproxy]=haproxy [nginx]=nginx-light [wrk]=wrk
    [curl]=curl [strace]=strace [postgres]=postgresql [mariadbd]=mariadb-server [openssl/ssl.h]=libssl-dev
    [h2load]=nghttp2-client [nghttp]=nghttp2-client [node]=nodejs [objcopy]=binutils
    [promtool]=prometheus [go]=golang [ip]=iproute2)
# Debian keeps the daemons of each PostgreSQL version in a separate directory.
PATH=$PATH:/usr/sbin:/usr/local/sbin:$(echo /usr/lib/postgresql/*/bin)
# Tools without a Debian package are built from source with Go: an ACME authority, an HTTP/2 conformance suite, and a gRPC
# client and server. Tests that need one report that they are skipped, and pass, if it cannot be built.
declare -A source=([pebble]=github.com/letsencrypt/pebble/v2/cmd/pebble@v2.10.1
    [h2spec]=github.com/summerwind/h2spec/cmd/h2spec@v2.2.1+incompatible
    [grpc-interop-client]=google.golang.org/grpc/interop/client@v1.70.0
    [grpc-interop-server]=google.golang.org/grpc/interop/server@v1.70.0)
# Tools for packages are built with Cargo.
declare -A crate=([cargo-deb]=3.8.0 [cargo-generate-rpm]=0.21.1 [cargo-cyclonedx]=0.5.9)
go_bin="${GOBIN:-${GOPATH:-$HOME/go}/bin}"

only_report=
if [ "${1:-}" = -n ]; then
    only_report=1
    shift
fi
if ! command -v cargo >/dev/null 2>&1; then
    echo "Rust is missing: install it with rustup (https://rustup.rs), then run this again." >&2
    exit 1
fi

packages=() sources=() crates=()
for program in "$@"; do
    command -v "$program" >/dev/null 2>&1 && continue
    case $program in
    pebble) [ -n "${PEBBLE:-}" ] || [ -x "$go_bin/$program" ] || sources+=("$program") ;;
    h2spec | grpc-*) [ -x "$go_bin/$program" ] || sources+=("$program") ;;
    cargo-*) crates+=("$program@${crate[$program]}") ;;
    php-fpm) compgen -G "/usr/sbin/php-fpm*" >/dev/null || packages+=("$program") ;;
    */*.h) echo "#include <$program>" | cc -E - >/dev/null 2>&1 || packages+=("${package[$program]:-$program}") ;;
    python3-*)
        module=${program#python3-}
        /usr/bin/python3 -c "import ${module//-/_}" 2>/dev/null || packages+=("$program")
        ;;
    llvm-profdata-*) packages+=("llvm-${program##*-}") ;;
    *) packages+=("${package[$program]:-$program}") ;;
    esac
done
[ ${#packages[@]} -eq 0 ] || mapfile -t packages < <(printf '%s\n' "${packages[@]}" | sort -u)

if [ ${#packages[@]} -gt 0 ] && { [ -n "$only_report" ] || ! command -v apt-get >/dev/null 2>&1; }; then
    echo "missing, by the names of Debian's packages: ${packages[*]}" >&2
    exit 1
fi
[ -z "$only_report" ] || exit 0

# Both lists are printed first, so that there is time to interrupt before anything is installed.
[ ${#packages[@]} -eq 0 ] || echo "going to install with apt-get: ${packages[*]}"
if [ ${#sources[@]} -gt 0 ]; then
    if command -v go >/dev/null 2>&1; then
        echo "going to build with $(go version | cut -d' ' -f3), into $go_bin: ${sources[*]}"
    else
        echo "without Go 1.24 or newer (https://go.dev/dl), tests that use these are skipped: ${sources[*]}" >&2
        sources=()
    fi
fi

[ ${#crates[@]} -eq 0 ] || echo "going to build with cargo: ${crates[*]}"

if [ ${#packages[@]} -gt 0 ]; then
    sudo=()
    [ "$(id -u)" -eq 0 ] || sudo=(sudo)
    export DEBIAN_FRONTEND=noninteractive
    "${sudo[@]}" apt-get update -qq
    # Some of these packages start daemons on installation, which are not wanted.
    policy=/usr/sbin/policy-rc.d
    made=
    if [ ! -e $policy ]; then
        printf '#!/bin/sh\nexit 101\n' | "${sudo[@]}" tee $policy >/dev/null
        "${sudo[@]}" chmod +x $policy
        made=1
    fi
    "${sudo[@]}" apt-get install -y -qq --no-install-recommends "${packages[@]}" >/dev/null
    [ -z "$made" ] || "${sudo[@]}" rm -f $policy
fi

[ ${#crates[@]} -eq 0 ] || cargo install --quiet --locked "${crates[@]}"

for program in ${sources[@]+"${sources[@]}"}; do
    # Go names a program after its directory, which is `client` for more than one.
    built=$(mktemp -d)
    name=${source[$program]%@*}
    if GOBIN="$built" go install "${source[$program]}"; then
        mkdir -p "$go_bin" && mv "$built/${name##*/}" "$go_bin/$program"
    else
        echo "$program cannot be built with $(go version): Go 1.24 or newer does. The tests that use it are skipped." >&2
    fi
    rm -rf "$built"
done
