#!/usr/bin/env bash
# Variables: CPU of a request with 100 variables and 1,000 accesses, compared with haproxy; and the cost of one access as the number
# of variables grows. HAProxy's authors published 85,000 to 117,000 requests/s for the first, moving from a list to a tree.
#
#     bench/variables.sh WEIR WEIR-BENCH          HAPROXY= names another binary, ROUNDS= and SECONDS_EACH= the length
#
# shellcheck source=bench/lib.sh
source "$(dirname "$0")/lib.sh"

config() { # variables, lines, converters: sets each variable, then has this many lines
    one_thread "tune.vars.txn-max-size 100000000"
    awk -v variables="$1" -v lines="$2" -v with="${3:-}" 'BEGIN {
        for (n = 0; n < variables; n++) print "    http-request set-var(txn.name" n ") int(" n ")"
        # One line reads a variable and writes another: two accesses, spread over all of them.
        for (n = 0; n < lines; n++)
            print "    http-request set-var(txn.name" (n * 7919) % variables ") var(txn.name" (n * 104729 + 1) % variables ")" with
    }'
    echo "    http-request return status 200 content-type text/plain string ok"
}

echo "| 100 variables | proxy | user µs/request | CPU µs/request | CPU ÷ haproxy | user ns a line |"
echo "| --- | --- | --: | --: | --: | --: |"
measure() { # title, lines, what a line does
    local base= name none some
    for name in haproxy weir; do
        none=$(costs_of "$name" 100 0)
        some=$(costs_of "$name" 100 "$2" "$3")
        base=${base:-${some#* }}
        echo "$none $some $base" | awk -v title="$1" -v name="$name" -v lines="$2" '
            {printf "| %s | %s | %.1f | %.1f | %.2f | %.1f |\n", title, name, $3, $4, $4 / $5, ($3 - $1) * 1000 / lines}'
    done
}
measure "1,000 accesses: 100 lines that write, 450 that read and write" 450 ""
measure "1,000 lines that read, add and write" 1000 ",add(1)"
echo
echo "| variables | proxy | ns for each access |"
echo "| --: | --- | --: |"
for variables in 10 100 1000 10000; do
    for name in haproxy weir; do
        few=$(costs_of "$name" "$variables" 0)
        many=$(costs_of "$name" "$variables" 5000)
        echo "$few $many" | awk -v name="$name" -v n="$variables" '{printf "| %d | %s | %.0f |\n", n, name, ($4 - $2) / 10}'
    done
done
