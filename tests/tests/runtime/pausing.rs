//! Frontends that stop listening temporarily, for whatever reason.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::unix::net::UnixStream;
use std::path::Path;

use weir_tests::client::get_now;
use weir_tests::{PATIENCE, Weir, eventually, free_port};

/// Returns a frontend that answers by itself on the port and on a Unix socket.
fn configuration(global: &str, port: u16) -> String {
    format!(
        "global\n  nbthread 2\n  stats socket runtime level admin\n{global}\
         defaults\n  mode http\n  timeout client 20s\n  timeout connect 20s\n  timeout server 20s\n\
         frontend f\n  bind 127.0.0.1:{port}\n  bind unix@clients\n  http-request return status 200\n"
    )
}

fn serves(port: u16) -> bool {
    get_now(port, "/").is_some_and(|answer| answer.status == 200)
}

fn refuses(port: u16) -> bool {
    TcpStream::connect(("127.0.0.1", port)).is_err()
}

/// Returns whether all threads of a process are found sleeping many times in a row. A busy-looping thread never is.
fn sleeps(pid: u32) -> bool {
    let all_sleep = || {
        let tasks = std::fs::read_dir(format!("/proc/{pid}/task")).expect("the process runs");
        tasks.flatten().all(|task| {
            let line = std::fs::read_to_string(task.path().join("stat")).unwrap_or_default();
            line.rsplit_once(") ").is_some_and(|(_, rest)| rest.starts_with('S'))
        })
    };
    (0..20).all(|_| all_sleep())
}

/// Returns the status line of the response on the Unix socket.
fn ask_unix(path: &Path) -> String {
    let mut client = UnixStream::connect(path).expect("the socket takes connections");
    client.set_read_timeout(Some(PATIENCE)).expect("no zero");
    client.write_all(b"GET / HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n").expect("it reads");
    let mut answer = String::new();
    let _ = client.read_to_string(&mut answer);
    answer.lines().next().unwrap_or_default().to_owned()
}

#[test]
fn reenabled_frontend_does_not_busy_loop() {
    let port = free_port();
    let weir = Weir::start(&configuration("", port), &[port]);
    for _ in 0..3 {
        assert_eq!(weir.ask("disable frontend f").trim(), "");
        assert!(eventually(|| refuses(port)));
        assert_eq!(weir.ask("enable frontend f").trim(), "");
        assert!(eventually(|| serves(port)));
        assert!(eventually(|| sleeps(weir.pid())), "a thread spins");
    }
}

#[test]
fn resumed_process_does_not_busy_loop() {
    let port = free_port();
    let weir = Weir::start(&configuration("", port), &[port]);
    weir.signal("TTOU");
    assert!(eventually(|| refuses(port)));
    weir.signal("TTIN");
    assert!(eventually(|| serves(port)));
    assert!(eventually(|| sleeps(weir.pid())), "a thread spins");
}

#[test]
fn process_continues_after_a_failed_successor() {
    let (port, taken) = (free_port(), free_port());
    let holder = std::net::TcpListener::bind(("127.0.0.1", taken)).expect("a free port");
    let weir = Weir::start(&configuration("  noreuseport\n", port), &[port]);
    let text = configuration("  noreuseport\n", port) + &format!("  bind 127.0.0.1:{taken}\n");
    let mut next = Weir::start_with(&text, &["-db", "-sf", &weir.pid().to_string()], &[]);
    assert_eq!(next.await_end(), Some(1), "{}", next.messages());
    drop(holder);
    assert!(weir.says("Paused frontend f."), "{}", weir.messages());
    assert!(eventually(|| serves(port)), "{}", weir.messages());
    assert!(eventually(|| sleeps(weir.pid())), "a thread spins");
}

#[test]
fn unix_socket_clients_wait_while_the_frontend_is_disabled() {
    let port = free_port();
    let weir = Weir::start(&configuration("", port), &[port]);
    let path = weir.directory().join("clients");
    assert_eq!(ask_unix(&path), "HTTP/1.1 200 OK");
    assert_eq!(weir.ask("disable frontend f").trim(), "");
    assert!(eventually(|| refuses(port)));
    let waiting = std::thread::spawn({
        let path = path.clone();
        move || ask_unix(&path)
    });
    assert_eq!(weir.ask("enable frontend f").trim(), "");
    assert_eq!(waiting.join().expect("a client"), "HTTP/1.1 200 OK");
    assert_eq!(ask_unix(&path), "HTTP/1.1 200 OK");
}
