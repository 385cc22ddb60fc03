//! Persistence through stick tables: `stick …`, `non-stick`, `srvkey`, and the recipes that use tables.

use std::time::{Duration, Instant};

use weir_tests::client::{Client, exchange_with};
use weir_tests::{Origin, Weir, eventually, free_port, recipe};

/// Starts three servers in turn in front of one origin, with these lines in their backend.
fn start(lines: &str, words: [&str; 3], more: &str) -> (Weir, Origin, u16) {
    let port = free_port();
    let origin = Origin::start(|head, _| {
        let id = head.split("id=").nth(1).map_or("", |rest| rest.split(' ').next().unwrap_or_default());
        format!("HTTP/1.1 200 OK\r\nX-Id: {id}\r\nContent-Length: 0\r\n\r\n").into_bytes()
    });
    let servers: String =
        (1..4).map(|at| format!(" server s{at} 127.0.0.1:{} {}\n", origin.port(), words[at - 1])).collect();
    let text = format!(
        "global\n nbthread 1\n stats socket runtime level admin\n\
         defaults\n mode http\n timeout client 20s\n timeout connect 5s\n timeout server 20s\n\
         frontend f\n bind 127.0.0.1:{port}\n default_backend b\n\
         backend b\n balance roundrobin\n {lines}\n http-response set-header x %[srv_name]\n{servers}{more}"
    );
    (Weir::start(&text, &[port]), origin, port)
}

/// Returns the servers that answered requests for `paths`.
fn served(port: u16, paths: &[&str]) -> String {
    let answers = paths.iter().map(|path| exchange_with(port, path, "").expect("an answer"));
    answers.map(|answer| answer.header("x").unwrap_or("-")[1..].to_owned()).collect()
}

/// Returns the server id and name stored in an entry.
fn noted(weir: &Weir, table: &str, key: &str) -> String {
    let all = weir.ask(&format!("show table {table}"));
    let line = all.lines().find(|line| line.contains(&format!("key={key} "))).unwrap_or_default();
    line.split(' ').filter(|word| word.starts_with("server_")).collect::<Vec<_>>().join(" ")
}

const PATHS: &[&str] = &["/a", "/b", "/a", "/b", "/c", "/a"];

#[test]
fn keys_stay_at_their_server() {
    let (weir, _origin, port) =
        start("stick-table type string size 10 expire 1h\n stick on path", ["", "", ""], "");
    assert_eq!(served(port, PATHS), "121231");
    assert_eq!(noted(&weir, "b", "/b"), "server_id=2 server_key=s2");
    // After a manual change of the server, the key goes there.
    weir.ask("clear table b key /a");
    weir.ask("set server b/s1 state maint");
    assert_eq!(served(port, &["/a", "/a", "/b"]).replace('3', "x"), "xx2");
    assert_eq!(noted(&weir, "b", "/a"), "server_id=3 server_key=s3");
}

#[test]
fn down_server_is_replaced_in_the_table() {
    let (weir, _origin, port) = start("stick-table type string size 10\n stick on path", ["", "", ""], "");
    assert_eq!(served(port, &["/a", "/a"]), "11");
    weir.ask("set server b/s1 state maint");
    let next = served(port, &["/a", "/a"]);
    assert!(matches!(&*next, "22" | "33"), "{next}");
    weir.ask("set server b/s1 state ready");
    assert_eq!(served(port, &["/a"]), next[..1]);
}

#[test]
fn non_stick_servers_are_not_stored() {
    let (weir, _origin, port) =
        start("stick-table type string size 10\n stick on path", ["", "non-stick", ""], "");
    // /b went to the second server, which was not stored, and then to the third.
    assert_eq!(served(port, &["/a", "/b", "/a", "/b", "/b"]), "12133");
    assert_eq!(noted(&weir, "b", "/b"), "server_id=3 server_key=s3");
}

#[test]
fn server_may_override_non_stick_of_default_server() {
    let (weir, _origin, port) = start(
        "stick-table type string size 10\n stick on path\n default-server non-stick",
        ["stick", "", ""],
        "",
    );
    assert_eq!(served(port, &["/a", "/b", "/a", "/b"]), "1213");
    assert_eq!(noted(&weir, "b", "/a"), "server_id=1 server_key=s1");
    assert_eq!(noted(&weir, "b", "/b"), "");
}

#[test]
fn first_matching_rule_stores_and_other_tables_are_readable() {
    let (weir, _origin, port) = start(
        "stick-table type string size 10\n stick match url_param(key) table others\n stick match path table others if { path_beg /m }\n \
         stick store-request path if { path /a }\n stick store-request method\n stick store-response res.hdr(x-id) table ids",
        ["", "", ""],
        "backend others\n stick-table type string size 10\n\
         backend ids\n stick-table type string size 10\n",
    );
    assert_eq!(served(port, &["/a", "/b?id=7"]), "12");
    assert_eq!(noted(&weir, "b", "/a"), "server_id=1 server_key=s1");
    assert_eq!(noted(&weir, "b", "GET"), "server_id=2 server_key=s2");
    assert_eq!(noted(&weir, "ids", "7"), "server_id=2 server_key=s2");
    weir.ask("set table others key k data.server_id 3");
    assert_eq!(served(port, &["/a?key=k", "/x?key=k", "/x?key=none"]), "333");
}

#[test]
fn srvkey_may_identify_servers_by_address() {
    let (weir, origin, port) =
        start("stick-table type string size 10 srvkey addr\n stick on path", ["", "", ""], "");
    served(port, &["/a"]);
    assert_eq!(noted(&weir, "b", "/a"), format!("server_id=1 server_key=127.0.0.1:{}", origin.port()));
}

#[test]
fn cookies_take_precedence_over_tables() {
    let (_weir, _origin, port) = start(
        "stick-table type string size 10\n stick on path\n cookie S insert indirect",
        ["cookie one", "cookie two", "cookie three"],
        "",
    );
    let ask = |cookie: &str| {
        let answer = exchange_with(port, "/a", cookie).expect("an answer");
        answer.header("x").unwrap_or_default().to_owned()
    };
    assert_eq!([ask(""), ask(""), ask("Cookie: S=three\r\n"), ask("")], ["s1", "s1", "s3", "s3"]);
}

#[test]
fn server_selected_by_table_sets_no_cookie() {
    for (words, later) in [("insert", None), ("insert indirect", None), ("insert maxidle 1h", Some("S="))] {
        let lines = format!("stick-table type string size 10\n stick on path\n cookie S {words}");
        let (_weir, _origin, port) = start(&lines, ["cookie one", "cookie two", "cookie three"], "");
        let set = |cookie: &str| {
            let answer = exchange_with(port, "/a", cookie).expect("an answer");
            answer.header("set-cookie").map(|line| line[..2].to_owned())
        };
        assert_eq!(set("").as_deref(), Some("S="), "{words}");
        assert_eq!(set("").as_deref(), later, "{words}");
        assert_eq!(set("Cookie: S=unknown\r\n").as_deref(), later, "{words}");
    }
}

#[test]
fn tcp_streams_stick_too() {
    let port = free_port();
    let origins = [0, 1].map(|at| {
        Origin::start(move |_, _| {
            format!("HTTP/1.1 200 OK\r\nX: {at}\r\nContent-Length: 0\r\n\r\n").into_bytes()
        })
    });
    let text = format!(
        "global\n stats socket runtime level admin\n\
         defaults\n mode tcp\n timeout client 20s\n timeout connect 5s\n timeout server 20s\n\
         listen l\n bind 127.0.0.1:{port}\n balance roundrobin\n tcp-request inspect-delay 10s\n tcp-request content accept if {{ req.len gt 0 }}\n \
         stick-table type binary len 5 size 10 expire 1h\n stick on req.payload(4,2)\n \
         server a 127.0.0.1:{}\n server b 127.0.0.1:{}\n",
        origins[0].port(),
        origins[1].port()
    );
    let weir = Weir::start(&text, &[]);
    assert!(!weir.ask("show info").is_empty());
    let ask = |path: &str| {
        let answer = Client::connect(port).send(format!("GET {path} HTTP/1.1\r\nHost: a\r\n\r\n")).response();
        answer.and_then(|answer| answer.header("x").map(str::to_owned)).unwrap_or_default()
    };
    let served: String = ["/a", "/b", "/a", "/b", "/b", "/a"].map(ask).concat();
    assert_eq!(served, "010110");
    assert_eq!(noted(&weir, "l", "2F61000000"), "server_id=1 server_key=a");
}

/// Starts a recipe with that origin in place of these of its servers.
fn start_recipe(name: &str, servers: &[&str], origin: &Origin) -> (Weir, u16) {
    let port = free_port();
    let servers: Vec<_> = servers.iter().map(|address| (*address, origin.port())).collect();
    let text = recipe(name, port, &servers);
    let text = text.replacen("global\n", "global\n    stats socket runtime level admin\n", 1);
    let weir = Weir::start(&text, &[]);
    assert!(!weir.ask("show info").is_empty(), "{text}: {}", weir.messages());
    (weir, port)
}

fn origin() -> Origin {
    Origin::start(|head, body| {
        let wrong = head.starts_with("POST /login ") && body != b"password=right";
        let status = if wrong { "401 No" } else { "200 OK" };
        format!("HTTP/1.1 {status}\r\nContent-Length: 0\r\n\r\n").into_bytes()
    })
}

fn status(port: u16, request: &str) -> u16 {
    Client::connect(port).send(request).response().map_or(0, |answer| answer.status)
}

const GET: &str = "GET / HTTP/1.1\r\nHost: a\r\n\r\n";

#[test]
fn rate_limit_recipe_refuses_frequent_clients() {
    let origin = origin();
    let (_weir, port) = start_recipe("rate-limits.cfg", &["192.0.2.10:80"], &origin);
    let begun = Instant::now();
    let statuses: Vec<u16> = (0..60).map(|_| status(port, GET)).collect();
    // The limit is 50 in ten seconds. If the machine took longer than that, the test proves nothing.
    if begun.elapsed() < Duration::from_secs(9) {
        assert!(statuses[..50].iter().all(|status| *status == 200), "{statuses:?}");
        assert!(statuses[50..].iter().all(|status| *status == 429), "{statuses:?}");
    }
}

#[test]
fn brute_force_recipe_blocks_password_guessing() {
    let origin = origin();
    let (_weir, port) = start_recipe("brute-force.cfg", &["192.0.2.10:80"], &origin);
    let login = |password: &str| {
        let body = format!("password={password}");
        let length = body.len();
        status(port, &format!("POST /login HTTP/1.1\r\nHost: a\r\nContent-Length: {length}\r\n\r\n{body}"))
    };
    assert_eq!(login("right"), 200);
    let wrong: Vec<u16> = (0..7).map(|_| login("wrong")).collect();
    assert_eq!(wrong, [401, 401, 401, 401, 401, 403, 403]);
    assert_eq!(login("right"), 403);
    assert_eq!(status(port, GET), 200, "the rest of the site stays open");
}

#[test]
fn connection_limit_recipe_closes_excess_connections() {
    let origin = origin();
    let (weir, port) = start_recipe("connection-limits.cfg", &["192.0.2.10:80"], &origin);
    let mut kept: Vec<Client> = (0..10).map(|_| Client::connect(port)).collect();
    assert!(
        kept.iter_mut().all(|client| client.send(GET).response().is_some_and(|answer| answer.status == 200))
    );
    assert_eq!(status(port, GET), 0);
    drop(kept);
    assert!(eventually(|| weir.ask("show table per_address").contains("conn_cur=0")));
    assert_eq!(status(port, GET), 200);
}

#[test]
fn sticky_session_recipe_keeps_sessions_at_their_server() {
    let origin = Origin::start(|_, _| {
        b"HTTP/1.1 200 OK\r\nSet-Cookie: JSESSIONID=abc; Path=/\r\nContent-Length: 0\r\n\r\n".to_vec()
    });
    let (weir, port) = start_recipe("sticky-sessions.cfg", &["192.0.2.10:80", "192.0.2.11:80"], &origin);
    assert_eq!(status(port, GET), 200);
    let first = noted(&weir, "app", "abc");
    assert!(first.starts_with("server_id="), "{first}");
    for _ in 0..4 {
        assert_eq!(status(port, "GET / HTTP/1.1\r\nHost: a\r\nCookie: JSESSIONID=abc\r\n\r\n"), 200);
        assert_eq!(noted(&weir, "app", "abc"), first);
    }
}
