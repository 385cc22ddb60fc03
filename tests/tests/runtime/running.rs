//! Running programs for the tests of the runtime socket.

use weir_tests::logs::{DEFAULTS, GLOBAL};
use weir_tests::{Origin, Weir, free_port};

/// Starts a program with these sections, which listens on `port`.
pub(crate) fn start(sections: &str, port: u16) -> Weir {
    Weir::start(&format!("{GLOBAL}{DEFAULTS}{sections}"), &[port])
}

/// Starts a program with a frontend that has these rules, in front of a server with checks and its backup, both at `origin`.
pub(crate) fn start_before(rules: &str, origin: &Origin) -> (Weir, u16) {
    let port = free_port();
    let text = format!(
        "{GLOBAL}{DEFAULTS}frontend f\n  bind 127.0.0.1:{port}\n{rules}  default_backend b\n\
         backend b\n  server s 127.0.0.1:{} check\n  server t 127.0.0.1:{0} backup\n",
        origin.port()
    );
    // A connection to the port would be counted, so the runtime socket is used to detect the start.
    let weir = Weir::start(&text, &[]);
    assert!(!weir.ask("show version").is_empty(), "{}", weir.messages());
    (weir, port)
}

/// Runs a command, and checks that the answer contains `wanted`.
pub(crate) fn expect(weir: &Weir, command: &str, wanted: &str) {
    let answer = weir.ask(command);
    assert!(answer.contains(wanted), "{command}: {answer}");
}

/// Returns a number of `show info`.
pub(crate) fn fact(weir: &Weir, name: &str) -> u64 {
    let all = weir.ask("show info");
    let line = all.lines().find_map(|line| line.strip_prefix(&format!("{name}: ")));
    line.and_then(|value| value.parse().ok()).unwrap_or_else(|| panic!("{name}: {all}"))
}
