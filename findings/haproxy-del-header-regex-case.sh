#!/usr/bin/env bash
# Header names are case-insensitive, and the methods `str`, `beg`, `end` and `sub` of HAProxy's `del-header -m` ignore case. With HAProxy
# 2.6.12 (Debian 12), `-m reg` does not: the expression sees the name in lower case, so `^X-` never matches, and the header stays
# without a warning. The manual does not mention this.
#
# The script prints which rules remove the header `X-One`, sent as such. Needs apt-get of Debian 12 and Python. Exits with 1 if the
# result changes.
set -euo pipefail
folder=$(mktemp -d)
trap 'kill $(jobs -p) 2>/dev/null || true; rm -rf "$folder"' EXIT
cd "$folder"
version=$(apt-cache madison haproxy | awk '$3 ~ /^2\.6\.12-/ && !found { print $3; found = 1 }')
apt-get download -qq "haproxy=$version" 2>/dev/null
dpkg -x haproxy_*.deb root
rules=("X-One -m str" "X- -m beg" "-One -m end" "X-O -m sub" "^X- -m reg" "^x- -m reg")
{
    printf 'defaults\n    mode http\n    timeout client 5s\nfrontend f\n    bind unix@%s/front\n' "$folder"
    for number in "${!rules[@]}"; do
        echo "    http-request del-header ${rules[$number]} if { path /$number }"
    done
    echo '    http-request return status 200 content-type text/plain lf-string "%[req.hdr_cnt(x-one)]"'
} >check.cfg
root/usr/sbin/haproxy -db -f check.cfg 2>/dev/null &
cat >ask.py <<'PYTHON'
import socket, sys, time

path, rules = sys.argv[1], sys.argv[2:]


def ask(number):
    request = f"GET /{number} HTTP/1.1\r\nHost: a\r\nX-One: 1\r\nConnection: close\r\n\r\n".encode()
    for _ in range(200):
        try:
            with socket.socket(socket.AF_UNIX) as connection:
                connection.connect(path)
                connection.sendall(request)
                return b"".join(iter(lambda: connection.recv(65536), b"")).endswith(b"\r\n\r\n0")
        except OSError:
            time.sleep(0.05)
    raise SystemExit("haproxy does not answer")


removed = [ask(number) for number in range(len(rules))]
for rule, is_removed in zip(rules, removed):
    print(f"del-header {rule}: {'removed' if is_removed else 'kept'}")
sys.exit(removed != [True, True, True, True, False, True])
PYTHON
python3 ask.py "$folder/front" "${rules[@]}"
