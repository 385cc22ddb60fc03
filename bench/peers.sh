#!/usr/bin/env bash
# Cost of teaching a table of ENTRIES addresses with four data types to a new process: haproxy to haproxy compared with weir to
# weir, in turn. Measures the CPU time of both sides, and the time until the new process has all entries. Done once with addresses
# from all over the network 10.0.0.0/8, like those of clients, and once with consecutive ones, which a tree finds in the processor's
# cache. Called with the path of weir.
set -euo pipefail
PATH=$PATH:/usr/sbin
export WEIR=$(realpath "$1") HAPROXY=${HAPROXY:-$(command -v haproxy || true)}
export ENTRIES=${ENTRIES:-1000000} ROUNDS=${ROUNDS:-3}
exec /usr/bin/python3 - <<'EOF'
import os, socket, statistics, subprocess, sys, tempfile, time

entries, rounds = int(os.environ["ENTRIES"]), int(os.environ["ROUNDS"])
programs = {name: os.environ[name.upper()] for name in ("haproxy", "weir") if os.environ[name.upper()]}
directory = tempfile.TemporaryDirectory()


def free():
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        return bound.getsockname()[1]


def ask(path, command):
    with socket.socket(socket.AF_UNIX) as connection:
        connection.connect(path)
        connection.sendall((command + "\n").encode())
        answer = b""
        while piece := connection.recv(65536):
            answer += piece
        return answer.decode()


def cpu(process):
    with open(f"/proc/{process.pid}/stat") as file:
        fields = file.read().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


class Pair:
    """A process that knows everything; another begins beside it."""

    def __init__(self, name, step):
        self.name, self.step, self.ports = name, step, {own: free() for own in "AB"}
        self.teacher = self.start("A")
        # A connection for each batch: with the prompt, HAProxy loses commands that cross with answers.
        for first in range(0, entries, 100):
            answer = ask(self.socket("A"), ";".join(map(self.command, range(first, min(entries, first + 100)))))
            if answer.strip():
                sys.exit(f"{name}: {answer.strip()}")
        if (known := self.known("A")) != entries:
            sys.exit(f"{name} has {known} of {entries} entries")

    def command(self, number):
        # An odd step reaches each of the 2^24 addresses once.
        address = number * self.step % (1 << 24)
        return f"set table t key 10.{address >> 16}.{address >> 8 & 255}.{address & 255} data.gpc0 {number} data.conn_cnt 3 data.http_req_cnt 5 data.bytes_in_cnt {number * 1000}"

    def socket(self, own):
        return f"{directory.name}/{self.name}-{own}"

    def start(self, own):
        file = self.socket(own) + ".cfg"
        with open(file, "w") as out:
            out.write(
                f"global\n  localpeer {own}\n  nbthread 1\n  stats socket {self.socket(own)} level admin\n  stats timeout 600s\n"
                "defaults\n  timeout client 5s\n  timeout server 5s\n  timeout connect 5s\n"
                f"peers p\n  peer A 127.0.0.1:{self.ports['A']}\n  peer B 127.0.0.1:{self.ports['B']}\n"
                "backend t\n  stick-table type ip size 2m expire 1h peers p store gpc0,conn_cnt,http_req_cnt,bytes_in_cnt\n"
            )
        process = subprocess.Popen([programs[self.name], "-db", "-f", file], stderr=subprocess.DEVNULL)
        while not os.path.exists(self.socket(own)):
            time.sleep(0.01)
        return process

    def known(self, own):
        return int(ask(self.socket(own), "show table").split("used:")[1].split()[0])

    def teach(self):
        before, began = cpu(self.teacher), time.monotonic()
        pupil = self.start("B")
        while self.known("B") < entries:
            time.sleep(0.02)
        result = time.monotonic() - began, cpu(self.teacher) - before, cpu(pupil)
        pupil.kill()
        pupil.wait()
        os.unlink(self.socket("B"))
        return result


print(f"{entries} entries: time, CPU of who teaches, of who learns, of both, in seconds")
for title, step in ("all over", 0x9E3779), ("in order", 1):
    pairs = {name: Pair(name, step) for name in programs}
    results = {name: [] for name in pairs}
    for _ in range(rounds):
        for name, pair in pairs.items():
            results[name].append(pair.teach())
    for pair in pairs.values():
        pair.teacher.kill()
        pair.teacher.wait()
        os.unlink(pair.socket("A"))
    medians = {name: [statistics.median(column) for column in zip(*of)] for name, of in results.items()}
    for name, (elapsed, teacher, pupil) in medians.items():
        print(f"{title:9} {name:8} {elapsed:7.2f} {teacher:7.2f} {pupil:7.2f} {teacher + pupil:7.2f}")
    if len(medians) == 2:
        ours, theirs = ([one[0], one[1] + one[2]] for one in (medians["weir"], medians["haproxy"]))
        print("%-9s weir / haproxy: time %.2f, CPU %.2f" % (title, ours[0] / theirs[0], ours[1] / theirs[1]))
EOF
