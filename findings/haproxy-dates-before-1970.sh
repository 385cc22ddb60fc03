#!/usr/bin/env bash
# HAProxy's integers are signed, so a time may be negative: one day before 1970 is `int(-86400)`. HAProxy 2.6.12 (Debian 12) formats
# such a time without its sign: `utime` and `http_date` print a year of ten digits. gmtime(3) and strftime(3) of the same system give
# 1969-12-31. Formats that subtract from a time must not become negative.
#
# The script prints the formatted dates of three numbers. Needs apt-get of Debian 12 and Python. Exits with 1 if the result changes.
set -euo pipefail
folder=$(mktemp -d)
trap 'kill $(jobs -p) 2>/dev/null || true; rm -rf "$folder"' EXIT
cd "$folder"
version=$(apt-cache madison haproxy | awk '$3 ~ /^2\.6\.12-/ && !found { print $3; found = 1 }')
apt-get download -qq "haproxy=$version" 2>/dev/null
dpkg -x haproxy_*.deb root
cat >check.cfg <<CONFIGURATION
defaults
    mode http
    timeout client 5s
frontend f
    bind unix@$folder/front
    http-request return status 200 content-type text/plain lf-string "%[int(86400),utime(%Y-%m-%d)] %[int(0),http_date] %[int(-86400),utime(%Y-%m-%d)] %[int(-86400),http_date]"
CONFIGURATION
root/usr/sbin/haproxy -db -f check.cfg 2>/dev/null &
cat >ask.py <<'PYTHON'
import socket, sys, time

for _ in range(200):
    try:
        with socket.socket(socket.AF_UNIX) as connection:
            connection.connect(sys.argv[1])
            connection.sendall(b"GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n")
            text = b"".join(iter(lambda: connection.recv(65536), b"")).split(b"\r\n\r\n", 1)[1].decode()
            break
    except OSError:
        time.sleep(0.05)
else:
    raise SystemExit("haproxy does not answer")
print(text)
after, epoch, before = text.split(" ")[0], " ".join(text.split(" ")[1:7]), text.split(" ")[7]
sys.exit(not (after == "1970-01-02" and epoch == "Thu, 01 Jan 1970 00:00:00 GMT" and len(before.split("-")[0]) == 10))
PYTHON
python3 ask.py "$folder/front"
