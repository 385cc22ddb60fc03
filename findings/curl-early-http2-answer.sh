#!/usr/bin/env bash
# An HTTP/2 server may send a response before the request body has arrived, and then ask the client to stop sending with
# RST_STREAM and NO_ERROR. RFC 9113 section 8.1 forbids clients to discard the response because of that.
#
# Observed with a server that sends the response, END_STREAM and the reset in one write, during an upload of 2 MB:
#   libcurl 7.84.0 (curl_cffi 0.5.10)  accepts the response. Without the reset it waits for its window until it times out.
#   curl 7.88.1 (Debian 12)            fails with code 92 and prints none of the response. Without the reset it times out too.
#   libcurl 8.16.0 (pycurl 7.45.7)     accepts the response, with or without the reset.
# 7.88.1 fails with the reset and without it. All of them accept the response if the reset follows after they have read it, here
# after the acknowledgement of a PING.
#
# Needs apt-get of Debian 12, and python3 with venv. Exits with 1 if any of this changes.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
# Debian keeps only the latest revision of 7.88.1.
version=$(apt-cache madison curl | awk '$3 ~ /^7\.88\.1-/ && !found { print $3; found = 1 }')
for package in curl libcurl4; do
    apt-get download -qq "$package=$version" 2>/dev/null
    dpkg -x "$package"_*.deb root
done
python3 -m venv venv
venv/bin/pip install -q curl_cffi==0.5.10 pycurl==7.45.7

cat >check.py <<'PYTHON'
import glob, io, os, socket, subprocess, sys, threading

SIZE = 2_000_000


def frame(kind, flags, stream, payload=b""):
    return len(payload).to_bytes(3, "big") + bytes([kind, flags]) + stream.to_bytes(4, "big") + payload


def serve(connection, ending):
    """Answers 413 with `hello` when the first DATA frame arrives, followed by the frame that `ending` names."""
    reader, answered = connection.makefile("rb"), None
    connection.sendall(frame(4, 0, 0))
    reader.read(24)
    try:
        while len(header := reader.read(9)) == 9:
            reader.read(int.from_bytes(header[:3], "big"))
            kind, flags, stream = header[3], header[4], int.from_bytes(header[5:], "big")
            if kind == 4 and not flags & 1:
                connection.sendall(frame(4, 1, 0))
            if kind == 6 and flags & 1:
                connection.sendall(frame(3, 0, answered, bytes(4)))
            if kind == 0 and answered is None:
                answered = stream
                behind = {"none": b"", "reset": frame(3, 0, stream, bytes(4)), "ping": frame(6, 0, 0, b"answered")}
                connection.sendall(frame(1, 4, stream, b"\x08\x03413") + frame(0, 1, stream, b"hello") + behind[ending])
    except OSError:
        pass


def listen(ending):
    listener = socket.create_server(("127.0.0.1", 0))

    def accept():
        while True:
            threading.Thread(target=serve, args=(listener.accept()[0], ending), daemon=True).start()

    threading.Thread(target=accept, daemon=True).start()
    return f"http://127.0.0.1:{listener.getsockname()[1]}/"


def debian(url):
    with open("upload", "wb") as upload:
        upload.write(b"x" * SIZE)
    libraries = os.path.dirname(glob.glob("root/usr/lib/*/libcurl.so.4")[0])
    command = ["root/usr/bin/curl", "-s", "-m", "5", "--http2-prior-knowledge", "--data-binary", "@upload", url]
    done = subprocess.run(command, stdout=subprocess.PIPE, env={**os.environ, "LD_LIBRARY_PATH": libraries})
    return done.returncode, done.stdout


def cffi(url):
    from curl_cffi import Curl, CurlError, CurlOpt

    curl, got = Curl(), io.BytesIO()
    options = [(CurlOpt.URL, url.encode()), (CurlOpt.HTTP_VERSION, 5), (CurlOpt.POSTFIELDSIZE, SIZE)]
    options += [(CurlOpt.POSTFIELDS, b"x" * SIZE), (CurlOpt.WRITEDATA, got), (CurlOpt.TIMEOUT_MS, 5000)]
    for option, value in options:
        curl.setopt(option, value)
    try:
        curl.perform()
        return 0, got.getvalue()
    except CurlError as error:
        return error.code, got.getvalue()


def newer(url):
    import pycurl

    curl, got = pycurl.Curl(), io.BytesIO()
    curl.setopt(pycurl.URL, url)
    curl.setopt(pycurl.HTTP_VERSION, 5)
    curl.setopt(pycurl.POSTFIELDS, "x" * SIZE)
    curl.setopt(pycurl.WRITEDATA, got)
    curl.setopt(pycurl.TIMEOUT, 5)
    try:
        curl.perform()
        return 0, got.getvalue()
    except pycurl.error as error:
        return error.args[0], got.getvalue()


clients = {"7.84.0": cffi, "7.88.1": debian, "8.16.0": newer}
seen = {name: {ending: client(listen(ending)) for ending in ("none", "reset", "ping")} for name, client in clients.items()}
for name, results in seen.items():
    print(name, results)
expected = {
    "7.84.0": {"none": (28, b"hello"), "reset": (0, b"hello"), "ping": (0, b"hello")},
    "7.88.1": {"none": (28, b"hello"), "reset": (92, b""), "ping": (0, b"hello")},
    "8.16.0": {"none": (0, b"hello"), "reset": (0, b"hello"), "ping": (0, b"hello")},
}
sys.exit(seen != expected)
PYTHON
venv/bin/python check.py
