#!/usr/bin/env bash
# Threads and groups: the cost of sharing on this machine with a model for more cores (weir-bench contention), then connections and
# requests per second of two threads in one group and in two, compared with haproxy. HAProxy's authors published, for 64 cores:
# groups of 16 instead of one of 64 gave 172,000 instead of 85,000 connections/s and 1.71 instead of 1.58 million requests/s.
#
#     bench/threads.sh WEIR WEIR-BENCH          HAPROXY= names another binary, ROUNDS= and SECONDS_EACH= the length
#
# shellcheck source=bench/lib.sh
source "$(dirname "$0")/lib.sh"

config() { # groups
    cat <<EOF
global
    nbthread 2
    thread-groups $1
$(defaults http)
frontend fe
    bind 127.0.0.1:PORT
    default_backend be
backend be
    balance leastconn
    server s1 $origin
    server s2 $origin
EOF
}

"$bench" contention
echo
cores=0-1 # both threads may run; the load takes its part of core 1
echo "| two threads | proxy | groups | user + system µs each | a second |"
echo "| --- | --- | --: | --: | --: |"
for load_of in connections requests; do
    for name in haproxy weir; do
        for groups in 1 2; do
            config $groups | sed s/PORT/1/ >"$dir/try.cfg"
            if ! "${!name}" -c -f "$dir/try.cfg" >/dev/null 2>&1; then
                echo "| $load_of | $name | $groups | this version has no groups | |"
                continue
            fi
            start "$name" "$(config $groups)"
            for _ in $(seq "$rounds"); do
                before=$(ticks "$PID")
                answer=$(ask run "target=127.0.0.1:$PORT" connections=64 "seconds=$seconds" "$([ $load_of = connections ] && echo close || echo path=/)")
                after=$(ticks "$PID")
                echo "$before $after $(value requests <<<"$answer") $(value rate <<<"$answer")" |
                    awk -v hz="$hz" '{printf "%.2f %.0f\n", ($3 + $4 - $1 - $2) * 1e6 / hz / $5, $6}' >>"$dir/$load_of-$name-$groups"
            done
            stop
            printf '| %s | %s | %s | %s | %s |\n' "$load_of" "$name" "$groups" \
                "$(cut -d' ' -f1 "$dir/$load_of-$name-$groups" | median)" "$(cut -d' ' -f2 "$dir/$load_of-$name-$groups" | median)"
        done
    done
done
