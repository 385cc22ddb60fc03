#!/bin/bash
# CPU time that an action of a script costs: one connection, requests answered by a rule, one thread; with no action, with four that do
# nothing, and with one that sets a variable and a header. In turn beside HAProxy, where HAPROXY names a program that has Lua.
#
#   bench/lua.sh [REQUESTS]
set -eu
requests=${1:-150000}
weir=${WEIR:-target/quick/weir}
dir=$(mktemp -d)
trap 'rm -rf -- "$dir"' EXIT
cat >"$dir/bench.lua" <<'LUA'
core.register_action("noop", { "http-req" }, function(txn) end)
core.register_action("some", { "http-req" }, function(txn)
	txn:set_var("txn.a", txn.sf:path())
	txn.http:req_set_header("x-a", "b")
end)
LUA
cat >"$dir/load.py" <<'PY'
import socket, subprocess, sys, time

program, directory, load, requests = sys.argv[1], sys.argv[2], sys.argv[3], int(sys.argv[4])
request = b"GET /abc HTTP/1.1\r\nHost: a\r\n\r\n"


def measure(rules):
    with socket.socket() as own:
        own.bind(("127.0.0.1", 0))
        port = own.getsockname()[1]
    text = f"""global
 nbthread 1
 tune.lua.bool-sample-conversion normal
 {load} {directory}/bench.lua
defaults
 mode http
 timeout client 9s
 timeout server 9s
 timeout connect 9s
frontend f
 bind 127.0.0.1:{port}
{rules} http-request return status 200 string x content-type text/plain
"""
    with open(f"{directory}/bench.cfg", "w") as file:
        file.write(text)
    command = [program, "-f", f"{directory}/bench.cfg", "-db"]
    proxy = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    for _ in range(200):
        try:
            client = socket.create_connection(("127.0.0.1", port))
            break
        except OSError:
            time.sleep(0.05)
    client.sendall(request)
    length = len(client.recv(65536))

    def burst(count):
        client.sendall(request * count)
        got = 0
        while got < count * length:
            got += len(client.recv(1 << 16))

    def cpu():
        with open(f"/proc/{proxy.pid}/stat") as stat:
            fields = stat.read().split()
        return int(fields[13]) * 10000

    for _ in range(50):
        burst(20)
    before = cpu()
    for _ in range(requests // 20):
        burst(20)
    user = (cpu() - before) / requests
    proxy.kill()
    proxy.wait()
    return user


none = measure("")
noop = (measure(" http-request lua.noop\n" * 4) - none) / 4
some = measure(" http-request lua.some\n") - none
print(f"{program.split('/')[-1]:12} {load:20} none {none:5.2f}  noop {noop:5.2f}  some {some:5.2f}  (user us)")
PY
for load in lua-load lua-load-per-thread; do
    [ -z "${HAPROXY:-}" ] || python3 "$dir/load.py" "$HAPROXY" "$dir" "$load" "$requests"
    python3 "$dir/load.py" "$weir" "$dir" "$load" "$requests"
done
