#!/usr/bin/env bash
# Starts Weir with the quick-start configuration and prints what to try.
set -euo pipefail
weir=$(realpath "$1")
cd "$(dirname "$0")/.."
shown=$(realpath --relative-to=. "$weir")
# A self-signed certificate for https, valid for a month: browsers and curl warn that its issuer is unknown.
certificate=$(dirname "$weir")/quickstart.pem
if ! openssl x509 -checkend 86400 -noout -in "$certificate" >/dev/null 2>&1; then
    (
        umask 077
        openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 30 -subj "/CN=localhost" \
            -addext "subjectAltName=DNS:localhost,IP:127.0.0.1" -keyout "$certificate.key" -out "$certificate.crt" 2>/dev/null
        cat "$certificate.crt" "$certificate.key" >"$certificate"
        rm "$certificate.crt" "$certificate.key"
    )
fi
export QUICKSTART_CERTIFICATE=$certificate
cat <<TEXT

  Weir is starting on examples/quickstart.cfg. Open or try:

    http://127.0.0.1:8080/              three coloured origins take turns: reload the page
    https://127.0.0.1:8443/             the same over TLS, with a certificate made on the spot
    http://127.0.0.1:8404/stats         statistics
    curl -i http://127.0.0.1:8080/api   a rule at work: a header set, a path routed
    curl http://127.0.0.1:8080/red      use_backend by path
    curl -k https://127.0.0.1:8443/     -k: the certificate is self-signed
    $shown ctl -s /tmp/weir-quickstart.sock show servers state

  Stop it with Ctrl-C.

TEXT
if [ "$(id -u)" = 0 ]; then
    export STARTED_BY_ROOT=1
fi
exec "$weir" -f examples/quickstart.cfg "${@:2}"
