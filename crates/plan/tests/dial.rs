//! Socket options of connections to servers. This is an integration test because the parser that creates the plan links the library
//! without `cfg(test)`.

#![allow(missing_docs)]

use std::net::SocketAddr;

use net::{Dial, Target};
use plan::dial::{Buffers, to_server};

/// The source address, a range of ports, and whether the address may be foreign.
type Seen = (SocketAddr, Option<(u16, u16)>, bool);

/// Calls `see` with the connection options that result from the lines in `global` and the parameters in `line`.
fn options<T>(global: &str, line: &str, see: impl FnOnce(&Dial<'_>) -> T) -> T {
    let text = format!("global\n {global}\nbackend b\n mode tcp\n server s 192.0.2.1:80 {line}\n");
    let loaded = config::load_text("test.cfg", &text, &config::Boot::default());
    let plan = loaded.plan.expect("the lines are right");
    let server = plan.proxies[0].servers.get(0).expect("it has one");
    let buffers = (&plan.global.tune).into();
    see(&to_server(&server, buffers, &Target::Ip(([192, 0, 2, 1], 80).into())))
}

fn source(line: &str) -> Option<Seen> {
    options("", line, |dial| dial.source.map(|address| (address, dial.source_ports, dial.transparent)))
}

#[test]
fn socket_buffers_come_from_the_global_tune_settings() {
    let sizes =
        |global: &str| options(global, "", |dial| (dial.receive_buffer, dial.send_buffer, dial.notsent));
    assert_eq!(sizes(""), (0, 0, 0));
    assert_eq!(sizes("tune.rcvbuf.server 8192\n tune.sndbuf.server 4096"), (8192, 4096, 0));
    assert_eq!(sizes("tune.notsent-lowat.server 2048"), (0, 0, 2048));
}

#[test]
fn sockets_for_datagrams_have_separate_buffer_sizes() {
    let text = "global\n tune.rcvbuf.server 8192\n tune.notsent-lowat.server 2048\n tune.rcvbuf.backend 16384\n \
                tune.sndbuf.backend 32768\nbackend b\n mode tcp\n server s 192.0.2.1:53\n";
    let loaded = config::load_text("test.cfg", text, &config::Boot::default());
    let plan = loaded.plan.expect("the lines are right");
    let server = plan.proxies[0].servers.get(0).expect("it has one");
    let target = Target::Ip(([192, 0, 2, 1], 53).into());
    let dial = to_server(&server, Buffers::of_datagrams(&plan.global.tune), &target);
    assert_eq!((dial.receive_buffer, dial.send_buffer, dial.notsent), (16384, 32768, 0));
}

#[test]
fn the_source_setting_sets_the_local_address() {
    let own = |port: u16| SocketAddr::from(([127, 0, 0, 2], port));
    assert_eq!(source(""), None);
    assert_eq!(source("source 127.0.0.2"), Some((own(0), None, false)));
    assert_eq!(source("source 127.0.0.2:1000"), Some((own(1000), None, false)));
    assert_eq!(source("source 127.0.0.2:1000-1003"), Some((own(0), Some((1000, 1003)), false)));
    let fixed = SocketAddr::from(([192, 0, 2, 9], 0));
    assert_eq!(source("source 127.0.0.2 usesrc 192.0.2.9"), Some((fixed, None, true)));
}
