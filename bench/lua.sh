#!/usr/bin/env bash
# Script actions: CPU of a request that a rule answers, without actions, with four that do nothing, and with one that sets a
# variable and a header; the difference for each. Compared with haproxy if that has Lua.
#
#     bench/lua.sh WEIR WEIR-BENCH          HAPROXY= names another binary, ROUNDS= and SECONDS_EACH= the length
#
# shellcheck source=bench/lib.sh
source "$(dirname "$0")/lib.sh"
cat >"$dir/bench.lua" <<'EOF'
core.register_action("noop", { "http-req" }, function(txn) end)
core.register_action("some", { "http-req" }, function(txn)
    txn:set_var("txn.a", txn.sf:path())
    txn.http:req_set_header("x-a", "b")
end)
EOF
names=weir
"$haproxy" -vv 2>/dev/null | grep -q '+LUA' && names="haproxy weir"

config() { # how the file is loaded, actions
    one_thread "tune.lua.bool-sample-conversion normal" "$1 $dir/bench.lua"
    for action in ${2:-}; do echo "    http-request lua.$action"; done
    echo "    http-request return status 200 content-type text/plain string ok"
}

echo "| loaded by | proxy | user µs for an action that does nothing | ÷ haproxy | user µs for a variable and a header | ÷ haproxy |"
echo "| --- | --- | --: | --: | --: | --: |"
for loaded in lua-load lua-load-per-thread; do
    base=
    for name in $names; do
        none=$(costs_of "$name" "$loaded")
        idle=$(costs_of "$name" "$loaded" "noop noop noop noop")
        some=$(costs_of "$name" "$loaded" some)
        cost=$(echo "$none $idle $some" | awk '{print ($3 - $1) / 4, $5 - $1}')
        base=${base:-$cost}
        echo "$cost $base" | awk -v loaded="$loaded" -v name="$name" '
            {printf "| `%s` | %s | %.2f | %.2f | %.2f | %.2f |\n", loaded, name, $1, $1 / $3, $2, $2 / $4}'
    done
done
