#!/usr/bin/env bash
# A key log is expected to contain CLIENT_EARLY_TRAFFIC_SECRET only for connections with early data, as with OpenSSL. With rustls
# 0.23.46, the server logs this secret for each resumed TLS 1.3 connection, although neither side has enabled early data. A
# program that takes the label as a sign of early data counts every resumption.
#
# The program makes two connections in memory, the second resumed, and prints the labels that each side logs. Needs Rust and a C
# compiler. Exits with 1 if the result changes.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
mkdir src
cat >Cargo.toml <<'TOML'
[package]
name = "key-log"
version = "0.1.0"
edition = "2021"

[dependencies]
rcgen = { version = "=0.14.10", default-features = false, features = ["ring"] }
rustls = { version = "=0.23.46", default-features = false, features = ["ring", "std"] }
TOML
cat >src/main.rs <<'RUST'
use std::sync::{Arc, Mutex};

use rustls::pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer};
use rustls::{ClientConfig, ClientConnection, KeyLog, RootCertStore, ServerConfig, ServerConnection};

#[derive(Debug, Default)]
struct Labels(Mutex<Vec<String>>);

impl KeyLog for Labels {
    fn log(&self, label: &str, _: &[u8], _: &[u8]) {
        self.0.lock().unwrap().push(label.to_owned());
    }
}

fn connect(client: &Arc<ClientConfig>, server: &Arc<ServerConfig>) -> bool {
    let mut client = ClientConnection::new(client.clone(), "localhost".try_into().unwrap()).unwrap();
    let mut server = ServerConnection::new(server.clone()).unwrap();
    let mut wire = Vec::new();
    while client.wants_write() || server.wants_write() {
        wire.clear();
        client.write_tls(&mut wire).unwrap();
        server.read_tls(&mut &wire[..]).unwrap();
        server.process_new_packets().unwrap();
        wire.clear();
        server.write_tls(&mut wire).unwrap();
        client.read_tls(&mut &wire[..]).unwrap();
        client.process_new_packets().unwrap();
    }
    assert!(!client.is_early_data_accepted());
    server.handshake_kind() == Some(rustls::HandshakeKind::Resumed)
}

fn main() {
    let own = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
    let key = PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(own.signing_key.serialize_der()));
    let mut roots = RootCertStore::empty();
    roots.add(own.cert.der().clone()).unwrap();
    let (of_client, of_server) = (Arc::new(Labels::default()), Arc::new(Labels::default()));
    let mut client = ClientConfig::builder().with_root_certificates(roots).with_no_client_auth();
    client.key_log = of_client.clone();
    let mut server =
        ServerConfig::builder().with_no_client_auth().with_single_cert(vec![own.cert.der().clone()], key).unwrap();
    server.key_log = of_server.clone();
    assert!(!client.enable_early_data && server.max_early_data_size == 0);
    let (client, server) = (Arc::new(client), Arc::new(server));
    for resumed in [false, true] {
        assert_eq!(connect(&client, &server), resumed);
        let early = |labels: &Labels| {
            std::mem::take(&mut *labels.0.lock().unwrap()).iter().any(|label| label == "CLIENT_EARLY_TRAFFIC_SECRET")
        };
        let logged = (early(&of_client), early(&of_server));
        println!("resumed: {resumed}, early secret logged by (client, server): {logged:?}");
        assert_eq!(logged, (false, resumed));
    }
}
RUST
cargo run -q
