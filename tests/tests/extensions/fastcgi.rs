//! FastCGI servers: the parameters applications get, the handling of their output, and comparisons with HAProxy.

use std::sync::{Arc, Mutex, mpsc};
use std::time::Duration;

use weir_tests::client::{Client, exchange, get};
use weir_tests::fastcgi::{
    Asked, Records, application, configuration, echo, end, kind, output, record, response, start,
};
use weir_tests::log_scene::Scene;
use weir_tests::logs::Collector;
use weir_tests::versions::curl;
use weir_tests::{Haproxy, Origin, Weir, eventually, free_port};

/// Starts the program in front of the application, with additional lines in its section.
fn scene(server: &Origin, app: &str) -> Scene {
    let backend = format!(
        "use-fcgi-app app\n  server s 127.0.0.1:{} proto fcgi\nfcgi-app app\n  docroot /srv\n  {app}",
        server.port()
    );
    Scene::start("", "", &backend)
}

#[test]
fn requests_of_both_versions_reach_the_application() {
    let server = application(echo);
    let [plain, h2] = [0; 2].map(|_| free_port());
    let text = configuration(plain, server.port(), "", "")
        .replace("default_backend", &format!("bind 127.0.0.1:{h2} proto h2\n default_backend"));
    let _weir = Weir::start(&text, &[plain, h2]);
    let large = "x".repeat(300_000);
    let file = weir_tests::scratch("fastcgi").file("large");
    std::fs::write(&file, &large).expect("a file");
    let sent = format!("@{}", file.display());
    for (port, version) in [(plain, "--http1.1"), (h2, "--http2-prior-knowledge")] {
        let url = format!("http://127.0.0.1:{port}/a.php?b");
        assert_eq!(curl(&[version, &url]), "/srv/a.php|", "{version}");
        assert_eq!(curl(&[version, "-d", "abc", &url]), "/srv/a.php|abc", "{version}");
        assert_eq!(
            curl(&[version, "--data-binary", &sent, &url]),
            format!("/srv/a.php|{large}"),
            "{version}"
        );
        let head = curl(&[version, "-i", &url]).to_ascii_lowercase();
        assert!(head.lines().next().is_some_and(|line| line.contains(" 201")), "{head}");
        assert!(head.contains("\r\ncontent-length: 11\r\n") && head.contains("\r\ndate: "), "{head}");
    }
}

#[test]
fn chunked_body_is_buffered_to_send_its_length() {
    let server = application(|asked| {
        let text = format!("X: 1\r\n\r\n{}:{}", asked.get("CONTENT_LENGTH"), asked.body.len());
        response(asked.id, text.as_bytes())
    });
    let (_weir, port) = start(&server, "", "");
    let mut client = Client::connect(port);
    client.send("POST /a HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n4\r\nbody\r\n");
    client.send("3\r\nend\r\n0\r\n\r\n");
    assert_eq!(client.response().expect("a response").text(), "7:7");
    // A body that exceeds any buffer is not waited for.
    let mut client = Client::connect(port);
    client.send("POST /a HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n");
    for _ in 0..64 {
        client.send(format!("400\r\n{}\r\n", "x".repeat(1024)));
    }
    assert_eq!(client.response().expect("a response").status, 400);
}

#[test]
fn rules_set_parameters_and_pass_fields() {
    let server = application(|asked| {
        let value = |name: &str| asked.get(name).to_owned();
        let names =
            ["A", "LOW", "HTTP_AUTHORIZATION", "HTTP_PROXY", "REMOTE_USER", "AUTH_TYPE", "SCRIPT_FILENAME"];
        response(asked.id, format!("\r\n{}", names.map(value).join("|")).as_bytes())
    });
    let app = " acl special path_beg /special\n set-param A 1\n set-param A 2 if special\n \
               set-param low %[req.hdr(x-a)]\n set-param A %[req.hdr(none)]\n pass-header Authorization if special\n \
               set-param DOCUMENT_ROOT /other if special\n index i.php\n";
    let (_weir, port) = start(&server, "", app);
    let request = |path: &str| {
        let text = format!(
            "GET {path} HTTP/1.1\r\nHost: h\r\nX-A: x\r\nProxy: evil\r\nAuthorization: Basic bWU6cHc=\r\n\
             Connection: close\r\n\r\n"
        );
        exchange(port, &text).expect("a response").text()
    };
    assert_eq!(request("/a"), "1|x|||me|Basic|/srv/a");
    assert_eq!(request("/special/"), "2|x|Basic bWU6cHc=||me|Basic|/other/special/i.php");
}

#[test]
fn expressions_see_the_application_settings() {
    let server = application(|asked| {
        let value = |name: &str| asked.get(name).to_owned();
        response(
            asked.id,
            format!("\r\n{}", ["A", "HTTP_X_INDEX", "HTTP_X_ROOT"].map(value).join("|")).as_bytes(),
        )
    });
    let back = " http-request set-header x-root %[fcgi.docroot] if { path /set }\n http-request set-header x-index %[fcgi.index] if { path /set }\n";
    let (_weir, port) = start(&server, back, " index i.php\n set-param A %[fcgi.docroot]/%[fcgi.index]\n");
    assert_eq!(get(port, "/set").expect("a response").text(), "/srv/i.php|i.php|/srv");
    assert_eq!(get(port, "/other").expect("a response").text(), "/srv/i.php||");
}

/// Returns the parameters that a program sends for some requests: for each request sorted, without those that differ between runs.
fn told(run: impl FnOnce(u16, u16) -> Box<dyn std::any::Any>) -> Vec<Vec<String>> {
    let asked = Arc::new(Mutex::new(Vec::new()));
    let server = {
        let asked = asked.clone();
        application(move |request: &Asked| {
            let differs = |name: &str| matches!(name, "REMOTE_PORT" | "SERVER_PORT" | "SERVER_SOFTWARE");
            let own = request.parameters.iter().filter(|(name, _)| !differs(name));
            let mut own: Vec<String> = own.map(|(name, value)| format!("{name}={value}")).collect();
            own.sort();
            asked.lock().expect("nobody panics with it").push(own);
            response(request.id, b"X: 1\r\n\r\nhello")
        })
    };
    let port = free_port();
    let _running = run(port, server.port());
    for request in REQUESTS {
        let request = request.replace("\n", "\r\n").replace("PORT", "80");
        let answer = exchange(port, &request).expect("a response");
        asked.lock().expect("nobody panics with it").push(vec![answer.status.to_string()]);
    }
    let all = asked.lock().expect("nobody panics with it");
    all.clone()
}

const REQUESTS: &[&str] = &[
    "GET /a.php/foo%20x? HTTP/1.1\nHost: h:8\nX-A: 1\nX-A: 2\nx-b_c: 3\nConnection: close\n\n",
    "POST /x/ HTTP/1.1\nHost: h\nContent-Type: a/b\nContent-Length: 5\nCookie: a=b\nCookie: c=d\nProxy: evil\n\
     TE: trailers\nTrailer: x\nKeep-Alive: 5\nAuthorization: Basic bWU6cHc=\nConnection: close\n\nhello",
    "GET /x/a.php/b%2fc?x=1&y=%20 HTTP/1.0\nAuthorization: Digest x\n\n",
    "DELETE //a//b.php/../c HTTP/1.1\nHost: H\nProxy-Authorization: Basic YTpi\nConnection: close\n\n",
    "GET http://abc.de/x.php/a?b HTTP/1.1\nHost: abc.de\nConnection: close\n\n",
    "POST /c HTTP/1.1\nHost: h\nTransfer-Encoding: chunked\nConnection: close\n\n4\nbody\n0\n\n",
    "GET /%zz HTTP/1.1\nHost: h\nConnection: close\n\n",
    "GET /a%00.php HTTP/1.1\nHost: h\nConnection: close\n\n",
    "OPTIONS * HTTP/1.1\nHost: h\nConnection: close\n\n",
    "GET /noscript/x HTTP/1.1\nHost: h\nAccept:\nConnection: close\n\n",
];

#[test]
fn parameters_match_haproxy() {
    let app = " index index.php\n path-info ^(/.+\\.php)(/.*)?$\n acl x path_beg /x\n set-param FOO bar if x\n \
               set-param SERVER_NAME own if x\n pass-header Authorization if x\n";
    let ours = told(|port, server| Box::new(Weir::start(&configuration(port, server, "", app), &[port])));
    let theirs = told(|port, server| Box::new(Haproxy::start(&configuration(port, server, "", app), port)));
    assert_eq!(ours.len(), theirs.len());
    for (ours, theirs) in ours.iter().zip(&theirs) {
        assert_eq!(ours, theirs);
    }
}

/// Returns the parameters and the body of a program's first check.
fn checked(run: impl FnOnce(u16, u16) -> Box<dyn std::any::Any>) -> (Vec<(String, String)>, Vec<u8>) {
    let (tell, told) = mpsc::channel();
    let server = application(move |request: &Asked| {
        let differs = |name: &str| matches!(name, "SERVER_PORT" | "SERVER_SOFTWARE");
        let mut own = request.parameters.clone();
        own.retain(|(name, _)| !differs(name));
        own.sort();
        // The receiver may be gone.
        let _ = tell.send((own, request.body.clone()));
        response(request.id, b"X: 1\r\n\r\nhello")
    });
    let port = free_port();
    let _running = run(port, server.port());
    told.recv_timeout(Duration::from_secs(20)).expect("a check")
}

#[test]
fn check_parameters_match_haproxy() {
    let app = " index index.php\n path-info ^(/.+\\.php)(/.*)?$\n";
    for back in [
        " option httpchk\n",
        " option httpchk\n http-check send meth POST uri /ping.php/a?x=1 ver HTTP/1.1 hdr Host h hdr X-A b body hello\n",
    ] {
        let text = |port, server| {
            configuration(port, server, back, app).replace("proto fcgi", "proto fcgi check inter 1s")
        };
        let ours = checked(|port, server| Box::new(Weir::start(&text(port, server), &[port])));
        let theirs = checked(|port, server| Box::new(Haproxy::start(&text(port, server), port)));
        assert_eq!(ours, theirs, "{back}");
    }
}

#[test]
fn check_without_an_application_fails_at_once() {
    let server = Origin::text("hello");
    let backend = format!(
        "option httpchk\n  server s 127.0.0.1:{} check inter 10s fastinter 10s fall 1 check-proto fcgi",
        server.port()
    );
    let scene = Scene::start("", "", &backend);
    assert!(eventually(|| scene.weir.stat("b,s", "check_status") == "SOCKERR"));
}

#[test]
fn server_is_down_while_checks_get_errors() {
    let status = Arc::new(Mutex::new("200"));
    let server = {
        let status = status.clone();
        application(move |request: &Asked| {
            let status = *status.lock().expect("nobody panics with it");
            response(request.id, format!("Status: {status}\r\n\r\n{}", request.get("SCRIPT_NAME")).as_bytes())
        })
    };
    let backend = format!(
        "use-fcgi-app app\n  option httpchk GET /ping.php\n  http-check expect rstring ^/ping.php$\n  \
         http-check expect status 200\n  \
         server s 127.0.0.1:{} proto fcgi check inter 20ms rise 1 fall 1\nfcgi-app app\n  docroot /srv",
        server.port()
    );
    let scene = Scene::start("", "", &backend);
    let is = |state: &str, check: &str| {
        eventually(|| {
            scene.weir.stat("b,s", "status").starts_with(state)
                && scene.weir.stat("b,s", "check_status").ends_with(check)
        })
    };
    assert!(is("UP", "L7OK"));
    *status.lock().expect("nobody panics with it") = "503";
    assert!(is("DOWN", "L7STS"));
    *status.lock().expect("nobody panics with it") = "200";
    assert!(is("UP", "L7OK"));
}

/// Returns a response's status, its body, the relevant fields, and the termination state in the log.
fn answered(method: &str, scene: &Scene) -> (u16, String, Option<String>, String) {
    let request = format!("{method} /a HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n");
    let answer = exchange(scene.port, &request).expect("a response");
    let state = scene.line().split(' ').nth(3).unwrap_or_default().to_owned();
    (answer.status, answer.text(), answer.header("location").map(str::to_owned), state)
}

#[test]
fn output_fields_determine_the_response() {
    let text = Arc::new(Mutex::new(Vec::new()));
    let server = {
        let text = text.clone();
        application(move |asked| response(asked.id, &text.lock().expect("nobody panics with it")))
    };
    let scene = scene(&server, "");
    let whole = |status: u16, body: &str| (status, body.to_owned(), None, "----".to_owned());
    for (output, method, expected) in [
        ("X: 1\r\n\r\nbody", "GET", whole(200, "body")),
        ("\r\nbody", "GET", whole(200, "body")),
        ("Status: 404 Not There\r\n\r\nbody", "GET", whole(404, "body")),
        ("Status: 404\n\nbody", "GET", whole(404, "body")),
        (
            "Location: /x\r\n\r\nbody",
            "GET",
            (302, "body".to_owned(), Some("/x".to_owned()), "----".to_owned()),
        ),
        (
            "Location: /x\r\nStatus: 200 OK\r\n\r\nbody",
            "GET",
            (200, "body".to_owned(), Some("/x".to_owned()), "----".to_owned()),
        ),
        ("Content-Length: 4\r\n\r\nbody", "GET", whole(200, "body")),
        ("Transfer-Encoding: chunked\r\n\r\n4\r\nbody\r\n0\r\n\r\n", "GET", whole(200, "body")),
        ("Status: 204 N\r\n\r\n", "GET", whole(204, "")),
        ("Status: 304 N\r\nContent-Length: 5\r\n\r\n", "GET", whole(304, "")),
        // HAProxy refuses a body that servers must remove according to RFC 3875 (4.3.3).
        ("X: 1\r\nContent-Length: 4\r\n\r\nbody", "HEAD", whole(200, "")),
    ] {
        *text.lock().expect("nobody panics with it") = output.as_bytes().to_vec();
        assert_eq!(answered(method, &scene), expected, "{method} {output:?}");
    }
}

/// Requests to misbehaving applications: the steps of the answer, the status and the termination state.
#[test]
fn misbehaving_applications_give_haproxys_response() {
    type Answer = fn(u16) -> Vec<u8>;
    let cases: &[(&str, Answer, u16, &str)] = &[
        ("no head", |id| response(id, b"bad\r\n\r\nhello"), 502, "PH--"),
        ("a status line", |id| response(id, b"HTTP/1.1 200 OK\r\n\r\nx"), 502, "PH--"),
        ("invalid status", |id| response(id, b"Status: abc\r\n\r\nx"), 502, "PH--"),
        ("an upgrade", |id| response(id, b"Status: 101 Up\r\n\r\nx"), 502, "PH--"),
        ("another coding", |id| response(id, b"Transfer-Encoding: gzip\r\n\r\nx"), 502, "PH--"),
        ("two lengths", |id| response(id, b"Content-Length: 1\r\nContent-Length: 2\r\n\r\nx"), 502, "PH--"),
        ("too long a body", |id| response(id, b"Content-Length: 2\r\n\r\nhello"), 502, "PH--"),
        ("bad chunks", |id| response(id, b"Transfer-Encoding: chunked\r\n\r\nzzzz"), 502, "PH--"),
        ("too long a head", |id| response(id, &[&b"X: "[..], &[b'x'; 40_000]].concat()), 502, "PH--"),
        ("no output", |id| end(id, 0), 502, "SH--"),
        ("an unknown role", |id| end(id, 3), 502, "SH--"),
        ("a cut head", |id| [output(id, b"X: 1\r\n"), end(id, 0)].concat(), 502, "SH--"),
        ("the end of the connection", |_| Vec::new(), 502, "SH--"),
        ("a cut end", |id| record(kind::END_REQUEST, id, b"ab"), 502, "SH--"),
        ("output of no request", |_| output(0, b"X: 1\r\n\r\n"), 502, "SH--"),
        (
            "output of another request",
            |id| [output(id + 6, b"X: 1\r\n\r\n"), end(id, 0)].concat(),
            502,
            "SH--",
        ),
        ("too short a body", |id| response(id, b"Content-Length: 20\r\n\r\nhello"), 200, "SD--"),
        ("cut chunks", |id| response(id, b"Transfer-Encoding: chunked\r\n\r\n4\r\nbo"), 200, "SD--"),
        (
            "an unknown record",
            |id| [record(99, id, b"z"), response(id, b"X: 1\r\n\r\n")].concat(),
            200,
            "----",
        ),
    ];
    let answer: Arc<Mutex<Answer>> = Arc::new(Mutex::new(cases[0].1));
    let server = {
        let answer = answer.clone();
        application(move |asked| answer.lock().expect("nobody panics with it")(asked.id))
    };
    let scene = scene(&server, "");
    for (what, own, status, state) in cases {
        *answer.lock().expect("nobody panics with it") = *own;
        let answer = answered("GET", &scene);
        assert_eq!((answer.0, answer.3.as_str()), (*status, *state), "{what}");
    }
    assert_eq!(scene.counts("b,s", &["scur", "qcur"]), ["scur=0", "qcur=0"]);
}

#[test]
fn hanging_application_times_out() {
    let (send, receive) = mpsc::channel();
    let send = Mutex::new(send);
    let server = Origin::raw(move |stream| {
        let mut records = Records::new(stream);
        while records.next_record().is_some() {}
        let _ = send.lock().expect("nobody panics with it").send(());
    });
    let backend = format!(
        "timeout server 200ms\n  use-fcgi-app app\n  server s 127.0.0.1:{} proto fcgi\nfcgi-app app\n  docroot /srv",
        server.port()
    );
    let scene = Scene::start("", "", &backend);
    let answer = answered("GET", &scene);
    assert_eq!((answer.0, answer.3.as_str()), (504, "sH--"));
    // The client has left, so the application's connection is closed long before its own timeout.
    assert_eq!(receive.recv_timeout(weir_tests::PATIENCE / 2), Ok(()));
    assert_eq!(scene.counts("b,s", &["scur"]), ["scur=0"]);
}

#[test]
fn stderr_is_logged_one_line_per_record() {
    let server = application(|asked| {
        [record(kind::STDERR, asked.id, b"first\nsecond\n"), response(asked.id, b"X: 1\r\n\r\n")].concat()
    });
    let log = Collector::new();
    let (_weir, front) = start(&server, "", &format!(" log-stderr 127.0.0.1:{} local3\n", log.port()));
    assert_eq!(get(front, "/a").expect("a response").status, 200);
    let line = log.next();
    // local3, err.
    assert!(line.starts_with("<155>") && line.contains(" app["), "{line}");
    assert!(line.trim_end().ends_with("]: first.second."), "{line}");
}

#[test]
fn mismatched_sections_and_servers_are_refused() {
    let whole = "backend b\n mode http\n use-fcgi-app app\n server s 127.0.0.1:9 proto fcgi\nfcgi-app app\n docroot /srv\n";
    let directory = weir_tests::scratch("fastcgi");
    let file = directory.join("haproxy.cfg");
    let alerts = |text: &str| {
        std::fs::write(&file, text).expect("a file");
        let verdict = weir_tests::check(&file, &directory);
        verdict.alerts().iter().map(|&alert| alert.to_owned()).collect::<Vec<_>>()
    };
    for (from, to, expected) in [
        ("", "", None),
        (" docroot /srv", "", Some("fcgi-app 'app': no docroot configured.")),
        (" use-fcgi-app app\n", "", Some("proxy 'b': FCGI server 's' has no FCGI app configured.")),
        (" proto fcgi", "", Some("proxy 'b': FCGI app configured but no FCGI server found.")),
        ("use-fcgi-app app", "use-fcgi-app other", Some("proxy 'b' : fcgi-app 'other' not found.")),
        ("mode http", "mode tcp", Some("FCGI application cannot be used in non-HTTP mode.")),
        ("docroot /srv", "docroot /srv\n path-info (", Some("'path-info'")),
        ("docroot /srv", "docroot /srv\n option max-reqs 0", Some("max-reqs")),
        ("docroot /srv", "docroot /srv\n set-param A", Some("'set-param' expects")),
        ("docroot /srv", "docroot /srv\n pass-header A if nobody", Some("nobody")),
        ("mode http", "mode http\n filter trace", Some("require an explicit filter declaration")),
        ("mode http", "mode http\n filter trace\n filter fcgi-app app", None),
        (" proto fcgi", " proto fcgi check\n option httpchk", None),
        (" proto fcgi", " proto fcgi check", None),
    ] {
        let alerts = alerts(&whole.replacen(from, to, 1));
        match expected {
            None => assert!(alerts.is_empty(), "{from} {to}: {alerts:?}"),
            Some(expected) => {
                assert!(alerts.iter().any(|alert| alert.contains(expected)), "{from} {to}: {alerts:?}");
            }
        }
    }
}
