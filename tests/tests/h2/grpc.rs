//! gRPC with HTTP/2 on both sides: grpc-go's clients and servers, and retried calls (`retry-on grpc-unavailable`).

use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc;

use weir_tests::go_tools::of_go;
use weir_tests::multiplexed::{ACK, DATA, END_HEADERS, END_STREAM, Frames, HEADERS, SETTINGS, block, frame};
use weir_tests::{Origin, Weir, eventually, free_port};

/// Starts an HTTP/2 frontend in front of an HTTP/2 server, with lines for the backend.
fn between(lines: &str, server: u16) -> (Weir, u16) {
    let port = free_port();
    let text = format!(
        "global\n log stderr format raw local0\ndefaults\n mode http\n timeout client 20s\n timeout connect 20s\n \
         timeout server 20s\n log global\nfrontend f\n bind 127.0.0.1:{port} proto h2\n default_backend b\n\
         backend b\n {lines}\n server s 127.0.0.1:{server} proto h2\n"
    );
    (Weir::start(&text, &[port]), port)
}

/// Sends a call's head and message at once.
fn call(client: &mut Frames) {
    let head = block(&[
        (":method", "POST"),
        (":scheme", "http"),
        (":path", "/a.B/C"),
        (":authority", "a.test"),
        ("content-type", "application/grpc"),
        ("te", "trailers"),
    ]);
    let bytes = [frame(HEADERS, END_HEADERS, 1, &head), frame(DATA, END_STREAM, 1, b"\0\0\0\0\x02\x08\x01")];
    client.raw(&bytes.concat());
}

/// Starts a server that answers one call after another with `answer`, which gets the stream and the number of earlier calls.
/// Returns the received messages.
fn server(answer: fn(&mut Frames, u32, usize)) -> (Origin, mpsc::Receiver<Vec<u8>>) {
    let (asked, told) = mpsc::channel();
    let calls = AtomicUsize::new(0);
    let origin = Origin::raw(move |stream| {
        let mut frames = Frames::take(stream);
        while let Some(data) = frames.find(|frame| frame.kind == DATA && frame.flags & END_STREAM != 0) {
            let _ = asked.send(data.payload);
            answer(&mut frames, data.stream, calls.fetch_add(1, Ordering::SeqCst));
        }
    });
    (origin, told)
}

fn unavailable(frames: &mut Frames, stream: u32) {
    let fields = [(":status", "200"), ("content-type", "application/grpc"), ("grpc-status", "14")];
    frames.head(stream, END_STREAM, &fields);
}

fn served(frames: &mut Frames, stream: u32) {
    frames.head(stream, 0, &[(":status", "200"), ("content-type", "application/grpc")]);
    frames.send(DATA, 0, stream, b"\0\0\0\0\0").head(stream, END_STREAM, &[("grpc-status", "0")]);
}

const MESSAGE: &[u8] = b"\0\0\0\0\x02\x08\x01";

#[test]
fn unavailable_call_is_retried() {
    let (origin, asked) = server(|frames, stream, before| match before {
        0 | 1 => unavailable(frames, stream),
        _ => served(frames, stream),
    });
    let (_weir, port) = between("retries 3\n retry-on grpc-unavailable", origin.port());
    let mut client = Frames::connect(port);
    call(&mut client);
    let (head, ended) = client.next_head();
    assert_eq!((head[0].as_str(), ended), (":status: 200", false), "{head:?}");
    assert!(!head.iter().any(|line| line.starts_with("grpc-status")), "{head:?}");
    assert_eq!(client.next_head(), (vec!["grpc-status: 0".to_owned()], true));
    assert_eq!(asked.try_iter().collect::<Vec<_>>(), [MESSAGE, MESSAGE, MESSAGE]);
}

#[test]
fn calls_are_not_retried_without_cause_or_limit() {
    type Answer = fn(&mut Frames, u32, usize);
    let cases: [(&str, Answer, usize); 4] = [
        ("retries 3", |frames, stream, _| unavailable(frames, stream), 1),
        ("retries 3\n retry-on 503 grpc-unavailable", |frames, stream, _| unavailable(frames, stream), 4),
        (
            "retries 3\n retry-on grpc-unavailable",
            |frames, stream, _| {
                frames.head(stream, 0, &[(":status", "200"), ("content-type", "application/grpc")]);
                frames.head(stream, END_STREAM, &[("grpc-status", "14")]);
            },
            1,
        ),
        (
            "retries 3\n retry-on grpc-unavailable",
            |frames, stream, _| {
                frames.head(stream, END_STREAM, &[(":status", "200"), ("grpc-status", "13")]);
            },
            1,
        ),
    ];
    for (lines, answer, calls) in cases {
        let (origin, asked) = server(answer);
        let (_weir, port) = between(lines, origin.port());
        let mut client = Frames::connect(port);
        call(&mut client);
        let last = client.find(|frame| frame.kind == HEADERS && frame.flags & END_STREAM != 0);
        assert!(last.is_some(), "{lines}");
        assert_eq!(asked.try_iter().count(), calls, "{lines}");
    }
}

/// A program that is stopped at the end of the test.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Returns whether an HTTP/2 server listens on the port.
fn is_there(port: u16) -> bool {
    if std::net::TcpStream::connect(("127.0.0.1", port)).is_err() {
        return false;
    }
    Frames::connect(port).find(|frame| frame.kind == SETTINGS && frame.flags & ACK == 0).is_some()
}

#[test]
fn grpc_go_calls_keep_streams_trailers_and_deadlines() {
    let (Some(server), Some(client)) = (of_go("grpc-interop-server"), of_go("grpc-interop-client")) else {
        return;
    };
    let silent = |command: &mut Command| {
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn().expect("a program")
    };
    // The server exits if its port has been taken in the meantime.
    let started = (0..5).find_map(|_| {
        let far = free_port();
        let mut command = Command::new(&server);
        let mut running = Running(silent(command.arg("--use_tls=false").arg(format!("--port={far}"))));
        let mut listens = false;
        eventually(|| {
            listens = is_there(far);
            listens || running.0.try_wait().is_ok_and(|status| status.is_some())
        });
        listens.then_some((running, far))
    });
    let (_server, far) = started.expect("the server of grpc-go listens");
    let (weir, port) = between("", far);
    for case in [
        "empty_unary",
        "large_unary",
        "client_streaming",
        "server_streaming",
        "ping_pong",
        "empty_stream",
        "timeout_on_sleeping_server",
        "cancel_after_begin",
        "cancel_after_first_response",
        "status_code_and_message",
        "special_status_message",
        "custom_metadata",
        "unimplemented_method",
        "unimplemented_service",
    ] {
        let output = Command::new(&client)
            .args(["--use_tls=false", "--server_host=127.0.0.1"])
            .args([format!("--server_port={port}"), format!("--test_case={case}")])
            .output()
            .expect("the client of grpc-go runs");
        let told = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{case}: {told}\n{}", weir.messages());
    }
}
