#!/usr/bin/env bash
# Builds Weir for installation, with a profile of typical use: the first build counts which paths bench/train.sh takes, the second
# lays these out next to each other. At every system call the kernel's code evicts the proxy's from the nearest cache, so that
# user time depends on how many cache lines a request touches.
#
#   tools/release.sh          writes $CARGO_TARGET_DIR/weir (`target/weir` if unset) and its profile beside it, weir.profdata
#   PROFILE=FILE              uses the profile in FILE instead of training; PROFILE=none builds without one
#
# Paths of this machine are removed from the binary, so that the same sources, compiler and profile give the same bytes in any folder.
set -euo pipefail
cd "$(dirname "$0")/.."
target=$(realpath -m "${CARGO_TARGET_DIR:-target}")
host=$(rustc -vV | sed -n 's/^host: //p')
llvm=$(rustc -vV | sed -n 's/^LLVM version: \([0-9]*\).*/\1/p')
profdata() { command -v "llvm-profdata-$llvm" || find "$(rustc --print sysroot)" -name llvm-profdata -type f -print -quit; }
cargo_home=${CARGO_HOME:-$HOME/.cargo}
SOURCE_DATE_EPOCH=${SOURCE_DATE_EPOCH:-$(git log -1 --format=%ct 2>/dev/null || echo 0)}
export SOURCE_DATE_EPOCH

build() { # directory, flags
    local maps=("$PWD=/weir" "$cargo_home=/cargo" "$target/$1=/target")
    local flags="-Clink-arg=-Wl,-z,pack-relative-relocs,--icf=safe,--build-id=sha1 $2" c=''
    for map in "${maps[@]}"; do
        flags+=" --remap-path-prefix=$map"
        c+=" -ffile-prefix-map=$map"
    done
    RUSTC_WRAPPER=$PWD/tools/rustc.sh WEIR_RUSTFLAGS=$flags CFLAGS="${CFLAGS:-}$c" CXXFLAGS="${CXXFLAGS:-}$c" CARGO_INCREMENTAL=0 \
        cargo build --release --locked --target "$host" --target-dir "$target/$1" -p weir
}

profile=${PROFILE:-}
if [ "$profile" != none ] && [ -z "$(profdata)" ] && ! ./tools/need.sh "llvm-profdata-$llvm"; then
    echo "llvm-profdata of LLVM $llvm is missing (Debian: llvm-$llvm; rustup: component llvm-tools)" >&2
    # With a given profile, the result would not be the expected one.
    [ -z "$profile" ] || exit 1
    echo "building without a profile" >&2
    profile=none
fi
if [ "$profile" = none ]; then
    build plain ''
    cp "$target/plain/$host/release/weir" "$target/weir"
    echo "built $target/weir without a profile"
    exit
fi

if [ -z "$profile" ]; then
    counts=$target/counts
    rm -rf "$counts"
    cargo build --release --locked -p weir-bench
    build counting "-Cprofile-generate=$counts"
    ./bench/train.sh "$target/counting/$host/release/weir" "$target/release/weir-bench"
    profile=$target/weir.profdata
    # The gzip encoder is written without unpredictable branches. A profile makes the compiler put some back, which costs 5 %.
    "$(profdata)" merge --no-function=compress7deflate -o "$profile" "$counts"
fi
# Cargo sees neither the flags nor the file, so a build with other ones must start from nothing.
sum=$(cat "$profile" tools/release.sh tools/rustc.sh | sha256sum)
if [ "$(cat "$target/trained/profile" 2>/dev/null)" != "$sum" ]; then
    rm -rf "$target/trained"
    mkdir -p "$target/trained"
    echo "$sum" >"$target/trained/profile"
fi
# The profile names the calls worth inlining. A lower limit for the others saves 0.8 MB and costs a request nothing. Calls that the
# training did not reach are inlined only if that saves space, and functions that it did not reach are compiled for size.
"$(profdata)" show --list-below-cutoff --value-cutoff=1 "$profile" |
    sed -n 's/^ *\(.*;\)\?\([^ ;]*\): (Max = 0 .*/\2,optsize/p' | LC_ALL=C sort -u >"$target/cold.csv"
build trained "-Cprofile-use=$(realpath "$profile") -Cllvm-args=-inline-threshold=75 -Cllvm-args=-inlinecold-threshold=5 \
    -Cllvm-args=-inline-cold-callsite-threshold=5 -Cllvm-args=-forceattrs-csv-path=$target/cold.csv"
cp "$target/trained/$host/release/weir" "$target/weir"
[ "$profile" -ef "$target/weir.profdata" ] || cp "$profile" "$target/weir.profdata"
echo "built $target/weir"
