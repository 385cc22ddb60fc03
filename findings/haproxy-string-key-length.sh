#!/usr/bin/env bash
# HAProxy's manual gives 32 characters as the default length of string keys in stick tables (`stick-table type string`).
# HAProxy 2.6.12 (Debian 12) keeps 31: keys that first differ in the 32nd character share an entry.
#
# Needs apt-get of Debian 12. Exits with 1 if that changes.
set -euo pipefail
folder=$(mktemp -d)
trap 'kill $(jobs -p) 2>/dev/null || true; rm -rf "$folder"' EXIT
cd "$folder"
version=$(apt-cache madison haproxy | awk '$3 ~ /^2\.6\.12-/ && !found { print $3; found = 1 }')
apt-get download -qq "haproxy=$version" 2>/dev/null
dpkg -x haproxy_*.deb root
cat >check.cfg <<CFG
global
    stats socket $folder/socket level admin
defaults
    mode http
    timeout client 5s
frontend f
    bind unix@$folder/front
    stick-table type string size 10 expire 1m store http_req_cnt
    http-request track-sc0 path
    http-request return status 200
CFG
root/usr/sbin/haproxy -db -f check.cfg 2>/dev/null &
cat >ask.py <<'PYTHON'
import socket, sys, time

folder = sys.argv[1]


def ask(name, text):
    for _ in range(200):
        try:
            with socket.socket(socket.AF_UNIX) as connection:
                connection.connect(f"{folder}/{name}")
                connection.sendall(text)
                return b"".join(iter(lambda: connection.recv(65536), b"")).decode()
        except OSError:
            time.sleep(0.05)
    raise SystemExit("haproxy does not answer")


keys = ["/" + "k" * 30 + end for end in ("a", "b")]
for key in keys:
    ask("front", f"GET {key} HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n".encode())
table = ask("socket", b"show table f\n")
print(f"keys of {len(keys[0])} characters:", *keys, sep="\n  ")
print(table)
sys.exit("used:1\n" not in table or "http_req_cnt=2" not in table)
PYTHON
python3 ask.py "$folder"
