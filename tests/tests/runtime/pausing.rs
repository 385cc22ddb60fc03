//! Frontends that stop listening for a while and listen again, whoever asks for it.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::unix::net::UnixStream;
use std::path::Path;

use weir_tests::client::get_now;
use weir_tests::{PATIENCE, Weir, eventually, free_port};

/// A frontend that answers by itself at the port, and on a UNIX socket.
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

/// Whether all threads of a process sleep, each time of many in a row. One that spins never does.
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

/// The status line that the UNIX socket answers with.
fn ask_unix(path: &Path) -> String {
    let mut client = UnixStream::connect(path).expect("the socket takes connections");
    client.set_read_timeout(Some(PATIENCE)).expect("no zero");
    client.write_all(b"GET / HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n").expect("it reads");
    let mut answer = String::new();
    let _ = client.read_to_string(&mut answer);
    answer.lines().next().unwrap_or_default().to_owned()
}

#[test]
fn a_frontend_that_was_disabled_and_enabled_costs_nothing_while_nobody_asks() {
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
fn a_process_that_was_paused_and_resumed_by_signals_costs_nothing_while_nobody_asks() {
    let port = free_port();
    let weir = Weir::start(&configuration("", port), &[port]);
    weir.signal("TTOU");
    assert!(eventually(|| refuses(port)));
    weir.signal("TTIN");
    assert!(eventually(|| serves(port)));
    assert!(eventually(|| sleeps(weir.pid())), "a thread spins");
}

#[test]
fn after_a_successor_that_cannot_start_the_process_goes_on_as_before() {
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
fn clients_of_a_unix_socket_wait_while_its_frontend_is_disabled() {
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
