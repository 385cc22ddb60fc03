#!/usr/bin/env bash
# Cache hits compared with haproxy: CPU time of the proxy for a cached response of 100 bytes, 16 KiB and 1 MiB, one thread pinned to
# core 0, load (`weir load`) on core 1, in turn, medians of the rounds. Prints a table in Markdown.
#
#     bench/cache.sh WEIR WEIR-BENCH
#
# HAPROXY= names another binary, ROUNDS= and SECONDS_EACH= the length.
#
# shellcheck source=bench/lib.sh
source "$(dirname "$0")/lib.sh"

mkdir -p "$dir/files"
for size in 100 16384 1048576; do
    head -c "$size" /dev/zero | tr '\0' x >"$dir/files/$size.txt"
done
serve_files "$dir/files" "add_header Cache-Control max-age=3600;"

config() {
    one_thread
    printf '    default_backend be\nbackend be\n    http-request cache-use c\n    http-response cache-store c\n    server s1 127.0.0.1:%s\n' "$FILES"
    printf 'cache c\n    total-max-size 64\n    max-object-size 2000000\n    max-age 3600\n'
}

declare -A pid ports
requests() { # port, path, seconds: the number of good responses
    answered -u 16 -d "$3" "http://127.0.0.1:$1/$2"
}

row() { # title, file
    local name before count time
    for name in weir haproxy; do
        start "$name" "$(config)"
        pid[$name]=$PID ports[$name]=$PORT
        requests "$PORT" "$2" 1 >/dev/null
        : >"$dir/$name.all"
        : >"$dir/$name.user"
    done
    for _ in $(seq "$rounds"); do
        for name in weir haproxy; do
            before=$(ticks "${pid[$name]}")
            count=$(requests "${ports[$name]}" "$2" "$seconds")
            echo "$before $(ticks "${pid[$name]}") ${count:-0}" |
                awk -v hz="$hz" -v all="$dir/$name.all" -v user="$dir/$name.user" '$5 > 0 {
                    printf "%.2f\n", ($3 - $1 + $4 - $2) * 1e6 / hz / $5 >>all
                    printf "%.2f\n", ($3 - $1) * 1e6 / hz / $5 >>user}'
        done
    done
    for name in weir haproxy; do
        PID=${pid[$name]}
        stop
    done
    printf '| %s |' "$1"
    for time in all user; do
        printf ' %s | %s | %s |' "$(median <"$dir/weir.$time")" "$(median <"$dir/haproxy.$time")" \
            "$(quotient "$dir/weir.$time" "$dir/haproxy.$time")"
    done
    echo
}

echo "| response | weir, µs | haproxy, µs | weir ÷ haproxy | weir, user µs | haproxy, user µs | weir ÷ haproxy |"
echo "| --- | --: | --: | --: | --: | --: | --: |"
row "100 bytes" 100.txt
row "16 KiB" 16384.txt
row "1 MiB" 1048576.txt
