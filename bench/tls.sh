#!/usr/bin/env bash
# TLS compared with haproxy: same configuration, one thread pinned to core 0, load and origin on core 1, in turn, medians of the
# rounds. Prints tables in Markdown: CPU time per connection or request, memory per idle connection, the time to load certificates.
#
#     bench/tls.sh WEIR WEIR-BENCH
#
# HAPROXY= names another binary, HAPROXY_AWSLC= one linked with AWS-LC, ROUNDS= and SECONDS_EACH= the length, IDLE= and
# CERTIFICATES= the numbers of those.
#
# shellcheck source=bench/lib.sh
source "$(dirname "$0")/lib.sh"
# shellcheck disable=SC2034  # read by `start` through its name
haproxy_awslc=${HAPROXY_AWSLC:-}
idle=${IDLE:-2000}
certificates=${CERTIFICATES:-100000}
peers="haproxy${haproxy_awslc:+ haproxy_awslc}"

certificate p256 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1
certificate rsa2048 -newkey rsa:2048
certificate rsa4096 -newkey rsa:4096

config() { # words of the bind line
    printf 'global\n    nbthread 1\n    maxconn 8000\n'
    defaults http
    printf 'frontend fe\n    bind 127.0.0.1:PORT %s\n    default_backend be\nbackend be\n    server s1 %s\n' "$*" "$origin"
}

declare -A pid port
row() { # title, target, words of the bind line, load...
    local title=$1 target=$2 name before answer requests ratios=
    local text
    text=$(config "$3")
    shift 3
    for name in weir $peers; do
        start "$name" "$text"
        pid[$name]=$PID port[$name]=$PORT
        ask run "target=127.0.0.1:$PORT" seconds=0.5 "$@" >/dev/null
        : >"$dir/$name.result"
    done
    for _ in $(seq "$rounds"); do
        for name in weir $peers; do
            before=$(spent "${pid[$name]}")
            answer=$(ask run "target=127.0.0.1:${port[$name]}" "seconds=$seconds" "$@")
            [ "$(value errors <<<"$answer")" = 0 ] || echo "$name: $answer" >&2
            requests=$(value requests <<<"$answer")
            echo "$before $(spent "${pid[$name]}") $requests" | awk '$5 > 0 {printf "%.2f\n", ($3 + $4 - $1 - $2) / $5}' >>"$dir/$name.result"
        done
    done
    for name in weir $peers; do
        PID=${pid[$name]}
        stop
        [ "$name" = weir ] || ratios+=" $(quotient "$dir/weir.result" "$dir/$name.result") |"
    done
    printf '| %s |' "$title"
    for name in weir $peers; do printf ' %s |' "$(median <"$dir/$name.result")"; done
    printf '%s %s |\n' "$ratios" "$target"
}

flood() { # name: p99 in µs of keep-alive requests while as many clients as can shake hands with RSA-4096
    start "$1" "$(config "ssl crt $dir/rsa4096.pem")"
    ask run "target=127.0.0.1:$PORT" seconds=0.5 tls=1.3 connections=4 >/dev/null
    for _ in $(seq "$rounds"); do
        echo "run target=127.0.0.1:$PORT tls=1.3 close connections=32 seconds=$((seconds + 1))" |
            taskset -c 1 "${generator[@]}" >/dev/null &
        local other=$!
        ask run "target=127.0.0.1:$PORT" "seconds=$seconds" tls=1.3 connections=4 | sed -n 's/.* p99=\([0-9]*\).*/\1/p'
        wait "$other" || true
    done | median
    stop
}

memory() { # name, words of the bind line, scheme: bytes for an idle connection
    start "$1" "$(config "$2")"
    idle_memory "$3" / "$idle"
    stop
}

title="| load | weir |"
line="| --- | --: |"
for name in $peers; do title+=" ${name/haproxy_awslc/haproxy with AWS-LC} |" line+=" --: |"; done
for name in $peers; do title+=" weir ÷ ${name/haproxy_awslc/haproxy with AWS-LC} |" line+=" --: |"; done
echo "CPU µs for a connection (handshakes) or a request:"
echo
echo "$title target |"
echo "$line --- |"
row "full handshake, P-256, TLS 1.3" "0.59" "ssl crt $dir/p256.pem" tls=1.3 close connections=16
row "full handshake, P-256, TLS 1.2" "0.59" "ssl crt $dir/p256.pem" tls=1.2 close connections=16
row "full handshake, RSA-2048, TLS 1.3" "0.91" "ssl crt $dir/rsa2048.pem" tls=1.3 close connections=16
row "resumed, TLS 1.3" "0.56" "ssl crt $dir/p256.pem" tls=1.3 resume close connections=16
row "resumed, TLS 1.2" "" "ssl crt $dir/p256.pem" tls=1.2 resume close connections=16
row "100 B keep-alive" "0.80" "ssl crt $dir/p256.pem" tls=1.3 path=/100 connections=64
row "16 KiB keep-alive" "0.70" "ssl crt $dir/p256.pem" tls=1.3 path=/16384 connections=64
row "1 MiB keep-alive" "0.75" "ssl crt $dir/p256.pem" tls=1.3 path=/1048576 connections=16
echo
echo "p99 in µs of keep-alive requests beside a flood of handshakes with RSA-4096:"
echo
echo "| proxy | p99 |"
echo "| --- | --: |"
for name in weir $peers; do echo "| $name | $(flood "$name") |"; done
echo
echo "Bytes for an idle connection (of $idle), with TLS and without:"
echo
echo "| proxy | TLS 1.3 | plain |"
echo "| --- | --: | --: |"
for name in weir $peers; do
    echo "| $name | $(memory "$name" "ssl crt $dir/p256.pem" https) | $(memory "$name" "" http) |"
done
echo
echo "Seconds to check a configuration of $certificates certificates:"
echo
mkdir "$dir/many"
awk -v n="$certificates" -v folder="$dir/many" 'BEGIN {RS = "\0"} {for (i = 0; i < n; i++) {f = folder "/" i ".pem"; printf "%s", $0 >f; close(f)}}' "$dir/p256.pem"
config "ssl crt $dir/many" | sed 's/PORT/1/' >"$dir/many.cfg"
echo "| proxy | CPU s |"
echo "| --- | --: |"
for name in weir $peers; do
    TIMEFORMAT="%U %S"
    taken=$({ time taskset -c 0 "${!name}" -c -f "$dir/many.cfg" >/dev/null 2>&1; } 2>&1 | awk '{print $1 + $2}')
    echo "| $name | $taken |"
done
