"""Runs HTTP/3 clients of other implementations against the program, and prints a table of the exchanges that work.

    cargo build -p weir
    python3 tests/clients/run.py target/debug/weir [CLIENT…]

A client that is not installed is skipped, with a note. aioquic and curl_cffi are Python packages (`pip install aioquic curl_cffi`),
`gtlsclient` is in Debian's `ngtcp2-client`, Chromium in `chromium`, and quic-go is built with Go. The exit code is 1 if an exchange
failed.
"""

import os
import pathlib
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
import time

from exchanges import NAMES
from origin import Origin, pattern

HERE = pathlib.Path(__file__).parent

CONFIGURATION = """global
 stats socket {directory}/runtime level admin
defaults
 mode http
 timeout connect 10s
 timeout client 60s
 timeout server 60s
 timeout tunnel 60s
frontend f
 bind quic4@127.0.0.1:{port} ssl crt {directory}/both.pem
 bind 127.0.0.1:{port} ssl crt {directory}/both.pem alpn h2,http/1.1
 default_backend b
backend b
 server s 127.0.0.1:{origin}
"""


def missing(name):
    print(f"SKIPPED: {name} is not installed", file=sys.stderr)


def output(command, **more):
    """Runs a client of this directory; `None` if it cannot start."""
    done = subprocess.run(command, cwd=HERE, stdout=subprocess.PIPE, text=True, **more)
    lines = (line.split("\t", 1) for line in done.stdout.splitlines() if "\t" in line)
    return {int(number): result for number, result in lines}


def of_python(package, script):
    def run(scene):
        if subprocess.run([sys.executable, "-c", f"import {package}"], stderr=subprocess.DEVNULL).returncode:
            return missing(package)
        return output([sys.executable, script, str(scene.port)], stderr=scene.log)

    return run


def quic_go(scene):
    if not shutil.which("go"):
        return missing("go")
    built = subprocess.run(["go", "build", "-o", scene.directory / "h3client", "."], cwd=HERE / "quic-go")
    if built.returncode:
        return missing("quic-go")
    return output([scene.directory / "h3client", str(scene.port)], stderr=scene.log)


def gtlsclient(scene):
    if not shutil.which("gtlsclient"):
        return missing("gtlsclient")
    sent = scene.directory / "sent"
    sent.write_bytes(pattern(300_000))

    def ask(path, *options, count=1):
        with tempfile.TemporaryDirectory(dir=scene.directory) as downloads:
            command = ["gtlsclient", "-q", "--exit-on-all-streams-close", f"--download={downloads}"]
            command += ["--max-data=16M", "--max-stream-data-bidi-local=16M", f"-n{count}", *options]
            command += ["127.0.0.1", str(scene.port), f"https://localhost:{scene.port}{path}"]
            done = subprocess.run(command, stdout=scene.log, stderr=scene.log, timeout=300)
            if done.returncode:
                return None
            file = pathlib.Path(downloads) / pathlib.Path(path).name
            return file.read_bytes() if file.exists() else b""

    def of_length(length):
        return ask(f"/bytes/{length}") == pattern(length)

    requests = scene.requests
    exchanges = {
        0: lambda: of_length(0),
        1: lambda: of_length(100),
        2: lambda: of_length(1 << 20),
        3: lambda: of_length(100 << 20),
        4: lambda: ask("/echo", f"--data={sent}") == pattern(300_000),
        8: lambda: ask("/bytes/1000", "--http-method=HEAD") == b"",
        11: lambda: requests(lambda: ask("/bytes/100", count=100)) == 100,
        12: lambda: requests(lambda: ask("/bytes/100", count=10_000)) == 10_000,
    }
    results = {}
    for number, exchange in exchanges.items():
        try:
            results[number] = "ok" if exchange() else "failed: wrong response"
        except subprocess.TimeoutExpired:
            results[number] = "failed: no end"
    return results


def chromium(scene):
    if not shutil.which("chromium"):
        return missing("chromium")
    certificate = scene.directory / "certificate.pem"
    command = f"openssl x509 -in {certificate} -pubkey -noout | openssl pkey -pubin -outform der"
    command += " | openssl dgst -sha256 -binary | openssl base64"
    key = subprocess.run(command, shell=True, capture_output=True, text=True).stdout.strip()
    scene.origin.result.clear()
    browser = subprocess.Popen(
        [
            "chromium",
            "--headless=new",
            "--no-sandbox",
            "--disable-gpu",
            "--host-resolver-rules=MAP localhost 127.0.0.1",
            f"--user-data-dir={scene.directory}/chromium",
            f"--origin-to-force-quic-on=localhost:{scene.port}",
            f"--ignore-certificate-errors-spki-list={key}",
            "--remote-debugging-port=0",
            f"https://localhost:{scene.port}/page",
        ],
        stdout=scene.log,
        stderr=scene.log,
    )
    deadline = time.time() + 600
    while not scene.origin.result and time.time() < deadline and browser.poll() is None:
        time.sleep(0.1)
    browser.kill()
    browser.wait()
    text = scene.origin.result[0] if scene.origin.result else "0\tfailed: no result"
    return {int(line.split("\t")[0]): line.split("\t")[1] for line in text.splitlines()}


CLIENTS = {
    "quic-go": quic_go,
    "aioquic": of_python("aioquic", "aioquic_client.py"),
    "curl_cffi": of_python("curl_cffi", "curl_client.py"),
    "gtlsclient": gtlsclient,
    "Chromium": chromium,
}


class Scene:
    """The program with a server behind it."""

    def __init__(self, program, directory):
        self.directory = pathlib.Path(directory)
        self.log = open(self.directory / "log", "w")
        self.origin = Origin()
        threading.Thread(target=self.origin.serve_forever, daemon=True).start()
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = free.getsockname()[1]
        self.issue()
        text = CONFIGURATION.format(
            directory=directory, port=self.port, origin=self.origin.server_address[1]
        )
        (self.directory / "haproxy.cfg").write_text(text)
        self.process = subprocess.Popen([program, "-db", "-f", self.directory / "haproxy.cfg"], stderr=self.log)
        while True:
            try:
                socket.create_connection(("127.0.0.1", self.port)).close()
                return
            except OSError:
                if self.process.poll() is not None:
                    sys.exit((self.directory / "log").read_text())
                time.sleep(0.05)

    def issue(self):
        """Issues a certificate that Chromium accepts with its key's hash."""
        key, certificate = self.directory / "key.pem", self.directory / "certificate.pem"
        command = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes"]
        command += ["-days", "9", "-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost"]
        subprocess.run(command + ["-keyout", key, "-out", certificate], check=True, stderr=self.log)
        (self.directory / "both.pem").write_text(certificate.read_text() + key.read_text())

    def requests(self, work):
        """Returns how many HTTP/3 requests were served during `work`."""
        before = self.count()
        work()
        return self.count() - before

    def count(self):
        with socket.socket(socket.AF_UNIX) as runtime:
            runtime.connect(str(self.directory / "runtime"))
            runtime.sendall(b"show stat f 1 -1\n")
            answer = b""
            while piece := runtime.recv(65536):
                answer += piece
        names, values = (line.split(",") for line in answer.decode().splitlines()[:2])
        return int(values[names.index("h3req")])


def main():
    program, *wanted = sys.argv[1:]
    results = {}
    with tempfile.TemporaryDirectory() as directory:
        scene = Scene(os.path.abspath(program), directory)
        try:
            for name in wanted or CLIENTS:
                started = time.time()
                found = CLIENTS[name](scene)
                if found is not None:
                    results[name] = found
                    print(f"{name}: {time.time() - started:.0f} s", file=sys.stderr)
        finally:
            scene.process.kill()
            scene.process.wait()
    failures = [
        f"{name}, {NAMES[number]}: {result}"
        for name, found in results.items()
        for number, result in found.items()
        if result not in ("ok", "-")
    ]
    print("| exchange | " + " | ".join(results) + " |")
    print("| --- |" + " --- |" * len(results))
    for number, exchange in enumerate(NAMES):
        cells = (found.get(number, "-") for found in results.values())
        print(f"| {exchange} | " + " | ".join("fails" if cell.startswith("failed") else cell for cell in cells) + " |")
    print("\n".join(failures), file=sys.stderr)
    sys.exit(1 if failures else 0)


main()
