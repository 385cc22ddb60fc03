#!/usr/bin/env bash
# Large pattern lists compared with haproxy: load time, memory, and CPU of a lookup. Keys are drawn at random for each lookup, so
# that result caches do not help; the cost of drawing them is measured without the lookup and subtracted.
#
#     bench/lookups.sh WEIR WEIR-BENCH          HAPROXY= names another binary, ROUNDS= and SECONDS_EACH= the length, CASES= some of
#                                               strings networks regexes substrings path_beg
#
# shellcheck source=bench/lib.sh
source "$(dirname "$0")/lib.sh"
rounds=${ROUNDS:-3}
cases=${CASES:-strings networks regexes substrings path_beg}

awk 'BEGIN {for (n = 0; n < 1000000; n++) printf "host-%d.example.com backend-%d\n", n, n % 100}' >"$dir/strings"
# A million networks of lengths 20 to 28, spread over the address space.
awk 'BEGIN {for (n = 0; n < 1000000; n++) printf "%d.%d.%d.%d/%d %d\n", 1 + n % 223, int(n / 223) % 256, int(n / 57088) * 14 % 256, n % 16 * 16, 20 + n % 9, n}' >"$dir/networks"
awk 'BEGIN {for (n = 0; n < 1000; n++) printf "^/api/v[0-9]+/service-%d/[a-z]+$ %d\n", n, n}' >"$dir/regexes"
awk 'BEGIN {for (n = 0; n < 100000; n++) printf "crawler%d/ %d\n", n, n}' >"$dir/substrings"

config() { # case, with the list or without, lookups a request
    one_thread
    local key lookup n
    case $1 in
    strings)    key='set-var-fmt(txn.key) "host-%[rand(2000000)].example.com"' lookup="map_str($dir/strings)" ;;
    networks)   key='set-var(txn.key) rand(2000000000),add(16777216)' lookup="map_ip($dir/networks)" ;;
    regexes)    key='set-var-fmt(txn.key) "/api/v%[rand(1000000)]/service-%[rand(2000)]/list"' lookup="map_reg($dir/regexes)" ;;
    substrings) key='set-var-fmt(txn.key) "Mozilla/5.0 (compatible; crawler%[rand(200000)]/%[rand(1000000)]; +http://example.com)"' lookup="map_sub($dir/substrings)" ;;
    path_beg)
        echo '    http-request set-path "/service-%[rand(1000)]/index.html"'
        if [ "$2" = with ]; then
            for n in $(seq 0 999); do echo "    use_backend be$n if { path_beg /service-$n/ }"; done
        fi
        echo '    default_backend be0'
        for n in $(seq 0 999); do printf 'backend be%d\n    http-request return status 200\n' "$n"; done
        return
        ;;
    esac
    for n in $(seq "$3"); do
        echo "    http-request $key"
        [ "$2" = with ] && echo "    http-request set-var(txn.found$n) var(txn.key),$lookup"
    done
    echo '    http-request return status 200'
}

resident() { awk '/^Rss:/ {print $2}' "/proc/$PID/smaps_rollup"; }
loading() { # name, configuration: median CPU seconds to read it
    echo "$2" >"$dir/check.cfg"
    local n
    for n in $(seq "$rounds"); do
        { /usr/bin/time -f '%U %S' taskset -c 0 "${!1}" -c -f "$dir/check.cfg" >/dev/null; } 2>&1 | tail -1 | awk '{print $1 + $2}'
    done | median
}

echo "| list | proxy | load, CPU s | memory, MiB | ns for each lookup | load ÷ haproxy | memory ÷ haproxy | lookup ÷ haproxy |"
echo "| --- | --- | --- | --- | --- | --- | --- | --- |"
for case in $cases; do
    case $case in
    strings | networks) lookups=20 ;;
    *) lookups=1 ;;
    esac
    base=
    for name in haproxy weir; do
        without=$(config "$case" without $lookups) with=$(config "$case" with $lookups)
        load=$(echo "$(loading "$name" "$with")" "$(loading "$name" "$without")" | awk '{print $1 - $2}')
        start "$name" "$without"
        few=$(cost) small=$(resident)
        stop
        start "$name" "$with"
        many=$(cost) large=$(resident)
        stop
        line="$load $(echo "$large $small" | awk '{print ($1 - $2) / 1024}') $(echo "$many $few $lookups" | awk '{print ($1 - $2) * 1000 / $3}')"
        base=${base:-$line}
        echo "$line $base" | awk -v list="$case" -v name="$name" '
            function over(a, b) {return b > 0 ? sprintf("%.2f", a / b) : "-"}
            {printf "| %s | %s | %.2f | %.1f | %.0f | %s | %s | %s |\n", list, name, $1, $2, $3, over($1, $4), over($2, $5), over($3, $6)}'
    done
done
