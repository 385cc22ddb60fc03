#!/usr/bin/env bash
# HTTP/2 compared with haproxy and nginx: one thread pinned to core 0, load (`weir load`) and origin on core 1, in turn, medians of the
# rounds. Prints tables in Markdown: CPU time per request, memory per idle connection.
#
#     bench/h2.sh WEIR WEIR-BENCH
#
# HAPROXY= names another binary, ROUNDS= and SECONDS_EACH= the length, IDLE= the number of idle connections.
#
# shellcheck source=bench/lib.sh
source "$(dirname "$0")/lib.sh"
idle=${IDLE:-2000}
head -c 100 /dev/zero | tr '\0' x >"$dir/100"
head -c 16384 /dev/zero | tr '\0' x >"$dir/16384"
head -c 1048576 /dev/zero | tr '\0' x >"$dir/1048576"

# An HTTP/2 server, and an HTTP/1 server that accepts uploads.
h2_port=$(free_port)
h1_port=$(free_port)
cat >"$dir/origin.cfg" <<EOF
worker_processes 1; daemon off; master_process off; pid $dir/origin.pid; error_log /dev/null;
events { worker_connections 16384; }
http { access_log off; keepalive_requests 1000000000; keepalive_timeout 3600s; client_body_temp_path $dir/body; client_max_body_size 0;
  server { listen 127.0.0.1:$h2_port http2; http2_max_requests 1000000000; root $dir; }
  server { listen 127.0.0.1:$h1_port; location = /up { return 200; } root $dir; } }
EOF
taskset -c 1 "$nginx" -c "$dir/origin.cfg" 2>/dev/null &
pids+=("$!")
wait_port "$h2_port"
wait_port "$h1_port"
# nginx sends each response separately. With the load on the same core it is busier than the proxy, which then sleeps and wakes for
# single responses. Small objects therefore come from a server that sends all pending responses with one write: weir.
quick_port=$(free_port)
{
    printf 'global\n    nbthread 1\n    maxconn 8000\n'
    defaults http
    printf 'frontend quick\n    bind 127.0.0.1:%s proto h2\n' "$quick_port"
    printf '    http-request return status 200 content-type application/octet-stream file %s/100\n' "$dir"
} >"$dir/quick.cfg"
taskset -c 1 "$weir" -f "$dir/quick.cfg" >/dev/null 2>&1 &
pids+=("$!")
wait_port "$quick_port"

config() { # name, bind words, server words, server address
    case $1 in
    nginx) echo ;;
    *)
        printf 'global\n    nbthread 1\n    maxconn 8000\n'
        defaults http
        printf 'frontend fe\n    bind 127.0.0.1:PORT %s\n    http-request redirect location /x if { path /redirect }\n    default_backend be\n' "$2"
        printf 'backend be\n    http-reuse always\n    server s1 %s %s\n' "$4" "$3"
        ;;
    esac
}

start_nginx() { # server address
    PORT=$(free_port)
    cat >"$dir/nginx-$PORT.cfg" <<EOF
worker_processes 1; daemon off; master_process off; pid $dir/nginx-$PORT.pid; error_log /dev/null;
events { worker_connections 16384; }
http { access_log off; keepalive_requests 1000000000; keepalive_timeout 3600s; client_body_temp_path $dir/nbody; client_max_body_size 0;
  upstream u { server $1; keepalive 256; keepalive_requests 1000000000; }
  server { listen 127.0.0.1:$PORT http2 backlog=4096; http2_max_requests 1000000000; proxy_request_buffering off;
    location = /redirect { return 302 /x; }
    location / { proxy_http_version 1.1; proxy_set_header Connection ""; proxy_pass http://u; } } }
EOF
    taskset -c 0 "$nginx" -c "$dir/nginx-$PORT.cfg" 2>/dev/null &
    PID=$!
    pids+=("$PID")
    wait_port "$PORT"
}

requests() { # port, path, words of `weir load`: the number of good responses
    answered -d "$seconds" "${@:3}" "http://127.0.0.1:$1$2"
}

declare -A pid port
row() { # title, target, proxies, bind words, server words, server address, path, words of `weir load`...
    local title=$1 target=$2 proxies=$3 bind=$4 server=$5 address=$6 path=$7 name before count ratios=
    shift 7
    for name in $proxies; do
        if [ "$name" = nginx ]; then start_nginx "$address"; else start "$name" "$(config "$name" "$bind" "$server" "$address")"; fi
        pid[$name]=$PID port[$name]=$PORT
        seconds=1 requests "$PORT" "$path" "$@" >/dev/null
        : >"$dir/$name.result"
    done
    for _ in $(seq "$rounds"); do
        for name in $proxies; do
            before=$(spent "${pid[$name]}")
            count=$(requests "${port[$name]}" "$path" "$@")
            echo "$before $(spent "${pid[$name]}") ${count:-0}" | awk '$5 > 0 {printf "%.2f\n", ($3 + $4 - $1 - $2) / $5}' >>"$dir/$name.result"
        done
    done
    printf '| %s |' "$title"
    for name in weir haproxy nginx; do
        if [[ " $proxies " == *" $name "* ]]; then
            PID=${pid[$name]}
            stop
            printf ' %s |' "$(median <"$dir/$name.result")"
            [ "$name" = weir ] || ratios+=" $(quotient "$dir/weir.result" "$dir/$name.result") |"
        else
            printf ' – |'
            ratios+=" – |"
        fi
    done
    printf '%s %s |\n' "$ratios" "$target"
}

memory() { # name: bytes for an idle connection
    local before
    start "$1" "$(config "$1" "proto h2" "" "$origin")"
    requests "$PORT" /redirect -2c -u 1 -m 1 >/dev/null
    before=$(resident "$PID")
    # Each connection makes one request, and is then silent.
    python3 - "$PORT" "$idle" "$PID" "$before" <<'PY'
import socket, sys, time
port, count, pid, before = map(int, sys.argv[1:])
block = bytes([0x82, 0x86, 0x04, 9]) + b"/redirect" + bytes([0x41, 10]) + b"bench.test"
head = len(block).to_bytes(3, "big") + b"\x01\x05\x00\x00\x00\x01" + block
socks = []
for _ in range(count):
    s = socket.create_connection(("127.0.0.1", port))
    s.sendall(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + b"\x00\x00\x00\x04\x00\x00\x00\x00\x00" + head)
    socks.append(s)
for s in socks:
    s.recv(65536)
time.sleep(3)
rss = next(int(line.split()[1]) for line in open(f"/proc/{pid}/status") if line.startswith("RssAnon"))
print(round((rss - before) * 1024 / count))
PY
    stop
}

echo "CPU µs for a request:"
echo
echo "| load | weir | haproxy | nginx | weir ÷ haproxy | weir ÷ nginx | target |"
echo "| --- | --: | --: | --: | --: | --: | --- |"
all="weir haproxy nginx"
h2_origin=127.0.0.1:$h2_port
row "answered here, 10 streams" 0.35 "$all" "proto h2" "" "$origin" /redirect -2c -u 8 -m 10
row "answered here, 100 streams" 0.25 "$all" "proto h2" "" "$origin" /redirect -2c -u 4 -m 100
row "H2→H1, 100 B, 10 streams" 0.55 "$all" "proto h2" "" "$origin" /100 -2c -u 8 -m 10
row "H2→H1, 100 B, 100 streams" 0.45 "$all" "proto h2" "" "$origin" /100 -2c -u 4 -m 100
for from in "127.0.0.1:$quick_port" "$h2_origin"; do
    [ "$from" = "$h2_origin" ] && of=" of nginx"
    row "H1→H2, 100 B${of:-}" 0.60 "weir haproxy" "" "proto h2" "$from" /100 -1 -u 64
    row "H2→H2, 100 B${of:-}, 10 streams" 0.45 "weir haproxy" "proto h2" "proto h2" "$from" /100 -2c -u 8 -m 10
    row "H2→H2, 100 B${of:-}, 100 streams" 0.38 "weir haproxy" "proto h2" "proto h2" "$from" /100 -2c -u 4 -m 100
done
row "H2→H1, 16 KiB" 0.70 "$all" "proto h2" "" "$origin" /16384 -2c -u 8 -m 10
row "H2→H2, 16 KiB" 0.65 "weir haproxy" "proto h2" "proto h2" "$h2_origin" /16384 -2c -u 8 -m 10
row "H2→H1, 1 MiB" 0.65 "$all" "proto h2" "" "$origin" /1048576 -2c -u 4 -m 4
row "H2→H2, 1 MiB" 0.55 "weir haproxy" "proto h2" "proto h2" "$h2_origin" /1048576 -2c -u 4 -m 4
row "1 MiB up, H2→H1" 0.55 "$all" "proto h2" "" "127.0.0.1:$h1_port" /up -2c -u 4 -m 4 --body 1m
echo
echo "Bytes for an idle connection (of $idle) that served one request:"
echo
echo "| proxy | bytes |"
echo "| --- | --: |"
for name in weir haproxy; do echo "| $name | $(memory "$name") |"; done
