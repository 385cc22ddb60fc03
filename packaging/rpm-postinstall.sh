# Creates the user, a first configuration and the alternative for /usr/sbin/haproxy. $1 is the number of installed versions.
getent group haproxy >/dev/null || groupadd --system haproxy
getent passwd haproxy >/dev/null ||
    useradd --system --gid haproxy --home-dir /var/lib/haproxy --no-create-home --shell /sbin/nologin haproxy
mkdir -p /var/lib/haproxy/dev
if [ ! -e /etc/haproxy/haproxy.cfg ]; then
    mkdir -p /etc/haproxy
    install -m 644 /usr/share/weir/haproxy.cfg /etc/haproxy/haproxy.cfg
fi
# A program that the package haproxy installed is not replaced: remove that package first.
if [ ! -e /usr/sbin/haproxy ] || [ -L /usr/sbin/haproxy ]; then
    update-alternatives --install /usr/sbin/haproxy haproxy /usr/sbin/weir 20 || :
fi
if [ -d /run/systemd/system ]; then
    systemctl daemon-reload || :
    # The master executes the new program, and connections continue.
    if [ "$1" -gt 1 ] && systemctl is-active --quiet weir.service; then
        systemctl reload weir.service || :
    fi
fi
