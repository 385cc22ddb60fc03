#!/usr/bin/env bash
# A fleet of MEMBERS processes with one thread each, all on this machine, that share an aggregate table: the share of the requests
# of one client that a process has counted when a request arrives, the traffic of each process with KEYS new keys per second in the
# fleet, and whether all processes show the same sums after one was killed. Called with the path of weir.
set -euo pipefail
export WEIR=$(realpath "$1")
export MEMBERS=${MEMBERS:-50} RATE=${RATE:-120} KEYS=${KEYS:-1000} EVERY=${EVERY:-20ms} LENGTH=${LENGTH:-10}
ulimit -n "$(ulimit -Hn)" 2>/dev/null || true
exec /usr/bin/python3 - <<'EOF'
import http.client, os, socket, subprocess, sys, tempfile, threading, time

members, rate, keys = (int(os.environ[name]) for name in ("MEMBERS", "RATE", "KEYS"))
length = int(os.environ["LENGTH"])
directory = tempfile.TemporaryDirectory()
held = []


def free():
    bound = socket.socket()
    bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    bound.bind(("127.0.0.1", 0))
    held.append(bound)
    return bound.getsockname()[1]


ports = [(free(), free()) for _ in range(members)]
for one in held:
    one.close()


def ask(member, command):
    with socket.socket(socket.AF_UNIX) as connection:
        connection.connect(f"{directory.name}/n{member}")
        connection.sendall((command + "\n").encode())
        answer = b""
        while piece := connection.recv(65536):
            answer += piece
        return answer.decode()


def start(member):
    file = f"{directory.name}/n{member}.cfg"
    with open(file, "w") as out:
        out.write(
            f"global\n  localpeer n{member}\n  nbthread 1\n  stats socket {directory.name}/n{member} level admin\n"
            "  stats timeout 600s\ndefaults\n  mode http\n  timeout client 60s\n  timeout server 60s\n  timeout connect 5s\n"
            "peers P\n" + "".join(f"  peer n{other} 127.0.0.1:{port}\n" for other, (port, _) in enumerate(ports)) +
            "backend limits\n  stick-table type string len 16 size 1m expire 1h peers P "
            f"aggregate every {os.environ['EVERY']} store http_req_cnt,http_req_rate(10s)\n"
            f"frontend f\n  bind 127.0.0.1:{ports[member][1]}\n  http-request track-sc0 path table limits\n"
            "  http-request return status 200 content-type text/plain lf-string \"%[sc0_http_req_cnt]\"\n"
        )
    return subprocess.Popen([os.environ["WEIR"], "-db", "-f", file], stderr=subprocess.DEVNULL)


def wait(what, test):
    until = time.monotonic() + 300
    while not test():
        if time.monotonic() > until:
            sys.exit(f"no end of waiting: {what}")
        time.sleep(0.2)


def known(member):
    return ask(member, "show peers").count("last_status=ESTA")


def memory(process):
    with open(f"/proc/{process.pid}/status") as file:
        return next(int(line.split()[1]) for line in file if line.startswith("VmRSS")) / 1024


def cpu(process):
    with open(f"/proc/{process.pid}/stat") as file:
        fields = file.read().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def traffic(member):
    words = ask(member, "show peers").split()
    of = lambda name: sum(int(word.split("=")[1]) for word in words if word.startswith(name))
    return of("bytes_sent="), of("bytes_received=")


all_processes = [start(member) for member in range(members)]
try:
    for member in range(members):
        wait("socket", lambda: os.path.exists(f"{directory.name}/n{member}"))
    for member in range(members):
        wait("sessions", lambda: known(member) == members - 1)
    before = [cpu(own) for own in all_processes]
    time.sleep(length)
    idle = sum(cpu(own) for own in all_processes) - sum(before)
    print(f"{members} members: {sum(map(memory, all_processes)):.0f} MB, idle {100 * idle / length:.0f} % of a core", flush=True)

    clients = [http.client.HTTPConnection("127.0.0.1", port) for _, port in ports]
    seen = truth = 0
    begin = time.monotonic()
    for request in range(rate * length):
        time.sleep(max(0, begin + request / rate - time.monotonic()))
        client = clients[request % members]
        client.request("GET", "/one")
        truth += request + 1
        seen += int(client.getresponse().read())
    print(f"{rate} requests per second of one client: {100 * seen / truth:.2f} % counted", flush=True)
    shown = lambda member: f"http_req_cnt={rate * length} " in ask(member, "show table limits key /one")
    for member in range(members):
        wait(f"sum at n{member}", lambda: shown(member))

    before, spent = [traffic(member) for member in range(members)], [cpu(own) for own in all_processes]
    begin = time.monotonic()

    def count(member):
        for turn in range(length * 10):
            time.sleep(max(0, begin + turn / 10 - time.monotonic()))
            batch = range(turn, turn + keys // 10 // members)
            text = ";".join(f"set table limits key {member}-{turn}-{key} data.http_req_cnt 1" for key in batch)
            ask(member, text)

    threads = [threading.Thread(target=count, args=(member,)) for member in range(members)]
    [thread.start() for thread in threads]
    [thread.join() for thread in threads]
    elapsed = time.monotonic() - begin
    made = members * length * 10 * (keys // 10 // members)
    used = lambda member: int(ask(member, "show table").split("used:")[1].split()[0])
    wait("keys", lambda: used(0) == made + 1)
    after = [traffic(member) for member in range(members)]
    per_node = [sum(now[way] - then[way] for now, then in zip(after, before)) / members / elapsed for way in (0, 1)]
    busy = (sum(cpu(own) for own in all_processes) - sum(spent)) / elapsed / members
    print(f"{made / elapsed:.0f} new keys per second: each sends {per_node[0] / 1e6:.2f} MB/s and receives {per_node[1] / 1e6:.2f} MB/s, "
          f"{100 * busy:.0f} % of a core each, {sum(map(memory, all_processes)):.0f} MB together", flush=True)

    all_processes[1].kill()
    all_processes[1].wait()
    for request in range(members * 2):
        if request % members != 1:
            clients[request % members].request("GET", "/one")
            clients[request % members].getresponse().read()
    total = rate * length + (members - 1) * 2
    for member in (own for own in range(members) if own != 1):
        wait(f"sum at n{member}", lambda: f"http_req_cnt={total} " in ask(member, "show table limits key /one"))
    print("all members show the same sum after one was killed")
finally:
    for own in all_processes:
        own.kill()
EOF
