#!/usr/bin/env bash
# Stick tables compared with haproxy: CPU of requests that track and that stick; memory and CPU of a million entries; how long
# requests wait while these are shown, and while all of them expire at once. One thread pinned to core 0, load and origin on core 1,
# in turn, medians.
#
#     bench/tables.sh WEIR WEIR-BENCH          HAPROXY= names another binary, ROUNDS= and SECONDS_EACH= the length, ENTRIES= the number
#
# shellcheck source=bench/lib.sh
source "$(dirname "$0")/lib.sh"
entries=${ENTRIES:-1000000}
proxies="haproxy weir"
ratio() { awk -v a="$1" -v b="$2" 'BEGIN {if (b > 0) printf "%.2f", a / b; else print "–"}'; }

# --- Cost of a request ----------------------------------------------------------------------------------------------------------

config_of() { # rules of the frontend, lines of the backend
    one_thread "maxconn 4000"
    printf '%s\n' "$1"
    printf '    default_backend be\nbackend be\n%s\n    server s1 %s\n    server s2 %s\nbackend t\n' "$2" "$origin" "$origin"
    printf '    stick-table type ip size 100k expire 10m store conn_rate(10s),http_req_rate(10s),http_err_rate(10s)\n'
}
track='    http-request track-sc0 src table t'
stick='    stick-table type string len 32 size 100k expire 10m
    stick on req.cook(session)'

echo "| CPU µs for a request | weir | haproxy | weir ÷ haproxy | target |"
echo "| --- | --: | --: | --: | --: |"
declare -A pid port
row() { # title, target, rules of the frontend, lines of the backend
    local name before requests
    for name in $proxies; do
        start "$name" "$(config_of "$3" "$4")"
        pid[$name]=$PID port[$name]=$PORT
        : >"$dir/$name.result"
    done
    for _ in $(seq "$rounds"); do
        for name in $proxies; do
            before=$(ticks "${pid[$name]}")
            requests=$(ask run "target=127.0.0.1:${port[$name]}" connections=16 "seconds=$seconds" "header=Cookie:session=0123456789" |
                value requests)
            echo "$before $(ticks "${pid[$name]}") $requests" |
                awk -v hz="$hz" '$5 > 0 {printf "%.3f\n", ($3 + $4 - $1 - $2) * 1e6 / hz / $5}' >>"$dir/$name.result"
        done
    done
    printf '| %s | %s | %s | %s | %s |\n' "$1" "$(median <"$dir/weir.result")" "$(median <"$dir/haproxy.result")" \
        "$(paste "$dir/weir.result" "$dir/haproxy.result" | awk '{print $1 / $2}' | median | awk '{printf "%.2f", $1}')" "$2"
    kill "${pid[@]}" 2>/dev/null || true
}
row "no table" – "" ""
row "\`track-sc0 src\`, three rates" 0.70 "$track" ""
row "\`stick on\` a cookie" 0.70 "" "$stick"

# --- Many entries ---------------------------------------------------------------------------------------------------------------

cpu_ms() { ticks "$1" | awk -v hz="$hz" '{printf "%d", ($1 + $2) * 1000 / hz}'; }
used() { # the socket: entries of the table
    python3 - "$1" <<'PY'
import re, socket, sys
s = socket.socket(socket.AF_UNIX)
s.connect(sys.argv[1])
s.sendall(b"show table\n")
text = b"".join(iter(lambda: s.recv(65536), b"")).decode()
print(re.search(r"used:(\d+)", text).group(1))
PY
}
show() { # the socket: reads the whole table; prints the number of entries and the duration in seconds
    python3 - "$1" <<'PY'
import socket, sys, time
s = socket.socket(socket.AF_UNIX)
s.connect(sys.argv[1])
began, lines = time.time(), 0
s.sendall(b"show table t\n")
while part := s.recv(1 << 20):
    lines += part.count(b"key=")
print(f"entries={lines} seconds={time.time() - began:.2f}")
PY
}
# Three entries per request: random addresses, of which negligibly few coincide.
full_of() { # the socket, how long entries live
    printf 'global\n    nbthread 1\n    stats socket %s level admin\n    stats timeout 10m\n' "$1"
    defaults http
    printf 'frontend fe\n    bind 127.0.0.1:PORT\n'
    for number in 0 1 2; do printf '    http-request track-sc%s rand(4294967295) table t if { path /fill }\n' "$number"; done
    printf '    http-request return status 200 content-type text/plain string ok\nbackend t\n'
    printf '    stick-table type ip size %d expire %s store gpc0,conn_cnt,http_req_cnt,http_req_rate(10s)\n' "$((entries * 2))" "$2"
}
fill() { # as many requests as make all entries
    ask run "target=127.0.0.1:$PORT" connections=16 "requests=$((entries / 3))" path=/fill >/dev/null
}
waits() { # seconds: p99 and the longest wait of requests in µs, one connection at a time
    ask run "target=127.0.0.1:$PORT" connections=4 "seconds=$1" | sed -n 's/.* p99=\([0-9.]*\).* max=\([0-9.]*\).*/\1 \2/p'
}

declare -A result
for name in $proxies; do
    socket=$dir/$name.sock
    start "$name" "$(full_of "$socket" 10m)"
    ask run "target=127.0.0.1:$PORT" connections=16 seconds=1 >/dev/null
    plain=$(cpu_ms "$PID")
    ask run "target=127.0.0.1:$PORT" connections=16 "requests=$((entries / 3))" >/dev/null
    before=$(cpu_ms "$PID") memory=$(resident "$PID")
    fill
    after=$(cpu_ms "$PID") count=$(used "$socket")
    result[$name.fill]=$(((after - before) - (before - plain)))
    result[$name.whole]=$((after - before))
    result[$name.bytes]=$((($(resident "$PID") - memory) * 1024 / count))
    result[$name.quiet]=$(waits 3)
    show "$socket" >"$dir/shown" &
    shower=$!
    result[$name.showing]=$(waits 3)
    wait "$shower"
    result[$name.shown]=$(value seconds <"$dir/shown")
    echo "$name: $count entries, $(cat "$dir/shown")" >&2
    stop

    # The process is stopped until all entries have expired, so that it finds all of them at once.
    start "$name" "$(full_of "$socket" 60s)"
    fill
    kill -STOP "$PID"
    sleep 61
    kill -CONT "$PID"
    result[$name.expiry]=$(waits 5)
    echo "$name: $(used "$socket") entries left after that" >&2
    stop
done
compare() { # title, key, target
    printf '| %s | %s | %s | %s | %s |\n' "$1" "${result[weir.$2]}" "${result[haproxy.$2]}" "$(ratio "${result[weir.$2]%% *}" "${result[haproxy.$2]%% *}")" "$3"
}
echo
echo "| $entries entries keyed by address, four data types | weir | haproxy | weir ÷ haproxy | target |"
echo "| --- | --: | --: | --: | --: |"
compare "bytes an entry" bytes 0.8
compare "CPU ms to fill the table, requests aside" fill 0.8
compare "CPU ms to fill the table, with the requests" whole –
compare "\`show table\`, s" shown –
compare "requests meanwhile: p99 and longest wait, µs" showing "1.0 (p99)"
compare "requests while all expire: p99 and longest wait, µs" expiry "1.0 (p99)"
compare "requests else: p99 and longest wait, µs" quiet –
