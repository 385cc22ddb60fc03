//! Persistence of clients: connections bound by authentication, cookies.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::{SystemTime, UNIX_EPOCH};

use weir_tests::client::Client;
use weir_tests::listen::{DEFAULTS, local};
use weir_tests::log_scene::{LAST, Scene};
use weir_tests::{Origin, Weir, free_port};

/// Starts three servers named after their positions, with origins that answer `/login` with `login` and everything else with 200.
fn start(lines: &str, words: [&str; 3], login: &'static str) -> (Weir, [Origin; 3], u16) {
    let origin = |_| {
        Origin::start(move |head, _| {
            let line = if head.starts_with("GET /login ") { login } else { "200 OK" };
            format!("HTTP/1.1 {line}\r\nContent-Length: 0\r\n\r\n").into_bytes()
        })
    };
    let origins = [0, 1, 2].map(origin);
    let port = free_port();
    let servers: String =
        (0..3).map(|at| format!(" server s{at} 127.0.0.1:{} {}\n", origins[at].port(), words[at])).collect();
    let text = format!(
        "global\n nbthread 1\n\
         defaults\n mode http\n timeout client 20s\n timeout connect 5s\n timeout server 20s\n\
         listen l\n bind 127.0.0.1:{port}\n {lines}\n http-response set-header x-server %[srv_id]\n{servers}"
    );
    (Weir::start(&text, &[port]), origins, port)
}

/// Returns the numbers of the servers that answered requests for `paths` on one connection.
fn served(port: u16, paths: &str, header: &str) -> String {
    let mut client = Client::connect(port);
    let ask = |path: char| {
        let path = if path == 'L' { "login" } else { "other" };
        let answer = client.send(format!("GET /{path} HTTP/1.1\r\nHost: a\r\n{header}\r\n")).response();
        answer.and_then(|answer| answer.header("x-server").map(str::to_owned)).unwrap_or_default()
    };
    paths.chars().map(ask).collect()
}

#[test]
fn connection_based_authentication_binds_to_the_server() {
    const NTLM: &str = "401 No\r\nWWW-Authenticate: NTLM";
    for (lines, login, servers) in [
        ("balance roundrobin", NTLM, "123333"),
        ("balance static-rr", NTLM, "123333"),
        ("balance roundrobin\n http-reuse always", NTLM, "123333"),
        ("balance roundrobin\n http-reuse never", NTLM, "123333"),
        ("balance roundrobin", "407 No\r\nProxy-Authenticate: Negotiate", "123333"),
        // Nothing binds these clients to a connection.
        ("balance roundrobin", "401 No\r\nWWW-Authenticate: Basic", "123123"),
        ("balance roundrobin", "200 No\r\nWWW-Authenticate: NTLM", "123123"),
        ("balance roundrobin\n option http-server-close", NTLM, "123123"),
        // The hash decides.
        ("balance hdr(none)", NTLM, "123123"),
    ] {
        let (_weir, origins, port) = start(lines, ["", "", ""], login);
        assert_eq!(served(port, "..L...", ""), servers, "{lines} {login}");
        // Another client is not affected.
        assert_eq!(served(port, "...", "").len(), 3);
        if servers == "123333" {
            assert!(origins[2].connections() <= 2, "{lines} {login}");
        }
    }
}

#[test]
fn first_available_server_with_a_cookie_is_used() {
    for (words, servers) in [
        (["cookie b", "cookie b", "cookie c"], "111"),
        (["cookie b disabled", "cookie b", "cookie c"], "222"),
        (["cookie b backup", "cookie b", "cookie c"], "111"),
        (["cookie b weight 0", "cookie b", "cookie c"], "111"),
    ] {
        let (_weir, _origins, port) = start("balance roundrobin\n cookie S insert", words, "200 OK");
        assert_eq!(served(port, "...", "Cookie: S=b\r\n"), servers, "{words:?}");
    }
    let (_weir, _origins, port) = start(
        "balance roundrobin\n cookie S insert\n force-persist if TRUE",
        ["cookie b disabled", "cookie b", ""],
        "200 OK",
    );
    assert_eq!(served(port, "..", "Cookie: S=b\r\n"), "11");
}

#[test]
fn redispatch_offset_beyond_the_retries_means_the_first() {
    // The interval is beyond the number of retries, and exactly that number.
    for after in ["-5", "-4", "-3"] {
        let words = ["cookie b disabled", "cookie c", "cookie d"];
        let lines = format!(
            "balance roundrobin\n cookie S insert\n retries 3\n option redispatch {after}\n server x 127.0.0.1:{} cookie a",
            free_port()
        );
        let (_weir, _origins, port) = start(&lines, words, "200 OK");
        let mut client = Client::connect(port);
        let answer = client.send("GET / HTTP/1.1\r\nHost: a\r\nCookie: S=a\r\n\r\n").response();
        assert_eq!(answer.map(|answer| answer.status), Some(200), "{after}");
    }
}

/// Returns the cookie part of the log, and the client's `Set-Cookie` and `Cache-Control`, for a server with the cookie `c1`, or
/// without one if `server` is empty.
fn cookies(cookie: &str, server: &str, sent: &str, answer: &'static str) -> (String, Vec<String>) {
    let origin = Origin::start(move |_, _| {
        format!("HTTP/1.1 200 OK\r\nContent-Length: 0\r\n{answer}\r\n").into_bytes()
    });
    let backend = format!("cookie SRV {cookie}\n  server s 127.0.0.1:{} {server}", origin.port());
    let scene = Scene::start("", "", &backend);
    let mut client = Client::connect(scene.port);
    client.send(format!("GET / HTTP/1.1\r\nHost: a\r\n{sent}\r\n"));
    let head = client.read_head();
    let told = |line: &&str| {
        let line = line.to_ascii_lowercase();
        line.starts_with("set-cookie") || line.starts_with("cache-control")
    };
    let fields = head.lines().filter(told).map(|line| line.trim_end().to_owned()).collect();
    let state = scene.line().split(' ').nth(3).unwrap_or_default()[2..].to_owned();
    (state, fields)
}

#[test]
fn cookie_insertion_removal_and_caching_match_haproxy() {
    const GONE: &str = "set-cookie: SRV=; Expires=Thu, 01-Jan-1970 00:00:01 GMT; path=/";
    const OURS: &str = "set-cookie: SRV=c1; path=/";
    const PRIVATE: &str = "cache-control: private";
    const TAG: &str = "ETag: \"a\"\r\n";
    type Case =
        (&'static str, &'static str, &'static str, &'static str, &'static str, &'static [&'static str]);
    let cases: &[Case] = &[
        // A server without its own value.
        ("insert", "", "", "", "NI", &[GONE]),
        ("insert indirect", "", "Cookie: SRV=x\r\n", "", "II", &[GONE]),
        ("insert nocache", "", "", TAG, "NI", &[GONE, PRIVATE]),
        ("rewrite", "", "", "", "NN", &[]),
        // Only cacheable responses are made private.
        ("insert nocache", "cookie c1", "", "", "NI", &[OURS]),
        ("insert nocache", "cookie c1", "", TAG, "NI", &[OURS, PRIVATE]),
        // Persistence is ignored.
        ("insert\n  ignore-persist if TRUE", "cookie c1", "", "", "NN", &[]),
        ("insert\n  ignore-persist if TRUE", "cookie c1", "Cookie: SRV=bad\r\n", "", "UN", &[]),
        // A value without the delimiter is compared as a whole.
        ("prefix", "cookie c1", "Cookie: SRV=c1\r\n", "", "VN", &[]),
        (
            "prefix",
            "cookie c1",
            "Cookie: SRV=c1~y\r\n",
            "Set-Cookie: SRV=z\r\n",
            "VR",
            &["Set-Cookie: SRV=c1~z"],
        ),
        // A client that has a valid cookie gets no other.
        ("prefix indirect", "cookie c1", "Cookie: SRV=c1~y\r\n", "Set-Cookie: SRV=z\r\n", "VD", &[]),
        ("prefix indirect", "cookie c1", "", "Set-Cookie: SRV=z\r\n", "NR", &["Set-Cookie: SRV=c1~z"]),
        // Dates are removed if no limit needs them.
        ("insert", "cookie c1", "Cookie: SRV=c1|AWQAA\r\n", "", "VU", &[OURS]),
        ("insert", "cookie c1", "Cookie: SRV=c1\r\n", "", "VN", &[]),
    ];
    for (cookie, server, sent, answer, state, fields) in cases {
        let fields: Vec<String> = fields.iter().map(|field| (*field).to_owned()).collect();
        let found = cookies(cookie, server, sent, answer);
        assert_eq!(found, ((*state).to_owned(), fields), "cookie SRV {cookie}, {server}, {sent}, {answer}");
    }
}

/// Returns the date `from_now` seconds ahead in the encoding of cookies: units of four seconds, in five digits of six bits.
fn date(from_now: i64) -> String {
    const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let now = SystemTime::now().duration_since(UNIX_EPOCH).expect("a clock after 1970").as_secs() as i64;
    let units = (now + from_now + 3) / 4;
    (0..5).rev().map(|place| char::from(DIGITS[(units >> (6 * place)) as usize & 63])).collect()
}

#[test]
fn first_seen_date_of_a_cookie_is_kept() {
    let (ahead, before) = (date(600), date(-600));
    let with = |cookie: &str, sent: String| cookies(cookie, "cookie c1", &sent, "");
    let (state, fields) =
        with("insert maxidle 1h maxlife 1h", format!("Cookie: SRV=c1|{ahead}|{before}\r\n"));
    assert_eq!((state.as_str(), fields.len()), ("VN", 0), "nothing is to be refreshed: {fields:?}");
    let (state, fields) = with("insert maxlife 1h", format!("Cookie: SRV=c1|AAAAA|{before}\r\n"));
    assert_eq!(state, "VN", "{fields:?}");
    let (state, fields) = with("insert maxidle 1h maxlife 1h", format!("Cookie: SRV=c1|AAAAA|{before}\r\n"));
    assert_eq!(state, "VU");
    assert!(fields[0].ends_with(&format!("|{before}; path=/")), "{fields:?}");
}

#[test]
fn cookie_dated_over_a_day_ahead_is_expired() {
    const HOUR: i64 = 3600;
    for (cookie, last, first, state) in [
        ("insert maxidle 1h", 23 * HOUR, 0, "VN"),
        ("insert maxidle 1h", 25 * HOUR, 0, "EI"),
        ("insert maxlife 1h", 60, 23 * HOUR, "VN"),
        ("insert maxlife 1h", 60, 25 * HOUR, "OI"),
        ("insert maxidle 1h maxlife 1h", 25 * HOUR, 25 * HOUR, "OI"),
        // Dates to which no limit applies.
        ("insert maxidle 1h", 60, 25 * HOUR, "VU"),
        ("insert maxlife 1h", 25 * HOUR, 60, "VN"),
    ] {
        let (last, first) = (date(last), date(first));
        let with_first = cookie.contains("maxlife") || state == "VU";
        let dates = if with_first { format!("{last}|{first}") } else { last.clone() };
        let sent = format!("Cookie: SRV=c1|{dates}\r\n");
        let (found, _) = cookies(cookie, "cookie c1", &sent, "");
        assert_eq!(found, state, "{cookie}, {sent}");
    }
}

#[test]
fn expired_cookie_starts_a_new_lifetime() {
    let old = date(-7200);
    let sent = format!("Cookie: SRV=c1|{old}|{old}\r\n");
    for cookie in ["insert maxlife 1h", "insert maxidle 1h maxlife 9h"] {
        let (_, fields) = cookies(cookie, "cookie c1", &sent, "");
        assert!(fields.len() == 1 && !fields[0].contains(&old), "{cookie}: {fields:?}");
    }
}

#[test]
fn characters_after_a_five_digit_date_are_ignored() {
    let sent = format!("Cookie: SRV=c1|{}x|{}y|z\r\n", date(60), date(0));
    let (state, fields) = cookies("insert maxidle 1h maxlife 1h", "cookie c1", &sent, "");
    assert_eq!((state.as_str(), fields.len()), ("VN", 0), "{fields:?}");
}

#[test]
fn ignore_persist_does_not_change_server_cookies() {
    const SENT: &str = "Set-Cookie: SRV=own\r\n";
    for cookie in ["insert", "insert indirect", "rewrite", "prefix"] {
        let cookie = format!("{cookie}\n  ignore-persist if TRUE");
        let (state, fields) = cookies(&cookie, "cookie c1", "", SENT);
        assert_eq!((state.as_str(), &fields[..]), ("NN", &[SENT.trim_end().to_owned()][..]), "{cookie}");
    }
}

#[test]
fn removed_cookies_lose_their_attributes_too() {
    let origin = Origin::start(|head, _| {
        let is_cookie = |line: &&str| line.to_ascii_lowercase().starts_with("cookie:");
        let body = head.lines().find(is_cookie).unwrap_or("none").to_owned();
        format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{body}", body.len()).into_bytes()
    });
    let scene = Scene::start(
        "",
        "",
        &format!("cookie C insert indirect\n  server s 127.0.0.1:{} cookie B", origin.port()),
    );
    for (sent, left) in [
        ("$Version=1; C=B; $Path=/", "none"),
        ("$Version=1; a=1; $Path=/; C=B; $Path=/; $Domain=x; b=2", "Cookie: $Version=1; a=1; $Path=/; b=2"),
        ("C=B; $Path=/; a=1", "Cookie: a=1"),
    ] {
        let answer = scene.talk(&LAST.replace("\r\n\r\n", &format!("\r\nCookie: {sent}\r\n\r\n")));
        assert!(answer.ends_with(&format!("\r\n\r\n{left}")), "{sent}: {answer}");
    }
}

#[test]
fn cookie_states_in_logs_match_the_manual() {
    let origin = Origin::text("ok");
    let backend =
        |more: &str| format!("cookie C insert {more}\n  server s 127.0.0.1:{} cookie B", origin.port());
    let cases = [
        ("\n  use-server s if TRUE", "B", "--UN"),
        // The cookie of the last server is unused; of several cookies the first with a server's name counts.
        ("", "Z; C=B", "--VN"),
        ("\n  option persist\n  server down 127.0.0.1:1 cookie D disabled\n  retries 0", "D", "--D"),
        ("maxidle 10m", "B", "--VU"),
        // Zero is not a valid date.
        ("maxidle 10m", "B|AAAAA", "--VU"),
        ("maxidle 10m", "B|AAAAB", "--EI"),
        ("maxlife 10m", "B|AAAAB|AAAAB", "--OI"),
        ("\n  ignore-persist if TRUE", "B", "--UN"),
        ("", "Z", "--II"),
        ("", "B", "--VN"),
    ];
    for (settings, value, expected) in cases {
        let scene = Scene::start("", "", &backend(settings));
        scene.talk(&LAST.replace("\r\n\r\n", &format!("\r\nCookie: C={value}\r\n\r\n")));
        let line = scene.line();
        if expected.len() < 4 {
            // Sent to the server that is down, as configured.
            assert!(line.starts_with("b/down ") && line.contains(" 503 SC"), "{line}");
            assert!(line.contains(&format!(" 503 SC{}", &expected[2..])), "{line}");
            continue;
        }
        assert!(line.contains(&format!(" 200 {expected} ")), "{settings}, {value}: {line}");
    }
}

#[test]
fn use_server_precedes_cookies_and_sets_none() {
    let (first, second) = (Origin::text("first"), Origin::text("second"));
    let servers = format!(
        "cookie C insert\n  server first 127.0.0.1:{} cookie F\n  server second 127.0.0.1:{} cookie S",
        first.port(),
        second.port()
    );
    let scene = Scene::start(
        "",
        "",
        &format!(
            "use-server %[req.hdr(x-server)] if {{ req.hdr(x-server) -m found }}\n  use-server second if {{ path /x }}\n  {servers}"
        ),
    );
    let with = |fields: &str| scene.talk(&LAST.replace("\r\n\r\n", &format!("\r\n{fields}\r\n")));
    let answer = with("Cookie: C=F\r\n");
    assert!(answer.ends_with("second") && !answer.contains("set-cookie"), "{answer}");
    assert!(scene.line().contains(" 200 --UN "));
    let answer = with("");
    assert!(answer.ends_with("second") && !answer.contains("set-cookie"), "{answer}");
    assert!(scene.line().contains(" 200 --NN "));
    // A name without a server ends the search, and the cookie decides.
    let answer = with("X-Server: none\r\nCookie: C=F\r\n");
    assert!(answer.ends_with("first"), "{answer}");
    assert!(scene.line().contains(" 200 --VN "));
}

#[test]
fn rdp_cookie_selects_its_server() {
    let server = |name: &'static str| {
        Origin::raw(move |mut stream| {
            let _ = stream.read(&mut [0; 4096]);
            let _ = stream.write_all(name.as_bytes());
        })
    };
    let (first, second) = (server("first"), server("second"));
    let port = free_port();
    let lines = |persist: &str| {
        format!(
            "global\n  stats socket runtime level admin\n{DEFAULTS}listen l\n  mode tcp\n  bind 127.0.0.1:{port}\n  balance first\n\
             {persist}  tcp-request inspect-delay 5s\n  tcp-request content accept if RDP_COOKIE\n\
             \x20 server a {}\n  server b {}\n",
            local(&first),
            local(&second)
        )
    };
    let weir = Weir::start(&lines("  persist rdp-cookie\n"), &[port]);
    // An RDP connection request (X.224): its header, and the cookie, which has the server's address and port as stored in memory.
    let request = |name: &str, server: u16| {
        let address = u32::from_le_bytes([127, 0, 0, 1]);
        let cookie = format!("Cookie: {name}={address}.{}.0000\r\n", server.swap_bytes());
        let mut bytes = vec![3, 0, 0, 11 + cookie.len() as u8, 6 + cookie.len() as u8, 0xe0, 0, 0, 0, 0, 0];
        bytes.extend_from_slice(cookie.as_bytes());
        bytes
    };
    let reached = |name: &str, server: u16| {
        let mut stream = TcpStream::connect(("127.0.0.1", port)).expect("a connection");
        stream.write_all(&request(name, server)).expect("it is taken");
        let mut answer = String::new();
        stream.read_to_string(&mut answer).expect("an answer and the end");
        answer
    };
    assert_eq!(reached("msts", second.port()), "second");
    assert_eq!(reached("msts", first.port()), "first");
    assert_eq!(reached("mstshash", second.port()), "first", "another cookie");
    assert_eq!(reached("msts", 1), "first", "no server of ours");
    weir.ask("set server l/b state maint");
    assert_eq!(reached("msts", second.port()), "first", "it is down");
    drop(weir);
    let _weir = Weir::start(&lines("  persist rdp-cookie(mstshash)\n"), &[port]);
    assert_eq!(reached("mstshash", second.port()), "second", "the name is the configuration's");
}
