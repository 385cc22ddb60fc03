#!/usr/bin/env bash
# One line for each kind of work: the costs of HAProxy, of the best other peer, and of Weir. CPU time is user and system time of the
# proxy, which has one thread on core 0; load, origins and agents run on core 1. In each round the proxies take turns. Prints tables in
# Markdown. A peer that is missing, or cannot do the work, has a dash.
#
#     bench/overview.sh WEIR WEIR-BENCH [ROW...]    ROW: a part of the titles of the rows to measure
#
# HAPROXY= names HAProxy, best one with AWS-LC and Lua; NGINX= names nginx, ROUNDS= and SECONDS_EACH= set the length.
#
# shellcheck source=bench/lib.sh
source "$(dirname "$0")/lib.sh"
here=$(dirname "$(realpath "$0")")
wanted=("${@:3}")
is_wanted() { # title
    local part
    [ ${#wanted[@]} -gt 0 ] || return 0
    for part in "${wanted[@]}"; do [[ $1 != *"$part"* ]] || return 0; done
    return 1
}
has_lua=
[ -z "$haproxy" ] || ! "$haproxy" -vv 2>/dev/null | grep -qi '+LUA' || has_lua=yes

certificate() { # name, openssl's words for the key
    openssl req -x509 -nodes -days 30 -subj /CN=bench.test -addext subjectAltName=DNS:bench.test "${@:2}" \
        -keyout "$dir/$1.key" -out "$dir/$1.crt" 2>/dev/null
    cat "$dir/$1.crt" "$dir/$1.key" >"$dir/$1.pem"
}
certificate p256 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1
certificate rsa2048 -newkey rsa:2048

cat >"$dir/action.lua" <<'LUA'
core.register_action("some", { "http-req" }, function(txn)
    txn:set_var("txn.a", txn.sf:path())
    txn.http:req_set_header("x-a", "b")
end)
core.register_action("calls", { "http-req" }, function(txn)
    for _ = 1, 50 do
        local path = txn.sf:path()
        txn.sc:lower(path)
    end
end)
core.register_service("kilobyte", "http", function(applet)
    local text = string.rep("x", 1024)
    applet:set_status(200)
    applet:add_header("content-length", "1024")
    applet:start_response()
    applet:send(text)
end)
LUA
cat >"$dir/spoe.conf" <<'SPOE'
[bench]
spoe-agent bench
    messages query
    option var-prefix b
    timeout hello 2s
    timeout idle 1m
    timeout processing 1s
    use-backend agents
spoe-message query
    args path=path method=method
    event on-frontend-http-request
SPOE
# An origin that reads uploads: nginx answers before it has the whole body.
upload_port=$(free_port)
printf 'global\n    nbthread 1\n%s\nfrontend f\n    mode haterm\n    bind 127.0.0.1:%s\n' "$(defaults http)" "$upload_port" >"$dir/upload.cfg"
taskset -c 1 "$weir" -f "$dir/upload.cfg" >/dev/null 2>&1 &
pids+=("$!")
wait_port "$upload_port"
coproc AGENT { exec taskset -c 1 python3 "$here/peers.py" agent; }
pids+=("$AGENT_PID")
read -r agent_port <&"${AGENT[0]}"
taskset -c 1 python3 "$here/peers.py" datagrams "$dir/log.sock" >"$dir/log.ready" &
pids+=("$!")
until [ -s "$dir/log.ready" ]; do sleep 0.05; done

base() { # lines of global, of the frontend, words of bind
    printf 'global\n    nbthread 1\n    maxconn 8000\n%s' "$1"
    printf 'defaults\n    mode http\n    timeout connect 5s\n    timeout client 60s\n    timeout server 60s\n    http-reuse %s\n' "${reuse:-safe}"
    printf 'frontend fe\n    bind 127.0.0.1:PORT %s\n%s    default_backend be\nbackend be\n    server s1 %s %s\n' "${3:-}" "$2" \
        "${server:-$origin}" "${server_words:-}"
}

spent() { ticks "$1" | awk -v hz="$hz" '{print $1 * 1e6 / hz, $2 * 1e6 / hz}'; }
load_by_generator() { ask run "target=127.0.0.1:$1" "seconds=$seconds" "${@:2}" | value requests; }
load_by_weir() { answered -d "$seconds" "${@:3}" "$scheme://127.0.0.1:$1$2"; }
scheme=http

declare -A pid port
measure() { # proxies, configuration, function that loads a port and prints the number of requests: writes NAME.result
    local name before count
    for name in $1; do
        start "$name" "$2"
        pid[$name]=$PID port[$name]=$PORT
        seconds=1 "${@:3:1}" "$PORT" "${@:4}" >/dev/null || true
        : >"$dir/$name.result"
    done
    for _ in $(seq "$rounds"); do
        for name in $1; do
            before=$(spent "${pid[$name]}")
            count=$("${@:3:1}" "${port[$name]}" "${@:4}")
            echo "$before $(spent "${pid[$name]}") ${count:-0}" |
                awk '$5 > 0 {printf "%.3f %.3f\n", ($3 + $4 - $1 - $2) / $5, ($3 - $1) / $5}' >>"$dir/$name.result"
        done
    done
    for name in $1; do
        PID=${pid[$name]}
        stop
    done
}
result() { # name: the median, with the kernel's share
    if [ -s "$dir/$1.result" ]; then
        awk '{print $1, $1 > 0 ? ($1 - $2) * 100 / $1 : 0}' "$dir/$1.result" | sort -g |
            awk '{v[NR] = $1; k[NR] = $2} END {m = int((NR + 1) / 2); printf "%.1f (%d %%)", v[m], k[m]}'
    else
        echo "–"
    fi
}
row() { # title, proxies, configuration, load...
    is_wanted "$1" || return 0
    rm -f "$dir"/*.result
    measure "$2" "${@:3}"
    echo "| $1 | $(result haproxy) | $(result nginx) | $(result weir) | $(quotient "$dir/weir.result" "$dir/haproxy.result" 2>/dev/null || echo –) |"
}
added() { # title, proxies, configuration without, configuration with, load...: the difference
    is_wanted "$1" || return 0
    local name
    rm -f "$dir"/*.result "$dir"/*.without
    measure "$2" "$3" "${@:5}"
    for name in $2; do mv "$dir/$name.result" "$dir/$name.without"; done
    measure "$2" "$4" "${@:5}"
    for name in $2; do
        paste -d' ' "$dir/$name.result" "$dir/$name.without" | awk '{printf "%.3f %.3f\n", $1 - $3, $2 - $4}' >"$dir/$name.difference"
        mv "$dir/$name.difference" "$dir/$name.result"
    done
    echo "| $1 | $(result haproxy) | $(result nginx) | $(result weir) | $(quotient "$dir/weir.result" "$dir/haproxy.result") |"
}

both="${haproxy:+haproxy }weir"
all="${haproxy:+haproxy }${nginx:+nginx }weir"
[ -n "$has_lua" ] && lua=$both || lua=weir
conditions=
for n in $(seq 20); do
    for header in 0 1 2 3 4; do conditions+="    acl a$n req.hdr(x-test-$header) -m beg value$n"$'\n'; done
    conditions+="    http-request deny if a$n"$'\n'
done
scripts="    tune.lua.bool-sample-conversion normal
    lua-load $dir/action.lua
"
answer="    http-request return status 200 content-type text/plain string ok
"
spoe="    filter spoe engine bench config $dir/spoe.conf
$answer"
agents="backend agents
    mode spop
    server a1 127.0.0.1:$agent_port
"
json='    log-format %{+json}o\ %(client)ci\ %(status)ST\ %(time)Tt\ %(path)[path]
'

echo "CPU µs for a request, connection or message, with the kernel's share:"
echo
echo "| work | haproxy | nginx | weir | weir ÷ haproxy |"
echo "| --- | --: | --: | --: | --: |"
row "HTTP/1, 100 B" "$all" "$(base '' '')" load_by_generator connections=64
row "HTTP/1, 16 KiB" "$all" "$(base '' '')" load_by_generator connections=64 path=/16384
row "HTTP/1, 1 MiB" "$all" "$(base '' '')" load_by_generator connections=16 path=/1048576
row "HTTP/1, a connection for each request" "$all" "$(reuse=always base '' '')" load_by_generator connections=64 close
row "HTTP/1, 20 rules of 5 header conditions" "$both" "$(base '' "$conditions")" load_by_generator connections=64 \
    header=x-test-0:a header=x-test-1:b header=x-test-2:c header=x-test-3:d header=x-test-4:e
row "TLS 1.3, full handshake, P-256" "$both" "$(base '' "$answer" "ssl crt $dir/p256.pem")" load_by_generator tls=1.3 close connections=16
row "TLS 1.2, full handshake, P-256" "$both" "$(base '' "$answer" "ssl crt $dir/p256.pem")" load_by_generator tls=1.2 close connections=16
row "TLS 1.3, full handshake, RSA-2048" "$both" "$(base '' "$answer" "ssl crt $dir/rsa2048.pem")" load_by_generator tls=1.3 close connections=16
row "TLS 1.3, resumed" "$both" "$(base '' "$answer" "ssl crt $dir/p256.pem")" load_by_generator tls=1.3 resume close connections=16
row "TLS 1.3, 16 KiB" "$both" "$(base '' '' "ssl crt $dir/p256.pem")" load_by_generator tls=1.3 path=/16384 connections=64
row "HTTP/2 to HTTP/1, 100 B, 100 streams" "$both" "$(base '' '' 'proto h2')" load_by_weir /100 -2c -u 4 -m 100
row "HTTP/2 to HTTP/1, 1 MiB down" "$both" "$(base '' '' 'proto h2')" load_by_weir /1048576 -2c -u 4 -m 4
row "HTTP/2 to HTTP/1, 1 MiB up" "$both" "$(server=127.0.0.1:$upload_port base '' '' 'proto h2')" load_by_weir / -2c -u 4 -m 4 --body 1m
row "Stick table: source tracked, three rates" "$both" "$(base '' '    stick-table type ip size 100k expire 1m store http_req_rate(10s),conn_rate(10s),bytes_out_rate(10s)
    http-request track-sc0 src
')" load_by_generator connections=64
row "Lua action: a variable and a header" "$lua" "$(base "$scripts" "    http-request lua.some
$answer")" load_by_generator connections=16
row "Lua: 100 fetches and converters" "$lua" "$(base "$scripts" "    http-request lua.calls
$answer")" load_by_generator connections=16
row "Lua service of 1 KiB" "$lua" "$(base "$scripts" "    http-request use-service lua.kilobyte
")" load_by_generator connections=16
added "SPOE, one message for each request" "$both" "$(base '' "$answer")" "$(base '' "$spoe")
$agents" load_by_generator connections=16
added "httplog to a UNIX socket" "$both" "$(base '' "$answer")" "$(base '' "    log $dir/log.sock local0
    option httplog
$answer")" load_by_generator connections=16
added "JSON log to standard output" "$both" "$(base '' "$answer")" "$(base '' "    log stdout format raw local0
$json$answer")" load_by_generator connections=16

# Large configurations: nothing is pinned, and the CPU time is that of all threads.
backends=${BACKENDS:-33000}
certificates=${CERTIFICATES:-10000}
milliseconds() { ticks "$1" | awk -v hz="$hz" '{print ($1 + $2) * 1000 / hz}'; }
resident() { awk '/^RssAnon/ {printf "%.0f", $2 / 1000}' "/proc/$1/status"; }
settled() { # waits until the last program started uses no CPU
    local before=-1 now
    now=$(milliseconds "$PID")
    while [ "$before" != "$now" ]; do
        before=$now
        sleep 1
        now=$(milliseconds "$PID")
    done
}
large() { # title, configuration: CPU ms until idle, MB at rest, CPU ms of a reload with one changed backend
    local name before load rest again
    is_wanted "$1" || return 0
    for name in $both; do
        cores=0-1 start "$name" "$2"
        settled
        load=$(milliseconds "$PID") rest=$(resident "$PID") again="–"
        if [ "$name" = weir ] && grep -q '^backend b7$' "$dir/$name-$PORT.cfg"; then
            again=
            for n in 1 2 3 4 5; do
                sed -i '/^backend b7$/{n;s/.*/    server s 127.1.0.7:8080 weight '"$n"'/}' "$dir/$name-$PORT.cfg"
                sleep 0.2 # a file that has just been changed is not trusted
                before=$(milliseconds "$PID")
                python3 -c 'import socket, sys
s = socket.socket(socket.AF_UNIX); s.connect(sys.argv[1]); s.sendall(b"reload\n")
while s.recv(65536): pass' "$dir/socket"
                settled
                again+="$(($(milliseconds "$PID") - before))"$'\n'
            done
            again=$(median <<<"${again%$'\n'}")
        fi
        echo "| $1, $name | $load | $rest | $again |"
        stop
    done
}
echo
echo "Large configurations:"
echo
echo "| configuration | CPU ms until idle | MB at rest | CPU ms of a reload in place, one backend changed |"
echo "| --- | --: | --: | --: |"
large "$backends backends with a server each" "$(
    printf 'global\n    nbthread 2\n    stats socket %s/socket level admin\n' "$dir"
    defaults http
    printf 'frontend f\n    bind 127.0.0.1:PORT\n    default_backend b0\n'
    awk -v n="$backends" 'BEGIN {for (i = 0; i < n; i++) printf "backend b%d\n    server s 127.%d.%d.%d:8080\n", i, 1 + int(i / 65536), int(i / 256) % 256, i % 256}'
)"
if is_wanted "$certificates certificates"; then
    mkdir "$dir/many"
    awk -v n="$certificates" -v folder="$dir/many" 'BEGIN {RS = "\0"} {for (i = 0; i < n; i++) {f = folder "/" i ".pem"; printf "%s", $0 >f; close(f)}}' "$dir/p256.pem"
    large "$certificates certificates of a directory" "$(base '' "$answer" "ssl crt $dir/many")"
fi
