#!/usr/bin/env bash
# Hits of a cache beside haproxy: CPU time of the proxy for a response that it has, of 100 bytes, 16 KiB and 1 MiB, one
# thread pinned to core 0, load (h2load) on core 1, in turn, medians of the rounds. Prints a table in Markdown.
#
#   bench/cache.sh WEIR WEIR-LOAD
#
# HAPROXY= names another binary, ROUNDS= and SECONDS_EACH= the length.
# shellcheck source=bench/lib.sh
source "$(dirname "$0")/lib.sh"

mkdir -p "$dir/files"
for size in 100 16384 1048576; do
    head -c "$size" /dev/zero | tr '\0' x >"$dir/files/$size.txt"
done
port=$(free_port)
cat >"$dir/origin.cfg" <<EOF
worker_processes 1; daemon off; master_process off; pid $dir/origin.pid; error_log /dev/null;
events { worker_connections 1024; }
http { access_log off; keepalive_requests 1000000000; keepalive_timeout 3600s;
  server { listen 127.0.0.1:$port; root $dir/files; add_header Cache-Control max-age=3600; } }
EOF
taskset -c 1 "$nginx" -c "$dir/origin.cfg" 2>/dev/null &
pids+=("$!")
wait_port "$port"

config() {
    one_thread
    printf '    default_backend be\nbackend be\n    http-request cache-use c\n    http-response cache-store c\n    server s1 127.0.0.1:%s\n' "$port"
    printf 'cache c\n    total-max-size 64\n    max-object-size 2000000\n    max-age 3600\n'
}

declare -A pid ports
spent() { ticks "${pid[$1]}" | awk -v hz="$hz" '{print $1 * 1e6 / hz, $2 * 1e6 / hz}'; }
requests() { # port, path, seconds: how many succeeded
    taskset -c 1 h2load --h1 -c 16 -D "$3" "http://127.0.0.1:$1/$2" 2>/dev/null |
        sed -n 's/^requests: .* \([0-9]*\) succeeded.*/\1/p'
}

row() { # title, file
    local name before count
    declare -A median_of user_of
    for name in weir haproxy; do
        start "$name" "$(config)"
        pid[$name]=$PID ports[$name]=$PORT
        requests "$PORT" "$2" 1 >/dev/null
        : >"$dir/$name.result"
        : >"$dir/$name.user"
    done
    for _ in $(seq "$rounds"); do
        for name in weir haproxy; do
            before=$(spent "$name")
            count=$(requests "${ports[$name]}" "$2" "$seconds")
            echo "$before $(spent "$name") ${count:-0}" |
                awk '$5 > 0 {printf "%.2f\n", ($3 - $1 + $4 - $2) / $5}' >>"$dir/$name.result"
            echo "$before $(spent "$name") ${count:-0}" |
                awk '$5 > 0 {printf "%.2f\n", ($3 - $1) / $5}' >>"$dir/$name.user"
        done
    done
    for name in weir haproxy; do
        PID=${pid[$name]}
        stop
        median_of[$name]=$(median <"$dir/$name.result")
        user_of[$name]=$(median <"$dir/$name.user")
    done
    local ratio of_user
    ratio=$(paste -d' ' "$dir/weir.result" "$dir/haproxy.result" | awk '{printf "%.4f\n", $1 / $2}' | median | awk '{printf "%.2f", $1}')
    of_user=$(paste -d' ' "$dir/weir.user" "$dir/haproxy.user" | awk '$2 > 0 {printf "%.4f\n", $1 / $2}' | median | awk '{printf "%.2f", $1}')
    printf '| %s | %s | %s | %s | %s | %s | %s |\n' "$1" "${median_of[weir]}" "${median_of[haproxy]}" "$ratio" \
        "${user_of[weir]}" "${user_of[haproxy]}" "$of_user"
}

echo "| response | weir, µs | haproxy, µs | weir ÷ haproxy | weir, user µs | haproxy, user µs | weir ÷ haproxy |"
echo "| --- | --: | --: | --: | --: | --: | --: |"
row "100 bytes" 100.txt
row "16 KiB" 16384.txt
row "1 MiB" 1048576.txt
