//! Third-party HTTP/2 clients: nghttp, h2load, Node's http2, Python's h2 (curl is used in the other tests, grpc-go in the gRPC
//! tests).

use std::io::Write;
use std::process::{Command, Stdio};

use weir_tests::versions::TIMEOUTS;
use weir_tests::{Origin, Scratch, Weir, eventually, free_port, scratch};

/// Runs a program with `input`; returns its output.
fn run(program: &str, arguments: &[&str], input: &str) -> String {
    let mut child = Command::new(program)
        .args(arguments)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap_or_else(|error| panic!("{program}: {error}: `make tools` installs it"));
    child.stdin.take().expect("its input").write_all(input.as_bytes()).expect("it reads");
    let output = child.wait_with_output().expect("it ends");
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{program} {arguments:?}: {text}\n{errors}");
    text
}

/// Starts an HTTP/1 origin that answers with the path and the body length, then as many bytes as the path requests.
fn origin() -> Origin {
    Origin::start(|head, body| {
        let path = head.split(' ').nth(1).unwrap_or_default();
        let more = path.rsplit('/').next().and_then(|count| count.parse().ok()).unwrap_or(0);
        let text = format!("{path} {} {}", body.len(), "z".repeat(more));
        format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{text}", text.len()).into_bytes()
    })
}

/// Starts an HTTP/2 listener whose requests pass through another one on their way to `server`, so that both sides are tested.
fn twice(server: u16) -> (Weir, u16) {
    let (front, inner) = (free_port(), free_port());
    let text = format!(
        "{TIMEOUTS}frontend f\n bind 127.0.0.1:{front} proto h2\n default_backend b\n\
         backend b\n server s 127.0.0.1:{inner} proto h2\n\
         frontend g\n bind 127.0.0.1:{inner} proto h2\n default_backend c\nbackend c\n server s 127.0.0.1:{server}\n"
    );
    (Weir::start(&text, &[front, inner]), front)
}

#[test]
fn nghttp_fetches_concurrently_and_sends_trailers() {
    let origin = origin();
    let (_weir, port) = twice(origin.port());
    let url = |path: &str| format!("http://127.0.0.1:{port}/{path}");
    let text = run("nghttp", &[&url("a/1"), &url("b/70000"), &url("c/3")], "");
    for part in ["/a/1 0 z", "/b/70000 0 zz", "/c/3 0 zzz"] {
        assert!(text.contains(part), "{part}: {}", text.chars().take(200).collect::<String>());
    }
    assert_eq!(text.matches('z').count(), 70_004);
    let file = scratch("nghttp").file("body");
    std::fs::write(&file, "x".repeat(200_000)).expect("a file");
    let sent = file.display().to_string();
    assert_eq!(run("nghttp", &["--trailer", "x-end: 1", "-d", &sent, &url("d/0")], ""), "/d/0 200000 ");
}

#[test]
fn h2load_gets_all_responses() {
    let origin = origin();
    let (_weir, port) = twice(origin.port());
    let url = format!("http://127.0.0.1:{port}/200");
    let text = run("h2load", &["-n", "2000", "-c", "8", "-m", "25", &url], "");
    assert!(text.contains("2000 succeeded, 0 failed, 0 errored, 0 timeout"), "{text}");
    assert!(text.contains("status codes: 2000 2xx"), "{text}");
}

/// Node's requests: concurrent ones, bodies in both directions, a cancelled one, trailers.
const NODE_CLIENT: &str = r#"
const http2 = require('node:http2');
const [authority, trailers] = process.argv.slice(2);
const session = http2.connect(authority);
const ask = (headers, body) => new Promise((resolve, reject) => {
    const stream = session.request(headers);
    let head, text = '', end;
    stream.on('response', (headers) => head = headers);
    stream.on('trailers', (headers) => end = headers);
    stream.on('data', (piece) => text += piece);
    stream.on('error', reject);
    stream.on('end', () => resolve({ status: head[':status'], text, end }));
    stream.end(body);
});
const expect = (found, wanted) => {
    if (found !== wanted) throw new Error(`${String(found).slice(0, 99)} instead of ${String(wanted).slice(0, 99)}`);
};
(async () => {
    const all = [];
    for (let i = 0; i < 60; i++) {
        const length = i * 1000;
        all.push(ask({ ':path': `/p/${length}` }).then(({ status, text }) => {
            expect(status, 200);
            expect(text, `/p/${length} 0 ` + 'z'.repeat(length));
        }));
        // An HTTP/1 origin does not decode chunks.
        const told = trailers ? {} : { 'content-length': length };
        all.push(ask({ ':path': '/q/0', ':method': 'POST', ...told }, 'y'.repeat(length)).then(({ text }) => {
            expect(text, `/q/0 ${length} `);
        }));
    }
    const given = session.request({ ':path': '/r/1000000' });
    given.on('error', () => {});
    given.on('response', () => given.close(http2.constants.NGHTTP2_CANCEL));
    await new Promise((resolve) => given.on('close', resolve));
    await Promise.all(all);
    if (trailers) {
        const { end } = await ask({ ':path': '/t/1' });
        expect(end && end['x-end'], 'yes');
    }
    await new Promise((resolve) => session.ping(resolve));
    session.close(() => console.log('done'));
})().catch((error) => { console.error(error); process.exit(1); });
"#;

/// A Node server that answers like the origin, with trailers; it ends when its input ends.
const NODE_SERVER: &str = r#"
const server = require('node:http2').createServer();
server.on('stream', (stream, headers) => {
    let length = 0;
    stream.on('data', (piece) => length += piece.length);
    stream.on('error', () => {});
    stream.on('end', () => {
        const path = headers[':path'];
        stream.respond({ ':status': 200 }, { waitForTrailers: true });
        stream.on('wantTrailers', () => stream.sendTrailers({ 'x-end': 'yes' }));
        stream.end(`${path} ${length} ` + 'z'.repeat(Number(path.split('/').pop())));
    });
});
server.listen(Number(process.argv[2]), '127.0.0.1');
process.stdin.on('end', () => process.exit(0)).resume();
"#;

/// Writes a script to a file.
fn script(name: &str, text: &str) -> Scratch {
    Scratch::holding(name, text)
}

#[test]
fn node_works_with_servers_of_both_versions() {
    let (client, server) = (script("client.js", NODE_CLIENT), script("server.js", NODE_SERVER));
    let client = client.to_string();
    let origin = origin();
    let (_weir, port) = twice(origin.port());
    assert_eq!(run("node", &[&client, &format!("http://127.0.0.1:{port}")], ""), "done\n");

    let (far, front) = (free_port(), free_port());
    let mut server = Command::new("node")
        .args([server.to_string(), far.to_string()])
        .stdin(Stdio::piped())
        .spawn()
        .expect("node runs: `make tools` installs it");
    assert!(eventually(|| std::net::TcpStream::connect(("127.0.0.1", far)).is_ok()), "Node does not listen");
    let text = format!(
        "{TIMEOUTS}frontend f\n bind 127.0.0.1:{front} proto h2\n default_backend b\nbackend b\n \
         server s 127.0.0.1:{far} proto h2\n"
    );
    let _between = Weir::start(&text, &[front]);
    let told = run("node", &[&client, &format!("http://127.0.0.1:{front}"), "trailers"], "");
    drop(server.stdin.take());
    server.wait().expect("it ends");
    assert_eq!(told, "done\n");
}

/// A client with Python's h2: two concurrent downloads, and an upload within the flow-control windows.
const PYTHON_CLIENT: &str = r#"
import socket, sys
import h2.connection, h2.config, h2.events
sock = socket.create_connection(("127.0.0.1", int(sys.argv[1])), timeout=20)
conn = h2.connection.H2Connection(h2.config.H2Configuration(client_side=True, header_encoding="utf-8"))
conn.initiate_connection()
def head(method, path):
    return [(":method", method), (":scheme", "http"), (":path", path), (":authority", "a.test")]
conn.send_headers(1, head("GET", "/a/100000"), end_stream=True)
conn.send_headers(3, head("GET", "/b/150000"), end_stream=True)
conn.send_headers(5, head("POST", "/c/0") + [("content-length", "300000")])
left, bodies, ended = b"u" * 300000, {1: b"", 3: b"", 5: b""}, set()
def upload():
    global left
    while left:
        size = min(conn.local_flow_control_window(5), conn.max_outbound_frame_size, len(left))
        # A smaller window of the peer's settings makes it negative.
        if size <= 0:
            return
        conn.send_data(5, left[:size])
        left = left[size:]
        if not left:
            conn.end_stream(5)
upload()
sock.sendall(conn.data_to_send())
while len(ended) < 3:
    data = sock.recv(4096)
    assert data, "the connection ended"
    for event in conn.receive_data(data):
        if isinstance(event, h2.events.DataReceived):
            bodies[event.stream_id] += event.data
            conn.acknowledge_received_data(event.flow_controlled_length, event.stream_id)
        elif isinstance(event, h2.events.StreamEnded):
            ended.add(event.stream_id)
        elif isinstance(event, (h2.events.StreamReset, h2.events.ConnectionTerminated)):
            raise SystemExit(repr(event))
    upload()
    sock.sendall(conn.data_to_send())
assert bodies[1] == b"/a/100000 0 " + b"z" * 100000, bodies[1][:50]
assert bodies[3] == b"/b/150000 0 " + b"z" * 150000, bodies[3][:50]
assert bodies[5] == b"/c/0 300000 ", bodies[5][:50]
print("done")
"#;

#[test]
fn python_h2_transfers_bodies_within_its_windows() {
    let origin = origin();
    let (_weir, port) = twice(origin.port());
    // Debian's Python, because it has Debian's library.
    assert_eq!(run("/usr/bin/python3", &["-", &port.to_string()], PYTHON_CLIENT), "done\n");
}
