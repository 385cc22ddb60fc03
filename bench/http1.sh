#!/usr/bin/env bash
# Weir compared with haproxy, nginx and a minimal forwarder: same configuration, one thread pinned to core 0, load and origin on
# core 1, several rounds in turn, medians. Prints tables in Markdown.
#
#     bench/http1.sh WEIR WEIR-BENCH [WEIR-WITHOUT-A-PROFILE]
#
# HAPROXY= and NGINX= name other binaries, HAPROXY35= and HAPROXY_PROFILED= additional ones of haproxy (a newer version, one built
# with a profile), ROUNDS= and SECONDS_EACH= the length.
#
# shellcheck source=bench/lib.sh
source "$(dirname "$0")/lib.sh"
idle=${IDLE:-3500}
# shellcheck disable=SC2034  # read by `start` through their names
{
    plain=${3:+$(realpath "$3")}
    haproxy35=${HAPROXY35:-}
    haproxy_profiled=${HAPROXY_PROFILED:-}
}
haproxies=haproxy
[ -z "$haproxy35" ] || haproxies+=" haproxy35"
[ -z "$haproxy_profiled" ] || haproxies+=" haproxy_profiled"
weirs="${plain:+plain }weir"

version() { "$1" -v | sed -nE '1s/^HAProxy version ([0-9.]+(-dev[0-9]+)?).*/\1/p'; }
label() {
    case $1 in
    forwarder) echo "bare forwarder" ;;
    haproxy | haproxy35) echo "haproxy $(version "${!1}")" ;;
    haproxy_profiled) echo "haproxy $(version "$haproxy_profiled"), with a profile" ;;
    plain) echo "weir, without a profile" ;;
    weir) echo "weir, with a profile" ;;
    *) echo "$1" ;;
    esac
}

proxy_config() { # mode, rules: the same text for Weir and haproxy
    cat <<EOF
global
    nbthread 1
    maxconn 8000
$(defaults $1)
frontend fe
    bind 127.0.0.1:PORT
$2
    default_backend be
backend be
    server s1 $origin
EOF
}
acls=
conditions= # each of 20 ACLs looks at five headers
for n in $(seq 20); do acls+="    http-request deny if { req.hdr(x-test-$((n % 5))) -m beg value$n }"$'\n'; done

for n in $(seq 20); do
    for header in 0 1 2 3 4; do conditions+="    acl a$n req.hdr(x-test-$header) -m beg value$n"$'\n'; done
    conditions+="    http-request deny if a$n"$'\n'
done

declare -A pid port before requests rates

begin() { # name config load... : starts it and warms it up
    start "$1" "$2"
    pid[$1]=$PID port[$1]=$PORT
    ask run "target=127.0.0.1:$PORT" seconds=1 "${@:3}" >/dev/null
    before[$1]=$(ticks "$PID") requests[$1]=0 rates[$1]=
}

slice() { # name load... : a part of a round
    local answer
    answer=$(ask run "target=127.0.0.1:${port[$1]}" seconds=0.5 "${@:2}")
    [ "$(value errors <<<"$answer")" = 0 ] || echo "$1: $answer" >&2
    requests[$1]=$((requests[$1] + $(value requests <<<"$answer")))
    rates[$1]+="$(value rate <<<"$answer")"$'\n'
}

end() { # name: stops it and appends "user system rate" in µs per request
    local after rate
    after=$(ticks "${pid[$1]}")
    rate=$(printf %s "${rates[$1]}" | median)
    echo "${before[$1]} $after ${requests[$1]} $rate" | awk -v hz="$hz" '
        {printf "%.3f %.3f %.0f\n", ($3-$1)*1e6/hz/$5, ($4-$2)*1e6/hz/$5, $6}' >>"$dir/$1.result"
    PID=${pid[$1]}
    stop
}

calls() { # pid port connections path extra...: system calls per request, counted by strace for a moment
    command -v strace >/dev/null || { echo "-"; return; }
    local pid=$1 port=$2 connections=$3 path=$4
    shift 4
    timeout -s INT 3 strace -f -c -o "$dir/strace.out" -p "$pid" >/dev/null 2>&1 &
    local tracer=$!
    while ! grep -q 'TracerPid:[^0-9]*[1-9]' "/proc/$pid/status"; do :; done
    local requests
    requests=$(ask run "target=127.0.0.1:$port" "path=$path" "connections=$connections" seconds=1 "$@" | value requests)
    wait "$tracer" || true
    awk -v r="$requests" '$NF == "total" {printf "%.1f", $4 / r; exit}' "$dir/strace.out" 2>/dev/null || echo "-"
}

against() { # name base [user]: its CPU (or user) time as a part of the other's, the median of the rounds
    [ -s "$dir/$1.result" ] && [ -s "$dir/$2.result" ] || { echo "-"; return; }
    # Measured round by round, so that a slowdown of the machine for some minutes affects both.
    paste -d' ' "$dir/$1.result" "$dir/$2.result" | awk -v user="${3:-}" '{
        own = user ? $1 : $1 + $2; other = user ? $4 : $4 + $5
        printf "%.4f\n", (other > 0 ? own / other : 0)}' | median | awk '{printf "%.2f", $1}'
}

beyond() { # name: its CPU time beyond the bare forwarder's, the median of the rounds
    paste -d' ' "$dir/$1.result" "$dir/forwarder.result" | awk '{printf "%.4f\n", $1 + $2 - $4 - $5}' | median
}

column() { # name awk-expression: its median
    awk "{print $2}" "$dir/$1.result" | median
}

rows() { # title target names... : prints a line for each, and keeps the ratios for the second table
    local title=$1 target=$2 name
    shift 2
    for name in "$@"; do
        local calls=c_$name
        printf '| %s | %s | %.2f | %.2f | %.2f | %.2f | %.0f | %s |\n' "$title" "$(label "$name")" \
            "$(column "$name" '$1')" "$(column "$name" '$2')" "$(column "$name" '$1 + $2')" "$(beyond "$name")" \
            "$(column "$name" '$3')" "${!calls:--}"
    done
    for name in "$@"; do
        case $name in
        weir | plain | forwarder) continue ;;
        esac
        printf '| %s | %s | %s | %s | %s | %s | %s | %s |\n' "$title" "$(label "$name")" \
            "$(against weir "$name" user)" "$(against weir "$name")" "$(against plain "$name" user)" \
            "$(against plain "$name")" "$(against forwarder "$name")" "$target" >>"$dir/ratios"
        target=
    done
}

scenario() { # title target mode rules connections url names extra...
    local title=$1 target=$2 mode=$3 rules=$4 connections=$5 url=$6 names=$7
    shift 7
    local config name
    config=$(proxy_config "$mode" "$rules")
    rm -f "$dir"/*.result
    # New processes for each round, because memory layout matters by several per cent. Within a round all take turns every half
    # second, so that other activity of the machine affects all of them.
    local work=("path=$url" "connections=$connections" "$@")
    for _ in $(seq "$rounds"); do
        for name in $names; do begin "$name" "$config" "${work[@]}"; done
        for _ in $(seq $((seconds * 2))); do
            for name in $names; do slice "$name" "${work[@]}"; done
        done
        for name in $names; do end "$name"; done
    done
    for name in $names; do
        start "$name" "$config"
        eval "c_$name=$(calls "$PID" "$PORT" "$connections" "$url" "$@")"
        stop
    done
    # shellcheck disable=SC2086
    rows "$title" "$target" $names
}

memory() { # bytes of memory for each idle keep-alive connection
    local config name before after
    config=$(proxy_config http "")
    for name in $haproxies nginx weir; do
        start "$name" "$config"
        # Without file-backed pages, which the kernel may reclaim in the meantime.
        pss() { awk '/^Pss_(Anon|Shmem):/ {sum += $2 * 1024} END {print sum}' "/proc/$PID/smaps_rollup"; }
        ask run "target=127.0.0.1:$PORT" connections=64 seconds=1 >/dev/null
        ask hold "target=127.0.0.1:$PORT" connections=500 >/dev/null # tables that double have done so for a while
        before=$(pss)
        ask hold "target=127.0.0.1:$PORT" "connections=$idle" >/dev/null
        after=$(pss)
        echo "$before $after $idle" | awk -v name="$(label "$name")" '
            {printf "| %s | %d | %.1f |\n", name, ($2-$1)/$3, $2/1048576}'
        ask release >/dev/null
        stop
    done
}

all="forwarder $haproxies nginx $weirs"
no_nginx="forwarder $haproxies $weirs"
headers=(header=x-test-{0:a,1:b,2:c,3:d,4:e})
echo "| load | proxy | user µs/request | system µs/request | both | beyond the bare forwarder | requests/s | system calls/request |"
echo "| --- | --- | --- | --- | --- | --- | --- | --- |"
scenario "100 B keep-alive" "CPU 0.75" http "" 64 / "$all"
scenario "16 KiB keep-alive" "CPU 0.78" http "" 64 /16384 "$all"
scenario "1 MiB" "CPU 0.95" http "" 16 /1048576 "$all"
scenario "connection per request" "CPU 0.85" http "" 64 / "$all" close
scenario "20 ACLs" "CPU 0.65" http "$acls" 64 / "$no_nginx" "${headers[@]}"
scenario "20 ACLs of 5 header conditions" "CPU 0.60" http "$conditions" 64 / "$no_nginx" "${headers[@]}"
scenario "TCP mode" "CPU 0.95" tcp "" 64 / "$no_nginx"
echo
echo "| load | divided by | weir: user | weir: CPU | without a profile: user | without a profile: CPU | bare forwarder: CPU | wanted |"
echo "| --- | --- | --- | --- | --- | --- | --- | --- |"
cat "$dir/ratios"
echo
echo "| $idle idle keep-alive connections | bytes each | MiB of the process without pages of files |"
echo "| --- | --- | --- |"
memory
