//! Installed clients of other implementations: Chromium, ngtcp2's `gtlsclient`, and curl_cffi and aioquic in the
//! Python interpreter that the environment variable `WEIR_H3_PYTHON` names. The others are skipped, with a note.

use std::fmt::Write as _;
use std::process::{Command, Stdio};

use weir_tests::{Authority, Origin, Weir, free_port, scratch};

use super::DEFAULTS;

/// The names the interpreter with curl_cffi and aioquic.
const PYTHON: &str = "WEIR_H3_PYTHON";

struct Scene {
    weir: Weir,
    port: u16,
    certificate: std::path::PathBuf,
    _authority: Authority,
    _origin: Origin,
}

/// The byte at a position of all bodies.
fn byte(at: usize) -> u8 {
    b'a' + (at % 251 % 26) as u8
}

fn body(length: usize) -> Vec<u8> {
    (0..length).map(byte).collect()
}

/// Starts the program with a server that returns as many bytes as the path requests, and repeats bodies. The page `/page` requests all
/// sizes, and writes the differences into its document.
fn scene() -> Scene {
    let page = r#"<html><body>pending<script>
        const byte = at => 97 + at % 251 % 26;
        const same = (bytes, length) => bytes.length === length && bytes.every((byte_, at) => byte_ === byte(at));
        const get = async length => {
            const bytes = new Uint8Array(await (await fetch("/get/" + length)).arrayBuffer());
            return same(bytes, length) ? [] : ["GET " + length + ": " + bytes.length];
        };
        const post = async length => {
            const sent = Uint8Array.from({length}, (_, at) => byte(at));
            const answer = await fetch("/echo", {method: "POST", body: sent});
            const bytes = new Uint8Array(await answer.arrayBuffer());
            return same(bytes, length) ? [] : ["POST " + length + ": " + bytes.length];
        };
        const run = async () => {
            let wrong = [];
            for (const length of [0, 1, 100, 20000, 1048576]) wrong = wrong.concat(await get(length), await post(length));
            const all = await Promise.all(Array.from({length: 100}, (_, at) => get(at * 97)));
            wrong = wrong.concat(...all);
            const entries = performance.getEntriesByType("resource");
            const other = entries.filter(entry => entry.nextHopProtocol !== "h3");
            wrong = wrong.concat(other.map(entry => entry.nextHopProtocol));
            document.body.textContent = "requests " + entries.length + " wrong [" + wrong.join(", ") + "]";
        };
        run().catch(error => { document.body.textContent = "failed: " + error; });
        </script></body></html>"#;
    let origin = Origin::start(move |head, sent| {
        let path = head.split(' ').nth(1).unwrap_or_default();
        let (kind, answer) = match path.strip_prefix("/get/").and_then(|length| length.parse().ok()) {
            Some(length) => ("application/octet-stream", body(length)),
            None if path == "/page" => ("text/html", page.into()),
            None => ("application/octet-stream", sent.to_vec()),
        };
        let head =
            format!("HTTP/1.1 200 OK\r\nContent-Type: {kind}\r\nContent-Length: {}\r\n\r\n", answer.len());
        [head.as_bytes(), &answer].concat()
    });
    let authority = Authority::new();
    let certificate = authority.issue(&["localhost"]);
    let port = free_port();
    let shown = certificate.display();
    let text = format!(
        "global\n stats socket runtime level admin\n{DEFAULTS}frontend f\n bind quic4@127.0.0.1:{port} ssl crt {shown}\n \
         bind 127.0.0.1:{port} ssl crt {shown} alpn h2\n default_backend b\nbackend b\n server s 127.0.0.1:{}\n",
        origin.port()
    );
    let weir = Weir::start(&text, &[port]);
    Scene { weir, port, certificate, _authority: authority, _origin: origin }
}

/// Runs a command; `None` if it is not installed.
fn run(command: &mut Command) -> Option<String> {
    let name = command.get_program().to_owned();
    let Ok(output) = command.stdin(Stdio::null()).output() else {
        println!("skipped: {} is not installed", name.display());
        return None;
    };
    let text = [output.stdout, output.stderr].concat();
    let text = String::from_utf8_lossy(&text).into_owned();
    assert!(output.status.success(), "{}: {text}", name.display());
    Some(text)
}

#[test]
fn chromium_fetches_all_sizes() {
    let scene = scene();
    let key = format!(
        "openssl x509 -in {} -pubkey -noout | openssl pkey -pubin -outform der | openssl dgst -sha256 -binary | openssl base64",
        scene.certificate.display()
    );
    let Some(key) = run(Command::new("sh").args(["-c", &key])) else { return };
    let profile = scratch("chromium");
    let port = scene.port;
    let Some(text) = run(Command::new("chromium")
        .args(["--headless=new", "--no-sandbox", "--disable-gpu", "--virtual-time-budget=60000"])
        .arg("--host-resolver-rules=MAP localhost 127.0.0.1")
        .arg(format!("--user-data-dir={}", profile.display()))
        .arg(format!("--origin-to-force-quic-on=localhost:{port}"))
        .arg(format!("--ignore-certificate-errors-spki-list={}", key.trim()))
        .args(["--dump-dom", &format!("https://localhost:{port}/page")]))
    else {
        return;
    };
    assert!(text.contains("wrong []"), "{text}\n{}", scene.weir.messages());
    assert_ne!(scene.weir.stat("f,FRONTEND", "h3req"), "0");
}

#[test]
fn gtlsclient_downloads_all_sizes() {
    let scene = scene();
    let port = scene.port.to_string();
    let directory = scratch("gtlsclient");
    let lengths = [0, 1, 100, 20_000, 1 << 20];
    let mut command = Command::new("gtlsclient");
    command
        .args(["--quiet", "--no-quic-dump", "--no-http-dump", "--exit-on-all-streams-close"])
        .arg(format!("--download={}", directory.display()))
        .args(["127.0.0.1", &port]);
    for length in lengths {
        command.arg(format!("https://localhost:{port}/get/{length}"));
    }
    if run(&mut command).is_none() {
        return;
    }
    for length in lengths {
        let got = std::fs::read(directory.join(length.to_string())).unwrap_or_default();
        assert!(got == body(length), "{length} bytes: {}", got.len());
    }
    assert_eq!(scene.weir.stat("f,FRONTEND", "h3req"), lengths.len().to_string());
}

/// Runs a script in the interpreter that the environment names. `modules` are those that it needs.
fn python(module: &str, script: &str, scene: &Scene) -> bool {
    let Ok(python) = std::env::var(PYTHON) else {
        println!("skipped: {PYTHON} is not set");
        return false;
    };
    let is_there =
        Command::new(&python).args(["-c", &format!("import {module}")]).stderr(Stdio::null()).status();
    if !is_there.is_ok_and(|status| status.success()) {
        println!("skipped: {python} has no {module}");
        return false;
    }
    let mut all = String::from("import sys\nport = int(sys.argv[1])\n");
    all.push_str("def body(length): return bytes(97 + at % 251 % 26 for at in range(length))\n");
    let _ = write!(all, "{script}");
    let text = run(Command::new(&python).args(["-c", &all, &scene.port.to_string()])).unwrap_or_default();
    assert!(text.contains("done"), "{text}\n{}", scene.weir.messages());
    true
}

#[test]
fn curl_transfers_all_sizes() {
    let scene = scene();
    let script = r#"
from curl_cffi import requests, CurlHttpVersion
session = requests.Session(http_version=CurlHttpVersion.V3ONLY, verify=False)
base = f"https://localhost:{port}"
for length in [0, 1, 100, 20000, 1 << 20]:
    answer = session.get(f"{base}/get/{length}")
    assert answer.status_code == 200 and answer.content == body(length), ("GET", length)
    answer = session.post(f"{base}/echo", data=body(length))
    assert answer.status_code == 200 and answer.content == body(length), ("POST", length)
for count in range(100):
    assert session.get(f"{base}/get/{count}").content == body(count), count
print("done")
"#;
    if python("curl_cffi", script, &scene) {
        assert_eq!(scene.weir.stat("f,FRONTEND", "h3req"), "110");
    }
}

#[test]
fn aioquic_transfers_all_sizes_and_changes_its_ids() {
    let scene = scene();
    let script = r#"
import asyncio, ssl
from collections import defaultdict
from aioquic.asyncio.client import connect
from aioquic.asyncio.protocol import QuicConnectionProtocol
from aioquic.h3.connection import H3_ALPN, H3Connection
from aioquic.h3.events import DataReceived, HeadersReceived
from aioquic.quic.configuration import QuicConfiguration

class Client(QuicConnectionProtocol):
    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self.http = H3Connection(self._quic)
        self.bodies, self.ends, self.heads = defaultdict(bytes), {}, {}

    def quic_event_received(self, event):
        for event in self.http.handle_event(event):
            if isinstance(event, HeadersReceived):
                self.heads[event.stream_id] = dict(event.headers)
            if isinstance(event, DataReceived):
                self.bodies[event.stream_id] += event.data
            if event.stream_ended:
                self.ends[event.stream_id].set_result(None)

    async def exchange(self, method, path, sent=b""):
        stream = self._quic.get_next_available_stream_id()
        self.ends[stream] = asyncio.get_running_loop().create_future()
        head = [(b":method", method), (b":scheme", b"https"), (b":authority", b"localhost"), (b":path", path)]
        self.http.send_headers(stream, head, end_stream=not sent)
        if sent:
            self.http.send_data(stream, sent, end_stream=True)
        self.transmit()
        await asyncio.wait_for(self.ends[stream], 30)
        assert self.heads[stream][b":status"] == b"200", self.heads[stream]
        return self.bodies[stream]

async def main():
    configuration = QuicConfiguration(is_client=True, alpn_protocols=H3_ALPN, verify_mode=ssl.CERT_NONE, server_name="localhost")
    async with connect("127.0.0.1", port, configuration=configuration, create_protocol=Client) as client:
        for length in [0, 1, 100, 20000, 1 << 20]:
            assert await client.exchange(b"GET", f"/get/{length}".encode()) == body(length), ("GET", length)
            assert await client.exchange(b"POST", b"/echo", body(length)) == body(length), ("POST", length)
        client.change_connection_id()
        client.request_key_update()
        answers = await asyncio.gather(*(client.exchange(b"GET", f"/get/{97 * at}".encode()) for at in range(50)))
        assert [len(answer) for answer in answers] == [97 * at for at in range(50)]
    print("done")

asyncio.run(main())
"#;
    if python("aioquic", script, &scene) {
        assert_eq!(scene.weir.stat("f,FRONTEND", "h3req"), "60");
    }
}
