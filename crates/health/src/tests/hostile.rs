//! Servers that hang, misbehave, flood or flap: every check ends with a verdict, in time and with bounded memory.

use std::time::Duration;

use state::server::Operational;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpSocket};

use super::{backend, greeter, once, told, until, worker};

const OPTIONS: &[&str] = &[
    "option httpchk",
    "option httpchk\n http-check expect string never",
    "option tcp-check\n tcp-check expect string never",
    "option tcp-check\n tcp-check expect rbinary ^00",
    "option redis-check",
    "option smtpchk",
    "option ldap-check",
    "option pgsql-check user u",
    "option mysql-check user u",
    "option ssl-hello-chk",
    "option spop-check",
];

#[test]
fn a_server_that_hangs_ends_in_a_timeout_of_its_layer() {
    worker(async {
        let address = greeter(b"").await;
        for option in OPTIONS {
            let outcome = once(&backend(option, address, "").0).await;
            assert!(matches!(outcome.status, "L7TOUT" | "L6TOUT"), "{option}: {}", outcome.status);
            assert!(outcome.duration >= Duration::from_millis(95), "{option}: {:?}", outcome.duration);
        }
    });
}

#[test]
fn garbage_of_every_length_ends_in_a_verdict() {
    let mut random = fastrand::Rng::with_seed(11);
    let mut garbage = vec![0u8; 64];
    for length in [1usize, 2, 4, 5, 9, 14, 64] {
        random.fill(&mut garbage);
        let bytes: &'static [u8] = Box::leak(garbage[..length].to_vec().into_boxed_slice());
        worker(async {
            let address = greeter(bytes).await;
            for option in OPTIONS {
                let outcome = once(&backend(option, address, "").0).await;
                assert!(!outcome.status.ends_with("OK"), "{option} {bytes:?}: {outcome:?}");
            }
        });
    }
}

#[test]
fn floods_are_read_up_to_the_buffer_size() {
    /// How much of a flood the check may read, measured by the bytes that the other side could write before the reset.
    const FLOOD: usize = 64 << 20;
    worker(async {
        for start in [
            &b""[..],
            b"HTTP/1.1 200 OK\r\n\r\n",
            b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\nfffffff\r\n",
        ] {
            for option in OPTIONS {
                // Little data is in flight, so a check that kept reading would receive far more than this limit.
                let socket = TcpSocket::new_v4().unwrap();
                socket.set_send_buffer_size(64 << 10).unwrap();
                socket.bind("127.0.0.1:0".parse().unwrap()).unwrap();
                let listener = socket.listen(1).unwrap();
                let address = listener.local_addr().unwrap();
                let flood = tokio::task::spawn_local(async move {
                    let (mut socket, _) = listener.accept().await.unwrap();
                    let _ = socket.write_all(start).await;
                    let mut written = 0;
                    while written < FLOOD && socket.write_all(&[b'2'; 65_536]).await.is_ok() {
                        written += 65_536;
                    }
                    written
                });
                let outcome = once(&backend(option, address, "").0).await;
                assert!(outcome.info.len() < 128, "{option}");
                // The rest is in the kernel's buffers.
                let written = flood.await.unwrap();
                assert!(written < FLOOD / 32, "{option}: {written}");
            }
        }
    });
}

#[test]
fn truncated_responses_are_evaluated() {
    type Case = (&'static str, &'static [u8], (&'static str, Option<i32>, &'static str));
    const CUT: &[Case] = &[
        ("option httpchk", b"HTTP/1.1 20", ("SOCKERR", None, "")),
        ("option httpchk", b"HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\nab", ("L7OK", Some(200), "")),
        (
            "option httpchk\n http-check expect string abc",
            b"HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\nab",
            ("L7RSP", None, "HTTP content check did not match"),
        ),
        ("option redis-check", b"+PO", ("L7STS", Some(0), "+PO")),
        ("option mysql-check", b"\x4a\0\0\0\x0a8", ("L7RSP", None, "")),
        ("option spop-check", b"\0\0\0\x36\x65", ("L7RSP", None, "")),
    ];
    worker(async {
        for (option, answer, wanted) in CUT {
            let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
            let address = listener.local_addr().unwrap();
            let answer = answer.to_vec();
            tokio::task::spawn_local(async move {
                let (mut socket, _) = listener.accept().await.unwrap();
                // Closing with unread bytes would reset the connection.
                if !answer.starts_with(b"\x4a") {
                    let _ = socket.read(&mut [0; 4096]).await;
                }
                let _ = socket.write_all(&answer).await;
            });
            assert_eq!(told(&once(&backend(option, address, "").0).await), *wanted, "{option}");
        }
    });
}

#[test]
fn a_flapping_server_changes_its_state_only_by_rise_and_fall() {
    worker(async {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        // One response in three is good: the server never fails three times in a row, so it never goes down.
        tokio::task::spawn_local(async move {
            for number in 0u32.. {
                let (mut socket, _) = listener.accept().await.unwrap();
                let _ = socket.read(&mut [0; 4096]).await;
                let status = if number.is_multiple_of(3) { "200" } else { "503" };
                let _ = socket.write_all(format!("HTTP/1.0 {status} X\r\n\r\n").as_bytes()).await;
            }
        });
        let (checks, list) = backend("option httpchk\n option log-health-checks", address, "");
        let running = checks.start();
        let server = checks.subjects[0].server().clone();
        let seen = std::cell::RefCell::new(Vec::new());
        until(|| {
            seen.borrow_mut().extend(list.texts());
            seen.borrow().len() >= 9
        })
        .await;
        drop(running);
        assert_eq!(server.operational(), Operational::Running);
        let seen = seen.into_inner();
        assert!(seen.iter().all(|text| text.starts_with("Health check for server be/s1 ")), "{seen:#?}");
        assert!(
            seen[1].contains("failed, reason: Layer7 wrong status, code: 503, info: \"X\""),
            "{}",
            seen[1]
        );
    });
}
