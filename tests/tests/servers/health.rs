//! Health changes under load: errors in real traffic (`observe`), tracking servers, agents, flapping checks, removed servers with
//! queued requests.

use std::io::{Read, Write};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};

use weir_tests::client::Client;
use weir_tests::{Origin, Scratch, Weir, ask, eventually, free_port, scratch, statistics};

/// Starts the program with `sections` behind a frontend for backend `b`; returns the runtime socket and the port.
fn start(sections: &str) -> (Weir, Scratch, u16) {
    let (socket, port) = (scratch("health").file("weir.sock"), free_port());
    let text = format!(
        "global\n nbthread 2\n stats socket {} level admin\n\
         defaults\n mode http\n timeout client 20s\n timeout connect 5s\n timeout server 20s\n timeout queue 20s\n\
         frontend f\n bind 127.0.0.1:{port}\n default_backend b\n{sections}",
        socket.display()
    );
    (Weir::start(&text, &[port]), socket, port)
}

/// Returns a statistics column of a server of `b`, or of `BACKEND`.
fn column(socket: &Path, server: &str, column: &str) -> String {
    statistics(socket).value(&format!("b,{server}"), column)
}

fn get(port: u16, path: &str) -> u16 {
    let request = format!("GET {path} HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n");
    Client::connect(port).send(request).response().map_or(0, |response| response.status)
}

fn answer(status: &str) -> Vec<u8> {
    format!("HTTP/1.1 {status}\r\nContent-Length: 0\r\n\r\n").into_bytes()
}

#[test]
fn observed_errors_take_a_server_down_and_are_counted() {
    let broken = Origin::start(|_, _| answer("500 No"));
    let (_weir, socket, port) = start(&format!(
        "backend b\n server s 127.0.0.1:{} check inter 1h fall 3 observe layer7 error-limit 3 on-error mark-down\n",
        broken.port()
    ));
    assert!(eventually(|| column(&socket, "s", "check_status") == "L4OK"));
    assert_eq!(column(&socket, "s", "hanafail"), "0");
    (0..3).for_each(|_| assert_eq!(get(port, "/"), 500));
    assert!(eventually(|| column(&socket, "s", "status") == "DOWN"));
    assert_eq!(column(&socket, "s", "hanafail"), "1");
    // No more requests are sent there.
    assert_eq!((get(port, "/"), broken.requests()), (503, 3));
}

#[test]
fn agent_maintenance_applies_to_tracking_servers() {
    let agent = Origin::raw(|mut stream| {
        let _ = stream.write_all(b"maint\n");
    });
    let origin = Origin::text("a");
    let (_weir, socket, port) = start(&format!(
        "backend b\n server s 127.0.0.1:{0} agent-check agent-inter 50ms agent-port {1}\n\
         server t 127.0.0.1:{0} track s\n server u 127.0.0.1:{0} track t\n server v 127.0.0.1:{0} track u\n",
        origin.port(),
        agent.port()
    ));
    assert!(eventually(|| column(&socket, "v", "status") == "MAINT (via b/u)"));
    assert_eq!(column(&socket, "u", "status"), "MAINT (via b/t)");
    assert_eq!((get(port, "/"), origin.requests()), (503, 0));
    // The last of the chain may be deleted, the others may not.
    ask(&socket, "set server b/v state maint");
    assert!(ask(&socket, "del server b/t").contains("other configuration elements"));
    assert!(ask(&socket, "del server b/v").contains("Server deleted."));
    // A server added at run time also counts until it is deleted.
    let added = format!("add server b/w 127.0.0.1:{} track b/s", origin.port());
    let (_weir, socket, _) =
        start(&format!("backend b\n server s 127.0.0.1:{} check inter 1h\n", origin.port()));
    assert!(ask(&socket, &added).contains("New server registered."));
    ask(&socket, "set server b/s state maint");
    for command in ["del server b/s", "wait 10ms srv-removable b/s"] {
        assert!(ask(&socket, command).contains("other configuration elements"), "{command}");
    }
    assert!(ask(&socket, "set server b/s name other").contains("Cannot rename"));
    assert!(ask(&socket, "del server b/w").contains("Server deleted."));
    assert!(ask(&socket, "del server b/s").contains("Server deleted."));
}

#[test]
fn tracking_chain_has_the_health_of_its_last_server() {
    let origin = Origin::text("a");
    let (_weir, socket, _) = start(&format!(
        "backend b\n server s 127.0.0.1:{0} check inter 1h\n server t 127.0.0.1:{0} track s\n server u 127.0.0.1:{0} track t\n",
        origin.port()
    ));
    assert!(eventually(|| column(&socket, "s", "status") == "UP"));
    assert_eq!(column(&socket, "u", "status"), "UP");
    ask(&socket, "set server b/s health down");
    assert!(column(&socket, "u", "status").starts_with("DOWN"));
    ask(&socket, "set server b/s health up");
    ask(&socket, "disable health b/s");
    assert_eq!(column(&socket, "u", "status"), "no check");
}

#[test]
fn flapping_server_loses_no_request() {
    let well = Arc::new(AtomicBool::new(true));
    let state = well.clone();
    let flapping = Origin::start(move |head, _| {
        let fails = head.starts_with("GET /check") && !state.load(Relaxed);
        answer(if fails { "503 Ill" } else { "200 OK" })
    });
    let steady = Origin::text("a");
    let (_weir, socket, port) = start(&format!(
        "backend b\n option httpchk GET /check\n default-server inter 20ms fall 1 rise 1\n server s 127.0.0.1:{} check\n \
         server t 127.0.0.1:{}\n",
        flapping.port(),
        steady.port()
    ));
    let (stop, served) = (AtomicBool::new(false), AtomicUsize::new(0));
    let lbtot = || column(&socket, "s", "lbtot");
    std::thread::scope(|scope| {
        for client in 0..2 {
            let (stop, served) = (&stop, &served);
            scope.spawn(move || {
                while !stop.load(Relaxed) {
                    assert_eq!(get(port, &format!("/{client}")), 200);
                    served.fetch_add(1, Relaxed);
                }
            });
        }
        let _load = Load(&stop);
        for _ in 0..5 {
            well.store(false, Relaxed);
            assert!(eventually(|| column(&socket, "s", "status") == "DOWN"));
            let (before, done) = (lbtot(), served.load(Relaxed));
            assert!(eventually(|| served.load(Relaxed) >= done + 20));
            assert_eq!(lbtot(), before, "a request went to a server that is down");
            well.store(true, Relaxed);
            assert!(eventually(|| column(&socket, "s", "status") == "UP" && lbtot() != before));
        }
    });
}

#[test]
fn requests_queued_at_a_removed_server_are_redispatched() {
    let (held, release) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicBool::new(false)));
    let (count, open) = (held.clone(), release.clone());
    let slow = Origin::start(move |head, _| {
        if !head.starts_with("GET /check") {
            count.fetch_add(1, Relaxed);
            assert!(eventually(|| open.load(Relaxed)));
        }
        answer("200 OK")
    });
    let other = Origin::text("a");
    let (_weir, socket, port) = start(&format!(
        "backend b\n balance leastconn\n option httpchk GET /check\n default-server inter 50ms\n server t 127.0.0.1:{} disabled\n",
        other.port()
    ));
    let added = ask(&socket, &format!("add server b/s 127.0.0.1:{} maxconn 1 check", slow.port()));
    assert!(added.contains("New server registered"), "{added}");
    ask(&socket, "enable server b/s");
    ask(&socket, "enable health b/s");
    assert!(eventually(|| column(&socket, "s", "check_status").ends_with("L7OK")));
    std::thread::scope(|scope| {
        let clients: Vec<_> = (0..10).map(|_| scope.spawn(move || get(port, "/"))).collect();
        let waiting = || {
            let shown = statistics(&socket);
            ["b,s", "b,t", "b,BACKEND"].map(|row| shown.number(row, "qcur")).into_iter().max().unwrap_or(0)
        };
        assert!(eventually(|| held.load(Relaxed) == 1 && waiting() == 9));
        ask(&socket, "enable server b/t");
        ask(&socket, "disable server b/s");
        assert!(eventually(|| other.requests() == 9), "{} of 9", other.requests());
        // The request in progress prevents the deletion.
        assert!(ask(&socket, "del server b/s").contains("still has connections"));
        release.store(true, Relaxed);
        assert!(eventually(|| ask(&socket, "del server b/s").contains("Server deleted.")));
        assert!(clients.into_iter().all(|client| client.join().expect("no panic") == 200));
    });
    assert_eq!(held.load(Relaxed), 1);
}

#[test]
fn backend_queue_moves_on_when_a_slot_frees_or_none_is_left() {
    let open = Arc::new(AtomicBool::new(false));
    let gate = open.clone();
    let slow = Origin::start(move |_, _| {
        assert!(eventually(|| gate.load(Relaxed)));
        answer("200 OK")
    });
    let (weir, socket, port) =
        start(&format!("backend b\n balance leastconn\n server s 127.0.0.1:{} maxconn 1\n", slow.port()));
    let waiting = || column(&socket, "BACKEND", "qcur");
    std::thread::scope(|scope| {
        let clients: Vec<_> = (0..6).map(|_| scope.spawn(move || get(port, "/"))).collect();
        assert!(eventually(|| waiting() == "5"));
        ask(&socket, "set maxconn server b/s 3");
        assert!(eventually(|| waiting() == "3"));
        // The clients of these requests have left.
        ask(&socket, "disable server b/s");
        assert!(eventually(|| waiting() == "0"));
        assert!(weir.says("3 sessions active, 3 requeued, 0 remaining in queue"));
        open.store(true, Relaxed);
        let mut statuses: Vec<u16> = clients.into_iter().map(|one| one.join().expect("no panic")).collect();
        statuses.sort_unstable();
        assert_eq!(statuses, [200, 200, 200, 503, 503, 503]);
    });
}

#[test]
fn slowstart_after_maintenance_is_logged_when_complete() {
    let origin = Origin::text("a");
    let (weir, socket, port) =
        start(&format!("backend b\n server s 127.0.0.1:{} slowstart 300ms weight 100\n", origin.port()));
    assert_eq!(column(&socket, "s", "weight"), "100");
    ask(&socket, "disable server b/s");
    let said = ask(&socket, "enable server b/s; show servers state b");
    // Its operational state: starting.
    assert_eq!(
        said.lines().find(|line| line.contains(" b 1 s ")).and_then(|line| line.split(' ').nth(5)),
        Some("1")
    );
    assert_eq!(get(port, "/"), 200);
    assert!(eventually(|| column(&socket, "s", "weight") == "100"));
    assert!(eventually(|| weir
        .messages()
        .contains("Server b/s is UP. 1 active and 0 backup servers online.")));
}

#[test]
fn marked_down_servers_end_their_sessions() {
    let silent = Origin::raw(|stream| {
        let mut all = Vec::new();
        let _ = (&stream).read_to_end(&mut all);
    });
    for command in ["set server b/s state maint", "set server b/s health down", "set server b/t state maint"]
    {
        let (_weir, socket, port) = start(&format!(
            "backend b\n server s 127.0.0.1:{0} check inter 1h weight 0 on-marked-up shutdown-backup-sessions\n \
             server t 127.0.0.1:{0} track s on-marked-down shutdown-sessions\n",
            silent.port()
        ));
        std::thread::scope(|scope| {
            assert!(eventually(|| column(&socket, "s", "check_status") == "L4OK"));
            let client = scope.spawn(move || get(port, "/"));
            assert!(eventually(|| column(&socket, "t", "scur") == "1"));
            ask(&socket, command);
            assert!(eventually(|| column(&socket, "t", "scur") == "0"), "{command}");
            assert_ne!(client.join().expect("no panic"), 200, "{command}");
        });
    }
}

#[test]
fn server_deleted_during_a_check_leaves_nothing_behind() {
    let (asked, gone) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let (on_ask, on_end) = (asked.clone(), gone.clone());
    // The server accepts connections, and stays silent until they end.
    let silent = Origin::raw(move |mut stream| {
        let mut room = [0; 4096];
        while matches!(stream.read(&mut room), Ok(1..)) {
            on_ask.fetch_add(1, Relaxed);
        }
        on_end.fetch_add(1, Relaxed);
    });
    let other = Origin::text("other");
    let (mut weir, socket, port) = start(&format!(
        "backend b\n balance roundrobin\n timeout check 5m\n option httpchk\n\
         server s 127.0.0.1:{} check inter 100ms disabled\n server t 127.0.0.1:{}\n",
        silent.port(),
        other.port()
    ));
    // Its check starts when it leaves maintenance, and continues when maintenance begins again.
    ask(&socket, "enable server b/s");
    assert!(eventually(|| asked.load(Relaxed) == 1), "a check is under way");
    assert_eq!(gone.load(Relaxed), 0);
    ask(&socket, "disable server b/s");
    assert!(eventually(|| ask(&socket, "del server b/s").contains("Server deleted.")));
    assert!(eventually(|| gone.load(Relaxed) == 1), "the check's connection ends with the server");
    (0..20).for_each(|_| assert_eq!(get(port, "/"), 200));
    assert_eq!((other.requests(), silent.connections()), (20, 1));
    assert!(!ask(&socket, "show servers state b").contains(" s "));
    assert!(weir.is_running());
}

#[test]
fn added_servers_use_their_healthcheck_section() {
    let asked = Arc::new(AtomicUsize::new(0));
    let count = asked.clone();
    let origin = Origin::start(move |head, _| {
        if head.starts_with("GET /in/b ") {
            count.fetch_add(1, Relaxed);
        }
        answer("299 Fine")
    });
    // Only the sections refer to these variables, and no server to these sections.
    let (_weir, socket, _) = start(&format!(
        "backend b\n option httpchk GET /own\n default-server name d healthcheck passes\n server s 127.0.0.1:{}\n\
         healthcheck passes\n type httpchk\n http-check set-var(check.where) be_name\n\
         http-check send meth GET uri-lf /in/%[var(check.where)]\n http-check expect status 299\n\
         healthcheck fails\n type httpchk\n http-check send meth GET uri /in/b\n http-check expect status 200\n",
        origin.port()
    ));
    for (name, words, status) in
        [("a", "healthcheck passes", "UP"), ("c", "healthcheck fails", "DOWN"), ("d", "from srv:d", "UP")]
    {
        let before = asked.load(Relaxed);
        let (words, parameters) = match words.split_once("from ") {
            Some((_, from)) => (format!("from {from}"), ""),
            None => (String::new(), words),
        };
        let line = format!(
            "127.0.0.1:{} {words} check inter 10ms init-state down rise 1 {parameters}",
            origin.port()
        );
        assert_eq!(ask(&socket, &format!("add server b/{name} {line}")).trim(), "New server registered.");
        ask(&socket, &format!("enable server b/{name}; enable health b/{name}"));
        assert!(eventually(|| asked.load(Relaxed) > before + 2), "{name}");
        assert!(eventually(|| column(&socket, name, "status") == status), "{name}");
        ask(&socket, &format!("set server b/{name} state maint"));
        assert!(eventually(|| ask(&socket, &format!("del server b/{name}")).contains("deleted")), "{name}");
    }
    let unknown = ask(&socket, "add server b/x 127.0.0.1:1 healthcheck nope");
    assert!(unknown.contains("healthcheck section 'nope' not found for server 'x'."), "{unknown}");
}

/// Stops the load of a test even if the test fails.
struct Load<'a>(&'a AtomicBool);

impl Drop for Load<'_> {
    fn drop(&mut self) {
        self.0.store(true, Relaxed);
    }
}

/// Commands that take server `s` out of service and back, and the status shown in between.
const WAYS_OUT: &[(&str, &str, &str)] = &[
    ("set server b/s state maint", "set server b/s state ready", "MAINT"),
    ("set server b/s health down", "set server b/s health up", "DOWN"),
    ("set server b/s state drain", "set server b/s state ready", "DRAIN"),
    ("set server b/s weight 0", "set server b/s weight 100%", "UP"),
];

#[test]
fn server_out_of_service_gets_no_requests_under_load() {
    for lines in [
        "balance roundrobin",
        "balance static-rr",
        "balance leastconn",
        "balance random",
        "balance peak-ewma",
        "balance first",
        "balance uri",
        "balance uri\n hash-type consistent",
        "balance leastconn\n default-server maxconn 1",
        "balance roundrobin\n default-server maxconn 1",
        "balance roundrobin\n option prefer-last-server",
    ] {
        let (out, steady) = (Origin::text("a"), Origin::text("b"));
        let server = |name: &str, origin: &Origin| {
            format!(" server {name} 127.0.0.1:{} check inter 1h\n", origin.port())
        };
        let (_weir, socket, port) =
            start(&format!("backend b\n {lines}\n{}{}", server("s", &out), server("t", &steady)));
        let (stop, served) = (AtomicBool::new(false), AtomicUsize::new(0));
        std::thread::scope(|scope| {
            for client in 0..4 {
                let (stop, served) = (&stop, &served);
                scope.spawn(move || {
                    while !stop.load(Relaxed) {
                        // Over one connection, and then over another.
                        let mut connection = Client::connect(port);
                        for number in 0..5 {
                            let line =
                                format!("GET /{client}/{} HTTP/1.1\r\n", served.load(Relaxed) + number);
                            let answer = connection.send(format!("{line}Host: a\r\n\r\n")).response();
                            assert_eq!(answer.map(|answer| answer.status), Some(200), "{lines}");
                            served.fetch_add(1, Relaxed);
                        }
                    }
                });
            }
            let _load = Load(&stop);
            for (leave, back, status) in WAYS_OUT {
                assert!(eventually(|| out.requests() > 0 || lines == "balance first"), "{lines}");
                ask(&socket, leave);
                assert!(column(&socket, "s", "status").starts_with(status), "{lines} {leave}");
                // Requests assigned before are still served.
                assert!(eventually(|| column(&socket, "s", "scur") == "0"));
                let (before, done) = (out.requests(), served.load(Relaxed));
                assert!(eventually(|| served.load(Relaxed) >= done + 200), "{lines} {leave}");
                assert_eq!(out.requests(), before, "{lines}: requests behind `{leave}`");
                ask(&socket, back);
                assert!(eventually(|| out.requests() > before), "{lines}: it is used again behind `{back}`");
            }
        });
    }
}
