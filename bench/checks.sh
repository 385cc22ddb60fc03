#!/usr/bin/env bash
# Health checks compared with haproxy: 48 threads on the available cores, 200 servers checked every 2 s by a request, while the
# statistics page is fetched continuously. Measures how long the page takes (with and without checks), how often threads wake, and
# the cost of the checks alone. HAProxy's authors published p99.99 32.96 to 4.91 ms, p99.9999 100.4 to 10.4 ms and CPU 5 % to
# 0.5–1 % for moving checks between threads.
#
#     bench/checks.sh WEIR WEIR-BENCH          HAPROXY= names another binary, ROUNDS= and SECONDS_EACH= the length
#
# PAGES= sets the number of pages fetched in each round instead: p99.9999 is only meaningful with several millions (PAGES=5000000
# ROUNDS=1 takes about two minutes for each line).
#
# shellcheck source=bench/lib.sh
source "$(dirname "$0")/lib.sh"
threads=${THREADS:-48}
servers=${SERVERS:-200}
connections=${CONNECTIONS:-4}
pages=${PAGES:-}

config() { # "check" or nothing
    cat <<EOF
global
    nbthread $threads
    maxconn 8000
$(defaults http)
frontend fe
    bind 127.0.0.1:PORT
    stats enable
    stats uri /stats
    stats scope .
    default_backend be
backend be
    option httpchk GET /100
EOF
    for n in $(seq "$servers"); do echo "    server s$n $origin ${1:+check inter 2s}"; done
}

cores=0-$(($(nproc) - 1)) # all cores: the measurement is about threads that wait for each other's core
switches() { cat "/proc/$1/task/"*/status | awk '/^voluntary/ {v += $2} END {print v}'; }
cpu_ns() { cat "/proc/$1/task/"*/schedstat | awk '{t += $1} END {printf "%.0f\n", t}'; }

idle() { # name: wake-ups a second and per mille of a core, while nothing but checks goes on
    local before=$(switches "$PID") busy=$(cpu_ns "$PID")
    sleep "$seconds"
    echo "$before $(switches "$PID") $busy $(cpu_ns "$PID")" | awk -v s="$seconds" -v name="$1" \
        '{printf "wakes=%.0f cpu=%.2f\n", ($2 - $1) / s, ($4 - $3) / s / 1e7}'
}

for _ in $(seq "$rounds"); do
    for checks in "" check; do
        for name in haproxy weir; do
            start "$name" "$(config "$checks")"
            # Waits until every server was checked once.
            sleep 3
            idle "$name" >>"$dir/$name-${checks:-none}.idle"
            busy=$(cpu_ns "$PID")
            result=$(ask run "target=127.0.0.1:$PORT" path=/stats "connections=$connections" "${pages:+requests=$pages}" \
                "seconds=$seconds")
            echo "$result" >>"$dir/$name-${checks:-none}.result"
            echo "$busy $(cpu_ns "$PID") $(value seconds <<<"$result")" | awk '{printf "cpu=%.1f\n", ($2 - $1) / $3 / 1e7}' \
                >>"$dir/$name-${checks:-none}.load"
            stop
        done
    done
done

echo "| $servers servers, $threads threads | proxy | pages | pages/s | p50 | p90 | p99 | p99.9 | p99.99 | p99.999 | p99.9999 | max ms | CPU % | alone: wake-ups/s | alone: CPU % |"
echo "| --- | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- |"
for checks in none check; do
    for name in haproxy weir; do
        file=$dir/$name-$checks
        ms() { value "$1" <"$file.result" | median | awk '{printf "%.2f", $1 / 1000}'; }
        title=$([ "$checks" = none ] && echo "not checked" || echo "checked every 2 s")
        printf '| %s | %s | %s | %s | %s | %s | %s | %s | %s | %s | %s | %s | %s | %s | %s |\n' "$title" "$name" \
            "$(value requests <"$file.result" | median)" "$(value rate <"$file.result" | median)" "$(ms p50)" "$(ms p90)" "$(ms p99)" "$(ms 'p99\.9')" \
            "$(ms 'p99\.99')" "$(ms 'p99\.999')" "$(ms 'p99\.9999')" "$(ms max)" "$(value cpu <"$file.load" | median)" \
            "$(value wakes <"$file.idle" | median)" "$(value cpu <"$file.idle" | median)"
    done
done
