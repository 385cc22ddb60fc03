#!/usr/bin/env bash
# Large configurations compared with haproxy: CPU and memory of 33,000 backends with one server each, and of a directory of
# certificates; CPU of an in-place reload with one changed backend; memory of 10,000 discovered servers. Nothing is pinned.
#
#     bench/configurations.sh WEIR             HAPROXY= names another binary, BACKENDS= and SERVERS= the numbers, CERTIFICATES= a
#                                              directory of PEM files with certificate and key
set -euo pipefail
PATH=$PATH:/usr/sbin
weir=$(realpath "$1")
haproxy=${HAPROXY:-$(command -v haproxy || true)}
backends=${BACKENDS:-33000}
servers=${SERVERS:-10000}
port=$((20000 + RANDOM % 12000))
dir=$(mktemp -d)
pid=
trap 'kill $pid 2>/dev/null || true; rm -rf "$dir"' EXIT

top() {
    printf 'global\n    nbthread 2\n    stats socket %s/socket level admin\n' "$dir"
    printf 'defaults\n    mode http\n    timeout connect 5s\n    timeout client 50s\n    timeout server 50s\n'
}
addresses() { # prefix, suffix, number
    awk -v p="$1" -v s="$2" -v n="$3" 'BEGIN {for (i = 0; i < n; i++) printf "%s127.%d.%d.%d:8080%s\n", p, 1 + int(i / 65536), int(i / 256) % 256, i % 256, s}'
}
start() { # program, file: sets pid, and waits until it listens and is idle
    "$1" -db -f "$2" >/dev/null 2>&1 &
    pid=$!
    until (exec 3<>"/dev/tcp/127.0.0.1/$port") 2>/dev/null; do sleep 0.05; done
    sleep 1
}
stop() {
    kill "$pid"
    wait "$pid" 2>/dev/null || true
}
milliseconds() { awk -v hz="$(getconf CLK_TCK)" '{print ($14 + $15) * 1000 / hz}' "/proc/$pid/stat"; }
memory() { awk -v name="$1:" '$1 == name {printf "%.1f", $2 / 1000}' "/proc/$pid/status"; }
command_line() {
    python3 -c 'import socket, sys
s = socket.socket(socket.AF_UNIX); s.connect(sys.argv[1]); s.sendall(sys.argv[2].encode() + b"\n")
while s.recv(65536): pass' "$dir/socket" "$1"
}
row() { # title, file
    for program in "$haproxy" "$weir"; do
        [ -n "$program" ] || continue
        start "$program" "$2"
        echo "| $1, $(basename "$program") | $(milliseconds) | $(memory VmHWM) | $(memory RssAnon) |"
        stop
    done
}

echo "| | CPU until idle, ms | peak, MB | at rest, MB |"
echo "| --- | --: | --: | --: |"
{
    top
    printf 'frontend f\n    bind 127.0.0.1:%s\n    default_backend b0\n' "$port"
    addresses "server s " "" "$backends" | awk '{printf "backend b%d\n    %s\n", NR - 1, $0}'
} >"$dir/backends.cfg"
row "$backends backends with a server each" "$dir/backends.cfg"
if [ -n "${CERTIFICATES:-}" ]; then
    {
        top
        printf 'frontend f\n    bind 127.0.0.1:%s ssl crt %s\n    http-request return status 200\n' "$port" "$CERTIFICATES"
    } >"$dir/certificates.cfg"
    row "certificates of a directory" "$dir/certificates.cfg"
fi
for number in 1 "$servers"; do
    { echo '[{"targets": ['; addresses '"' '",' "$number" | sed '$s/,$//'; echo ']}]'; } >"$dir/hosts.json"
    {
        top
        printf 'discovery hosts\n    targets %s/hosts.json refresh 100ms\n' "$dir"
        printf 'frontend f\n    bind 127.0.0.1:%s\n    default_backend b\n' "$port"
        printf 'backend b\n    servers from hosts max %s\n' "$servers"
    } >"$dir/discovery.cfg"
    start "$weir" "$dir/discovery.cfg"
    echo "| $number discovered servers, weir | $(milliseconds) | $(memory VmHWM) | $(memory RssAnon) |"
    stop
done

start "$weir" "$dir/backends.cfg"
for _ in 1 2 3; do
    sed -i 's/^backend b7$/&\n    option redispatch/' "$dir/backends.cfg"
    before=$(milliseconds)
    command_line reload
    sleep 1
    echo "in-place reload with one changed backend: $(($(milliseconds) - before)) ms, then $(memory RssAnon) MB"
done
stop
