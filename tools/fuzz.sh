#!/usr/bin/env bash
# Runs fuzz targets one after the other: `fuzz.sh SECONDS [TARGET…]`, all of them by default. Missing requirements (a nightly
# compiler, cargo-fuzz) are installed. A line for each target shows how often it was executed, how many edges of the program were
# covered, the size of its corpus in bytes, and whether it failed; if any did, the script fails and the input is in fuzz/artifacts.
# The corpora are kept in fuzz/corpus, so that the next run starts where this one ended.
set -euo pipefail
cd "$(dirname "$0")/.."
time=$1
shift
rustup toolchain list | grep -q '^nightly' || rustup toolchain install nightly --profile minimal
cargo fuzz --version >/dev/null 2>&1 || cargo install cargo-fuzz --locked
# The fuzzers are a separate workspace; their dependencies are those of the programs, in the same versions.
[ fuzz/Cargo.lock -nt Cargo.lock ] || cp Cargo.lock fuzz/Cargo.lock
host=$(rustc -vV | sed -n 's/^host: //p')
programs=fuzz/target/$host/release
all=$(sed -n 's/^name = "\(.*\)"$/\1/p' fuzz/Cargo.toml | grep -v '^weir-fuzz$')
targets=("$@")
[ $# -gt 0 ] || mapfile -t targets <<<"$all"
# No sanitizer is used: except for two modules the program is safe Rust, and without a sanitizer it runs several times as often.
# Overflows and assertions are checked.
#
# Selected targets are built one by one, because every target program contains all the code and takes long to link.
if [ $# -eq 0 ]; then
    cargo +nightly fuzz build -s none --target-dir fuzz/target
else
    for target in "$@"; do cargo +nightly fuzz build -s none --target-dir fuzz/target "$target"; done
fi

# The words that the fuzzer combines for a target: those in fuzz/dictionaries, or keywords of the configuration.
dictionary() {
    local words=fuzz/target/$1.dict
    case $1 in
    expression | log_format) awk -F'\t' '$1 ~ /fetch|converter/ { print "\"" $3 "\"" }' docs/surface.tsv | sort -u >"$words" ;;
    config) awk -F'\t' '$1 !~ /fetch|converter|kind/ { print "\"" $3 " \"" }' docs/surface.tsv | sort -u >"$words" ;;
    command_line) awk -F'\t' '$1 == "cli" { print "\"" $3 " \"" }' docs/surface.tsv | sort -u >"$words" ;;
    http1_* | cache_key | cache_vary | check_answer | acme_answers | url | cookies) words=fuzz/dictionaries/http.dict ;;
    *) words=fuzz/dictionaries/$1.dict ;;
    esac
    [ ! -s "$words" ] || echo "-dict=$words"
}

broken=0
printf '%-18s %12s %8s %9s  %s\n' target executions edges bytes outcome
for target in "${targets[@]}"; do
    mkdir -p "fuzz/corpus/$target" "fuzz/artifacts/$target"
    log=fuzz/artifacts/$target/log
    words=$(dictionary "$target")
    outcome=passed
    "$programs/$target" ${words:+"$words"} -max_total_time="$time" -timeout=5 -rss_limit_mb=2048 -print_final_stats=1 \
        -artifact_prefix="fuzz/artifacts/$target/" "fuzz/corpus/$target" "fuzz/seeds/$target" >"$log" 2>&1 ||
        { broken=1 outcome="BROKEN, see $log"; }
    runs=$(sed -n 's/^stat::number_of_executed_units: *//p' "$log" | tail -1)
    edges=$(grep -o 'cov: [0-9]*' "$log" | tail -1 | tr -dc 0-9 || true)
    bytes=$(du -sb "fuzz/corpus/$target" | cut -f1)
    printf '%-18s %12s %8s %9s  %s\n' "$target" "${runs:--}" "${edges:--}" "$bytes" "$outcome"
done
exit $broken
