#!/usr/bin/env bash
# Starts Weir on the quick-start configuration and says what to try.
set -euo pipefail
weir=$1
cd "$(dirname "$0")/.."
cat <<'TEXT'

  Weir is starting on examples/quickstart.cfg. Open or try:

    http://127.0.0.1:8080/              three coloured origins take turns: reload the page
    http://127.0.0.1:8404/stats         statistics
    curl -i http://127.0.0.1:8080/api   a rule at work: a header set, a path routed
    curl http://127.0.0.1:8080/red      use_backend by path
    echo "show servers state" | socat - /tmp/weir-quickstart.sock

  Stop it with Ctrl-C.

TEXT
if [ "$(id -u)" = 0 ]; then
    export STARTED_BY_ROOT=1
fi
exec "$weir" -f examples/quickstart.cfg "${@:2}"
