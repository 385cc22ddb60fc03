#!/usr/bin/env bash
# Time and memory to load 33,000 backends: `-c` of Weir and haproxy on the same generated file, in turn, medians.
#
#   bench/load.sh WEIR           HAPROXY= names another binary, BACKENDS= and ROUNDS= the size
set -euo pipefail
PATH=$PATH:/usr/sbin
weir=$(realpath "$1")
haproxy=${HAPROXY:-$(command -v haproxy)}
backends=${BACKENDS:-33000}
rounds=${ROUNDS:-5}
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT

{
    printf 'global\n    maxconn 1000\ndefaults\n    mode http\n    timeout client 30s\n    timeout server 30s\n    timeout connect 5s\n'
    printf 'frontend fe\n    bind unix@%s/fe.sock\n    use_backend %%[req.hdr(host),lower,map(%s/hosts.map,be1)]\n    default_backend be1\n' "$dir" "$dir"
    seq "$backends" | awk '{print "backend be" $1 "\n    balance roundrobin\n    option httpchk GET /health\n    http-request set-header x-backend be" $1 \
        "\n    server s1 127.0.0.1:8001 check\n    server s2 127.0.0.1:8002 check backup"}'
} >"$dir/many.cfg"
seq "$backends" | awk '{print "host" $1 ".example be" $1}' >"$dir/hosts.map"

median() { sort -g | awk '{v[NR]=$1} END {print (NR % 2) ? v[(NR+1)/2] : (v[NR/2]+v[NR/2+1])/2}'; }
for _ in $(seq "$rounds"); do
    for name in haproxy weir; do
        /usr/bin/env time -f '%U %S %e %M' -o "$dir/time" "${!name}" -c -f "$dir/many.cfg" >"$dir/said" 2>&1 || { cat "$dir/said"; exit 1; }
        tail -1 "$dir/time" >>"$dir/$name.times"
    done
done
echo "| $backends backends | user + system s | elapsed s | peak MiB |"
echo "| --- | --- | --- | --- |"
for name in haproxy weir; do
    cpu=$(awk '{print $1 + $2}' "$dir/$name.times" | median)
    elapsed=$(cut -d' ' -f3 "$dir/$name.times" | median)
    peak=$(awk '{print $4 / 1024}' "$dir/$name.times" | median)
    printf '| %s | %.2f | %.2f | %.0f |\n' "$name" "$cpu" "$elapsed" "$peak"
done
