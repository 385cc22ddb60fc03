//! Destinations of log lines: rings and their servers, `show events`, log forwarders, log backends.

use std::collections::HashSet;
use std::fs::File;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream, UdpSocket};
use std::os::unix::net::UnixStream;
use std::process::Command;

use weir_tests::client::Client;
use weir_tests::logs::{Collector, DEFAULTS, GLOBAL, frontend, get};
use weir_tests::{PATIENCE, Weir, eventually, free_port, program};

/// Returns a datagram port of 127.0.0.2: other tests' sockets are all at 127.0.0.1, so it stays free.
fn free_datagram_port() -> u16 {
    let socket = UdpSocket::bind((Ipv4Addr::new(127, 0, 0, 2), 0)).expect("a port of the loopback interface");
    socket.local_addr().expect("a bound socket has an address").port()
}

/// Sends GETs one after the other on one connection: lines of different threads may arrive in any order.
fn get_in_turn(client: &mut Client, paths: &[&str]) {
    for path in paths {
        let answer = client.send(format!("GET {path} HTTP/1.1\r\nHost: h\r\n\r\n")).response();
        assert_eq!(answer.map(|answer| answer.status), Some(200), "{path}");
    }
}

/// Accepts a connection of the program.
fn accept(listener: &TcpListener) -> BufReader<TcpStream> {
    listener.set_nonblocking(true).expect("a listener");
    let mut accepted = None;
    assert!(eventually(|| {
        accepted = listener.accept().ok();
        accepted.is_some()
    }));
    let (stream, _) = accepted.expect("a connection");
    stream.set_nonblocking(false).expect("a connection");
    stream.set_read_timeout(Some(PATIENCE)).expect("the timeout is not zero");
    BufReader::new(stream)
}

#[test]
fn ring_keeps_messages_for_an_absent_server_in_order() {
    let (port, server) = (free_port(), free_port());
    let weir = Weir::start(
        &format!(
            "{GLOBAL}{DEFAULTS}{}ring r\n  size 16384\n  maxlen 200\n  timeout connect 1s\n  server s 127.0.0.1:{server} log-proto octet-count\n",
            frontend(port, "log ring@r local0")
        ),
        &[port],
    );
    let mut client = Client::connect(port);
    get_in_turn(&mut client, &["/1", "/2"]);
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, server)).expect("the port is free");
    let mut first = accept(&listener);
    let mut bytes = [0; 18];
    first.read_exact(&mut bytes).expect("both messages come");
    assert_eq!(&bytes, b"7 path=/17 path=/2");
    drop(first);
    // The server has left: lines that are logged at this point wait for its next connection.
    get_in_turn(&mut client, &["/3"]);
    let mut second = accept(&listener);
    get_in_turn(&mut client, &["/4"]);
    let mut rest = Vec::new();
    assert!(eventually(|| {
        let mut byte = [0];
        second.read_exact(&mut byte).expect("more comes");
        rest.push(byte[0]);
        rest.ends_with(b"7 path=/4")
    }));
    assert_eq!(weir.ask("show events r").trim_end(), "path=/1\npath=/2\npath=/3\npath=/4");
}

#[test]
fn full_ring_drops_and_counts_new_messages() {
    let (port, server) = (free_port(), free_port());
    let weir = Weir::start(
        &format!(
            "{GLOBAL}{DEFAULTS}{}ring r\n  size 60\n  description \"a small one\"\n  server s 127.0.0.1:{server}\nring free\n  size 60\n",
            frontend(port, "log ring@r local0\n  log ring@free local0")
        ),
        &[port],
    );
    let mut client = Client::connect(port);
    get_in_turn(&mut client, &["/0", "/1", "/2", "/3", "/4", "/5", "/6", "/7", "/8"]);
    // Eleven bytes each. The last line follows its response.
    let shown = || weir.ask("show events free");
    let last = "path=/4\npath=/5\npath=/6\npath=/7\npath=/8";
    assert!(eventually(|| shown().trim_end() == last), "{}", shown());
    let held = "path=/0\npath=/1\npath=/2\npath=/3\npath=/4";
    assert_eq!(weir.ask("show events r").trim_end(), held);
    let sinks = weir.ask("show events");
    assert!(sinks.contains("    r          : type=buffer, 4 dropped, a small one\n"), "{sinks}");
    assert!(sinks.contains("    free       : type=buffer, 0 dropped, free\n"), "{sinks}");
    assert!(weir.ask("show info").contains("DroppedLogs: 4\n"));
}

#[test]
fn ring_messages_are_limited_to_maxlen() {
    let (port, collector) = (free_port(), Collector::new());
    let weir = Weir::start(
        &format!(
            "{GLOBAL}{DEFAULTS}{}ring r\n  format raw\n  maxlen 40\n",
            frontend(
                port,
                &format!("log ring@r local0\n  log 127.0.0.1:{} len 80 format raw local0", collector.port())
            )
        ),
        &[port],
    );
    let path = format!("/{}", "x".repeat(120));
    get_in_turn(&mut Client::connect(port), &[&path, "/short"]);
    let whole = format!("path={path}");
    let shown = || weir.ask("show events r");
    let expected = format!("{}\npath=/short", &whole[..40]);
    assert!(eventually(|| shown().trim_end() == expected), "{}", shown());
    // The limit includes the line feed that ends each line.
    assert_eq!(collector.next(), format!("{}\n", &whole[..79]));
}

#[test]
fn show_events_continues_until_the_client_sends_input() {
    let port = free_port();
    let weir = Weir::start(&format!("{GLOBAL}{DEFAULTS}{}", frontend(port, "log ring@buf0 local0")), &[port]);
    get(port, "/old");
    let connect = |command: &str| {
        let mut stream = UnixStream::connect(weir.directory().join("runtime")).expect("the runtime socket");
        stream.set_read_timeout(Some(PATIENCE)).expect("the timeout is not zero");
        stream.write_all(command.as_bytes()).expect("it takes a command");
        BufReader::new(stream)
    };
    let mut all = connect("show events buf0 -w -0\n");
    let mut seen = Vec::new();
    all.read_until(0, &mut seen).expect("a message");
    let seen = String::from_utf8_lossy(&seen);
    assert!(seen.starts_with("<6>20") && seen.ends_with(" path=/old\0"), "{seen}");
    let mut new = connect("show events buf0 -nw\n");
    // Only later lines are shown: a response arrives after the command has been read.
    let mut number = 0;
    let mut shown = String::new();
    new.get_ref().set_read_timeout(Some(std::time::Duration::from_millis(50))).expect("not zero");
    assert!(eventually(|| {
        number += 1;
        get(port, &format!("/new{number}"));
        let _ = new.read_line(&mut shown);
        shown.ends_with('\n')
    }));
    assert!(shown.contains(" path=/new"), "{shown}");
    new.get_mut().write_all(b"\n").expect("it takes a line");
    let mut rest = String::new();
    new.get_ref().set_read_timeout(Some(PATIENCE)).expect("not zero");
    new.read_to_string(&mut rest).expect("it ends");
    assert!(rest.ends_with("\n\n") || rest == "\n", "{rest:?}");
    assert_eq!(weir.ask("show events nope").trim_end(), "No such event sink");
    assert_eq!(weir.ask("show events buf0 -x").trim_end(), "unknown option");
}

#[test]
fn messages_are_forwarded_in_each_targets_format() {
    let collectors: Vec<Collector> = (0..5).map(|_| Collector::new()).collect();
    let [same, modern, old, raw, high] = &collectors[..] else { panic!("five") };
    let (port, udp) = (free_port(), free_datagram_port());
    let weir = Weir::start(
        &format!(
            "{GLOBAL}log-forward l\n  bind 127.0.0.1:{port}\n  dgram-bind 127.0.0.2:{udp}\n  timeout client 20s\n  \
             log 127.0.0.1:{} local0\n  log 127.0.0.1:{} format rfc5424 local0\n  log 127.0.0.1:{} format rfc3164 local0\n  \
             log 127.0.0.1:{} format raw local0\n  log 127.0.0.1:{} format raw local0 err\n",
            same.port(),
            modern.port(),
            old.port(),
            raw.port(),
            high.port()
        ),
        &[port],
    );
    let sender = Collector::new();
    let send = |text: &str| {
        sender.0.send_to(text.as_bytes(), (Ipv4Addr::new(127, 0, 0, 2), udp)).expect("a datagram leaves");
    };
    send("<34>Oct 11 22:14:15 host su[12]: failed");
    assert_eq!(same.next(), "<34>Oct 11 22:14:15 host su[12]: failed\n");
    let text = modern.next();
    assert!(text.starts_with("<34>1 20") && text.ends_with(" host su 12 - - failed\n"), "{text}");
    assert_eq!(old.next(), "<34>Oct 11 22:14:15 host su[12]: failed\n");
    assert_eq!(raw.next(), "failed\n");
    assert_eq!(high.next(), "failed\n");
    // A level that `err` excludes, an unspecified host, and structured data.
    let mut stream = TcpStream::connect((Ipv4Addr::LOCALHOST, port)).expect("the port takes connections");
    stream.write_all(b"<14>1 2026-11-22T02:51:39.5Z - app - ID [x@1 a=\"b\"] one\n").expect("it takes bytes");
    let sent = "<14>1 2026-11-22T02:51:39.5Z 127.0.0.1 app - ID [x@1 a=\"b\"] one\n";
    assert_eq!((same.next(), modern.next()), (sent.to_owned(), sent.to_owned()));
    let text = old.next();
    assert!(text.starts_with("<14>") && text.ends_with(" 127.0.0.1 app: one\n"), "{text}");
    assert_eq!(raw.next(), "one\n");
    assert!(text.starts_with("<14>Nov 22 02:51:39 "), "{text}");
    // An unknown date stays unknown; an invalid date makes the message unstructured.
    stream.write_all(b"<14>1 - h a p m - nil\n<14>1 today h a p m - odd\n").expect("it takes bytes");
    let nil = "<14>1 - h a p m - nil\n";
    assert_eq!(
        (same.next(), modern.next(), raw.next()),
        (nil.to_owned(), nil.to_owned(), "nil\n".to_owned())
    );
    let odd = same.next();
    assert!(odd.starts_with("<14>") && odd.ends_with(" 127.0.0.1 1 today h a p m - odd\n"), "{odd}");
    assert_eq!(raw.next(), "1 today h a p m - odd\n");
    // Length-prefixed messages, a message in two parts, and an unstructured one.
    stream.write_all(b"7 <11>twobare text\n10 <11>th").expect("it takes bytes");
    // A message without date and host gets both; without a priority it gets the most urgent one, so that all targets accept it.
    let received = |priority: &str, text: &str| {
        let whole = same.next();
        let framed = whole.starts_with(priority) && whole.ends_with(&format!(" 127.0.0.1 {text}\n"));
        assert!(framed && whole.len() == priority.len() + 15 + 11 + text.len() + 1, "{whole}");
        assert_eq!((raw.next(), high.next()), (format!("{text}\n"), format!("{text}\n")));
    };
    received("<11>", "two");
    received("<128>", "bare text");
    stream.write_all(b"ree!!").expect("it takes bytes");
    received("<11>", "three!");
    assert!(eventually(|| weir.ask("show info").contains("CumRecvLogs: 7\n")), "{}", weir.ask("show info"));
    assert!(!weir.ask("show stat").contains("\nl,FRONTEND"), "a forwarder is no frontend");
}

#[test]
fn all_threads_forward_datagrams_and_keep_the_order_of_each_sender() {
    const ROUNDS: usize = 3;
    let (port, udp, collector) = (free_port(), free_datagram_port(), Collector::new());
    let global = GLOBAL.replace("nbthread 2", "nbthread 4");
    let _weir = Weir::start(
        &format!(
            "{global}{DEFAULTS}{}log-forward l\n  dgram-bind 127.0.0.2:{udp}\n  log 127.0.0.1:{} format raw local0\n",
            frontend(port, ""),
            collector.port()
        ),
        &[port],
    );
    let senders: Vec<Collector> = (0..20).map(|_| Collector::new()).collect();
    let mut next = vec![0; senders.len()];
    // Threads send from different sockets. A burst that is read piece by piece stays on one thread.
    let mut threads = HashSet::new();
    assert!(eventually(|| {
        for number in next[0]..next[0] + ROUNDS {
            for (at, sender) in senders.iter().enumerate() {
                let message = format!("<34>Oct 11 22:14:15 host su: {at} {number}");
                let sent = sender.0.send_to(message.as_bytes(), (Ipv4Addr::new(127, 0, 0, 2), udp));
                sent.expect("a datagram leaves");
            }
        }
        for _ in 0..senders.len() * ROUNDS {
            let mut buffer = [0; 100];
            let (length, thread) = collector.0.recv_from(&mut buffer).expect("all messages come");
            let text = String::from_utf8_lossy(&buffer[..length]);
            let mut numbers = text.split_whitespace().map(|number| number.parse().expect("a number"));
            let (at, number): (usize, usize) =
                (numbers.next().expect("a sender"), numbers.next().expect("a number"));
            assert_eq!(number, next[at], "message of sender {at}");
            next[at] += 1;
            threads.insert(thread);
        }
        threads.len() > 1
    }));
}

#[test]
fn stream_with_broken_framing_is_closed() {
    let port = free_port();
    let _weir = Weir::start(
        &format!(
            "{GLOBAL}log-forward l\n  bind 127.0.0.1:{port}\n  timeout client 20s\n  log stderr local0\n"
        ),
        &[port],
    );
    for bytes in [&b"12x <1>a\n"[..], b"99999999999 a", &[b'a'; 40_000]] {
        let answer = Client::connect(port).send(bytes).read_to_end();
        assert!(answer.is_empty());
    }
}

#[test]
fn log_backend_balances_lines_and_skips_down_servers() {
    let collectors: Vec<Collector> = (0..3).map(|_| Collector::new()).collect();
    let port = free_port();
    let ports: Vec<u16> = collectors.iter().map(Collector::port).collect();
    let [a, b, c] = ports[..] else { panic!("three") };
    let weir = Weir::start(
        &format!(
            "{GLOBAL}  thread-groups 1\n{DEFAULTS}{}backend turns\n  mode log\n  balance roundrobin\n  server a udp@127.0.0.1:{a}\n  \
             server b udp@127.0.0.1:{b}\nbackend one\n  mode log\n  balance sticky\n  server c udp@127.0.0.1:{c}\n  \
             server d udp@127.0.0.1:9 disabled\n",
            frontend(port, "log backend@turns format raw local0\n  log backend@one format short local0")
        ),
        &[port],
    );
    for number in 0..4 {
        get(port, &format!("/{number}"));
    }
    let mut seen: Vec<String> = [0, 0, 1, 1].iter().map(|at: &usize| collectors[*at].next()).collect();
    seen.sort();
    assert_eq!(seen, ["path=/0\n", "path=/1\n", "path=/2\n", "path=/3\n"]);
    // Two threads serve: a line may overtake an earlier one.
    let mut sticky: Vec<String> = (0..4).map(|_| collectors[2].next()).collect();
    sticky.sort();
    assert_eq!(sticky, ["<6>path=/0\n", "<6>path=/1\n", "<6>path=/2\n", "<6>path=/3\n"]);
    weir.ask("disable server turns/a");
    get_in_turn(&mut Client::connect(port), &["/5", "/6"]);
    assert_eq!((collectors[1].next(), collectors[1].next()), ("path=/5\n".into(), "path=/6\n".into()));
    let of_b = || weir.stat("turns,b", "stot");
    assert!(eventually(|| of_b() == "4"), "{}", of_b());
    weir.ask("disable server turns/b");
    get(port, "/7");
    assert!(eventually(|| weir.ask("show info").contains("DroppedLogs: 1\n")));
}

#[test]
fn backing_file_of_a_ring_has_its_messages() {
    let port = free_port();
    let weir = Weir::start(
        &format!(
            "{GLOBAL}{DEFAULTS}{}ring r\n  size 200\n  backing-file ring.file\n",
            frontend(port, "log ring@r local0")
        ),
        &[port],
    );
    get(port, "/kept");
    let file = weir.directory().join("ring.file");
    let holds =
        || std::fs::read(&file).is_ok_and(|bytes| bytes.starts_with(b"path=/kept\n") && bytes.len() == 200);
    assert!(eventually(holds), "{:?}", std::fs::read(&file));
}

#[test]
fn soft_stop_ends_silent_senders_and_reports_proxies() {
    let collector = Collector::new();
    let (port, relay) = (free_port(), free_port());
    let mut weir = Weir::start(
        &format!(
            "{GLOBAL}{DEFAULTS}{}log-forward l\n  bind 127.0.0.1:{relay}\n  log stderr local0\n\
             backend own\n  mode log\n  server s 127.0.0.1:{relay}\n",
            frontend(
                port,
                &format!("log backend@own local0\n  log 127.0.0.1:{} format raw local0", collector.port())
            )
        ),
        &[port, relay],
    );
    let mut silent = Client::connect(relay);
    get(port, "/");
    assert_eq!(collector.next(), "path=/\n");
    weir.signal("USR1");
    assert_eq!(weir.await_end(), Some(0), "{}", weir.messages());
    assert!(silent.read_to_end().is_empty());
    assert!(collector.next().starts_with("Proxy f stopped (cumulated conns: FE: "));
    assert!(weir.says("Proxy own stopped"), "{}", weir.messages());
    assert!(!weir.messages().contains("Proxy l stopped"), "{}", weir.messages());
}

/// Starts the program with a named pipe that nothing reads as descriptor 3 and standard error.
fn start_before_full_pipe(configuration: &str, port: u16) -> Weir {
    let mut command = Command::new("sh");
    command.args(["-c", "mkfifo pipe && exec 3<>pipe && exec \"$0\" \"$@\" 2>&3"]).arg(program());
    Weir::start_by(command, configuration, &["-db"], &[port])
}

#[test]
fn full_pipes_block_neither_requests_nor_commands() {
    let port = free_port();
    let backend = "backend b\n  server s 127.0.0.1:1\n  server t 127.0.0.1:1\n";
    let weir = start_before_full_pipe(
        &format!("{GLOBAL}{DEFAULTS}{}{backend}", frontend(port, "log fd@3 len 4000 format raw local0")),
        port,
    );
    // Much more than the 64 KiB of a pipe.
    let path = format!("/{}", "x".repeat(900));
    let mut client = Client::connect(port);
    for _ in 0..200 {
        get_in_turn(&mut client, &[&path]);
    }
    // The last line is written after its response.
    let dropped = || {
        let information = weir.ask("show info");
        let line = information.lines().find_map(|line| line.strip_prefix("DroppedLogs: ")).map(str::parse);
        line.and_then(Result::ok).unwrap_or(0)
    };
    assert!(eventually(|| dropped() >= 100), "{}", dropped());
    // Each of them is reported on standard error, which is the same pipe.
    for _ in 0..200 {
        weir.ask("set server b/s state maint; set server b/s state ready");
    }
    get_in_turn(&mut client, &["/still"]);
    let mut pipe = File::open(weir.directory().join("pipe")).expect("the pipe");
    let mut seen = vec![0; 1 << 16];
    let length = pipe.read(&mut seen).expect("the pipe is full");
    seen.truncate(length);
    let line = format!("path={path}");
    let first = seen.split(|byte| *byte == b'\n').find(|line| line.starts_with(b"path="));
    assert_eq!(first.map(String::from_utf8_lossy).as_deref(), Some(&*line));
}

#[test]
fn unwritable_targets_are_reported_once() {
    let port = free_port();
    let weir = Weir::start(
        &format!(
            "{GLOBAL}{DEFAULTS}{}",
            frontend(port, "log 127.0.0.1:9 local0\n  log /nothing/here local0")
        ),
        &[port],
    );
    let mut client = Client::connect(port);
    get_in_turn(&mut client, &["/1", "/2", "/3"]);
    assert!(eventually(|| weir.ask("show info").contains("DroppedLogs: 3\n")));
    let messages = weir.messages();
    let report = "sendmsg()/writev() failed in logger #2: No such file or directory (errno=2)";
    assert_eq!(messages.matches("failed in logger").count(), 1, "{messages}");
    assert!(messages.contains(report), "{messages}");
}
