//! Reloads: a process takes over the listening sockets of another, whether Weir or HAProxy, and clients notice nothing.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, TcpStream, UdpSocket};
use std::path::Path;
use std::process::{Child, Command, Stdio};

use weir_tests::client::{Client, get};
use weir_tests::load::Load;
use weir_tests::logs::Collector;
use weir_tests::{Origin, Scratch, Weir, ask, eventually, free_port, scratch};

/// Number of replacements under load, for each method.
const RELOADS: usize = 50;

/// Returns a configuration with its runtime socket at `socket`, the same for every process of a test.
fn configuration(socket: &str, port: u16, origin: &Origin) -> String {
    format!(
        "global\n  nbthread 2\n  stats socket {socket} level admin expose-fd listeners\n\
         defaults\n  mode http\n  timeout client 20s\n  timeout connect 10s\n  timeout server 20s\n\
         listen l\n  bind 127.0.0.1:{port}\n  server s 127.0.0.1:{}\n",
        origin.port()
    )
}

#[test]
fn socket_takeover_under_load_loses_no_request() {
    let origin = Origin::echo();
    let port = free_port();
    let directory = scratch("take-over");
    let socket = directory.join("runtime").display().to_string();
    let text = configuration(&socket, port, &origin);
    let mut weir = Weir::start(&text, &[port]);
    // Half of the clients keep their connections, half use one for each request.
    let loads = [Load::start(port, true), Load::start(port, false)];
    for _ in 0..RELOADS {
        loads.iter().for_each(|load| load.go_on(20));
        let pid = weir.pid().to_string();
        let next = Weir::start_with(&text, &["-db", "-x", &socket, "-sf", &pid], &[port]);
        assert_eq!(weir.await_end(), Some(0), "{}", weir.messages());
        assert!(!next.messages().contains("Failed"), "{}", next.messages());
        weir = next;
    }
    for load in loads {
        load.go_on(100);
        assert_eq!(load.end(), Vec::<String>::new());
    }
    assert!(ask(Path::new(&socket), "show info").contains(&format!("Pid: {}\n", weir.pid())));
}

#[test]
fn restart_with_new_sockets_loses_no_connection() {
    let origin = Origin::echo();
    let port = free_port();
    let text = configuration("runtime", port, &origin);
    let mut weir = Weir::start(&text, &[port]);
    let loads = [Load::start(port, true), Load::start(port, false), Load::start(port, false)];
    for _ in 0..RELOADS {
        loads.iter().for_each(|load| load.go_on(20));
        let pid = weir.pid().to_string();
        let next = Weir::start_with(&text, &["-db", "-sf", &pid], &[port]);
        // The old process answers everything that arrived at its sockets before it closed them.
        assert_eq!(weir.await_end(), Some(0), "{}", weir.messages());
        weir = next;
    }
    for load in loads {
        load.go_on(100);
        assert_eq!(load.end(), Vec::<String>::new());
    }
}

#[test]
fn datagram_sockets_are_handed_over_too() {
    let (port, udp, origin) = (free_port(), free_port(), Origin::echo());
    let text = configuration("runtime", port, &origin)
        + &format!("log-forward logs\n  dgram-bind 127.0.0.1:{udp}\n  log 127.0.0.1:9 local0\n");
    let mut weir = Weir::start(&text, &[port]);
    // Returns the kernel's inode numbers of the sockets at that port.
    let sockets = || -> Vec<String> {
        let table = std::fs::read_to_string("/proc/net/udp").expect("the kernel's table");
        let own = format!(":{udp:04X} ");
        let at_port = table.lines().filter(|line| {
            line.split(" 00000000:").next().is_some_and(|own_end| format!("{own_end} ").contains(&own))
        });
        at_port.filter_map(|line| line.split_whitespace().nth(9).map(str::to_owned)).collect()
    };
    let before = sockets();
    assert_eq!(before.len(), 1);
    let socket = weir.directory().join("runtime").display().to_string();
    let pid = weir.pid().to_string();
    let next = Weir::start_with(&text, &["-db", "-x", &socket, "-sf", &pid], &[port]);
    assert_eq!(weir.await_end(), Some(0), "{}", weir.messages());
    assert_eq!(sockets(), before, "{}", next.messages());
}

#[test]
fn no_datagram_is_lost_while_a_successor_takes_over() {
    // Sockets of other tests are at 127.0.0.1.
    let address = Ipv4Addr::new(127, 0, 0, 2);
    let free = UdpSocket::bind((address, 0)).and_then(|socket| socket.local_addr());
    let udp = free.expect("a port of the loopback interface").port();
    let (port, origin, collector) = (free_port(), Origin::echo(), Collector::new());
    let log = format!("log 127.0.0.1:{} format raw local0", collector.port());
    let directory = scratch("datagrams");
    let socket = directory.join("runtime").display().to_string();
    let text = configuration(&socket, port, &origin)
        + &format!("log-forward logs\n  dgram-bind {address}:{udp}\n  {log}\n");
    let senders: Vec<Collector> = (0..20).map(|_| Collector::new()).collect();
    // A burst that several threads forward. It fits into the buffers of all sockets.
    let burst = |number: usize| {
        for (at, sender) in senders.iter().enumerate() {
            for part in 0..3 {
                let message = format!("<34>Oct 11 22:14:15 host su: {number} {at} {part}");
                let sent = sender.0.send_to(message.as_bytes(), (address, udp));
                sent.expect("a datagram leaves");
            }
        }
    };
    let collect = |number: usize| {
        let mut all: Vec<String> = (0..60).map(|_| collector.next()).collect();
        all.sort();
        all.dedup();
        let own = format!("{number} ");
        assert!(all.len() == 60 && all.iter().all(|text| text.starts_with(&own)), "{number}: {all:?}");
    };
    let mut weir = Weir::start(&text, &[port]);
    let mut number = 0;
    for _ in 0..10 {
        let pid = weir.pid().to_string();
        let next = Weir::start_with(&text, &["-db", "-x", &socket, "-sf", &pid], &[port]);
        assert!(eventually(|| {
            burst(number);
            collect(number);
            number += 1;
            !weir.is_running()
        }));
        weir = next;
    }
}

/// Debian's HAProxy, in its own directory.
struct HaProxy {
    child: Child,
    _directory: Scratch,
}

impl HaProxy {
    fn start(configuration: &str, arguments: &[&str]) -> HaProxy {
        let path = ["/usr/sbin/haproxy", "/usr/local/sbin/haproxy"]
            .into_iter()
            .find(|path| Path::new(path).exists())
            .expect("haproxy is missing: `make tools` installs it");
        let directory = scratch("haproxy");
        std::fs::write(directory.join("haproxy.cfg"), configuration).expect("a file");
        let child = Command::new(path)
            .args(arguments)
            .args(["-db", "-f", "haproxy.cfg"])
            .current_dir(&directory)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .expect("haproxy runs");
        HaProxy { child, _directory: directory }
    }

    fn has_ended(&mut self) -> bool {
        eventually(|| matches!(self.child.try_wait(), Ok(Some(_))))
    }
}

impl Drop for HaProxy {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn weir_takes_over_from_haproxy_and_haproxy_from_weir() {
    let origin = Origin::echo();
    let port = free_port();
    let directory = scratch("haproxy-take-over");
    let socket = directory.join("runtime");
    let shown = socket.display().to_string();
    let text = configuration(&shown, port, &origin);
    let mut old = HaProxy::start(&text, &[]);
    assert!(ask(&socket, "show info").contains("HAProxy"));
    let load = Load::start(port, false);
    load.go_on(100);
    let pid = old.child.id().to_string();
    let mut weir = Weir::start_with(&text, &["-db", "-x", &shown, "-sf", &pid], &[port]);
    assert!(old.has_ended(), "haproxy goes on: {}", weir.messages());
    assert!(!weir.messages().contains("Failed"), "{}", weir.messages());
    load.go_on(100);
    let pid = weir.pid().to_string();
    let new = HaProxy::start(&text, &["-x", &shown, "-sf", &pid]);
    assert_eq!(weir.await_end(), Some(0), "{}", weir.messages());
    assert!(ask(&socket, "show info").contains(&format!("Pid: {}\n", new.child.id())));
    load.go_on(100);
    assert_eq!(load.end(), Vec::<String>::new());
}

#[test]
fn unauthorised_clients_get_no_sockets() {
    let origin = Origin::echo();
    let port = free_port();
    let text = configuration("runtime", port, &origin).replace(" expose-fd listeners", "");
    let weir = Weir::start(&text, &[port]);
    let socket = weir.directory().join("runtime").display().to_string();
    let next = Weir::start_with(&text, &["-db", "-x", &socket], &[port]);
    assert!(next.says("Failed to get the sockets"), "{}", next.messages());
}

/// Returns the master's answer to a command.
fn master(weir: &Weir, command: &str) -> String {
    ask(&weir.directory().join("master"), command)
}

#[test]
fn master_reloads_under_load() {
    let origin = Origin::echo();
    let port = free_port();
    let text = configuration("runtime", port, &origin);
    let mut weir = Weir::start_with(&text, &["-W", "-S", "./master"], &[port]);
    let loads = [Load::start(port, true), Load::start(port, false)];
    let worker = || {
        let answer = master(&weir, "@1 show info");
        answer.lines().find_map(|line| line.strip_prefix("Pid: ")).map(str::to_owned)
    };
    for turn in 0..RELOADS {
        loads.iter().for_each(|load| load.go_on(20));
        let before = worker().expect("a worker");
        if turn % 2 == 0 {
            weir.signal("USR2");
        } else {
            let answer = master(&weir, "reload");
            assert!(answer.starts_with("Success=1\n--\n") && answer.contains("Loading success."), "{answer}");
        }
        assert!(eventually(|| worker().is_some_and(|now| now != before)), "{}", weir.messages());
    }
    for load in loads {
        load.go_on(100);
        assert_eq!(load.end(), Vec::<String>::new(), "{}", weir.messages());
    }
    assert!(
        eventually(|| !master(&weir, "show proc").contains("old workers")),
        "{}",
        master(&weir, "show proc")
    );
    let answer = master(&weir, "show proc");
    assert!(answer.contains(&format!("{RELOADS} [failed: 0]")), "{answer}");
    weir.signal("TERM");
    assert_eq!(weir.await_end(), Some(0), "{}", weir.messages());
}

#[test]
fn new_configuration_serves_once_the_reload_is_answered() {
    let port = free_port();
    let text = |version: u32| {
        format!(
            "global\n  nbthread 2\ndefaults\n  mode http\n  timeout client 20s\n  timeout connect 10s\n  timeout server 20s\n\
             frontend f\n  bind 127.0.0.1:{port}\n  http-request return status 200 hdr version {version}\n"
        )
    };
    let weir = Weir::start_with(&text(0), &["-W", "-S", "./master"], &[port]);
    for version in 1..=5 {
        std::fs::write(weir.directory().join("haproxy.cfg"), text(version)).expect("the file is ours");
        let answer = master(&weir, "reload");
        assert!(answer.starts_with("Success=1"), "{answer}");
        for _ in 0..50 {
            let answer = Client::connect(port)
                .send("GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n")
                .read_to_end();
            let answer = String::from_utf8_lossy(&answer);
            assert!(answer.contains(&format!("version: {version}\r\n")), "{answer}");
        }
    }
}

#[test]
fn masters_reload_their_worker_in_place() {
    let origin = Origin::echo();
    let port = free_port();
    let text = |global: &str, number: u32| {
        format!(
            "global\n  reload in-place\n  stats socket runtime level admin\n{global}\
             defaults\n  mode http\n  timeout client 20s\n  timeout connect 10s\n  timeout server 20s\n\
             frontend f\n  bind 127.0.0.1:{port}\n  http-request set-header x-number {number}\n  default_backend b\n\
             backend b\n  server s 127.0.0.1:{}\n",
            origin.port()
        )
    };
    let threads = |number: u32| format!("  nbthread {number}\n");
    let weir = Weir::start_with(&text(&threads(2), 0), &["-W", "-S", "./master"], &[port]);
    let write = |text: String| {
        std::fs::write(weir.directory().join("haproxy.cfg"), text).expect("the file is ours");
    };
    let worker = || {
        let info = master(&weir, "@1 show info");
        info.lines().find_map(|line| line.strip_prefix("Pid: ")).map(str::to_owned)
    };
    let serves =
        |number: u32| get(port, "/").is_some_and(|own| own.text().contains(&format!("x-number: {number}")));
    let load = Load::start(port, true);
    assert!(weir.says("Loading success."), "{}", weir.messages());
    let first = worker();
    write(text(&threads(2), 1));
    let answer = master(&weir, "reload");
    assert!(answer.starts_with("Success=1\n--\n"), "{answer}");
    assert!(answer.contains("Reloaded in place: frontend f: 1 rule changed; nothing else"), "{answer}");
    assert!(serves(1));
    write(text(&threads(2), 2));
    weir.signal("USR2");
    assert!(eventually(|| serves(2)), "{}", weir.messages());
    assert_eq!(worker(), first);
    // The worker serves the new configuration before the master counts the reload.
    let listed = || master(&weir, "show proc");
    assert!(eventually(|| listed().contains("2 [failed: 0]")), "{}", listed());
    assert!(!listed().contains("old workers"), "{}", listed());
    // The number of threads belongs to a process.
    write(text(&threads(1), 3));
    let answer = master(&weir, "reload");
    assert!(answer.starts_with("Success=1\n--\n"), "{answer}");
    assert!(weir.says("A running process cannot change: `nbthread`"), "{}", weir.messages());
    let second = worker();
    assert!(serves(3) && second != first);
    load.go_on(10);
    assert_eq!(load.end(), Vec::<String>::new(), "{}", weir.messages());
    master(&weir, "hard-reload");
    assert!(worker() != second, "a hard reload starts another worker");
    write(text("  no-such-keyword\n", 4));
    assert!(master(&weir, "reload").starts_with("Success=0\n--\n"));
    assert!(serves(3));
}

#[test]
fn masters_without_listeners_wait_for_a_reload() {
    let port = free_port();
    let weir = Weir::start_with("global\n", &["-W", "-S", "./master"], &[]);
    assert!(eventually(|| weir.directory().join("master").exists()), "{}", weir.messages());
    assert!(weir.says("Loading success."), "{}", weir.messages());
    let text = format!(
        "defaults\n  mode http\n  timeout client 20s\n  timeout connect 10s\n  timeout server 20s\n\
         frontend f\n  bind 127.0.0.1:{port}\n  http-request return status 200\n"
    );
    std::fs::write(weir.directory().join("haproxy.cfg"), text).expect("the file is ours");
    assert!(master(&weir, "reload").starts_with("Success=1"), "{}", weir.messages());
    assert!(TcpStream::connect(("127.0.0.1", port)).is_ok());
}

#[test]
fn unusable_configuration_leaves_the_worker_running() {
    let origin = Origin::echo();
    let port = free_port();
    let text = configuration("runtime", port, &origin);
    let weir = Weir::start_with(&text, &["-W", "-S", "./master"], &[port]);
    let load = Load::start(port, true);
    let file = weir.directory().join("haproxy.cfg");
    for (wrong, what) in [
        (format!("{text}  no-such-keyword\n"), "unknown keyword 'no-such-keyword'"),
        (format!("{text}frontend other\n  bind 192.0.2.1:{port}\n"), "cannot bind socket"),
        (text.replace("global\n", "global\n  maxconn 500000000\n"), "Cannot raise FD limit"),
    ] {
        let before = master(&weir, "show proc");
        std::fs::write(&file, wrong).expect("a file");
        let answer = master(&weir, "reload");
        assert!(answer.starts_with("Success=0\n--\n") && answer.contains(what), "{answer}");
        let after = master(&weir, "show proc");
        let worker = |text: &str| text.lines().nth(3).map(|line| line.split(' ').next().map(str::to_owned));
        assert_eq!(worker(&before), worker(&after), "{before}{after}");
    }
    std::fs::write(&file, &text).expect("a file");
    assert!(master(&weir, "reload").starts_with("Success=1"), "{}", weir.messages());
    load.go_on(100);
    assert_eq!(load.end(), Vec::<String>::new(), "{}", weir.messages());
}

#[test]
fn master_executes_and_forwards_commands() {
    let origin = Origin::echo();
    let port = free_port();
    let weir = Weir::start_with(
        &configuration("runtime", port, &origin),
        &["-W", "-S", "./master,level,operator"],
        &[port],
    );
    let answer = master(&weir, "show proc");
    let pid = answer.lines().nth(3).and_then(|line| line.split(' ').next()).expect("a worker").to_owned();
    for (command, wanted) in [
        ("@1 show info", format!("Pid: {pid}\n")),
        (&*format!("@!{pid} show info"), format!("Pid: {pid}\n")),
        ("@1; show info; @; show proc", "master ".to_owned()),
        ("@@1 show info; show version", format!("Pid: {pid}\n")),
        ("@1; @master show cli level", "operator\n".to_owned()),
        ("@7 show info", "Can't find the target PID matching the prefix '@7'\n".to_owned()),
        ("show proc foo", "'show proc' takes no argument.\n".to_owned()),
        ("show cli sockets", "./master operator master\n".to_owned()),
        ("show env WEIR_MASTER", "Variable not found\n".to_owned()),
        ("echo  a  b", "a  b\n".to_owned()),
        ("@1 disable frontend l", "Permission denied".to_owned()),
        ("show cli level", "operator".to_owned()),
        ("nonsense", "Unknown command".to_owned()),
    ] {
        let answer = master(&weir, command);
        assert!(answer.contains(&wanted), "{command}: {answer}");
    }
}

#[test]
fn master_session_modes_apply_to_forwarded_commands() {
    let origin = Origin::echo();
    let port = free_port();
    let weir = Weir::start_with(&configuration("runtime", port, &origin), &["-W", "-S", "./master"], &[port]);
    let answer = master(&weir, "@1; experimental-mode on; set var proc.x int(5); get var proc.x");
    assert!(answer.contains("proc.x: type=sint value=<5>"), "{answer}");
    assert!(master(&weir, "@1; operator; disable frontend l").contains("Permission denied"));
}

/// Tools such as HAProxy's Data Plane API begin every command with `set severity-output number`.
#[test]
fn master_session_severity_applies_to_forwarded_commands() {
    let origin = Origin::echo();
    let port = free_port();
    let weir = Weir::start_with(&configuration("runtime", port, &origin), &["-W", "-S", "./master"], &[port]);
    let choice = "set severity-output number;";
    for (command, wanted) in [
        ("@1 set server l/none state maint;quit", "[3]: No such server.\n\n"),
        ("@1 set server l/s state maint;quit", "\n"),
        ("@1 add map m <<\na b\n\n;quit", "[3]: Unknown map identifier. Please use #<id> or <file>.\n\n"),
        ("@1;set server l/none state maint", "[3]: No such server.\n\n"),
        ("set severity-output none;@1 set server l/none state maint", "No such server.\n\n"),
        ("prompt i;@@1 set server l/none state maint;quit", "No such server.\n\n"),
    ] {
        assert_eq!(master(&weir, &format!("{choice}{command}")), wanted, "{command}");
    }
    assert!(master(&weir, &format!("{choice}@1 show version")).starts_with("[6]: "));
    let usage = "one of 'none', 'number', 'string' is a required argument\n";
    assert_eq!(master(&weir, "set severity-output all"), usage);
    assert_eq!(master(&weir, "@7 show info"), "Can't find the target PID matching the prefix '@7'\n");
}

#[test]
fn worker_surviving_too_many_reloads_is_terminated() {
    let origin = Origin::raw(|mut stream| {
        let mut byte = [0];
        while stream.read_exact(&mut byte).and_then(|()| stream.write_all(&byte)).is_ok() {}
    });
    let port = free_port();
    let text = configuration("runtime", port, &origin)
        .replace("mode http", "mode tcp")
        .replace("global\n", "global\n  mworker-max-reloads 1\n");
    let weir = Weir::start_with(&text, &["-W", "-S", "./master"], &[port]);
    let mut client = TcpStream::connect(("127.0.0.1", port)).expect("a connection");
    let mut echo = || {
        let mut byte = [0];
        client.write_all(b"x").and_then(|()| client.read_exact(&mut byte)).is_ok()
    };
    assert!(echo());
    assert!(master(&weir, "reload").starts_with("Success=1\n"));
    assert!(echo(), "one reload is not too many: {}", weir.messages());
    assert!(master(&weir, "reload").starts_with("Success=1\n"));
    assert!(eventually(|| !echo()), "two are: {}", weir.messages());
    let ended = "Former worker";
    assert!(weir.says(ended), "{}", weir.messages());
}

#[test]
fn master_ends_with_its_worker() {
    let origin = Origin::echo();
    let port = free_port();
    let mut weir =
        Weir::start_with(&configuration("runtime", port, &origin), &["-W", "-S", "./master"], &[port]);
    let answer = master(&weir, "show proc");
    let pid = answer.lines().nth(3).and_then(|line| line.split(' ').next()).expect("a worker").to_owned();
    let killed = Command::new("kill").args(["-9", &pid]).status().expect("kill");
    assert!(killed.success());
    assert_eq!(weir.await_end(), Some(128 + 9), "{}", weir.messages());
    let told = format!("Current worker ({pid}) exited with code 137 (Killed)\n");
    assert!(weir.says(&told), "{}", weir.messages());
}

#[test]
fn server_states_survive_a_restart_in_a_file() {
    let origin = Origin::echo();
    let port = free_port();
    let directory = scratch("state");
    let file = directory.join("states");
    let global = format!("global\n  server-state-file {}\n", file.display());
    let text = configuration("runtime", port, &origin).replacen("global\n", &global, 1).replace(
        "listen l\n",
        "  load-server-state-from-file global\nlisten l\n  server other 127.0.0.1:9 weight 7\n",
    );
    std::fs::write(&file, "").expect("a file");
    let weir = Weir::start(&text, &[port]);
    assert_eq!(weir.ask("set server l/other state drain").trim(), "");
    assert_eq!(weir.ask("set server l/s weight 50%").trim(), "");
    assert_eq!(weir.ask("set weight l/other 3").trim(), "");
    std::fs::write(&file, weir.ask("show servers state")).expect("a file");
    drop(weir);
    let weir = Weir::start(&text, &[port]);
    let states = weir.ask("show servers state l");
    let other = states.lines().find(|line| line.contains(" other ")).expect("the server's line").to_owned();
    let fields: Vec<&str> = other.split(' ').collect();
    // srv_admin_state: drain; srv_uweight.
    assert_eq!((fields[6], fields[7]), ("8", "3"), "{other}");
}

#[test]
fn exclusive_addresses_are_reclaimed() {
    let origin = Origin::echo();
    let port = free_port();
    let text = configuration("runtime", port, &origin).replace("global\n", "global\n  noreuseport\n");
    let mut weir = Weir::start(&text, &[port]);
    let pid = weir.pid().to_string();
    let _next = Weir::start_with(&text, &["-db", "-sf", &pid], &[port]);
    assert_eq!(weir.await_end(), Some(0), "{}", weir.messages());
}

/// Returns the numbers of the signals in a mask of `/proc/PID/status`.
fn masked(status: &str, field: &str) -> u64 {
    let mask = status.lines().find_map(|line| line.strip_prefix(field)?.strip_prefix(':'));
    mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).expect("the kernel tells of signals")
}

#[test]
fn signals_are_held_until_they_can_be_handled() {
    let origin = Origin::echo();
    // With many threads, the time between listening and handling signals is long enough to be observed.
    let text = |port| configuration("runtime", port, &origin).replace("global\n", "global\n  nbthread 32\n");
    for _ in 0..5 {
        let port = free_port();
        let mut weir = Weir::start_with(&text(port), &["-db"], &[]);
        while TcpStream::connect(("127.0.0.1", port)).is_err() && weir.is_running() {
            std::thread::yield_now();
        }
        let status = std::fs::read_to_string(format!("/proc/{}/status", weir.pid())).expect("it runs");
        let heeded = masked(&status, "SigBlk") | masked(&status, "SigCgt");
        for (name, number) in [("HUP", 1), ("INT", 2), ("QUIT", 3), ("USR1", 10), ("TERM", 15), ("TTOU", 22)]
        {
            assert!(heeded & 1 << (number - 1) != 0, "SIG{name}: {status}");
        }
    }
}
