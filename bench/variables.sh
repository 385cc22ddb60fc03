#!/usr/bin/env bash
# Variables: CPU of a request that sets 100 variables and makes 1,000 accesses, beside haproxy; and what one access costs as the
# number of variables grows. HAProxy's authors published 85,000 to 117,000 requests/s for the first, moving from a list to a tree.
#
#   bench/variables.sh WEIR WEIR-LOAD          HAPROXY= names another binary, ROUNDS= and SECONDS_EACH= the length
# shellcheck source=bench/lib.sh
source "$(dirname "$0")/lib.sh"

config() { # how many variables, how many accesses beyond setting each once
    one_thread "tune.vars.txn-max-size 100000000"
    awk -v variables="$1" -v accesses="$2" 'BEGIN {
        for (n = 0; n < variables; n++) print "    http-request set-var(txn.name" n ") int(" n ")"
        # One line reads a variable and writes another: two accesses, spread over all of them.
        for (n = 0; n < accesses / 2; n++)
            print "    http-request set-var(txn.name" (n * 7919) % variables ") var(txn.name" (n * 104729 + 1) % variables ")"
    }'
    echo "    http-request return status 200 content-type text/plain string ok"
}

cost_of() { # name variables accesses: median of user + system µs of a request
    start "$1" "$(config "$2" "$3")"
    cost
    stop
}

echo "| 100 variables, 1,000 accesses | CPU µs/request | ÷ haproxy |"
echo "| --- | --- | --- |"
base=
for name in haproxy weir; do
    total=$(cost_of "$name" 100 900)
    base=${base:-$total}
    echo "$total $base" | awk -v name="$name" '{printf "| %s | %.1f | %.2f |\n", name, $1, $1 / $2}'
done
echo
echo "| variables | proxy | ns for each access |"
echo "| --- | --- | --- |"
for variables in 10 100 1000 10000; do
    for name in haproxy weir; do
        few=$(cost_of "$name" "$variables" 0)
        many=$(cost_of "$name" "$variables" 10000)
        echo "$few $many" | awk -v name="$name" -v n="$variables" '{printf "| %d | %s | %.0f |\n", n, name, ($2 - $1) / 10}'
    done
done
