#!/usr/bin/env bash
# Exercises an instrumented Weir with typical workloads, so that the compiler learns the usual paths: see tools/release.sh. Measures
# nothing.
#
#     bench/train.sh WEIR WEIR-BENCH          SECONDS_EACH= the length of each exercise
#
# shellcheck source=bench/lib.sh
source "$(dirname "$0")/lib.sh"
seconds=${SECONDS_EACH:-1}

# Settings for the following exercises: options of the bind and server lines, the address of the servers, global lines, sections.
bind='' server='' address=$origin globals='' sections=''

config() { # mode, rules of the frontend, rules of the backend; its servers are the one origin under several names
    cat <<EOF
global
    nbthread 1
    maxconn 4000
    stats socket $dir/socket
$globals
$(defaults "$1")
frontend fe
    bind 127.0.0.1:PORT $bind
$2
    default_backend be
backend be
$3
$(for n in 1 2 3 4; do echo "    server s$n $address $server check inter 200ms"; done)
$sections
EOF
}

finish() { # a Weir: its counts are written when it exits by itself, not when a signal kills it
    kill -USR1 "$1"
    wait "$1" || true
}

load() { # words of the generator, or `h2load` or `h3load`, a path, and the options of h2load or `weir load`
    if [ "$1" = h3load ]; then
        # The generator is the same program: its own counts are discarded.
        LLVM_PROFILE_FILE=/dev/null taskset -c 1 "$weir" load -d "$seconds" "${@:3}" "quic://127.0.0.1:$PORT$2" >/dev/null 2>&1
    elif [ "$1" = h2load ]; then
        taskset -c 1 h2load -D "$seconds" "${@:3}" "${scheme:-http}://127.0.0.1:$PORT$2" >/dev/null 2>&1
    else
        ask run "target=127.0.0.1:$PORT" "seconds=$seconds" "$@" >/dev/null
    fi
}

exercise() { # what, mode, rules of the frontend, of the backend, then runs of the load
    local what=$1 text run
    text=$(config "$2" "$3" "$4")
    shift 4
    start weir "$text"
    echo "training: $what"
    for run in "$@"; do
        # shellcheck disable=SC2086
        load $run
    done
    finish "$PID"
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

# A Weir acts as the HTTP/2 and TLS server, with cacheable and compressible responses, and is trained by that as well.
openssl req -x509 -nodes -days 30 -subj /CN=train.test -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 \
    -keyout "$dir/key" -out "$dir/crt" 2>/dev/null
cat "$dir/crt" "$dir/key" >"$dir/pem"
for size in 100 16384 1048576; do
    head -c "$size" /dev/zero | tr '\0' x >"$dir/$size"
done
cat "$(dirname "$0")"/../docs/*.md >"$dir/text"
files=$(for name in 100 16384 1048576 text; do
    echo "    http-request return status 200 content-type text/plain file $dir/$name hdr Cache-Control max-age=3600 if { path /$name }"
done)
{
    one_thread "maxconn 4000" "tune.bufsize 1100000"
    printf '    bind unix@%s/tls ssl crt %s alpn h2,http/1.1\n    http-after-response set-header ETag 5e8c3f-64\n' "$dir" "$dir/pem"
    printf '    bind quic4@127.0.0.1:PORT ssl crt %s alpn h3\n' "$dir/pem"
    printf '%s\n    http-request return status 200\n' "$files"
} >"$dir/server.text"
start weir "$(cat "$dir/server.text")"
server_pid=$PID server_address=127.0.0.1:$PORT

exercise "HTTP/2 to HTTP/1" http "$answers if { path /redirect }" "    http-reuse always" \
    "h2load / -c 8 -m 10" "h2load / -c 4 -m 100" "h2load /redirect -c 4 -m 100" "h2load /16384 -c 8 -m 10" \
    "h2load /1048576 -c 4 -m 4" "h2load / -c 4 -m 4 -d $dir/1048576"
quic="    bind quic4@127.0.0.1:PORT ssl crt $dir/pem alpn h3"
exercise "HTTP/3 to HTTP/1" http "$quic
$answers if { path /redirect }" "    http-reuse always" "h3load / -u 8 -m 10" "h3load / -u 1 -m 10" "h3load /redirect -u 4 -m 10" \
    "h3load /16384 -u 8 -m 4" "h3load /1048576 -u 8 -m 2" "h3load /1048576 -u 1 -m 4" "h3load / -u 4 -m 2 --body 1m" \
    "h3load / -u 4 -r 1"
address=quic4@$server_address server='ssl verify none alpn h3'
exercise "HTTP/3 to HTTP/3" http "$quic" "    http-reuse always" "h3load /100 -u 8 -m 10" "h3load /1048576 -u 4 -m 2" \
    "$many path=/100" "$few path=/1048576"
address=$server_address server='proto h2'
exercise "HTTP/2 to HTTP/2" http "" "    http-reuse always" "h2load /100 -c 8 -m 10" "h2load /100 -c 4 -m 100" \
    "h2load /16384 -c 8 -m 10" "h2load /1048576 -c 4 -m 4" "$many path=/100" "$many path=/16384"
server=''
exercise "compression" http "" "    compression algo gzip
    compression type text/plain" "$few path=/text header=accept-encoding:gzip"
for level in 1 6; do
    globals="    tune.comp.maxlevel $level"
    exercise "all codings at level $level" http "" "    compression algo gzip br zstd
    compression type text/plain" "$few path=/text header=accept-encoding:gzip" "$few path=/text header=accept-encoding:br" \
        "$few path=/text header=accept-encoding:zstd" "$few path=/16384 header=accept-encoding:br"
done
cat >"$dir/train.lua" <<'LUA'
core.register_action("mark", {"http-req"}, function(txn)
    txn:set_var("txn.mark", txn.f:path() .. "/" .. txn.c:lower(txn.sf:req_hdr("host")))
    txn.http:req_set_header("x-mark", txn:get_var("txn.mark"))
    for name, values in pairs(txn.http:req_get_headers()) do
        if name == "x-unwanted" then txn.http:req_del_header(name) end
    end
end)
core.register_fetches("answer", function(txn) return tostring(42 + #txn.f:method()) end)
core.register_converters("twice", function(text) return text .. text end)
core.register_service("hello", "http", function(applet)
    applet:set_status(200)
    applet:add_header("content-type", "text/plain")
    applet:start_response()
    applet:send("hello " .. applet.path)
end)
LUA
globals="    lua-load $dir/train.lua"
exercise "scripts" http "    http-request lua.mark
    http-request set-header x-answer %[lua.answer,lua.twice]
    http-request use-service lua.hello if { path /hello }" "" "$many path=/100" "$many path=/hello"
globals=''
sections="cache c
    total-max-size 64
    max-object-size 2000000
    max-age 3600"
exercise "a cache" http "" "    http-request cache-use c
    http-response cache-store c" "$many path=/100" "$many path=/16384" "$few path=/1048576" "h2load /100 -c 4 -m 10"
sections="backend t
    stick-table type ip size 100k expire 10m store conn_rate(10s),http_req_rate(10s),http_err_rate(10s)"
exercise "stick tables" http "    http-request track-sc0 src table t" "    stick-table type string len 32 size 100k expire 10m
    stick on req.cook(session)" "$many path=/100 header=cookie:session=0123456789"
sections='' bind="ssl crt $dir/pem alpn h2,http/1.1"
address=$origin scheme=https
exercise "TLS" http "" "" "$many path=/ tls=1.3" "$many path=/16384 tls=1.3" "$few path=/1048576 tls=1.3" "$few tls=1.3 close" \
    "$few tls=1.2 close" "$few tls=1.3 resume close" "$few tls=1.2 resume close" "h2load / -c 4 -m 10"
address=unix@$dir/tls server='ssl verify none alpn h2,http/1.1' scheme=http bind=''
exercise "TLS to servers" http "" "    http-reuse always" "$many path=/100" "$many path=/16384" "$few path=/1048576"
finish "$server_pid"

echo "training: configurations"
{
    defaults http
    printf 'frontend fe\n    bind unix@%s/fe.sock\n    default_backend be1\n' "$dir"
    seq 3000 | awk '{print "backend be" $1 "\n    balance roundrobin\n    option httpchk GET /health"
        print "    http-request set-header x-backend be" $1
        print "    server s1 127.0.0.1:8001 check\n    server s2 127.0.0.1:8002 check backup"}'
} >"$dir/many.cfg"
for file in "$dir/many.cfg" "$(dirname "$0")"/../tests/configs/*.cfg; do
    # Some fail because this machine lacks something, which is also part of the training.
    "$weir" -c -f "$file" >/dev/null 2>&1 || true
done
