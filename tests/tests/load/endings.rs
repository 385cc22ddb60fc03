//! Errors, time limits and interrupts.

use std::process::Command;
use std::time::Duration;

use weir_tests::{Authority, Origin, eventually, free_port};

use super::{load, number, run, start};

/// A server that reads requests and never answers.
fn silent() -> Origin {
    Origin::raw(|mut stream| {
        let _ = std::io::copy(&mut stream, &mut std::io::sink());
    })
}

#[test]
fn a_request_without_progress_is_an_error() {
    let origin = silent();
    let summary = load(&["-n", "3", "-w", "200", &format!("http://127.0.0.1:{}/", origin.port())]);
    assert_eq!(number(&summary, "requests"), 0);
    assert_eq!((number(&summary, "errors"), number(&summary, "errors_by_reason/timeout")), (3, 3));
    assert_eq!(origin.connections(), 3, "a connection that was given up is not reused");
}

#[test]
fn refused_connections_are_errors() {
    let url = format!("http://127.0.0.1:{}/", free_port());
    let summary = load(&["-n", "5", &url]);
    assert_eq!((number(&summary, "errors_by_reason/connect"), number(&summary, "requests")), (5, 0));
    let output = run(&["-n", "3", &url.replace("http", "quic")]);
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success() && text.contains("# errors: connect 3\n"), "{text}");
}

#[test]
fn the_first_connection_error_may_stop_the_run() {
    let url = format!("http://127.0.0.1:{}/", free_port());
    let summary = load(&["-n", "1000", "-e", &url]);
    assert_eq!((number(&summary, "errors"), number(&summary, "connections")), (1, 1));
    let origin = Origin::raw(drop);
    let summary = load(&["-d", "60", "-e", &format!("http://127.0.0.1:{}/", origin.port())]);
    assert_eq!((number(&summary, "errors"), number(&summary, "errors_by_reason/closed")), (1, 1));
}

#[test]
fn a_malformed_response_is_an_error() {
    let origin = Origin::start(|_, _| b"HTTP/1.1 x\r\n\r\n".to_vec());
    let summary = load(&["-n", "2", &format!("http://127.0.0.1:{}/", origin.port())]);
    assert_eq!(number(&summary, "errors_by_reason/protocol"), 2);
}

#[test]
fn certificates_are_verified_only_if_asked() {
    let (authority, other, port) = (Authority::new(), Authority::new(), free_port());
    let certificate = authority.issue(&["localhost"]);
    let text = format!(
        "defaults\n mode http\n timeout client 20s\nfrontend f\n bind 127.0.0.1:{port} ssl crt {} alpn http/1.1\n \
         http-request return status 200\n",
        certificate.display()
    );
    let _weir = weir_tests::Weir::start(&text, &[port]);
    let url = format!("https://localhost:{port}/");
    let url = url.replace("localhost", "127.0.0.1");
    let verify =
        |file: std::path::PathBuf| format!("verify required sni localhost ca-file {}", file.display());
    for (words, answered) in
        [("verify none".to_owned(), 2), (verify(authority.own()), 2), (verify(other.own()), 0)]
    {
        let summary = load(&["-n", "2", "--server", &words, &url]);
        assert_eq!(number(&summary, "requests"), answered, "{words}: {summary}");
        assert_eq!(number(&summary, "errors_by_reason/handshake"), 2 - answered, "{words}: {summary}");
    }
    let summary = load(&["-n", "2", "-2", &url]);
    assert_eq!(number(&summary, "errors_by_reason/handshake"), 2, "the server does not offer h2");
}

#[test]
fn an_interrupt_ends_the_run_with_its_report() {
    let origin = Origin::text("ok");
    let child = start(&[&format!("http://127.0.0.1:{}/", origin.port())]);
    assert!(eventually(|| origin.requests() > 20), "the load begins");
    interrupt(child.id());
    let output = child.wait_with_output().expect("the program ends");
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{text}");
    assert!(text.contains(&format!("# {} requests in ", origin.requests())), "{} {text}", origin.requests());
    assert!(text.contains(" 0 errors\n") && text.contains("# latency: min "), "{text}");
}

#[test]
fn a_second_interrupt_gives_up_requests_in_flight() {
    let origin = silent();
    let child = start(&["--json", "-w", "1h", &format!("http://127.0.0.1:{}/", origin.port())]);
    assert!(eventually(|| origin.connections() == 1), "the load begins");
    let (id, ended) = (child.id(), std::sync::mpsc::channel());
    std::thread::spawn(move || ended.0.send(child.wait_with_output()));
    // Signals that arrive before the program handles them would be one.
    let mut output = None;
    assert!(
        eventually(|| {
            interrupt(id);
            output = ended.1.recv_timeout(Duration::from_millis(100)).ok();
            output.is_some()
        }),
        "the program ends"
    );
    let output = output.expect("an output").expect("the program ends");
    assert_eq!(number(&super::summary(&output), "errors_by_reason/timeout"), 1);
}

pub(super) fn interrupt(id: u32) {
    let killed = Command::new("kill").args(["-INT", &id.to_string()]).status();
    assert!(killed.is_ok_and(|status| status.success()), "the program runs");
}
