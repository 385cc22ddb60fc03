//! Dropping of privileges after binding: `chroot`, `user`, `setcap`. Root's abilities are tested as root; for other users the tests
//! check that the system refuses and that this is reported.

use std::process::Command;

use weir_tests::client::get;
use weir_tests::{Weir, free_port, program};

/// Returns a line of the kernel's status of a process.
fn status(pid: &str, name: &str) -> String {
    let text = std::fs::read_to_string(format!("/proc/{pid}/status")).expect("the process is there");
    let line = text.lines().find_map(|line| line.strip_prefix(&format!("{name}:")));
    line.expect("the kernel tells it").trim().to_owned()
}

fn is_root() -> bool {
    status("self", "Uid").split_whitespace().nth(1) == Some("0")
}

/// Returns whether the system refused something that only root may do.
fn is_forbidden(said: &str) -> bool {
    said.contains("Cannot set uid/gid") || said.contains("Cannot chroot")
}

/// Returns a configuration of a frontend that answers with the local time, with lines of the global section and of a backend.
fn configuration(port: u16, global: &str, backend: &str) -> String {
    format!(
        "global\n  nbthread 2\n{global}\
         defaults\n  mode http\n  timeout client 20s\n  timeout connect 10s\n  timeout server 20s\n\
         frontend f\n  bind 127.0.0.1:{port}\n  \
         http-request return status 200 content-type text/plain lf-string \"%[int(1700000000),ltime(%H:%M %z %Z)]\"\n\
         backend b\n{backend}"
    )
}

/// Returns the exit code and messages of a process that cannot start.
fn refused(configuration: &str) -> (Option<i32>, String) {
    let mut weir = Weir::start(configuration, &[]);
    let code = weir.await_end();
    (code, weir.messages())
}

#[test]
fn switching_users_keeps_setcap_capabilities_in_a_chroot() {
    let port = free_port();
    let global = "  uid 65534\n  gid 65534\n  chroot auto\n  setcap cap_net_raw,cap_net_bind_service\n";
    let text = configuration(port, global, "");
    if !is_root() {
        let (code, said) = refused(&text);
        assert_eq!(code, Some(1));
        assert!(is_forbidden(&said), "{said}");
        return;
    }
    let mut command = Command::new(program());
    command.env("TZ", "America/New_York");
    let weir = Weir::start_by(command, &text, &["-db"], &[port]);
    // A process that answers has dropped its privileges.
    let answer = get(port, "/").expect("an answer").text();
    let pid = weir.pid().to_string();
    assert_eq!(status(&pid, "Uid").split_whitespace().next(), Some("65534"));
    for set in ["CapPrm", "CapEff"] {
        assert_eq!(u64::from_str_radix(&status(&pid, set), 16), Ok(1 << 13 | 1 << 10), "{set}");
    }
    let root = std::fs::read_link(format!("/proc/{pid}/root")).expect("root may look");
    assert!(root.to_string_lossy().ends_with("(deleted)"), "{root:?}");
    let known = std::path::Path::new("/usr/share/zoneinfo/America/New_York").exists();
    assert_eq!(answer, if known { "17:13 -0500 EST" } else { "22:13 +0000 UTC" });
    // On a machine with a single CPU there is a warning about threads that share it.
    let warns = |line: &str| line.contains("WARNING") && !line.contains("threads share");
    assert!(!weir.messages().lines().any(warns), "{}", weir.messages());
}

#[test]
fn needed_privileges_are_not_dropped() {
    let global = "  uid 65534\n  chroot /\n";
    for (backend, needs) in [
        ("  source 0.0.0.0 usesrc clientip\n", "`usesrc` in `b` needs `setcap cap_net_raw`"),
        (
            "  server s 127.0.0.1:1 source 127.0.0.2 interface lo\n",
            "`source … interface` in `b` needs `setcap",
        ),
        ("  http-request set-bc-mark 1\n", "`set-mark` in `b` needs `setcap cap_net_raw`"),
    ] {
        let (code, said) = refused(&configuration(free_port(), global, backend));
        assert_eq!(code, Some(1), "{backend}");
        assert!(if is_root() { said.contains(needs) } else { is_forbidden(&said) }, "{backend}: {said}");
    }
    if is_root() {
        let port = free_port();
        let kept = format!("{global}  setcap cap_net_raw\n");
        let weir = Weir::start(&configuration(port, &kept, "  source 0.0.0.0 usesrc clientip\n"), &[port]);
        assert_eq!(get(port, "/").map(|answer| answer.status), Some(200), "{}", weir.messages());
    }
}

#[test]
fn staying_root_causes_a_warning() {
    let port = free_port();
    let weir = Weir::start(&configuration(port, "", ""), &[port]);
    assert!(get(port, "/").is_some());
    let said = weir.messages();
    assert_eq!(said.contains("`chroot auto` in the global section"), is_root(), "{said}");
    assert_eq!(said.contains("started as root without `user` or `uid`"), is_root(), "{said}");
}

#[test]
fn child_programs_gain_no_privileges_by_default() {
    for (global, forbids) in [("", "1"), ("  insecure-setuid-wanted\n", "0")] {
        let port = free_port();
        let weir = Weir::start(&configuration(port, global, ""), &[port]);
        assert!(get(port, "/").is_some());
        assert_eq!(status(&weir.pid().to_string(), "NoNewPrivs"), forbids, "{global}");
    }
}
