#!/bin/bash
# Runs the scenarios of tests/vtc against a program, two at a time:
#
#   tests/run-vtc.sh target/debug/weir [scenario.vtc …]
#
# varnishtest starts the program that HAPROXY_PROGRAM names. The logs of scenarios that fail are shown; the last line is
# "N passed, N failed". Exits with 1 when one failed or none ran.
set -u
program=$(realpath -e -- "${1:?usage: run-vtc.sh PROGRAM [SCENARIO …]}") || exit 1
shift
command -v varnishtest >/dev/null || { echo "varnishtest is not installed" >&2; exit 1; }
here=$(cd -- "$(dirname -- "${BASH_SOURCE[0]}")" && pwd)
[ $# -gt 0 ] || set -- "$here"/vtc/*.vtc
logs=$(mktemp -d) || exit 1
trap 'rm -rf -- "$logs"' EXIT
# varnishtest requires this name for the program.
ln -s -- "$program" "$logs/haproxy"
export HAPROXY_PROGRAM=$logs/haproxy TMPDIR=$logs logs

run_one() {
    local name
    name=$(basename -- "$1" .vtc)
    varnishtest -v -t 30 "$1" >"$logs/$name.log" 2>&1
    echo $? >"$logs/$name.code"
}
export -f run_one
printf '%s\0' "$@" | xargs -0 -n 1 -P 2 bash -c 'run_one "$1"' run_one

passed=0 failed=0
for scenario in "$@"; do
    name=$(basename -- "$scenario" .vtc)
    if [ "$(cat "$logs/$name.code" 2>/dev/null)" = 0 ]; then
        passed=$((passed + 1))
    else
        failed=$((failed + 1))
        echo "=== $name"
        tail -n 40 "$logs/$name.log"
    fi
done
echo "$passed passed, $failed failed"
[ "$failed" = 0 ] && [ "$passed" -gt 0 ]
