#!/usr/bin/env bash
# Builds Weir for installation: compiled twice, the second time with a profile from bench/train.sh of the usual paths, which the
# compiler then places next to each other. The kernel's code evicts ours from the first-level cache at every system call, so the
# user time of a request depends on how many cache lines of code it touches.
#
#     tools/release.sh          the binary is then $CARGO_TARGET_DIR/weir; CARGO_TARGET_DIR is `target` unless it is set
set -euo pipefail
cd "$(dirname "$0")/.."
target=$(realpath -m "${CARGO_TARGET_DIR:-target}")
host=$(rustc -vV | sed -n 's/^host: //p')
llvm=$(rustc -vV | sed -n 's/^LLVM version: \([0-9]*\).*/\1/p')
profdata() { command -v "llvm-profdata-$llvm" || find "$(rustc --print sysroot)" -name llvm-profdata -type f -print -quit; }

if [ -z "$(profdata)" ] && ! ./tools/need.sh "llvm-profdata-$llvm"; then
    echo "llvm-profdata of LLVM $llvm is missing (Debian: llvm-$llvm; rustup: component llvm-tools): building without a profile" >&2
    cargo build --release --locked -p weir
    cp "$target/release/weir" "$target/weir"
    exit
fi
build() { # directory, flag
    RUSTFLAGS=$2 cargo build --release --locked --target "$host" --target-dir "$target/$1" -p weir
}

counts=$target/counts
rm -rf "$counts" "$target"/weir-*.profdata
cargo build --release --locked -p weir-bench
build counting "-Cprofile-generate=$counts"
./bench/train.sh "$target/counting/$host/release/weir" "$target/release/weir-bench"
# The gzip encoder avoids unpredictable branches; with a profile the compiler would reintroduce some, which makes it 5 % slower.
"$(profdata)" merge --no-function=compress7deflate -o "$target/weir.profdata" "$counts"
# Named after its content: cargo notices changed flags, not changed files.
profile=$target/weir-$(sha256sum <"$target/weir.profdata" | head -c 16).profdata
mv "$target/weir.profdata" "$profile"
build trained "-Cprofile-use=$profile"
cp "$target/trained/$host/release/weir" "$target/weir"
echo "built $target/weir"
