#!/usr/bin/env bash
# UDP load balancing compared with nginx's stream module and Envoy: one worker each on core 0, client and server on core 1, in turn,
# medians of the rounds. Prints a table in Markdown: CPU time of the proxy for each exchange or datagram, and losses; then the memory
# of idle sessions.
#
#     bench/udp.sh WEIR WEIR-BENCH
#
# NGINX_STREAM= names the module if it is not in the usual folder, ENVOY= Envoy's program; peers that are missing are left out.
# ROUNDS= is the number of rounds, SESSIONS= the number of idle sessions (100000).
#
# shellcheck source=bench/lib.sh
source "$(dirname "$0")/lib.sh"
module=${NGINX_STREAM:-/usr/lib/nginx/modules/ngx_stream_module.so}
envoy=${ENVOY:-$(command -v envoy || true)}
sessions=${SESSIONS:-100000}
# `maxconn` reserves two descriptors for each connection.
if ! ulimit -n $((2 * sessions + 20000)) 2>/dev/null && [ "$(ulimit -n)" != unlimited ]; then
    sessions=$((($(ulimit -n) - 11000) / 2))
    echo "the limit of descriptors allows only $sessions idle sessions" >&2
fi
sysctl -qw net.core.rmem_max=67108864 net.core.wmem_max=67108864 2>/dev/null || true
echo_port=$(free_port)
sink_port=$(free_port)
taskset -c 1 "$bench" datagrams echo "$echo_port" >/dev/null &
pids+=("$!")
taskset -c 1 "$bench" datagrams sink "$sink_port" >"$dir/received" &
pids+=("$!")

# The ports of each proxy: sessions with many exchanges, a session for each exchange, and one way.
declare -A process long short one_way
names=(weir)
[ -x "$nginx" ] && [ -f "$module" ] && names+=(nginx)
[ -x "$envoy" ] && names+=(envoy)

of_weir() {
    local section
    printf 'global\n    nbthread 1\n    maxconn %s\n' $((sessions + 5000))
    for section in "long $1 $echo_port" "short $2 $echo_port" "stream $3 $sink_port"; do
        # shellcheck disable=SC2086
        set -- $section
        printf 'udp-lb %s\n    dgram-bind 127.0.0.1:%s\n    timeout session 60s\n    server s 127.0.0.1:%s\n' "$1" "$2" "$3"
        if [ "$1" = short ]; then printf '    proxy-requests 1\n    proxy-responses 1\n'; fi
    done
}

of_nginx() {
    cat <<EOF
load_module $module;
worker_processes 1; daemon off; master_process off; pid $dir/stream.pid; error_log /dev/null;
worker_rlimit_nofile $((sessions + 5000)); events { worker_connections $((sessions + 5000)); }
stream {
  server { listen 127.0.0.1:$1 udp; proxy_timeout 60s; proxy_pass 127.0.0.1:$echo_port; }
  server { listen 127.0.0.1:$2 udp; proxy_timeout 60s; proxy_requests 1; proxy_responses 1; proxy_pass 127.0.0.1:$echo_port; }
  server { listen 127.0.0.1:$3 udp rcvbuf=4m; proxy_timeout 60s; proxy_pass 127.0.0.1:$sink_port; }
}
EOF
}

of_envoy() {
    local number=0 place
    echo "static_resources:"
    echo "  listeners:"
    for place in "$1" "$3"; do
        cat <<EOF
  - name: l$number
    address: {socket_address: {protocol: UDP, address: 127.0.0.1, port_value: $place}}
    udp_listener_config: {downstream_socket_config: {prefer_gro: true}}
    listener_filters:
    - name: envoy.filters.udp_listener.udp_proxy
      typed_config:
        "@type": type.googleapis.com/envoy.extensions.filters.udp.udp_proxy.v3.UdpProxyConfig
        stat_prefix: l$number
        idle_timeout: 60s
        matcher:
          on_no_match:
            action:
              name: route
              typed_config: {"@type": type.googleapis.com/envoy.extensions.filters.udp.udp_proxy.v3.Route, cluster: c$number}
EOF
        number=$((number + 1))
    done
    echo "  clusters:"
    number=0
    for place in "$echo_port" "$sink_port"; do
        cat <<EOF
  - name: c$number
    type: STATIC
    load_assignment: {cluster_name: c$number, endpoints: [{lb_endpoints: [{endpoint: {address: {socket_address: {address: 127.0.0.1, port_value: $place}}}}]}]}
EOF
        number=$((number + 1))
    done
}

# Envoy requires this ending.
for name in "${names[@]}"; do
    long[$name]=$(free_port) short[$name]=$(free_port) one_way[$name]=$(free_port)
    "of_$name" "${long[$name]}" "${short[$name]}" "${one_way[$name]}" >"$dir/$name.yaml"
    case $name in
    weir) taskset -c 0 "$weir" -f "$dir/weir.yaml" >/dev/null 2>&1 & ;;
    nginx) taskset -c 0 "$nginx" -c "$dir/nginx.yaml" 2>/dev/null & ;;
    envoy) taskset -c 0 "$envoy" -c "$dir/envoy.yaml" --concurrency 1 --base-id 77 >/dev/null 2>&1 & ;;
    esac
    process[$name]=$!
    pids+=("$!")
    # Ready once an exchange succeeds.
    until taskset -c 1 "$bench" datagrams exchanges "${long[$name]}" 1 1 2>/dev/null | grep -q ' 0 lost'; do
        kill -0 "${process[$name]}" 2>/dev/null || { echo "$name does not start" >&2; exit 1; }
    done
done

nanoseconds() { # process: CPU time of all its threads
    cat "/proc/$1"/task/*/schedstat | awk '{sum += $1} END {print sum}'
}

measured() { # name, count, words of the client: adds the CPU time for each, and what the client printed
    local name=$1 count=$2 before after
    shift 2
    before=$(nanoseconds "${process[$name]}")
    taskset -c 1 "$bench" datagrams "$@" >>"$dir/$name.seen"
    after=$(nanoseconds "${process[$name]}")
    echo $(((after - before) / count)) >>"$dir/$name.costs"
}

row() { # label, kind of port, client, count, last word
    local name label=$1 count=$4 port lines
    local -n ports=$2
    rm -f "$dir"/*.costs "$dir"/*.seen
    for _ in $(seq "$rounds"); do
        for name in "${names[@]}"; do
            port=${ports[$name]}
            [ "$name" = envoy ] && [ "$2" = short ] && continue
            lines=$(wc -l <"$dir/received")
            measured "$name" "$count" "$3" "$port" "$count" "$5"
            if [ "$3" = stream ]; then
                # The sink prints a number once nothing has arrived for a second.
                until [ "$(wc -l <"$dir/received")" -gt "$lines" ]; do sleep 0.1; done
                tail -n "+$((lines + 1))" "$dir/received" | awk -v n="$count" '{n -= $1} END {print n}' >>"$dir/$name.lost"
            else
                tail -1 "$dir/$name.seen" | sed 's/.*, \([0-9]*\) lost/\1/' >>"$dir/$name.lost"
            fi
        done
    done
    printf '| %s |' "$label"
    for name in weir nginx envoy; do
        if [ -s "$dir/$name.costs" ]; then
            printf ' %s (%s) |' "$(median <"$dir/$name.costs" | awk '{printf "%.2f", $1 / 1000}')" "$(median <"$dir/$name.lost")"
        else
            printf ' – |'
        fi
    done
    for name in nginx envoy; do
        if [ -s "$dir/$name.costs" ]; then
            printf ' %s |' "$(quotient "$dir/weir.costs" "$dir/$name.costs")"
        else
            printf ' – |'
        fi
    done
    echo
    rm -f "$dir"/*.lost
}

anonymous() { # process: its anonymous memory in bytes
    awk '$1 == "RssAnon:" {print $2 * 1024}' "/proc/$1/status"
}

memory_row() { # the bytes that an idle session takes, besides the kernel's socket
    local name before after
    printf '| %s idle sessions, bytes each |' "$sessions"
    for name in weir nginx envoy; do
        [ -n "${process[$name]:-}" ] || { printf ' – |'; continue; }
        before=$(anonymous "${process[$name]}")
        taskset -c 1 "$bench" datagrams exchanges "${long[$name]}" "$sessions" "$sessions" >/dev/null
        after=$(anonymous "${process[$name]}")
        printf ' %s |' $(((after - before) / sessions))
        echo $(((after - before) / sessions)) >"$dir/$name.costs"
    done
    for name in nginx envoy; do
        if [ -s "$dir/$name.costs" ]; then printf ' %s |' "$(quotient "$dir/weir.costs" "$dir/$name.costs")"; else printf ' – |'; fi
    done
    echo
}

echo '| load | weir, µs (lost) | nginx | envoy | weir ÷ nginx | weir ÷ envoy |'
echo '| --- | --: | --: | --: | --: | --: |'
row '100 B exchanges, 1,000 sessions' long exchanges 200000 1000
row '100 B exchanges, each in a session of its own' short exchanges 100000 1000
row '1,200 B one way, 50,000 a second' one_way stream 200000 50000
row '1,200 B one way, 100,000 a second' one_way stream 300000 100000
rm -f "$dir"/*.costs
memory_row
