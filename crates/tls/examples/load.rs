//! Measures how long it takes to load the certificates of a directory and add them to a listener: `cargo run --release --example
//! load -- DIR`.

#![allow(clippy::unwrap_used, reason = "a measurement that cannot go on stops")]

use std::sync::Arc;
use std::time::Instant;

use tls::load::{ExtraFiles, Loader};
use tls::{Acceptor, CertificateEntry, EntryOptions, Listening};

fn main() {
    let folder = std::env::args().nth(1).expect("a directory");
    for extra in [ExtraFiles::ALL, ExtraFiles::NONE] {
        let start = Instant::now();
        let certificates = Loader { extra, ..Loader::default() }.certificates(&folder).unwrap();
        let loaded = start.elapsed();
        let options: Arc<EntryOptions> = Arc::default();
        let entry = |certificate| CertificateEntry {
            certificate,
            filters: Vec::new(),
            is_default: false,
            options: options.clone(),
        };
        let entries: Vec<_> = certificates.into_iter().map(entry).collect();
        let count = entries.len();
        let acceptor = Acceptor::new(Listening { entries, ..Listening::default() }).unwrap();
        println!("{count} loaded in {loaded:?}, ready in {:?}", start.elapsed());
        drop(acceptor);
    }
}
