#!/usr/bin/env bash
# One client, one connection at a time, over loopback: forwarded, and answered by the proxy itself (a redirect); sleeping and
# polling. Reproduces the figures that HAProxy's authors published for busy polling: 4,640 to 8,540 forwarded and 12,500 to 21,250
# answered connections a second. Measured once with a client and an origin that sleep, so that each connection also waits for their
# core to wake up, and once with both polling, so that only the proxy's own sleep remains.
#
#     bench/busy-polling.sh WEIR WEIR-BENCH          HAPROXY= names another binary, ROUNDS= and SECONDS_EACH= the length
#
# shellcheck source=bench/lib.sh
source "$(dirname "$0")/lib.sh"

config() { # "busy-polling" or nothing
    one_thread $1
    cat <<EOF
    http-request redirect location http://example.org/ if { path /away }
    default_backend be
backend be
    server s1 $origin
EOF
}

for name in haproxy weir; do
    for polling in "" busy-polling; do
        start "$name" "$(config "$polling")"
        # Polling processes on one core would compete for it, so each runs only while it is measured.
        kill -STOP "$PID"
        eval "port_$name${polling//-/_}=$PORT pid_$name${polling//-/_}=$PID"
    done
done
for _ in $(seq "$rounds"); do
    for ends in "" poll; do
        for path in / /away; do
            for polling in "" busy-polling; do
                for name in haproxy weir; do
                    pid=pid_$name${polling//-/_} port=port_$name${polling//-/_}
                    kill -CONT "${!pid}"
                    ask run "target=127.0.0.1:${!port}" "path=$path" connections=1 "seconds=$seconds" close $ends \
                        >>"$dir/$name-${polling:-sleeping}-${path#/}-$ends.result"
                    kill -STOP "${!pid}"
                done
            done
        done
    done
done
echo "| client and origin | one connection at a time | proxy | connections/s | p50 µs | p99 µs | p99.9 µs | gain |"
echo "| --- | --- | --- | --: | --: | --: | --: | --: |"
for ends in "" poll; do
    for path in "" away; do
        for name in haproxy weir; do
            sleeping=
            for polling in sleeping busy-polling; do
                file=$dir/$name-$polling-$path-$ends.result
                of() { value "$1" <"$file" | median; }
                rate=$(of rate)
                gain=$(echo "$rate ${sleeping:-$rate}" | awk '{printf "%.2f", $1 / $2}')
                sleeping=${sleeping:-$rate}
                title=$([ -z "$path" ] && echo forwarded || echo redirected)
                others=$([ -z "$ends" ] && echo sleep || echo poll)
                printf '| %s | %s, %s | %s | %s | %s | %s | %s | %s |\n' "$others" "$title" "$polling" "$name" "$rate" "$(of p50)" "$(of p99)" "$(of 'p99\.9')" "$gain"
            done
        done
    done
done
