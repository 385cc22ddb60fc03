//! A panic in one stream ends only that stream; its worker keeps serving.

#[allow(dead_code, reason = "other tests need more of it")]
mod common;

use std::io::{Read, Write};
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;

#[test]
fn a_panic_in_one_stream_ends_that_stream_only() {
    let origin = common::origin(Arc::new(AtomicUsize::new(0)));
    let address = common::serve(common::plan(&format!(
        "global\n nbthread 1\ndefaults\n mode http\n timeout client 20s\n timeout connect 20s\n timeout server 20s\n\
         frontend f\n bind 127.0.0.1:1\n maxconn 2\n http-request use-service prometheus-exporter if {{ path /panic }}\n \
         default_backend b\nbackend b\n server s {origin}\n"
    )))[0];
    let mut other = common::connect(address);
    common::exchange(&mut other, 10);
    // Repeated more often than there are slots, because each panic must release its slot.
    for _ in 0..5 {
        let mut client = common::connect(address);
        client.write_all(b"GET /panic HTTP/1.1\r\nHost: h\r\n\r\n").expect("the frontend reads");
        let mut answer = Vec::new();
        // There is no response, only a close or a reset.
        let _ = client.read_to_end(&mut answer);
        assert!(answer.is_empty(), "{}", String::from_utf8_lossy(&answer));
        common::exchange(&mut other, 10);
    }
}
