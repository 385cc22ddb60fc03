#!/usr/bin/env bash
# HTTP/3 compared with HAProxy 3.5, from clients and to servers: one thread each, load by `weir load` and origin by haterm, in turn,
# medians of the rounds. Prints tables in Markdown: CPU time of the proxy for a request, and memory of an idle connection.
#
#     bench/h3.sh WEIR WEIR-BENCH
#
# HAPROXY= and HATERM= name the programs of HAProxy 3.5, built for QUIC with AWS-LC. ROUNDS= is the number of rounds, IDLE=
# the number of idle connections.
#
# shellcheck source=bench/lib.sh
source "$(dirname "$0")/lib.sh"
haterm=${HATERM:?names the server of HAProxy 3.5}
idle=${IDLE:-1000}

openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -keyout "$dir/key" -out "$dir/certificate" -days 2 \
    -subj /CN=localhost 2>/dev/null
cat "$dir/certificate" "$dir/key" >"$dir/site.pem"
server_port=$(free_port)
quic_port=$(free_port)
taskset -c 1 "$haterm" -L "127.0.0.1:$server_port:$quic_port" -c P-256 >/dev/null 2>&1 &
pids+=("$!")
wait_port "$server_port"

config() {
    printf 'global\n    nbthread 1\n    maxconn 8000\n    tune.quic.fe.max-idle-timeout 120s\n'
    printf '    expose-experimental-directives\n    tune.quic.be.max-idle-timeout 120s\n'
    defaults http
    printf '    timeout http-keep-alive 120s\nfrontend fe\n    bind 127.0.0.1:PORT\n'
    printf '    bind quic4@127.0.0.1:PORT ssl crt %s alpn h3\n' "$dir/site.pem"
    printf '    http-request return status 200 content-type text/plain string "%0100d" if { path /own }\n' 0
    printf '    use_backend quic if { path /q }\n    use_backend private if { path /private }\n    default_backend be\n'
    printf 'backend be\n    http-reuse always\n    server s1 127.0.0.1:%s\n' "$server_port"
    printf 'backend quic\n    http-reuse always\n    server s1 quic4@127.0.0.1:%s ssl verify none\n' "$quic_port"
    printf 'backend private\n    http-reuse never\n    server s1 quic4@127.0.0.1:%s ssl verify none\n' "$quic_port"
}

declare -A pid port
for name in weir haproxy; do
    start "$name" "$(config)"
    pid[$name]=$PID port[$name]=$PORT
done

nanoseconds() { # process: CPU time of all its threads
    cat "/proc/$1"/task/*/schedstat | awk '{sum += $1} END {print sum}'
}

scheme=quic
load() { # name, path, words of `weir load`
    taskset -c 1 "$load_program" load "${@:3}" "$scheme://127.0.0.1:${port[$1]}$2" >/dev/null 2>&1
}

row() { # label, number of requests, path, words of `weir load`
    local label=$1 requests=$2 path=$3 before after name
    shift 3
    for name in weir haproxy; do
        : >"$dir/$name.costs"
    done
    for _ in $(seq "$rounds"); do
        for name in weir haproxy; do
            before=$(nanoseconds "${pid[$name]}")
            load "$name" "$path" -n "$requests" "$@"
            after=$(nanoseconds "${pid[$name]}")
            echo $(((after - before) / requests)) >>"$dir/$name.costs"
        done
    done
    printf '| %s | %s | %s | %s |\n' "$label" "$(micros weir)" "$(micros haproxy)" "$(quotient "$dir/weir.costs" "$dir/haproxy.costs")"
}

micros() { median <"$dir/$1.costs" | awk '{printf "%.1f", $1 / 1000}'; }

printf '| load | weir, µs | haproxy, µs | weir ÷ haproxy |\n| --- | --: | --: | --: |\n'
row 'HTTP/3 to HTTP/1, 1 MiB, 8 connections of 2 streams' 400 '/?s=1m' -u 8 -m 2
row 'HTTP/3 to HTTP/1, 1 MiB, 1 connection of 4 streams' 300 '/?s=1m' -u 1 -m 4
row 'HTTP/3 to HTTP/1, 100 B, 10 streams' 20000 '/?s=100' -u 1 -m 10
row 'answered here, 100 B, 10 streams' 50000 /own -u 1 -m 10
row 'a handshake and a request' 1000 /own -u 4 -r 1 --server no-ssl-reuse
row '1 MiB up, HTTP/3 to HTTP/1' 300 / -u 4 -m 2 --body 1m
row 'HTTP/3 to HTTP/3, 1 MiB, 4 connections of 2 streams' 300 '/q?s=1m' -u 4 -m 2
row 'HTTP/3 to HTTP/3, 100 B, 10 streams' 20000 '/q?s=100' -u 1 -m 10
scheme=http
row 'HTTP/1 to HTTP/3, 1 MiB, 8 connections' 300 '/q?s=1m' -u 8
row 'HTTP/1 to HTTP/3, 100 B, 16 connections' 20000 '/q?s=100' -u 16

held() { # label, scheme, path: memory of idle connections after one request each, in new processes
    local name
    printf '| %s' "$1"
    for name in weir haproxy; do
        start "$name" "$(config)"
        idle_memory "$2" "$3" "$idle" | awk '{printf " | %.1f", $1 / 1024}'
        stop
    done
    echo ' |'
}

printf '\n| KiB for each of %s idle connections | weir | haproxy |\n| --- | --: | --: |\n' "$idle"
held 'HTTP/3 clients' quic /own
held 'HTTP/1 clients, each with its QUIC server connection' http /private
