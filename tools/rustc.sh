#!/usr/bin/env bash
# rustc for tools/release.sh, called by cargo as RUSTC_WRAPPER. Adds the flags in WEIR_RUSTFLAGS to crates that are compiled for
# the target, but not to build scripts and macros. Cargo does not see these flags, so that folders and profiles that they name do
# not reach the hashes in symbol names, and two builds in different folders give the same bytes.
set -eu
for word in "$@"; do
    if [ "$word" = --target ]; then
        # LLVM mentions each name in the list of cold functions that another crate has.
        # shellcheck disable=SC2086
        exec "$@" $WEIR_RUSTFLAGS 2> >(grep -v '^Function in CSV file at line [0-9]* does not exist.$' >&2)
    fi
done
exec "$@"
