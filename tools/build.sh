#!/usr/bin/env bash
# Runs a build. Cargo prints nothing while the last crates are compiled and linked, which takes minutes on a small machine, so
# without a terminal (where it shows a progress bar) the crates in progress are printed twice a minute.
#
#     tools/build.sh COMMAND…
set -euo pipefail
if [ -t 2 ]; then
    exec "$@"
fi
"$@" &
build=$!
trap 'kill "$build" 2>/dev/null' INT TERM
start=$SECONDS
while sleep 30 >/dev/null 2>&1 && kill -0 "$build" 2>/dev/null; do
    # The compilers below this build. `pgrep` has no option for whole trees.
    below=$build crates=
    for _ in 1 2 3; do
        below=$(pgrep -d, -P "$below" || true)
        [ -n "$below" ] || break
        crates+=$(ps -o args= -p "$below" | sed -n 's/.* --crate-name \([a-z0-9_]*\) .*/ \1/p' | tr -d '\n')
    done
    printf '    %d:%02d still building:%s\n' $(((SECONDS - start) / 60)) $(((SECONDS - start) % 60)) "${crates:- linking}" >&2
done &
watch=$!
code=0
wait "$build" || code=$?
kill "$watch" 2>/dev/null || true
exit "$code"
