//! Signals to a process, a master and its workers (management manual, chapter 4).

use std::net::TcpStream;
use std::os::unix::net::UnixDatagram;
use std::process::Command;

use weir_tests::listen::TOP;
use weir_tests::{Origin, PATIENCE, Weir, ask, eventually, free_port, program, scratch};

fn configuration(port: u16) -> String {
    format!(
        "global\n  nbthread 2\n  stats socket runtime level admin\n\
         defaults\n  mode http\n  timeout client 20s\n  timeout connect 20s\n  timeout server 20s\n\
         frontend f\n  bind 127.0.0.1:{port}\n  http-request return status 200\n"
    )
}

fn start(mode: &str, port: u16) -> Weir {
    let arguments: &[&str] = if mode == "-db" { &["-db"] } else { &[mode, "-S", "./master"] };
    Weir::start_with(&configuration(port), arguments, &[port])
}

fn serves(port: u16) -> bool {
    weir_tests::client::get_now(port, "/").is_some_and(|answer| answer.status == 200)
}

fn refuses(port: u16) -> bool {
    TcpStream::connect(("127.0.0.1", port)).is_err()
}

/// Returns the id of the process that answers on the runtime socket.
fn worker(weir: &Weir) -> String {
    let answer = weir.ask("show info");
    answer.lines().find_map(|line| line.strip_prefix("Pid: ")).unwrap_or_default().to_owned()
}

#[test]
fn meaningless_signals_have_no_effect() {
    for mode in ["-db", "-W", "-Ws"] {
        let port = free_port();
        let mut weir = start(mode, port);
        let before = worker(&weir);
        for signal in ["QUIT", "ALRM", "PIPE", "CHLD", "CONT", "WINCH", "URG", "TTIN"] {
            weir.signal(signal);
            assert!(serves(port), "{mode} {signal}");
        }
        assert_eq!(worker(&weir), before, "{mode}");
        // Signals are handled in the order of their numbers, so all of them have been handled by then.
        weir.signal("TERM");
        let code = weir.await_end();
        // Without a master the parent sees the signal.
        assert_eq!(code, if mode == "-db" { None } else { Some(0) }, "{mode}: {}", weir.messages());
        assert!(!weir.is_running() && refuses(port), "{mode}");
    }
}

#[test]
fn master_pauses_and_resumes_its_workers() {
    for mode in ["-db", "-W"] {
        let port = free_port();
        let mut weir = start(mode, port);
        let before = worker(&weir);
        weir.signal("TTOU");
        assert!(eventually(|| refuses(port)), "{mode}: {}", weir.messages());
        weir.signal("TTIN");
        assert!(eventually(|| serves(port)), "{mode}: {}", weir.messages());
        assert_eq!(worker(&weir), before, "{mode}");
        weir.signal("TTOU");
        assert!(eventually(|| refuses(port)), "{mode}: {}", weir.messages());
        if mode == "-W" {
            // The next worker starts without the pause.
            weir.signal("HUP");
            assert!(eventually(|| serves(port)), "{mode}: {}", weir.messages());
        }
        weir.signal("TERM");
        weir.await_end();
        assert!(!weir.is_running(), "{mode}: {}", weir.messages());
    }
}

#[test]
fn interrupted_master_exits_with_the_signal_code() {
    let port = free_port();
    let mut weir = start("-W", port);
    weir.signal("INT");
    assert_eq!(weir.await_end(), Some(130), "{}", weir.messages());
    assert!(weir.says("exited with code 130 (Interrupt)"), "{}", weir.messages());
}

#[test]
fn stop_signal_is_obeyed_at_any_point_of_a_reload() {
    let steps = ["", "Reloading HAProxy", "New worker (", "Loading success."];
    for turn in 0..40 {
        let port = free_port();
        let mut weir = start("-W", port);
        let pid = weir.pid().to_string();
        assert!(weir.says("Loading success."), "{}", weir.messages());
        let before = weir.messages().len();
        // Every other turn sends both signals, the second one by the same process immediately.
        match steps.get(turn % 8) {
            Some(step) => {
                weir.signal("USR2");
                assert!(eventually(|| weir.messages()[before..].contains(step)), "{}", weir.messages());
                weir.signal("TERM");
            }
            None => {
                let both = format!("kill -USR2 {pid}; kill -TERM {pid}");
                assert!(Command::new("sh").args(["-c", &both]).status().is_ok_and(|done| done.success()));
            }
        }
        assert_eq!(weir.await_end(), Some(0), "turn {turn}: {}", weir.messages());
        assert!(refuses(port), "turn {turn}: {}", weir.messages());
    }
}

#[test]
fn reload_on_the_master_socket_happens_once_and_is_answered() {
    let port = free_port();
    let weir = start("-W", port);
    let socket = weir.directory().join("master");
    for _ in 0..5 {
        let before = worker(&weir);
        let answer = ask(&socket, "reload");
        assert!(answer.starts_with("Success=1\n--\n"), "{answer}");
        // The old worker keeps answering until it is told to finish.
        assert!(eventually(|| worker(&weir) != before), "{answer}");
    }
    assert!(ask(&socket, "show proc").contains("5 [failed: 0]"), "{}", ask(&socket, "show proc"));
}

#[test]
fn check_programs_receive_signals() {
    let (origin, directory) = (Origin::text("ok"), scratch("check-program"));
    let told = directory.join("told");
    let program = directory.join("program");
    // Not a shell, because some unblock all signals.
    let text = format!(
        "#!/usr/bin/awk -f\nBEGIN {{\n\
         while ((getline line < \"/proc/self/status\") > 0) if (line ~ /^SigBlk/) print line > \"{}\"\nexit\n}}\n",
        told.display()
    );
    std::fs::write(&program, text).expect("a file");
    let made = Command::new("chmod").arg("+x").arg(&program).status();
    assert!(made.is_ok_and(|status| status.success()));
    let port = free_port();
    let _weir = Weir::start(
        &format!(
            "global\n  external-check\n  insecure-fork-wanted\n\
             defaults\n  timeout client 20s\n  timeout connect 20s\n  timeout server 20s\n\
             listen l\n  bind 127.0.0.1:{port}\n  option external-check\n  external-check path /usr/bin:/bin\n\
             external-check command {}\n  server s 127.0.0.1:{} check inter 1s\n",
            program.display(),
            origin.port()
        ),
        &[port],
    );
    let mask = || std::fs::read_to_string(&told).unwrap_or_default();
    assert!(eventually(|| mask().ends_with('\n')));
    assert_eq!(mask().split_whitespace().last(), Some("0000000000000000"));
}

/// Returns the first two messages to a service manager, with SIGTERM between them, of a program started with these arguments and
/// this line in `global`.
fn notifications(arguments: &[&str], line: &str) -> (Weir, Vec<String>) {
    let directory = scratch("notify");
    let path = directory.join("socket");
    let socket = UnixDatagram::bind(&path).expect("the directory is ours");
    socket.set_read_timeout(Some(PATIENCE)).expect("the timeout is not zero");
    let port = free_port();
    let mut command = Command::new(program());
    command.env("NOTIFY_SOCKET", &path);
    let text = configuration(port).replacen("global\n", &format!("global\n  {line}\n"), 1);
    let mut weir = Weir::start_by(command, &text, arguments, &[port]);
    let next = || {
        let mut bytes = [0; 4096];
        let length = socket.recv(&mut bytes).expect("a report");
        String::from_utf8_lossy(&bytes[..length]).into_owned()
    };
    let mut all = vec![next()];
    weir.signal("TERM");
    all.push(next());
    weir.await_end();
    (weir, all)
}

#[test]
fn service_managers_are_notified_of_start_and_end() {
    // systemd waits for the process that it started, whatever the configuration requests.
    let (weir, reports) = notifications(&["-Ws"], "daemon");
    let ready = format!("READY=1\nMAINPID={}\n", weir.pid());
    assert!(reports[0].starts_with(&ready) && reports[1] == "STOPPING=1\n", "{reports:?}");
    let warning = "'daemon' is not compatible with -Ws (master-worker mode for systemd), ignoring.";
    assert_eq!(weir.messages().matches(warning).count(), 1, "{}", weir.messages());
    let (weir, reports) = notifications(&["-db"], "");
    let ready = format!("READY=1\nMAINPID={}\n", weir.pid());
    assert!(reports[0].starts_with(&ready) && reports[1] == "STOPPING=1\n", "{reports:?}");
}

#[test]
fn sighup_reports_server_states() {
    let port = free_port();
    let weir = Weir::start(
        &format!(
            "{TOP}frontend f\n  bind 127.0.0.1:{port}\n  default_backend b\nbackend b\n  server s 127.0.0.1:1\n  \
             server t 127.0.0.1:1 backup\nbackend c\n  server s 127.0.0.1:1 disabled\n"
        ),
        &[port],
    );
    weir.signal("HUP");
    for line in [
        "SIGHUP received, dumping servers states.\n",
        "SIGHUP: Server b/s is UP. Conn: 0 act, 0 pend, 0 tot.\n",
        "SIGHUP: Proxy b has 1 active servers and 1 backup servers available. Conn: act(FE+BE): 0+0, 0 pend (0 unass), tot(FE+BE): 0+0.\n",
        "SIGHUP: Proxy c has no server available ! Conn: ",
    ] {
        assert!(weir.says(line), "{line}: {}", weir.messages());
    }
    let told = "SIGHUP: Proxy f has no servers. Conn: act(FE+BE): ";
    assert!(weir.says(told), "{}", weir.messages());
}
