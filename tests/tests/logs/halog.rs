//! Compatibility with third-party tools: halog, from Debian's haproxy package, parses Weir's log.

use std::io::Write;
use std::net::UdpSocket;
use std::process::{Command, Stdio};

use weir_tests::{Origin, PATIENCE, Weir, client, free_port};

/// Returns halog's output for lines of a log.
fn halog(option: &str, log: &str) -> String {
    let mut child = Command::new("halog")
        .arg(option)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .expect("halog is there: `make tools` installs it with haproxy");
    child.stdin.take().expect("a pipe").write_all(log.as_bytes()).expect("halog reads");
    let output = child.wait_with_output().expect("halog ends");
    String::from_utf8_lossy(&output.stdout).into_owned()
}

#[test]
fn halog_parses_request_logs() {
    let origin = Origin::text("hello");
    let logs = UdpSocket::bind(("127.0.0.1", 0)).expect("a port");
    logs.set_read_timeout(Some(PATIENCE)).expect("not zero");
    let port = free_port();
    let text = format!(
        "global\n  log 127.0.0.1:{} local0\n\
         defaults\n  mode http\n  log global\n  option httplog\n  option dontlognull\n  timeout client 20s\n  timeout connect 10s\n  timeout server 20s\n\
         frontend f\n  bind 127.0.0.1:{port}\n  http-request deny if {{ path /no }}\n  default_backend b\n\
         backend b\n  server s 127.0.0.1:{}\n",
        logs.local_addr().expect("it is bound").port(),
        origin.port()
    );
    let _weir = Weir::start(&text, &[port]);
    for path in ["/", "/a", "/no"] {
        client::get(port, path).expect("a response");
    }
    let mut log = String::new();
    while log.matches(" f ").count() < 3 {
        let mut line = [0; 4096];
        let count = logs.recv(&mut line).expect("a line for each request");
        let line = String::from_utf8_lossy(&line[..count]);
        // As a syslog daemon writes it: without the priority, with a host.
        let line = line.split_once('>').map_or("", |(_, rest)| rest).trim_end();
        if let Some(at) = line.find("haproxy[") {
            log.push_str(&format!("{}host {}\n", &line[..at], &line[at..]));
        }
    }
    assert_eq!(halog("-st", &log), "200 2\n403 1\n", "{log}");
    let servers = halog("-srv", &log);
    let row = servers.lines().find(|line| line.starts_with("b/s ")).unwrap_or_else(|| panic!("{servers}"));
    assert!(row.starts_with("b/s 0 2 0 0 0 0 2 2 100.0 "), "{row}");
}
