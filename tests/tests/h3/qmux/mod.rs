//! HTTP/3 over QMux: listeners, servers, and peers that break the rules.

mod breaches;
mod chain;
mod checks;
mod listener;

use weir_tests::qmux::RawQmux;
use weir_tests::{Origin, Weir, free_port};

use super::DEFAULTS;
use super::exchanges::{bytes, origin};

/// The program with a QMux listener, clear, in front of an HTTP/1 server.
struct Scene {
    weir: Weir,
    port: u16,
}

impl Scene {
    fn connect(&self) -> RawQmux {
        RawQmux::connect(self.port)
    }
}

/// Starts the program in front of `origin`, with more lines of the global section, and of the frontend.
fn scene(origin: &Origin, global: &str, frontend: &str) -> Scene {
    scene_with(origin, global, frontend, "")
}

/// The same with more parameters of the listener.
fn scene_with(origin: &Origin, global: &str, frontend: &str, bind: &str) -> Scene {
    let port = free_port();
    let text = format!(
        "global\n stats socket runtime level admin\n expose-experimental-directives\n{global}\n{DEFAULTS}\
         frontend f\n bind 127.0.0.1:{port} proto qmux {bind}\n{frontend}\n default_backend b\n\
         backend b\n server s 127.0.0.1:{}\n",
        origin.port()
    );
    Scene { weir: Weir::start(&text, &[port]), port }
}
