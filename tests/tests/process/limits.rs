//! Limits of descriptors, connections and rates: excess requests wait, and nothing is lost or hangs.

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::process::{Child, Command, Stdio};

use weir_tests::client;
use weir_tests::{Origin, Scratch, Weir, eventually, free_port, program, scratch};

/// The program under a descriptor limit, with its messages in a file.
struct Limited {
    child: Child,
    directory: Scratch,
}

impl Limited {
    fn start(configuration: &str, descriptors: u32) -> Limited {
        let directory = scratch("limits");
        std::fs::write(directory.join("haproxy.cfg"), configuration).expect("a file");
        let messages = std::fs::File::create(directory.join("messages")).expect("a file");
        let line = format!("ulimit -n {descriptors} && exec \"$0\" -db -f haproxy.cfg");
        let child = Command::new("sh")
            .args(["-c", &line])
            .arg(program())
            .current_dir(&directory)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(messages)
            .spawn()
            .expect("a shell");
        Limited { child, directory }
    }

    fn messages(&self) -> String {
        std::fs::read_to_string(self.directory.join("messages")).unwrap_or_default()
    }
}

impl Drop for Limited {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn configuration(global: &str, port: u16, origin: &Origin) -> String {
    format!(
        "global\n  nbthread 2\n{global}defaults\n  mode http\n  timeout client 20s\n  timeout connect 10s\n  timeout server 20s\n\
         listen l\n  bind 127.0.0.1:{port}\n  server s 127.0.0.1:{}\n",
        origin.port()
    )
}

/// Sends requests from `count` clients at once; returns how many got a 200, and how many another response.
fn ask_at_once(port: u16, count: usize) -> (usize, usize) {
    let clients: Vec<_> =
        (0..count).map(|_| std::thread::spawn(move || client::get_now(port, "/"))).collect();
    let answers: Vec<_> = clients.into_iter().map(|client| client.join().expect("a client")).collect();
    let good = answers.iter().flatten().filter(|answer| answer.status == 200).count();
    (good, answers.iter().flatten().count() - good)
}

#[test]
fn few_descriptors_without_maxconn_serve_all_in_turn() {
    let origin = Origin::text("hello");
    let port = free_port();
    let weir = Limited::start(&configuration("", port, &origin), 50);
    assert!(
        eventually(|| client::get_if_open(port, "/").is_some_and(|answer| answer.status == 200)),
        "{}",
        weir.messages()
    );
    for _ in 0..3 {
        assert_eq!(ask_at_once(port, 200), (200, 0), "{}", weir.messages());
    }
}

#[test]
fn maxconn_beyond_the_descriptors_is_refused_or_survived() {
    let origin = Origin::text("hello");
    let port = free_port();
    let mut weir = Limited::start(&configuration("  maxconn 1000\n", port, &origin), 50);
    let ended = |weir: &mut Limited| matches!(weir.child.try_wait(), Ok(Some(_)));
    assert!(eventually(|| ended(&mut weir) || client::get_if_open(port, "/").is_some()));
    // A process that may raise its limit has raised it.
    assert!(
        !ended(&mut weir) || weir.messages().contains("Cannot raise FD limit to "),
        "{}",
        weir.messages()
    );
    let weir = Limited::start(&configuration("  maxconn 1000\n  no strict-limits\n", port, &origin), 50);
    assert!(
        eventually(|| client::get_if_open(port, "/").is_some_and(|answer| answer.status == 200)),
        "{}",
        weir.messages()
    );
    // Some find no descriptor for their server; all get a response.
    let (good, refused) = ask_at_once(port, 200);
    assert_eq!(good + refused, 200, "{}", weir.messages());
    assert!(eventually(|| ask_at_once(port, 1) == (1, 0)), "it comes back");
}

#[test]
fn session_rate_is_limited_and_only_listeners_are_full() {
    let origin = Origin::text("ok");
    let port = free_port();
    let weir = Weir::start(
        &format!(
            "global\n  nbthread 1\n  stats socket runtime level admin\n\
             defaults\n  mode http\n  timeout client 20s\n  timeout connect 20s\n  timeout server 20s\n\
             frontend f\n  bind 127.0.0.1:{port}\n  maxconn 1\n  option socket-stats\n  rate-limit sessions 2\n  default_backend b\n\
             backend b\n  server s 127.0.0.1:{}\n",
            origin.port()
        ),
        &[],
    );
    assert!(!weir.ask("show info").is_empty(), "{}", weir.messages());
    let column = |row: &str, name: &str| weir.stat(row, name);
    for _ in 0..3 {
        assert_eq!(client::get(port, "/").map(|answer| answer.status), Some(200));
    }
    assert!(["1", "2"].contains(&&*column("f,FRONTEND", "rate_max")), "{}", weir.ask("show stat"));
    let mut client = client::Client::connect(port);
    client.send("GET / HTTP/1.1\r\nHost: h\r\n\r\n").response().expect("an answer");
    assert_eq!((&*column("f,FRONTEND", "status"), &*column("f,sock-1", "status")), ("OPEN", "FULL"));
}

#[test]
fn start_fails_without_descriptors_for_threads() {
    let (origin, port) = (Origin::text("ok"), free_port());
    let global = "  no strict-limits\n  maxconn 10\n  nbthread 32\n";
    let mut weir = Limited::start(&configuration(global, port, &origin).replace("  nbthread 2\n", ""), 40);
    assert!(eventually(|| matches!(weir.child.try_wait(), Ok(Some(_)))), "{}", weir.messages());
    let told = weir.messages();
    assert!(told.contains("cannot start thread ") && told.contains("Too many open files"), "{told}");
    assert_eq!(weir.child.wait().expect("it ended").code(), Some(1), "{told}");
}

#[test]
fn runtime_socket_clients_beyond_the_limit_wait() {
    let port = free_port();
    let text = format!(
        "global\n  stats socket runtime level admin\n  stats maxconn 3\ndefaults\n  timeout client 5s\nfrontend f\n  \
         bind 127.0.0.1:{port}\n"
    );
    let weir = Weir::start(&text, &[port]);
    let connect = || {
        let stream = UnixStream::connect(weir.directory().join("runtime")).expect("the socket takes clients");
        stream.set_read_timeout(Some(weir_tests::PATIENCE)).expect("a socket");
        stream
    };
    let mut held: Vec<UnixStream> = (0..3).map(|_| connect()).collect();
    for stream in &mut held {
        // An answer shows that the slot is taken.
        stream.write_all(b"prompt\nshow version\n").expect("a command");
        assert_ne!(stream.read(&mut [0; 4096]).expect("an answer"), 0);
    }
    let mut waiting: Vec<UnixStream> = (0..20).map(|_| connect()).collect();
    for stream in &mut waiting {
        stream.write_all(b"show version\n").expect("a command");
        stream.set_nonblocking(true).expect("a socket");
        let early = stream.read(&mut [0; 1]).map_err(|error| error.kind());
        assert_eq!(early, Err(std::io::ErrorKind::WouldBlock), "nobody is answered, and nobody turned away");
        stream.set_nonblocking(false).expect("a socket");
    }
    drop(held);
    for mut stream in waiting {
        let mut answer = String::new();
        stream.read_to_string(&mut answer).expect("an answer");
        assert!(answer.contains("weir"), "{answer}");
    }
}

#[test]
fn stick_tables_beyond_memory_are_refused_at_start() {
    let origin = Origin::text("hello");
    let port = free_port();
    let with = |global: &str, count: usize, table: &str| {
        let sections = (0..count).map(|number| format!("backend t{number}\n  stick-table {table}\n"));
        configuration(global, port, &origin) + &sections.collect::<String>()
    };
    // When they are full, the tables take a hundred TiB, more than any machine has. None of it is allocated in advance.
    let (count, huge) = (100, "type string len 200 size 2000m store gpt(50),gpc(50)");
    for (text, arguments, whose) in [
        (with("", count, huge), &["-db"][..], "more than "),
        (
            with("", 1, "type ip size 20m store gpc0"),
            &["-db", "-m", "400"],
            "more than the limit (-m) of 400 MiB",
        ),
    ] {
        let mut weir = Weir::start_with(&text, arguments, &[]);
        assert!(eventually(|| !weir.is_running()), "{}", weir.messages());
        let told = weir.messages();
        assert!(told.contains("Stick tables take ") && told.contains(whose), "{told}");
        assert!(told.contains("the largest is 't") && told.contains("Lower its 'size'"), "{told}");
    }
    let weir = Weir::start(&with("  no strict-limits\n", count, huge), &[port]);
    assert!(weir.says("[WARNING]") && weir.says("Stick tables take "));
    assert_eq!(client::get(port, "/").map(|answer| answer.status), Some(200));
}

#[test]
fn maxrewrite_is_at_most_half_of_a_buffer() {
    for tune in
        ["tune.maxrewrite 16384", "tune.maxrewrite 100000", "tune.maxrewrite 9000\n tune.bufsize 16000"]
    {
        let port = free_port();
        let text = format!(
            "global\n {tune}\ndefaults\n mode http\n timeout client 5s\n timeout server 5s\n timeout connect 5s\n\
             frontend f\n bind 127.0.0.1:{port}\n http-request return status 200\n"
        );
        let _weir = Weir::start(&text, &[port]);
        let header = "b".repeat(3500);
        let request = format!("GET / HTTP/1.1\r\nHost: a\r\nX-L: {header}\r\n\r\n");
        let answer = client::exchange(port, &request).expect("an answer");
        assert_eq!(answer.status, 200, "{tune}");
    }
}
