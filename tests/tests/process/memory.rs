//! Memory use caused by peers: buffers are allocated while bytes are in flight and released when there are none, counted by `show
//! pools`.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::process::Command;
use std::sync::{Arc, RwLock};
use std::time::Duration;

use weir_tests::client::Client;
use weir_tests::{Origin, Weir, eventually, free_port};

fn start(defaults: &str, server: u16) -> (Weir, u16) {
    let port = free_port();
    let configuration = format!(
        "global\n  nbthread 1\n  stats socket runtime level admin\n\
         defaults\n  timeout client 60s\n  timeout connect 60s\n  timeout server 60s\n  {defaults}\n\
         listen l\n  bind 127.0.0.1:{port}\n  server s 127.0.0.1:{server}\n"
    );
    (Weir::start(&configuration, &[port]), port)
}

/// Returns the numbers of small and large buffers in use (`needed_avg`).
fn in_use(weir: &Weir) -> (usize, usize) {
    let pools = weir.ask("show pools");
    let of = |name: &str| {
        let line = pools.lines().find(|line| line.contains(&format!("Pool {name} "))).unwrap_or_default();
        let used = line.split("needed_avg ").nth(1).and_then(|back| back.split(',').next());
        used.and_then(|number| number.parse().ok()).unwrap_or_else(|| panic!("{name} in {pools}"))
    };
    (of("buffer"), of("large_buffer"))
}

/// Starts a server that reads everything and never answers.
fn reading() -> Origin {
    Origin::raw(|mut stream| {
        let mut bytes = vec![0; 65536];
        while matches!(stream.read(&mut bytes), Ok(1..)) {}
    })
}

#[test]
fn idle_uploads_hold_no_buffers() {
    let origin = reading();
    let (weir, port) = start("mode http", origin.port());
    let mut clients: Vec<Client> = (0..100).map(|_| Client::connect(port)).collect();
    for client in &mut clients {
        client.send("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 100000000\r\n\r\n");
        client.send(vec![b'x'; 200_000]);
    }
    assert!(eventually(|| weir.ask("show info").contains("CurrConns: 100")), "{}", weir.messages());
    assert!(eventually(|| in_use(&weir) == (0, 0)), "{:?}", in_use(&weir));
}

#[test]
fn idle_tcp_streams_hold_no_buffers() {
    let origin = Origin::raw(|mut stream| {
        let mut bytes = [0; 4096];
        while let Ok(count @ 1..) = stream.read(&mut bytes) {
            if stream.write_all(&bytes[..count]).is_err() {
                return;
            }
        }
    });
    let (weir, port) = start("mode tcp", origin.port());
    let mut streams: Vec<TcpStream> =
        (0..50).map(|_| TcpStream::connect((Ipv4Addr::LOCALHOST, port)).expect("a stream")).collect();
    for stream in &mut streams {
        stream.write_all(b"hello").expect("the stream is open");
        stream.read_exact(&mut [0; 5]).expect("the echo");
    }
    assert!(eventually(|| in_use(&weir) == (0, 0)), "{:?}", in_use(&weir));
}

#[test]
fn slow_readers_hold_small_buffers() {
    const READERS: usize = 60;
    // Sends an endless response to every client.
    let origin = Origin::raw(|mut stream| {
        let _ = stream.read(&mut [0; 4096]);
        let _ = stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 1000000000000\r\n\r\n");
        let block = vec![b'x'; 65536];
        while stream.write_all(&block).is_ok() {}
    });
    let (weir, port) = start("mode http", origin.port());
    let mut clients: Vec<Client> = (0..READERS).map(|_| Client::connect(port)).collect();
    for client in &mut clients {
        client.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n");
        assert!(client.read_head().starts_with("HTTP/1.1 200"));
    }
    // In the end all of them wait, each with at most one buffer, and few of them with a large one.
    assert!(eventually(|| {
        let (small, large) = in_use(&weir);
        small + large == READERS
    }));
    assert!(in_use(&weir).1 <= 8, "{:?}", in_use(&weir));
}

#[test]
fn long_response_head_passes_despite_slow_readers() {
    // Enough waiting readers that no large buffers are given to bodies.
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port of the loopback interface");
    let server = listener.local_addr().expect("a bound socket has an address").port();
    std::thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            std::thread::spawn(move || {
                let mut head = [0; 4096];
                let count = stream.read(&mut head).unwrap_or(0);
                if head[..count].starts_with(b"GET /long") {
                    let field = "x".repeat(15_000);
                    let answer = format!("HTTP/1.1 200 OK\r\nContent-Length: 2\r\nx-long: {field}\r\n\r\nok");
                    let _ = stream.write_all(answer.as_bytes());
                    let _ = stream.shutdown(Shutdown::Write);
                    return;
                }
                let _ = stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 1000000000000\r\n\r\n");
                let block = vec![b'x'; 65536];
                while stream.write_all(&block).is_ok() {}
            });
        }
    });
    let (weir, port) = start("mode http", server);
    let mut readers: Vec<Client> = (0..40).map(|_| Client::connect(port)).collect();
    for reader in &mut readers {
        reader.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n");
        assert!(reader.read_head().starts_with("HTTP/1.1 200"));
    }
    assert!(eventually(|| {
        let (small, large) = in_use(&weir);
        small + large == readers.len()
    }));
    let answer = Client::connect(port).send("GET /long HTTP/1.1\r\nHost: a\r\n\r\n").response();
    assert_eq!(answer.expect("an answer").text(), "ok");
}

#[test]
fn memory_does_not_grow_with_requests() {
    let port = free_port();
    let weir = Weir::start(
        &format!(
            "global\n  nbthread 2\ndefaults\n  mode http\n  timeout client 20s\n  timeout connect 20s\n  timeout server 20s\n\
             listen l\n  bind 127.0.0.1:{port}\n  http-request return status 200 if {{ path /own }}\n  \
             http-request set-header x-test %[src]\n  server s 127.0.0.1:{port}\n  http-request set-path /own\n"
        ),
        &[port],
    );
    // Requests answered by the program itself, and forwarded to itself: connections of all kinds.
    let load = |path: &str, fields: &str| {
        let url = format!("http://127.0.0.1:{port}{path}");
        let run = Command::new("wrk").args(["-t1", "-c50", "-d2s", "-H", fields, &url]).output();
        let report = String::from_utf8_lossy(&run.expect("wrk is missing: `make tools` installs it").stdout)
            .into_owned();
        let answered = report.split(" requests in").next().and_then(|front| front.rsplit(' ').next());
        answered.and_then(|count| count.parse::<usize>().ok()).unwrap_or_else(|| panic!("{report}"))
    };
    let all = || {
        [("/own", "x: y"), ("/", "x: y"), ("/own", "Connection: close")]
            .map(|(path, fields)| load(path, fields))
    };
    all();
    let before = weir.memory();
    let answered: usize = all().into_iter().chain(all()).sum();
    let grown = weir.memory().saturating_sub(before);
    assert!(answered > 1000, "only {answered} were answered");
    assert!(grown < 1024, "{grown} KiB more after {answered} requests, from {before}");
}

/// Returns a frontend that answers `/alive` by itself and forwards everything else to a port.
fn limited(server: u16) -> (String, u16) {
    let port = free_port();
    let configuration = format!(
        "global\n  nbthread 1\n  tune.bufsize 131072\n  stats socket runtime level admin\n\
         defaults\n  mode http\n  timeout client 60s\n  timeout connect 60s\n  timeout server 60s\n\
         listen l\n  bind 127.0.0.1:{port}\n  http-request return status 200 if {{ path /alive }}\n  \
         server s 127.0.0.1:{server}\n"
    );
    (configuration, port)
}

/// Returns whether a GET of `/alive` on a new connection is answered.
fn is_alive(port: u16) -> bool {
    let ask = || -> std::io::Result<Vec<u8>> {
        let mut stream = TcpStream::connect((Ipv4Addr::LOCALHOST, port))?;
        stream.set_read_timeout(Some(weir_tests::PATIENCE))?;
        stream.write_all(b"GET /alive HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n")?;
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer)?;
        Ok(answer)
    };
    ask().is_ok_and(|answer| answer.starts_with(b"HTTP/1.1 200"))
}

#[test]
fn small_memory_limits_leave_room_to_serve() {
    for limit in ["60", "200", "1000"] {
        let (configuration, port) = limited(1);
        let weir = Weir::start_with(&configuration, &["-db", "-m", limit], &[port]);
        assert!(is_alive(port), "-m {limit}: {}", weir.messages());
    }
}

#[test]
fn memory_limits_that_leave_no_room_prevent_the_start() {
    let (configuration, _) = limited(1);
    let mut weir = Weir::start_with(&configuration, &["-db", "-m", "16"], &[]);
    assert_eq!(weir.await_end(), Some(1), "{}", weir.messages());
    assert!(weir.messages().contains("The memory limit of 16 MiB is too low"), "{}", weir.messages());
}

#[test]
fn uploads_beyond_the_memory_limit_are_refused_and_others_served() {
    let gate = Arc::new(RwLock::new(()));
    let opened = gate.clone();
    let origin = Origin::raw(move |mut stream| {
        let open = opened.read();
        let mut bytes = vec![0; 65536];
        while matches!(stream.read(&mut bytes), Ok(1..)) {}
        drop(open);
    });
    let (configuration, port) = limited(origin.port());
    let mut weir = Weir::start_with(&configuration, &["-db", "-m", "60"], &[port]);
    // The server reads nothing yet, so that each upload keeps a buffer of 128 KiB.
    let closed = gate.write().expect("no thread panicked");
    let mut uploads = Vec::new();
    // Twice as many as fit within the limit. In a shortage, accepting stops, and then connecting.
    for _ in 0..900 {
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
        let Ok(stream) = TcpStream::connect_timeout(&address, Duration::from_secs(1)) else { break };
        stream.set_nonblocking(true).expect("a socket");
        let head = b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 100000000\r\n\r\n";
        // A refused connection may be closed already.
        let _ = (&stream).write_all(head).and_then(|()| (&stream).write_all(&vec![b'x'; 4_000_000]));
        uploads.push(stream);
    }
    assert!(weir.says("Memory limit reached"), "{}", weir.messages());
    drop((uploads, closed));
    assert!(eventually(|| is_alive(port)), "{}", weir.messages());
    assert!(weir.is_running());
}
