//! `option external-check`: a program decides by its exit status whether a server is up (configuration manual, 4.2 `external-check
//! command`).

use std::net::IpAddr;
use std::process::{Command, Stdio};
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use base::raw::{path_of, text_of_path};
use runtime::timer::timeout;
use state::Mode;
use state::server::ServerAddress;

use crate::Subject;
use crate::outcome::{CheckOutcome, error_text};
use crate::program::CheckProgram;

/// The placeholder for a missing address or port.
const NOT_USED: &str = "NOT_USED";

/// Runs the program once and evaluates its exit status. The program is killed when its time is over. `forks` is true if the
/// configuration allows it (`insecure-fork-wanted`).
pub(crate) async fn run(
    subject: &Subject,
    command: &str,
    path: Option<&str>,
    preserve_env: bool,
    forks: bool,
) -> CheckOutcome {
    if !forks {
        let why = "Resource temporarily unavailable (likely caused by missing 'insecure-fork-wanted')";
        return CheckOutcome::new("SOCKERR", 0, why);
    }
    let [proxy_address, proxy_port] = listener(subject);
    let (address, port) = match &**subject.server().address.load() {
        ServerAddress::Ip(address) => (address.ip().to_string(), address.port().to_string()),
        ServerAddress::Unix(path) => (text_of_path(path).into_owned(), NOT_USED.to_owned()),
        ServerAddress::Abstract { .. } | ServerAddress::Unresolved | ServerAddress::Reverse => {
            (NOT_USED.to_owned(), NOT_USED.to_owned())
        }
    };
    let mut program = Command::new(&*path_of(command));
    if !preserve_env {
        program.env_clear();
    }
    program.args([&proxy_address, &proxy_port, &address, &port].map(|word| path_of(word).into_owned()));
    for (name, value) in
        environment(subject, path, [proxy_address, proxy_port, address.clone(), port.clone()])
    {
        program.env(name, &*path_of(&value));
    }
    program.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    // The program would inherit the blocked signals of the thread.
    process::hold_signals(false);
    let started = CheckProgram::start(&mut program);
    process::hold_signals(true);
    let program = match started {
        Ok(program) => program,
        // HAProxy's child process prints the same message and exits with the same status.
        Err(error) => {
            let (pid, why) = (std::process::id(), error_text(&error));
            base::output::to_standard_error(&format!(
                "[ALERT]    ({pid}) : Failed to exec process for external health check: {why}. Aborting.\n"
            ));
            return CheckOutcome::new("PROCERR", 255, why);
        }
    };
    let settings = &subject.settings;
    // As in HAProxy, `timeout check` is added to the connect timeout.
    let limit = match settings.timeout {
        Some(check) => check + settings.connect_timeout.unwrap_or(Duration::ZERO),
        None => settings.inter,
    };
    match timeout(limit, program.ended()).await {
        Ok(Ok(status)) if status.success() => CheckOutcome::new("PROCOK", 0, ""),
        Ok(Ok(status)) => CheckOutcome::new("PROCERR", status.code().unwrap_or(-1), ""),
        Ok(Err(error)) => CheckOutcome::new("SOCKERR", 0, error_text(&error)),
        Err(_) => CheckOutcome::new("PROCTOUT", 0, ""),
    }
}

/// Returns the address and port of the first listener, if the backend has one.
fn listener(subject: &Subject) -> [String; 2] {
    let unused = || [NOT_USED.to_owned(), NOT_USED.to_owned()];
    let Some(bind) = subject.backend().binds.first() else { return unused() };
    let address = &*bind.listener.address;
    if address.starts_with('/') || address.starts_with("unix@") {
        return [address.trim_start_matches("unix@").to_owned(), NOT_USED.to_owned()];
    }
    match address.rsplit_once(':') {
        Some((host, port)) => {
            let host = host.trim_matches(['[', ']']);
            let host = host.parse::<IpAddr>().map_or_else(|_| "0.0.0.0".to_owned(), |ip| ip.to_string());
            [host, port.to_owned()]
        }
        None => unused(),
    }
}

fn environment(
    subject: &Subject,
    path: Option<&str>,
    [proxy_address, proxy_port, address, port]: [String; 4],
) -> Vec<(&'static str, String)> {
    let (backend, server) = (subject.backend(), subject.server());
    let protocol = if backend.mode == Mode::Http { "h1" } else { "tcp" };
    vec![
        ("PATH", path.unwrap_or_default().to_owned()),
        ("HAPROXY_PROXY_NAME", backend.state.name.to_string()),
        ("HAPROXY_PROXY_ID", backend.state.id.to_string()),
        ("HAPROXY_PROXY_ADDR", proxy_address),
        ("HAPROXY_PROXY_PORT", proxy_port),
        ("HAPROXY_SERVER_NAME", server.name.to_string()),
        ("HAPROXY_SERVER_ID", server.id.to_string()),
        ("HAPROXY_SERVER_ADDR", address),
        ("HAPROXY_SERVER_PORT", port),
        ("HAPROXY_SERVER_MAXCONN", server.maxconn.load(Relaxed).to_string()),
        ("HAPROXY_SERVER_CURCONN", server.serving().to_string()),
        ("HAPROXY_SERVER_SSL", "0".to_owned()),
        ("HAPROXY_SERVER_PROTO", protocol.to_owned()),
    ]
}
