//! HTTP/3 over QUIC and QMux.

mod attacks;
mod clients;
mod commands;
mod connections;
mod early;
mod exchanges;
mod packets;
mod qmux;
mod relay;
mod reloads;
mod rules;
mod servers;
mod settings;

use weir_tests::{Authority, Weir, free_port};

/// Timeouts and mode for all sections.
const DEFAULTS: &str =
    "defaults\n mode http\n timeout connect 10s\n timeout client 20s\n timeout server 20s\n";

/// The program with an HTTP/3 port, and the files that it needs.
struct Scene {
    weir: Weir,
    port: u16,
    _authority: Authority,
}

/// Starts the program with `frontend` as the rest of a frontend with an HTTP/3 port and a TLS port, and `rest` behind it. `PORT` is
/// the number of both ports.
fn start(global: &str, frontend: &str, rest: &str) -> Scene {
    start_with("", global, frontend, rest)
}

/// The same with more parameters on the HTTP/3 port.
fn start_with(parameters: &str, global: &str, frontend: &str, rest: &str) -> Scene {
    let authority = Authority::new();
    let certificate = authority.issue(&["localhost"]);
    let port = free_port();
    let shown = certificate.display();
    let text = format!(
        "global\n stats socket runtime level admin\n{global}\n{DEFAULTS}frontend f\n bind quic4@127.0.0.1:{port} ssl crt {shown} {parameters}\n \
         bind 127.0.0.1:{port} ssl crt {shown} alpn h2,http/1.1\n{frontend}\n{rest}\n"
    );
    let weir = Weir::start(&text.replace("PORT", &port.to_string()), &[port]);
    Scene { weir, port, _authority: authority }
}
