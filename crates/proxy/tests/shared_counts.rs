//! Each worker references shared objects once, and not once per connection and request: with per-connection reference counts of a
//! proxy or a listener, all cores would write the same cache line.

#[allow(dead_code, reason = "other tests need more of it")]
mod common;

use std::io::{Read, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::sync::Arc;

const WORKERS: usize = 2;
const CLIENTS: usize = 24;

#[test]
fn connections_and_requests_hold_no_references_to_the_plan() {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port of the loopback interface");
    let origin = listener.local_addr().expect("a bound socket has an address");
    let plan = common::plan(&format!(
        "global\n nbthread {WORKERS}\ndefaults\n mode http\n timeout client 20s\n timeout connect 20s\n \
         timeout server 20s\nfrontend f\n bind 127.0.0.1:1\n default_backend b\nbackend b\n server s {origin}\n"
    ));
    let proxies: Vec<_> = plan.proxies.iter().cloned().collect();
    let counts = || -> Vec<usize> {
        let of_proxy = |proxy: &Arc<plan::Proxy>| [Arc::strong_count(proxy), Arc::strong_count(&proxy.state)];
        let listeners =
            proxies.iter().flat_map(|proxy| &proxy.binds).map(|bind| Arc::strong_count(&bind.listener));
        let of_server = |server: &Arc<plan::ServerSettings>| {
            [Arc::strong_count(server), Arc::strong_count(&server.state)]
        };
        let servers = proxies.iter().flat_map(|proxy| proxy.servers.fixed()).flat_map(of_server);
        proxies.iter().flat_map(of_proxy).chain(listeners).chain(servers).collect()
    };
    let address = common::serve(plan)[0];
    // With the first request, the listener's own tasks take their references.
    let mut connections = vec![request(address, &listener)];
    let before = counts();
    connections.extend((1..CLIENTS).map(|_| request(address, &listener)));
    for (before, now) in before.iter().zip(counts()) {
        assert!(now < before + WORKERS, "{before} users became {now} with {CLIENTS} requests in progress");
    }
}

/// Starts a client's request; returns its connection and the origin's end of the request, which does not answer.
fn request(address: std::net::SocketAddr, origin: &TcpListener) -> (TcpStream, TcpStream) {
    let mut client = common::connect(address);
    client.write_all(b"GET / HTTP/1.1\r\nHost: h\r\n\r\n").expect("the frontend reads");
    let (mut server, _) = origin.accept().expect("the request goes to the origin");
    assert!(server.read(&mut [0; 1024]).is_ok_and(|n| n > 0), "the request came");
    (client, server)
}
