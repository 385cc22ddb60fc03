#!/usr/bin/env bash
# The costs of each kind of work for HAProxy, nginx and Weir, a line each: CPU time (user and system) of a proxy with one thread. For
# scripts, agents and logs it is the difference to the same work without them. Load, origins and agents have core 1 for themselves,
# and the proxies take turns on core 0. A dash is a peer that is missing, or cannot do the work.
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
peer() { # words of peers.py: sets READY to the line that it prints when it is ready
    taskset -c 1 python3 "$here/peers.py" "$@" >"$dir/$1.ready" &
    pids+=("$!")
    until [ -s "$dir/$1.ready" ]; do sleep 0.05; done
    read -r READY <"$dir/$1.ready"
}
peer agent
agent_port=$READY
peer datagrams "$dir/log.sock"

base() { # lines of global, of the frontend, words of bind
    printf 'global\n    nbthread 1\n    maxconn 8000\n%s' "$1"
    printf 'defaults\n    mode http\n    timeout connect 5s\n    timeout client 60s\n    timeout server 60s\n    http-reuse %s\n' "${reuse:-safe}"
    printf 'frontend fe\n    bind 127.0.0.1:PORT %s\n%s    default_backend be\nbackend be\n    server s1 %s %s\n' "${3:-}" "$2" \
        "${server:-$origin}" "${server_words:-}"
}

load_by_generator() { ask run "target=127.0.0.1:$1" "seconds=$seconds" "${@:2}" | value requests; }
load_by_weir() { answered -d "$seconds" "${@:3}" "$scheme://127.0.0.1:$1$2"; }
scheme=http

declare -A pid port
# An entry is the name of a proxy, or NAME.without for the proxy with the configuration in `without`.
measure() { # entries, configuration, function that loads a port and prints the number of requests: writes ENTRY.result
    local entry before count
    rm -f "$dir"/*.result
    for entry in $1; do
        if [ "$entry" = "${entry%.without}" ]; then start "$entry" "$2"; else nginx_http= start "${entry%.without}" "$without"; fi
        pid[$entry]=$PID port[$entry]=$PORT
        seconds=1 "${@:3:1}" "$PORT" "${@:4}" >/dev/null || true
        : >"$dir/$entry.result"
    done
    for _ in $(seq "$rounds"); do
        for entry in $1; do
            before=$(spent "${pid[$entry]}")
            count=$("${@:3:1}" "${port[$entry]}" "${@:4}")
            echo "$before $(spent "${pid[$entry]}") ${count:-0}" |
                awk '$5 > 0 {printf "%.3f %.3f\n", ($3 + $4 - $1 - $2) / $5, ($3 - $1) / $5}' >>"$dir/$entry.result"
        done
    done
    for entry in $1; do
        PID=${pid[$entry]}
        stop
    done
}
result() { # name: the median, with the kernel's share
    if [ -s "$dir/$1.result" ]; then
        awk '{print $1, ($1 > 0 ? ($1 - $2) * 100 / $1 : 0)}' "$dir/$1.result" | sort -g |
            awk '{v[NR] = $1; k[NR] = $2} END {m = int((NR + 1) / 2); printf "%.1f (%d %%)", v[m], k[m]}'
    else
        echo "–"
    fi
}
divided() { # name: Weir's costs divided by its costs
    if [ -s "$dir/$1.result" ]; then quotient "$dir/weir.result" "$dir/$1.result"; else echo "–"; fi
}
show() { # title
    echo "| $1 | $(result haproxy) | $(result nginx) | $(result weir) | $(divided haproxy) | $(divided nginx) |"
}
row() { # title, proxies, configuration, load...
    is_wanted "$1" || return 0
    measure "$2" "${@:3}"
    show "$1"
}
added() { # title, proxies, configuration, load...: the difference to the configuration in `without`
    is_wanted "$1" || return 0
    local name entries=
    for name in $2; do entries+="$name.without $name "; done
    measure "$entries" "${@:3}"
    for name in $2; do
        paste -d' ' "$dir/$name.result" "$dir/$name.without.result" | awk '{printf "%.3f %.3f\n", $1 - $3, $2 - $4}' >"$dir/difference"
        mv "$dir/difference" "$dir/$name.result"
    done
    show "$1"
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
json='    log-format %{+json}o\ %(client)ci\ %(status)ST\ %(time)Tt\ %(path)HPO
'

echo "CPU µs for a request, connection or message, with the kernel's share:"
echo
echo "| work | haproxy | nginx | weir | weir ÷ haproxy | weir ÷ nginx |"
echo "| --- | --: | --: | --: | --: | --: |"
row "HTTP/1, 100 B" "$all" "$(base '' '')" load_by_generator connections=64
row "HTTP/1, 16 KiB" "$all" "$(base '' '')" load_by_generator connections=64 path=/16384
row "HTTP/1, 1 MiB" "$all" "$(base '' '')" load_by_generator connections=16 path=/1048576
row "HTTP/1, a connection for each request" "$all" "$(reuse=always base '' '')" load_by_generator connections=64 close
row "HTTP/1, 20 rules of 5 header conditions" "$both" "$(base '' "$conditions")" load_by_generator connections=64 \
    header=x-test-0:a header=x-test-1:b header=x-test-2:c header=x-test-3:d header=x-test-4:e
nginx_tls="ssl_certificate $dir/p256.pem; ssl_certificate_key $dir/p256.pem; ssl_protocols TLSv1.2 TLSv1.3; ssl_session_timeout 1h;"
nginx_answer='default_type text/plain; return 200 ok;'
nginx_listen=ssl nginx_http="access_log off; $nginx_tls" nginx_location=$nginx_answer
row "TLS 1.3, full handshake, P-256" "$all" "$(base '' "$answer" "ssl crt $dir/p256.pem")" load_by_generator tls=1.3 close connections=16
row "TLS 1.2, full handshake, P-256" "$all" "$(base '' "$answer" "ssl crt $dir/p256.pem")" load_by_generator tls=1.2 close connections=16
nginx_http=${nginx_http//p256/rsa2048}
row "TLS 1.3, full handshake, RSA-2048" "$all" "$(base '' "$answer" "ssl crt $dir/rsa2048.pem")" load_by_generator tls=1.3 close connections=16
nginx_http=${nginx_http//rsa2048/p256}
row "TLS 1.3, resumed" "$all" "$(base '' "$answer" "ssl crt $dir/p256.pem")" load_by_generator tls=1.3 resume close connections=16
unset nginx_location
row "TLS 1.3, 16 KiB" "$all" "$(base '' '' "ssl crt $dir/p256.pem")" load_by_generator tls=1.3 path=/16384 connections=64
nginx_listen=http2 nginx_http="access_log off; http2_max_requests 1000000000;"
row "HTTP/2 to HTTP/1, 100 B, 100 streams" "$all" "$(base '' '' 'proto h2')" load_by_weir /100 -2c -u 4 -m 100
row "HTTP/2 to HTTP/1, 1 MiB down" "$all" "$(base '' '' 'proto h2')" load_by_weir /1048576 -2c -u 4 -m 4
server=127.0.0.1:$upload_port \
    row "HTTP/2 to HTTP/1, 1 MiB up" "$all" "$(server=127.0.0.1:$upload_port base '' '' 'proto h2')" load_by_weir / -2c -u 4 -m 4 --body 1m
unset nginx_listen nginx_http
row "Stick table: source tracked, three rates" "$both" "$(base '' '    stick-table type ip size 100k expire 1m store http_req_rate(10s),conn_rate(10s),bytes_out_rate(10s)
    http-request track-sc0 src
')" load_by_generator connections=64
without=$(base '' "$answer")
added "Lua action: a variable and a header" "$lua" "$(base "$scripts" "    http-request lua.some
$answer")" load_by_generator connections=16
added "Lua: 100 fetches and converters" "$lua" "$(base "$scripts" "    http-request lua.calls
$answer")" load_by_generator connections=16
row "Lua service of 1 KiB" "$lua" "$(base "$scripts" "    http-request use-service lua.kilobyte
")" load_by_generator connections=16
added "SPOE, one message for each request" "$both" "$(base '' "$spoe")
$agents" load_by_generator connections=16
nginx_location=$nginx_answer nginx_http="access_log syslog:server=unix:$dir/log.sock;"
added "httplog to a UNIX socket" "$all" "$(base '' "    log $dir/log.sock local0
    option httplog
$answer")" load_by_generator connections=16
unset nginx_location nginx_http
added "JSON log to standard output" "$both" "$(base '' "    log stdout format raw local0
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
