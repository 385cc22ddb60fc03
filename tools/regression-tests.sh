#!/bin/bash
# Generates docs/regression-tests.tsv: runs HAProxy's regression tests against a program.
#
#     tools/regression-tests.sh CHECKOUT [PROGRAM]
#
# CHECKOUT is a checkout of HAProxy (its `reg-tests`), PROGRAM a binary, target/debug/weir by default. Each test runs with Debian's
# varnishtest. Tests that fail there are repeated with VTest, if the variable VTEST names that program: newer tests need VTest's
# features. Without it, rows that an earlier run got by VTest stay as they are.
#
# A row is test, driver, result and remark. Results: `passes`, `fails`, `skipped` (the test needs a feature that the program reports
# as missing). Remarks on tests that still fail are kept from the previous list; others are the driver's output.
set -u
checkout=$(realpath -e -- "${1:?usage: regression-tests.sh CHECKOUT [PROGRAM]}") || exit 1
here=$(cd -- "$(dirname -- "${BASH_SOURCE[0]}")/.." && pwd)
program=$(realpath -e -- "${2:-${CARGO_TARGET_DIR:-$here/target}/debug/weir}") || exit 1
tests=$checkout/reg-tests
[ -d "$tests" ] || { echo "$tests does not exist" >&2; exit 1; }
command -v varnishtest >/dev/null || { echo "varnishtest is not installed: make tools" >&2; exit 1; }
if [ -n "${VTEST:-}" ] && [ ! -x "$VTEST" ]; then
    echo "VTEST names $VTEST, which is no program" >&2
    exit 1
fi
list=$here/docs/regression-tests.tsv
logs=$(mktemp -d) || exit 1
trap 'rm -rf -- "$logs"' EXIT
# Uses a copy, under the name that drivers know, so that a concurrent build does not affect it.
cp -- "$program" "$logs/haproxy" || exit 1
export HAPROXY_PROGRAM=$logs/haproxy TMPDIR=$logs VTEST=${VTEST:-} logs tests list
# VTest opens a UDP socket only if the text before `fd@` is literally `quic+`. The tests for QUIC include files of the tests for TLS,
# which have a variable there.
export datagrams=$logs/reg-tests
cp -r -- "$tests" "$datagrams" || exit 1
grep -rlZ 'VTC_SOCK_TYPE}+fd@' "$datagrams" | xargs -0 -r sed -i 's/\${VTC_SOCK_TYPE}+fd@/quic+fd@/g'
# As in HAProxy's own script: memory is poisoned, assertions are strict, and warnings are fatal.
export HAPROXY_ARGS=${HAPROXY_ARGS:--dM -dI -dW}

# Prints the features that the program reported as unsupported, or else the first line of the driver about the failure.
reason() {
    local lacks
    lacks=$(grep -a -oE "'[^']+' is not supported yet" "$1" | sed "s/' is not.*/\`/; s/^'/\`/" | sort -u | paste -sd, | sed 's/,/, /g')
    if [ -n "$lacks" ]; then
        echo "needs $lacks"
    else
        grep -a -m 1 -E '^---- ' "$1" | sed -e 's/^---- *[^ ]* *//; s/\t/ /g' | cut -c 1-120
    fi
}

# Prints a requirement of a test: features first, then versions.
asked() {
    { grep -oE 'feature\([A-Z0-9_]+\)' "$1"; grep -oE 'version_[a-z]+\([^)]*\)' "$1"; } | head -1
}

run_one() {
    local file=$1 name driver=varnishtest code remark='' before
    name=${file#"$tests/"}
    name=${name%.vtc}
    [[ $name == quic/* ]] && file=$datagrams/$name.vtc
    local log=$logs/${name//\//+}
    before=$(awk -F'\t' -v name="$name" '$1 == name' "$list" 2>/dev/null)
    varnishtest -v -t 30 "$file" >"$log.log" 2>&1
    code=$?
    if [ $code != 0 ] && [ -n "$VTEST" ]; then
        driver=VTest
        "$VTEST" -v -t 30 "$file" >"$log.log" 2>&1
        code=$?
    elif [ $code != 0 ] && [ "$(cut -f 2 <<<"$before")" = VTest ]; then
        printf '%s\n' "$before" >"$log.row"
        return
    fi
    case $code in
    0) printf '%s\t%s\tpasses\t\n' "$name" "$driver" ;;
    77) printf '%s\t%s\tskipped\t%s\n' "$name" "$driver" "$(asked "$file")" ;;
    *)
        # The remark on an earlier failure is more specific than the driver's output.
        [ "$(cut -f 3 <<<"$before")" = fails ] && remark=$(cut -f 4 <<<"$before")
        printf '%s\t%s\tfails\t%s\n' "$name" "$driver" "${remark:-$(reason "$log.log")}"
        ;;
    esac >"$log.row"
}
export -f run_one reason asked

find "$tests" -name '*.vtc' -print0 | sort -z | xargs -0 -n 1 -P 2 bash -c 'run_one "$1"' run_one
{
    printf 'test\tdriver\tresult\tremark\n'
    cat "$logs"/*.row | sort
} >"$logs/list"
[ "$(wc -l <"$logs/list")" -gt 1 ] || { echo "no test ran" >&2; exit 1; }
mv -- "$logs/list" "$list"
cut -f 3 "$list" | tail -n +2 | sort | uniq -c
