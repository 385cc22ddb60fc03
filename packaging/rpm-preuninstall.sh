# Stops the service and removes the alternative. $1 is the number of versions that remain.
if [ "$1" -eq 0 ]; then
    if [ -d /run/systemd/system ]; then
        systemctl disable --now --quiet weir.service || :
    fi
    update-alternatives --remove haproxy /usr/sbin/weir || :
fi
