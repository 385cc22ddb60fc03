#!/usr/bin/env bash
# Takes a Weir that counts its own steps through what it is used for, so that the compiler learns which paths are taken:
# see tools/release.sh. Measures nothing.
#
#   bench/train.sh WEIR WEIR-LOAD          SECONDS_EACH= the length of each exercise
# shellcheck source=bench/lib.sh
source "$(dirname "$0")/lib.sh"
seconds=${SECONDS_EACH:-1}

config() { # mode, rules of the frontend, of the backend, whose servers are the one origin under several names
    cat <<EOF
global
    nbthread 1
    maxconn 4000
    stats socket $dir/socket
$(defaults "$1")
frontend fe
    bind 127.0.0.1:PORT
$2
    default_backend be
backend be
$3
$(for n in 1 2 3 4; do echo "    server s$n $origin check inter 200ms"; done)
EOF
}

exercise() { # what, mode, rules of the frontend, of the backend, then runs of the load
    local what=$1 text run
    text=$(config "$2" "$3" "$4")
    shift 4
    start weir "$text"
    echo "training: $what"
    for run in "$@"; do
        # shellcheck disable=SC2086
        ask run "target=127.0.0.1:$PORT" "seconds=$seconds" $run >/dev/null
    done
    # What it counted is written when it ends by itself, not when a signal ends it.
    kill -USR1 "$PID"
    wait "$PID" || true
}

seq 20000 | awk '{print "host" $1 ".example b" $1 % 7}' >"$dir/hosts.map"
seq 20000 | awk '{printf "10.%d.%d.0/24 n%d\n", int($1 / 256) % 256, $1 % 256, $1}' >"$dir/networks.map"
seq 300 | awk '{print "^/old-" $1 "/.*$ /new-" $1}' >"$dir/paths.map"
acls=$(for n in $(seq 20); do echo "    http-request deny if { req.hdr(x-test-$((n % 5))) -m beg value$n }"; done)
rules="    option httplog
    log 127.0.0.1:9 local0
    option forwardfor
    acl api path_beg /api /v1
    acl image path_end .png .jpg .css
    acl inside src 10.0.0.0/8 192.168.0.0/16
    http-request set-header x-forwarded-proto http
    http-request set-var(txn.key) req.hdr(host),lower,map($dir/hosts.map,none)
    http-request set-var(txn.net) src,map_ip($dir/networks.map,none)
    http-request set-header x-old %[path,map_reg($dir/paths.map)] if !image
    http-request set-header x-id %[rand(1000),mul(7),mod(13)]-%[path,sha1,hex,lower]
    http-request del-header x-unwanted
    http-request redirect prefix /elsewhere if api inside
    http-response set-header x-frame-options DENY
    http-response del-header server"
variables=$(seq 100 | awk '{print "    http-request set-var(txn.v" $1 ") int(" $1 ")"
    print "    http-request set-var(txn.w" $1 ") var(txn.v" $1 "),add(1)"}')
answers="    http-request return status 200 content-type text/plain string ok if { path /ok }
    http-request redirect location /ok"
statistics="    stats enable
    stats uri /stats"
cookies="    balance uri
    cookie SRV insert indirect nocache"
many=connections=64
few=connections=16

exercise "small and large responses" http "" "" "$many path=/" "$many path=/16384" "$few path=/1048576"
exercise "a connection for each request" http "" "" "$many path=/ close"
exercise "conditions on headers" http "$acls" "" \
    "$many path=/ header=x-test-0:a header=x-test-1:b header=x-test-2:c header=x-test-3:d header=x-test-4:e"
exercise "rules, maps and logs" http "$rules" "    balance leastconn" \
    "$many path=/a/b.html header=host:host77.example" "$many path=/ close"
exercise "cookies and hashes" http "" "$cookies" "$many path=/" "$many path=/16384"
exercise "variables" http "$variables" "    balance roundrobin" "$many path=/"
exercise "answers of its own" http "$answers" "" "$many path=/" "$many path=/ok" "$many path=/ok close"
exercise "streams of TCP" tcp "" "    balance source" "$many path=/" "$few path=/1048576" "$many path=/ close"
exercise "splicing" http "" "    option splice-auto" "$few path=/1048576"
exercise "statistics" http "$statistics" "" "connections=4 path=/stats" "connections=4 path=/stats;csv"

echo "training: configurations"
{
    defaults http
    printf 'frontend fe\n    bind unix@%s/fe.sock\n    default_backend be1\n' "$dir"
    seq 3000 | awk '{print "backend be" $1 "\n    balance roundrobin\n    option httpchk GET /health"
        print "    http-request set-header x-backend be" $1
        print "    server s1 127.0.0.1:8001 check\n    server s2 127.0.0.1:8002 check backup"}'
} >"$dir/many.cfg"
for file in "$dir/many.cfg" "$(dirname "$0")"/../tests/configs/*.cfg; do
    # Some ask for what is not on this machine: that is to be learnt from too.
    "$weir" -c -f "$file" >/dev/null 2>&1 || true
done
