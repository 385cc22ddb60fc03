//! A warm HTTP/1 request allocates nothing.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, TcpListener};

use load::{Command, Interrupts};
use stats_alloc::{INSTRUMENTED_SYSTEM, Region, StatsAlloc};

#[global_allocator]
static ALLOCATOR: &StatsAlloc<std::alloc::System> = &INSTRUMENTED_SYSTEM;

/// The number of requests of the run.
const REQUESTS: usize = 20_000;

#[test]
fn requests_allocate_nothing() {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port of the loopback interface");
    let port = listener.local_addr().expect("a bound socket").port();
    // Answers each read, because the generator sends a request with one write.
    std::thread::spawn(move || {
        let mut buffer = [0; 4096];
        for stream in listener.incoming() {
            let Ok(mut stream) = stream else { return };
            while stream.read(&mut buffer).is_ok_and(|count| count > 0) {
                if stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\nhello").is_err() {
                    break;
                }
            }
        }
    });
    let words =
        ["-n", &REQUESTS.to_string(), "--json", &format!("http://127.0.0.1:{port}/")].map(str::to_owned);
    let Ok(Command::Run(options)) = load::arguments::parse(&words) else { panic!("a valid command line") };
    let mut out = Vec::new();
    let region = Region::new(ALLOCATOR);
    load::run(*options, &Interrupts::new(0), &mut out).expect("a run");
    let allocations = region.change().allocations;
    let text = String::from_utf8_lossy(&out);
    assert!(text.contains(&format!("\"requests\":{REQUESTS},")) && text.contains("\"errors\":0,"), "{text}");
    assert!(allocations < REQUESTS / 20, "{allocations} allocations for {REQUESTS} requests");
}
