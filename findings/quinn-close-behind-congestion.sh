#!/usr/bin/env bash
# A QUIC packet with CONNECTION_CLOSE does not count as in flight (RFC 9002, 2 and 7), so one would expect that an endpoint which closes
# a connection reports it at once. quinn-proto 0.11.19 does not if stream data waits for the congestion window: it sends nothing at that
# moment, so that the peer of a stalled download does not learn of its end.
#
# The program connects two endpoints in memory. One of them writes to a stream until its congestion window is full, none of which
# is delivered, and closes the connection. It counts the datagrams that follow at once: none. The second connection writes nothing
# before it closes: one. Needs Rust and a C compiler. Exits with 1 if the result changes.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
mkdir src
cat >Cargo.toml <<'TOML'
[package]
name = "close"
version = "0.1.0"
edition = "2021"

[dependencies]
bytes = "1"
quinn-proto = { version = "=0.11.19", default-features = false, features = ["rustls-ring"] }
rcgen = "=0.14.10"
rustls = { version = "0.23", default-features = false, features = ["ring", "std"] }
TOML
cat >src/main.rs <<'RUST'
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Instant;

use bytes::BytesMut;
use quinn_proto::{
    ClientConfig, Connection, ConnectionHandle, DatagramEvent, Dir, Endpoint, EndpointConfig, Event, ServerConfig,
};

/// An endpoint with at most one connection.
struct End {
    endpoint: Endpoint,
    connection: Option<(ConnectionHandle, Connection)>,
    address: SocketAddr,
}

impl End {
    /// Returns the datagrams that are to be sent now.
    fn send(&mut self, now: Instant) -> Vec<Vec<u8>> {
        let mut all = Vec::new();
        let Some((handle, connection)) = &mut self.connection else { return all };
        while let Some(event) = connection.poll_endpoint_events() {
            if let Some(event) = self.endpoint.handle_event(*handle, event) {
                connection.handle_event(event);
            }
        }
        let mut buffer = Vec::new();
        while let Some(transmit) = connection.poll_transmit(now, 1, &mut buffer) {
            all.push(buffer[..transmit.size].to_vec());
            buffer.clear();
        }
        all
    }

    fn receive(&mut self, now: Instant, from: SocketAddr, datagram: &[u8]) {
        let mut buffer = Vec::new();
        match self.endpoint.handle(now, from, None, None, BytesMut::from(datagram), &mut buffer) {
            Some(DatagramEvent::NewConnection(incoming)) => {
                self.connection = self.endpoint.accept(incoming, now, &mut buffer, None).ok();
            }
            Some(DatagramEvent::ConnectionEvent(_, event)) => {
                self.connection.as_mut().expect("a connection").1.handle_event(event);
            }
            Some(DatagramEvent::Response(_)) | None => {}
        }
    }
}

/// Returns the number of datagrams that follow the close of a connection, on which `length` bytes were written and not delivered.
fn datagrams_after_close(length: usize) -> usize {
    let signed = rcgen::generate_simple_self_signed(vec!["localhost".to_owned()]).expect("a certificate");
    let certificate = signed.cert.der().clone();
    let key = rustls::pki_types::PrivateKeyDer::try_from(signed.signing_key.serialize_der()).expect("a key");
    let server = ServerConfig::with_single_cert(vec![certificate.clone()], key).expect("a server");
    let mut roots = rustls::RootCertStore::empty();
    roots.add(certificate).expect("a root");
    let client = ClientConfig::with_root_certificates(Arc::new(roots)).expect("a client");
    let (near, far) = ("127.0.0.1:1000".parse().unwrap(), "127.0.0.1:2000".parse().unwrap());
    let config = Arc::new(EndpointConfig::default());
    let now = Instant::now();
    let mut endpoint = Endpoint::new(config.clone(), None, false, None);
    let connection = endpoint.connect(now, client, far, "localhost").ok();
    let mut ours = End { endpoint, connection, address: near };
    let endpoint = Endpoint::new(config, Some(Arc::new(server)), false, None);
    let mut theirs = End { endpoint, connection: None, address: far };
    for _ in 0..20 {
        for datagram in ours.send(now) {
            theirs.receive(now, ours.address, &datagram);
        }
        for datagram in theirs.send(now) {
            ours.receive(now, theirs.address, &datagram);
        }
    }
    let (_, connection) = ours.connection.as_mut().expect("a connection");
    assert!(std::iter::from_fn(|| connection.poll()).any(|event| matches!(event, Event::Connected)));
    let stream = connection.streams().open(Dir::Uni).expect("the peer permits a stream");
    if length > 0 {
        connection.send_stream(stream).write(&vec![0; length]).expect("the peer's window is larger");
    }
    ours.send(now);
    ours.connection.as_mut().expect("a connection").1.close(now, 0u32.into(), "over".into());
    ours.send(now).len()
}

fn main() {
    let (behind_data, alone) = (datagrams_after_close(1 << 20), datagrams_after_close(0));
    println!("datagrams after the close: {behind_data} with data that waits, {alone} without");
    assert_eq!((behind_data, alone), (0, 1));
}
RUST
cargo run -q
