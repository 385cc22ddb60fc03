//! Traces: `trace` on the runtime socket, `traces` sections, and where their lines go.

use weir_tests::client::{Client, get};
use weir_tests::multiplexed::Frames;
use weir_tests::origin::Origin;
use weir_tests::{Weir, ask, eventually, free_port};

const DEFAULTS: &str =
    "defaults\n mode http\n timeout client 10s\n timeout connect 10s\n timeout server 10s\n";

fn start(more: &str, origin: u16) -> (Weir, u16) {
    let port = free_port();
    let text = format!(
        "global\n stats socket @SOCKET@ level admin\n{DEFAULTS}frontend web\n bind 127.0.0.1:{port}\n default_backend app\n\
         backend app\n server one 127.0.0.1:{origin}\n{more}"
    );
    (Weir::start(&text, &[port]), port)
}

/// Messages of `buf0`, without what stands before them.
fn told(weir: &Weir) -> Vec<String> {
    weir.ask("show events buf0").lines().filter_map(|line| Some(line.split_once(" [")?.1.to_owned())).collect()
}
