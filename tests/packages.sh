#!/usr/bin/env bash
# Makes packages of a binary and tries them: the .deb in a fresh Debian root, with HAProxy and without it, the image in an empty one.
#
#   tests/packages.sh WEIR           WEIR is a binary with debug information and a build ID; needs root and debootstrap
set -euo pipefail
cd "$(dirname "$0")/.."
if [ "$(id -u)" -ne 0 ]; then
    echo "packages: skipped, since debootstrap and chroot need root"
    exit
fi
work=$(mktemp -d)
root=$work/root packages=$work/packages notify=
passed=0
finish() {
    [ -z "$notify" ] || kill "$notify" 2>/dev/null || true
    # Ends processes that still run in the roots if a check failed.
    for process in /proc/[0-9]*; do
        case $(readlink "$process/root" 2>/dev/null) in "$work"/*) kill -9 "${process##*/}" 2>/dev/null || true ;; esac
    done
    umount "$root/proc" "$root/dev" "$work/container/proc" 2>/dev/null || true
    rm -rf --one-file-system "$work"
}
trap finish EXIT
check() { # what, command…: one check
    if "${@:2}"; then
        passed=$((passed + 1))
        echo "ok: $1"
    else
        echo "FAILED: $1: ${*:2}" >&2
        tail -n 20 "$work"/*.log >&2
        exit 1
    fi
}
within() { # seconds, command…: whether it succeeds before the time is over
    local end=$((SECONDS + $1))
    until "${@:2}"; do
        [ $SECONDS -lt $end ] || return 1
        read -rt 0.05 <> <(:) || true
    done
}
in_root() { chroot "$root" /usr/bin/env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin DEBIAN_FRONTEND=noninteractive "$@"; }
has() { grep -qF -- "$2" "$1"; }
lacks() { ! has "$@"; }
same() { [ "$1" = "$2" ]; }

echo "== packages"
tools/packages.sh "$1" "$packages"
mv "$packages" "$work/first"
tools/packages.sh "$1" "$packages" >/dev/null
check "the same binary gives the same packages" diff "$work/first/SHA256SUMS" "$packages/SHA256SUMS"
rm -rf "$work/first"
check "checksums hold" sh -c "cd '$packages' && sha256sum --quiet -c SHA256SUMS"
deb=$(echo "$packages"/weir_*.deb) symbols=$(echo "$packages"/weir-dbgsym_*.deb)
check "the SBOM lists the dependencies" python3 - "$packages"/*.cdx.json <<'PY'
import json, sys
sbom = json.load(open(sys.argv[1]))
names = {component['name'] for component in sbom['components']}
assert sbom['bomFormat'] == 'CycloneDX' and {'rustls', 'tokio', 'weir-proxy'} <= names, sorted(names)
PY
check "the .rpm has the program and the unit" sh -c "rpm -qpl '$packages'/*.rpm | grep -x -e /usr/sbin/weir -e /usr/lib/systemd/system/weir.service | wc -l | grep -qx 2"

echo "== a fresh Debian root"
site=$(apt-get indextargets --format '$(SITE)' 2>/dev/null | grep -v security | head -1)
suite=$(. /etc/os-release && echo "$VERSION_CODENAME")
debootstrap --variant=minbase --include=adduser,ca-certificates,libssl3,haproxy "$suite" "$root" "$site" >"$work/debootstrap.log" ||
    { tail -20 "$work/debootstrap.log"; exit 1; }
mount --bind /dev "$root/dev"
mount -t proc proc "$root/proc"
cp "$deb" "$symbols" "$root/tmp/"
haproxy_deb=$(basename "$root"/var/cache/apt/archives/haproxy_*.deb)
in_root dpkg --purge haproxy >/dev/null 2>&1
in_root find / -xdev -not -path '/tmp/*' -not -path '/proc/*' -not -path '/var/lib/dpkg/*' -not -path '/dev/*' | sort >"$work/before"

in_root dpkg -i "/tmp/${deb##*/}" >"$work/install.log" 2>&1 || { cat "$work/install.log"; exit 1; }
check "the program runs" sh -c "chroot '$root' weir -v | grep -q '^weir'"
check "without HAProxy, /usr/sbin/haproxy is Weir" same "$(in_root readlink -f /usr/sbin/haproxy)" /usr/sbin/weir
check "called haproxy, it has HAProxy's version line" sh -c "chroot '$root' haproxy -v | grep -q '^HAProxy version'"
check "the configuration of the package is valid" in_root weir -c -f /etc/haproxy/haproxy.cfg
check "bash reads the completion" in_root bash -c '. /usr/share/bash-completion/completions/weir && complete -p weir >/dev/null'
if command -v systemd-analyze >/dev/null; then
    check "systemd finds no fault with the unit" sh -c "! systemd-analyze verify --root '$root' weir.service 2>&1 | grep -E 'weir\.service:[0-9]+:'"
    # Debian's haproxy.service is rated above 9.
    check "systemd rates the sandbox of the unit as sufficient" sh -c "systemd-analyze security --no-pager --offline=true --threshold=45 packaging/weir.service >'$work/security.log' 2>&1"
else
    echo "skipped: systemd-analyze is not installed"
fi
for page in weir.8 weir-api.8 weir-load.8 weir.cfg.5; do
    check "mandoc reads $page" sh -c "mandoc -T lint -W error '$root/usr/share/man/man${page##*.}/$page.gz' >'$work/lint' || { cat '$work/lint'; false; }"
done

echo "== the service, as the unit starts it"
port=$(python3 -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])')
sed -i "s/127.0.0.1:8404/127.0.0.1:$port/" "$root/etc/haproxy/haproxy.cfg"
mkdir -p "$root/run/haproxy" "$root/var/lib/haproxy"
python3 - "$root/run/notify" >"$work/notifications" <<'PY' &
import os, socket, sys
receiver = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
receiver.bind(sys.argv[1])
os.chmod(sys.argv[1], 0o666)
while True:
    print(receiver.recv(4096).decode().replace('\n', ' '), flush=True)
PY
notify=$!
check "the manager's socket is there" within 20 test -S "$root/run/notify"
start=$(sed -n 's/^ExecStart=//p' packaging/weir.service)
start=${start//\$CONFIG/\/etc\/haproxy\/haproxy.cfg} start=${start//\$PIDFILE/\/run\/haproxy\/weir.pid}
start=${start//\$EXTRAOPTS/-S \/run\/haproxy\/master.sock}
# shellcheck disable=SC2086
in_root NOTIFY_SOCKET=/run/notify $start >"$work/weir.log" 2>&1 &
service=$!
check "it reports that it is ready" within 60 has "$work/notifications" "READY=1"
main=$(cat "$root/run/haproxy/weir.pid")
check "the worker runs as haproxy" sh -c "ps -o user= --ppid $main | grep -qx haproxy || ps -o uid= --ppid $main | tr -d ' ' | grep -qx \$(chroot '$root' id -u haproxy)"
check "it answers" sh -c "curl -sf http://127.0.0.1:$port/metrics | grep -q haproxy_process_build_info"
check "weir health asks the runtime socket" sh -c "chroot '$root' weir health -f /etc/haproxy/haproxy.cfg | grep -q '^healthy: process'"
ready() { [ "$(grep -c READY=1 "$work/notifications")" -ge "$1" ]; }
kill -USR2 "$main"
check "it reports the reload" within 60 has "$work/notifications" "RELOADING=1"
check "it is ready again" within 60 ready 2
check "it answers after the reload" curl -sf -o /dev/null "http://127.0.0.1:$port/metrics"
kill -TERM "$main"
check "it reports that it stops" within 60 has "$work/notifications" "STOPPING=1"
status=0
wait "$service" || status=$?
check "its exit status is a success for the unit" sh -c "[ $status = 0 ] || grep -qx SuccessExitStatus=$status packaging/weir.service"

echo "== debug information"
in_root dpkg -i "/tmp/${symbols##*/}" >/dev/null
id=$(readelf -n "$root/usr/sbin/weir" | sed -n 's/.*Build ID: //p')
file=$root/usr/lib/debug/.build-id/${id:0:2}/${id:2}.debug
check "the debug package has the file of the build ID" test -s "$file"
check "it has line numbers" sh -c "readelf -SW '$file' 2>/dev/null | grep -q debug_line"
in_root dpkg --purge weir-dbgsym >/dev/null

echo "== beside HAProxy"
in_root dpkg --force-confold -i "/var/cache/apt/archives/$haproxy_deb" >"$work/haproxy.log" 2>&1 || { cat "$work/haproxy.log"; exit 1; }
check "with HAProxy installed, /usr/sbin/haproxy is HAProxy" same "$(in_root readlink -f /usr/sbin/haproxy)" /usr/sbin/haproxy.distrib
in_root update-alternatives --quiet --set haproxy /usr/sbin/weir
check "the alternative makes it Weir" sh -c "chroot '$root' haproxy -vv | grep -qi weir"
in_root update-alternatives --quiet --set haproxy /usr/sbin/haproxy.distrib
in_root dpkg --remove weir >/dev/null 2>&1
check "after the removal of Weir, HAProxy has its path back" same "$(in_root readlink -f /usr/sbin/haproxy)" /usr/sbin/haproxy
check "the configuration that HAProxy uses is kept" test -e "$root/etc/haproxy/haproxy.cfg"
in_root dpkg --purge haproxy >/dev/null 2>&1

echo "== purge"
in_root dpkg -i "/tmp/${deb##*/}" >/dev/null 2>&1
in_root dpkg --purge weir >"$work/purge.log" 2>&1
in_root find / -xdev -not -path '/tmp/*' -not -path '/proc/*' -not -path '/var/lib/dpkg/*' -not -path '/dev/*' | sort >"$work/after"
check "nothing is left" sh -c "! comm -13 '$work/before' '$work/after' | grep -v -e '^/etc/.*-\$' -e '^/var/log/' -e '^/run/' | grep ."
check "the user is removed" lacks "$root/etc/passwd" haproxy

echo "== the .rpm"
rpm=$(echo "$packages"/weir-*.rpm)
in_rpm() { rpm --root "$root" --dbpath /var/lib/rpm "$@"; }
# The libraries of this root are not in its database of RPM packages.
in_rpm --nodeps --force-debian -i "$rpm" >"$work/rpm.log" 2>&1 || { cat "$work/rpm.log"; exit 1; }
check "the program of the .rpm runs" sh -c "chroot '$root' weir -v | grep -q '^weir'"
check "its libraries are those that the package requires" sh -c "! chroot '$root' ldd /usr/sbin/weir | grep 'not found'"
check "it creates the user" has "$root/etc/passwd" haproxy
check "its configuration is valid" in_root weir -c -f /etc/haproxy/haproxy.cfg
check "it offers /usr/sbin/haproxy" same "$(in_root readlink -f /usr/sbin/haproxy)" /usr/sbin/weir
check "its files are unchanged after the installation" in_rpm --nodeps -V weir
in_rpm --force-debian -e weir >"$work/rpm.log" 2>&1 || { cat "$work/rpm.log"; exit 1; }
check "after its removal, the program and the alternative are gone" sh -c "[ ! -e '$root/usr/sbin/weir' ] && [ ! -e '$root/usr/sbin/haproxy' ] && [ ! -e '$root/usr/lib/systemd/system/weir.service' ]"
check "the configuration and the user are kept" sh -c "[ -e '$root/etc/haproxy/haproxy.cfg' ] && grep -q ^haproxy: '$root/etc/passwd'"

echo "== the image"
mkdir -p "$work/image" "$work/container/proc"
mount -t proc proc "$work/container/proc"
tar -C "$work/image" -xf "$packages"/*-oci.tar
python3 - "$work/image" "$work/container" <<'PY'
import hashlib, json, os, sys, tarfile
image, root = sys.argv[1:]
def blob(descriptor):
    path = os.path.join(image, 'blobs', *descriptor['digest'].split(':'))
    data = open(path, 'rb').read()
    assert hashlib.sha256(data).hexdigest() == descriptor['digest'].split(':')[1] and len(data) == descriptor['size'], path
    return path
manifest = json.load(open(blob(json.load(open(os.path.join(image, 'index.json')))['manifests'][0])))
config = json.load(open(blob(manifest['config'])))
assert config['config']['User'] == '99:99' and config['config']['Healthcheck'], config
for layer in manifest['layers']:
    tarfile.open(blob(layer)).extractall(root, numeric_owner=True)
PY
check "digests and sizes of the image hold, and it has a user and a health check" test -x "$work/container/usr/sbin/weir"
sed -i "s/:8404/127.0.0.1:$port/" "$work/container/usr/local/etc/haproxy/haproxy.cfg"
container() { chroot --userspec=99:99 --groups= "$work/container" "$@"; }
chroot --userspec=99:99 --groups= "$work/container" /usr/sbin/weir -W -db -f /usr/local/etc/haproxy/haproxy.cfg >"$work/container.log" 2>&1 &
service=$!
check "the image's command answers" within 60 curl -sf -o /dev/null "http://127.0.0.1:$port/metrics"
check "its health check passes" container /usr/sbin/weir health -f /usr/local/etc/haproxy/haproxy.cfg
kill -USR1 "$service"
check "it ends on the stop signal" within 60 sh -c "! kill -0 $service 2>/dev/null"
check "its health check fails then" sh -c "! chroot --userspec=99:99 '$work/container' /usr/sbin/weir health -f /usr/local/etc/haproxy/haproxy.cfg 2>/dev/null"

echo "$passed passed, 0 failed"
