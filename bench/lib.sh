# Common parts of the benchmarks: programs, ports, a proxy on core 0, load and origin on core 1. Sourced by bench/*.sh with the
# paths of weir and weir-bench as arguments.
set -euo pipefail
PATH=$PATH:/usr/sbin
# Uses a separate network namespace if permitted, with Linux's default congestion control: BBR paces by a timer even on loopback,
# and its interrupts cost more than the bytes in large writes.
if [ -z "${OWN_NETWORK:-}" ] && [ -x "$(command -v ip)" ] && unshare -n true 2>/dev/null; then
    # shellcheck disable=SC2016
    OWN_NETWORK=1 exec unshare -n bash -c \
        'ip link set lo up; for way in cubic reno; do sysctl -qw net.ipv4.tcp_congestion_control=$way 2>/dev/null && break; done; exec bash "$0" "$@"' "$0" "$@"
fi
weir=$(realpath "$1")
bench=$(realpath "$2")
generator=("$bench" generator)
haproxy=${HAPROXY:-$(command -v haproxy || true)}
nginx=${NGINX:-$(command -v nginx || true)}
rounds=${ROUNDS:-5}
seconds=${SECONDS_EACH:-3}
ulimit -n "$(ulimit -Hn)" 2>/dev/null || true
dir=$(mktemp -d)
pids=()
cleanup() {
    kill -CONT "${pids[@]}" 2>/dev/null || true
    kill "${pids[@]}" 2>/dev/null || true
    wait 2>/dev/null || true
    rm -rf "$dir"
}
trap cleanup EXIT

free_port() { # a port below those that connections take
    while :; do
        local port=$((20000 + RANDOM % 12000))
        (exec 3<>"/dev/tcp/127.0.0.1/$port") 2>/dev/null || { echo "$port"; return; }
    done
}
wait_port() { # port, pid of the program if that may end
    for _ in $(seq 1200); do
        (exec 3<>"/dev/tcp/127.0.0.1/$1") 2>/dev/null && return
        [ -z "${2:-}" ] || kill -0 "$2" 2>/dev/null || break
        sleep 0.05
    done
    echo "nothing listens on port $1" >&2
    exit 1
}

# Load and origin are one process on core 1. With two, that core would spend its time on switching between them, and the proxy
# would wait.
coproc LOAD { exec taskset -c 1 "${generator[@]}"; }
load_pid=$LOAD_PID
pids+=("$load_pid")
exec {ask}>&"${LOAD[1]}" {told}<&"${LOAD[0]}"
read -r _ origin <&"$told"
ask() { # a command of the generator; prints its answer
    local answer
    echo "$*" >&"$ask"
    read -r answer <&"$told"
    echo "$answer"
}
value() { sed -n "s/.*\b$1=\([0-9.]*\).*/\1/p"; }

defaults() { # mode: the same section for all
    printf 'defaults\n    mode %s\n    timeout client 60s\n    timeout server 60s\n    timeout connect 5s\n' "$1"
}

one_thread() { # more lines of global: the beginning of a configuration with a frontend of one thread
    printf 'global\n    nbthread 1\n'
    [ $# -gt 0 ] && printf '    %s\n' "$@"
    defaults http
    printf 'frontend fe\n    bind 127.0.0.1:PORT\n'
}

# nginx gets a separate configuration, to which `nginx_http` adds lines, `nginx_listen` words of `listen`, and in which `nginx_location`
# replaces the lines that pass requests on.
nginx_forwards='proxy_http_version 1.1; proxy_set_header Connection ""; proxy_pass http://u;'
start() { # name, configuration; sets PID and PORT; runs on core 0, or on those that `cores` names
    PORT=$(free_port)
    local file="$dir/$1-$PORT.cfg"
    case $1 in
    nginx)
        cat >"$file" <<EOF
worker_processes 1; daemon off; master_process off; pid $dir/nginx-$PORT.pid; error_log /dev/null;
events { worker_connections 16384; }
http { ${nginx_http:-access_log off;} keepalive_requests 1000000000; keepalive_timeout 3600s;
  client_body_temp_path $dir/nginx-bodies; client_max_body_size 0; proxy_request_buffering off;
  upstream u { server ${server:-$origin}; keepalive 256; keepalive_requests 1000000000; }
  server { listen 127.0.0.1:$PORT backlog=4096 ${nginx_listen:-};
    location / { ${nginx_location:-$nginx_forwards} } } }
EOF
        taskset -c "${cores:-0}" "$nginx" -c "$file" 2>/dev/null &
        ;;
    forwarder) taskset -c "${cores:-0}" "$bench" forwarder "127.0.0.1:$PORT" "$origin" >/dev/null 2>&1 & ;;
    *)
        echo "${2//PORT/$PORT}" >"$file"
        taskset -c "${cores:-0}" "${!1}" -f "$file" >/dev/null 2>&1 &
        ;;
    esac
    PID=$!
    pids+=("$PID")
    wait_port "$PORT" "$PID"
}

stop() { # the one started last
    kill "$PID" 2>/dev/null || true
    wait "$PID" 2>/dev/null || true
}

ticks() { awk '{print $14, $15}' "/proc/$1/stat"; }
median() { sort -g | awk '{v[NR]=$1} END {if (NR) print (NR % 2) ? v[(NR+1)/2] : (v[NR/2]+v[NR/2+1])/2; else print "-"}'; }
hz=$(getconf CLK_TCK)
spent() { ticks "$1" | awk -v hz="$hz" '{print $1 * 1e6 / hz, $2 * 1e6 / hz}'; } # pid: µs of user and system time so far

certificate() { # name, openssl's words for the key
    openssl req -x509 -nodes -days 30 -subj /CN=bench.test -addext subjectAltName=DNS:bench.test "${@:2}" \
        -keyout "$dir/$1.key" -out "$dir/$1.crt" 2>/dev/null
    cat "$dir/$1.crt" "$dir/$1.key" >"$dir/$1.pem"
}

quotient() { # two files: divides their first columns round by round and prints the median
    paste -d' ' <(cut -d' ' -f1 "$1") <(cut -d' ' -f1 "$2") | awk '$2 > 0 {printf "%.4f\n", $1 / $2}' | median | awk '{if ($1 == "-") print "–"; else printf "%.2f", $1}'
}

# GENERATOR= names another weir for `weir load`, if the measured one does not have it.
load_program=${GENERATOR:-$weir}
answered() { # words of `weir load`, on core 1: the number of responses with a status of 2xx or 3xx
    taskset -c 1 "$load_program" load --json "$@" 2>/dev/null |
        sed -n 's/.*"statuses":{"1xx":[0-9]*,"2xx":\([0-9]*\),"3xx":\([0-9]*\).*/\1 \2/p' | awk '{print $1 + $2}'
}

# KiB of anonymous memory of a process: without the pages of the program, which do not depend on connections.
resident() { awk '/^RssAnon/ {print $2}' "/proc/$1/status"; }

idle_memory() { # scheme, path, connections: bytes for each connection to the proxy of `start` that is idle after one request
    local before holder
    taskset -c 1 "$load_program" load -u 1 -n 1 "$1://127.0.0.1:$PORT$2" >/dev/null 2>&1
    before=$(resident "$PID")
    : >"$dir/held"
    # Each user sends one request and keeps its connection open. New connections reuse memory that older ones freed when they rested.
    taskset -c 1 "$load_program" load -u "$3" -n "$3" -R $(($3 / 4)) -r 1 --hold 60 "$1://127.0.0.1:$PORT$2" >"$dir/held" 2>&1 &
    holder=$!
    # Two lines with all responses and connections: nothing happened in the second between them.
    until [ "$(awk -v n="$3" '$2 == n && $4 == n' "$dir/held" | wc -l)" -ge 2 ]; do
        kill -0 "$holder" 2>/dev/null || { echo "the connections were not held:" >&2; cat "$dir/held" >&2; exit 1; }
        sleep 0.1
    done
    sleep 2
    echo $((($(resident "$PID") - before) * 1024 / $3))
    kill -INT "$holder"
    wait "$holder"
}

serve_files() { # directory, more lines of http: nginx on core 1 serves it; sets FILES to its port
    FILES=$(free_port)
    cat >"$dir/files-$FILES.cfg" <<EOF
worker_processes 1; daemon off; master_process off; pid $dir/files-$FILES.pid; error_log /dev/null;
events { worker_connections 1024; }
http { access_log off; keepalive_requests 1000000000; keepalive_timeout 3600s; ${2:-}
  server { listen 127.0.0.1:$FILES; root $1; } }
EOF
    taskset -c 1 "$nginx" -c "$dir/files-$FILES.cfg" 2>/dev/null &
    pids+=("$!")
    wait_port "$FILES"
}

costs() { # user, and user + system µs per request to the last program started, the medians of the rounds
    local before after requests
    for _ in $(seq "$rounds"); do
        before=$(ticks "$PID")
        requests=$(ask run "target=127.0.0.1:$PORT" connections=16 "seconds=$seconds" | value requests)
        after=$(ticks "$PID")
        echo "$before $after $requests" | awk -v hz="$hz" '$5 > 0 {
            print ($3 - $1) * 1e6 / hz / $5, ($3 + $4 - $1 - $2) * 1e6 / hz / $5}'
    done >"$dir/costs"
    echo "$(cut -d' ' -f1 "$dir/costs" | median) $(cut -d' ' -f2 "$dir/costs" | median)"
}

costs_of() { # name, and what the caller's `config` takes: user, and user + system µs of a request, medians
    local name=$1
    shift
    start "$name" "$(config "$@")"
    costs
    stop
}

cost() { # user + system µs per request to the last program started
    costs | cut -d' ' -f2
}
