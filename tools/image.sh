#!/usr/bin/env bash
# Makes a container image of a binary as an OCI archive: the program, the libraries that it is linked with, and certificates of
# authorities. Nothing else is in it, not even a shell. It runs as the user 99 without capabilities, on a read-only root.
#
#   tools/image.sh WEIR FILE [GATEWAY] podman load -i FILE, docker load -i FILE or skopeo copy oci-archive:FILE … read it
# With GATEWAY, the binary of weir-gateway, the image is the one of the Kubernetes controller (docs/gateway.md).
set -euo pipefail
weir=$(realpath "$1") file=$(realpath -m "$2") gateway=${3:+$(realpath "$3")}
cd "$(dirname "$0")/.."
version=$(sed -n '/workspace.package/,/^$/s/^version = "\(.*\)"/\1/p' Cargo.toml)
epoch=${SOURCE_DATE_EPOCH:-$(git log -1 --format=%ct)}
case $(uname -m) in x86_64) architecture=amd64 ;; aarch64) architecture=arm64 ;; *) architecture=$(uname -m) ;; esac
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
root=$work/root layout=$work/layout
mkdir -p "$root"/{etc/ssl/certs,run/haproxy,tmp,var/lib/haproxy,usr/sbin,usr/local/sbin,usr/local/etc/haproxy} "$layout/blobs/sha256"

cp "$weir" "$root/usr/sbin/weir"
ln -s /usr/sbin/weir "$root/usr/local/sbin/haproxy"
if [ -n "$gateway" ]; then
    cp "$gateway" "$root/usr/sbin/weir-gateway"
    mkdir -p "$root/run/weir-gateway"
fi
# The libraries keep their paths; the program's interpreter is one of them.
for program in "$weir" ${gateway:+"$gateway"}; do ldd "$program"; done | grep -o '/[^ ]*' | sort -u | while read -r library; do
    mkdir -p "$root$(dirname "$library")"
    cp -L "$library" "$root$library"
done
cp -L /etc/ssl/certs/ca-certificates.crt "$root/etc/ssl/certs/"
printf 'root:x:0:0:root:/:/\nhaproxy:x:99:99:Weir:/var/lib/haproxy:/\n' >"$root/etc/passwd"
printf 'root:x:0:\nhaproxy:x:99:\n' >"$root/etc/group"
echo 'hosts: files dns' >"$root/etc/nsswitch.conf"
cp packaging/haproxy.cfg "$root/usr/local/etc/haproxy/haproxy.cfg"
# The container's own log takes the place of syslog; the user is set by the image.
sed -i -e 's|log /dev/log local0|log stdout format raw local0|' -e '/chroot\|^    user\|^    group/d' \
    -e 's|bind 127.0.0.1:8404|bind :8404|' "$root/usr/local/etc/haproxy/haproxy.cfg"
chmod -R u=rwX,go=rX "$root"
chmod 1777 "$root/tmp" "$root/run/haproxy" "$root/var/lib/haproxy" ${gateway:+"$root/run/weir-gateway"}

pack() { tar --sort=name --mtime="@$epoch" --owner=0 --group=0 --numeric-owner --format=posix --pax-option=exthdr.name=%d/PaxHeaders/%f,delete=atime,delete=ctime -C "$1" -cf - .; }
sum() { sha256sum "$1" | cut -d' ' -f1; }
blob() { # file: moves it among the blobs, prints its descriptor's digest and size
    local digest
    digest=$(sum "$1")
    mv "$1" "$layout/blobs/sha256/$digest"
    echo "\"digest\":\"sha256:$digest\",\"size\":$(stat -c %s "$layout/blobs/sha256/$digest")"
}

pack "$root" >"$work/layer.tar"
content=$(sum "$work/layer.tar")
gzip -9n "$work/layer.tar"
layer=$(blob "$work/layer.tar.gz")
created=$(date -u -d "@$epoch" +%Y-%m-%dT%H:%M:%SZ)
title=${gateway:+weir-gateway} title=${title:-weir}
labels="\"org.opencontainers.image.title\":\"$title\",\"org.opencontainers.image.version\":\"$version\",\"org.opencontainers.image.licenses\":\"MIT OR Apache-2.0\""
if [ -n "$gateway" ]; then
    program='"Entrypoint":["/usr/sbin/weir-gateway"],"Cmd":["--run","/usr/sbin/weir"],"StopSignal":"SIGTERM","ExposedPorts":{"9902/tcp":{}}'
else
    program='"Entrypoint":["/usr/sbin/weir"],"Cmd":["-W","-db","-f","/usr/local/etc/haproxy/haproxy.cfg"],"StopSignal":"SIGUSR1","ExposedPorts":{"8404/tcp":{}},"Healthcheck":{"Test":["CMD","/usr/sbin/weir","health","-f","/usr/local/etc/haproxy/haproxy.cfg"],"Interval":10000000000,"Timeout":6000000000,"StartPeriod":5000000000,"Retries":3}'
fi
cat >"$work/config" <<JSON
{"created":"$created","architecture":"$architecture","os":"linux","config":{"User":"99:99","Env":["PATH=/usr/local/sbin:/usr/sbin"],$program,"WorkingDir":"/","Labels":{$labels}},"rootfs":{"type":"layers","diff_ids":["sha256:$content"]},"history":[{"created":"$created","created_by":"tools/image.sh"}]}
JSON
config=$(blob "$work/config")
cat >"$work/manifest" <<JSON
{"schemaVersion":2,"mediaType":"application/vnd.oci.image.manifest.v1+json","config":{"mediaType":"application/vnd.oci.image.config.v1+json",$config},"layers":[{"mediaType":"application/vnd.oci.image.layer.v1.tar+gzip",$layer}],"annotations":{$labels}}
JSON
manifest=$(blob "$work/manifest")
cat >"$layout/index.json" <<JSON
{"schemaVersion":2,"mediaType":"application/vnd.oci.image.index.v1+json","manifests":[{"mediaType":"application/vnd.oci.image.manifest.v1+json",$manifest,"platform":{"architecture":"$architecture","os":"linux"},"annotations":{"org.opencontainers.image.ref.name":"$title:$version"}}]}
JSON
echo '{"imageLayoutVersion":"1.0.0"}' >"$layout/oci-layout"
pack "$layout" >"$file"
