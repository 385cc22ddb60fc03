#!/usr/bin/env bash
# Compares the balancing algorithms of Weir and haproxy, in turn, with one of four origins 25 times slower than the others. Origins
# answer after 10 ms, the slow one after 250 ms; the load consists of connections that each send the next request after a response.
# The proxy has one thread pinned to core 0, load and origins share core 1.
#
#     bench/balance.sh WEIR WEIR-BENCH        HAPROXY= names another binary, ROUNDS=, SECONDS_EACH=, CONNECTIONS= the size
#
# shellcheck source=bench/lib.sh
source "$(dirname "$0")/lib.sh"
connections=${CONNECTIONS:-64}

origin() { # number, delay in µs: starts an origin in a separate process; sets ADDRESS
    mkfifo "$dir/in$1"
    taskset -c 1 "${generator[@]}" <"$dir/in$1" >"$dir/out$1" &
    pids+=($!)
    local fd
    exec {fd}>"$dir/in$1" # stays open as long as the script: the origin ends with it
    echo "slow $2" >&"$fd"
    until grep -qs '^answers' "$dir/out$1"; do sleep 0.05; done
    ADDRESS=$(awk '/^listening/ {print $2}' "$dir/out$1")
}

config() { # algorithm, servers
    cat <<EOF
global
    nbthread 1
    maxconn 4000
$(defaults http)
listen l
    bind 127.0.0.1:PORT
    balance $1
$2
EOF
}

equal='' slowed=''
for n in 1 2 3 4; do
    origin "$n" 10000
    equal+="    server s$n $ADDRESS"$'\n'
    [ "$n" = 4 ] && origin 5 250000
    slowed+="    server s$n $ADDRESS"$'\n'
done

measure() { # name algorithm servers: one line of the load generator, after a second to warm up
    start "$1" "$(config "$2" "$3")"
    local load="run target=127.0.0.1:$PORT path=/1000 connections=$connections"
    ask "$load" seconds=1 >/dev/null
    ask "$load" "seconds=$seconds"
    stop
}

echo "| origins | proxy | algorithm | requests/s | p50, ms | p99, ms | p99.9, ms |"
echo "| --- | --- | --- | --- | --- | --- | --- |"
for origins in equal slowed; do
    for algorithm in roundrobin leastconn 'random(2)' peak-ewma; do
        for name in haproxy weir; do
            [ "$name $algorithm" = "haproxy peak-ewma" ] && continue
            for _ in $(seq "$rounds"); do measure "$name" "$algorithm" "${!origins}"; done >"$dir/results"
            get() { value "$1" <"$dir/results" | median; }
            awk -v o="$origins" -v n="$name" -v a="$algorithm" -v r="$(get rate)" -v p="$(get p50)" -v q="$(get p99)" -v s="$(get 'p99\.9')" \
                'BEGIN {printf "| %s | %s | %s | %d | %.2f | %.2f | %.2f |\n", o == "equal" ? "4 alike" : "one 25 times slower", n, a, r, p/1000, q/1000, s/1000}'
        done
    done
done
