//! Options of a proxy that change, refuse or mark messages: `checkcache`, `forwarded`, trailers, authentication of proxied
//! requests, header field names.

use std::io::{Read, Write};

use weir_tests::client::Client;
use weir_tests::listen::{DEFAULTS, ask, collector, listen, local, logged};
use weir_tests::log_scene::Scene;
use weir_tests::{Origin, Weir, client, free_port};

#[test]
fn checkcache_refuses_cacheable_cookies() {
    let origin = Origin::start(|head, _| {
        let control = if head.contains("/safe") { "private" } else { "max-age=60" };
        format!(
            "HTTP/1.1 200 OK\r\nSet-Cookie: sid=1\r\nCache-Control: {control}\r\nContent-Length: 2\r\n\r\nhi"
        )
        .into_bytes()
    });
    let (socket, log) = collector();
    let (_weir, port) = listen("", &format!("{log}  option httplog\n  option checkcache\n"), &local(&origin));
    assert_eq!(client::get(port, "/safe").expect("a response").status, 200);
    let refused = client::get(port, "/risky").expect("a response");
    assert_eq!(refused.status, 502);
    assert!(!refused.head.contains("sid=1"), "{refused:?}");
    logged(&socket, "Blocking cacheable cookie in response from instance l, server s.");
    let line = logged(&socket, "/risky");
    assert!(line.contains(" 502 ") && line.contains(" PH-- "), "{line}");
}

#[test]
fn trailers_are_dropped_on_request() {
    let origin = Origin::raw(|mut stream| {
        let mut bytes = Vec::new();
        let mut part = [0; 4096];
        while !bytes.ends_with(b"0\r\n\r\n") && !bytes.ends_with(b"ret: x\r\n\r\n") {
            match stream.read(&mut part) {
                Ok(n) if n > 0 => bytes.extend_from_slice(&part[..n]),
                _ => return,
            }
        }
        let kept = u8::from(bytes.windows(7).any(|part| part == b"Secret:"));
        let _ = stream.write_all(
            format!(
                "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\n{kept}\r\n0\r\nFoo: bar\r\n\r\n"
            )
            .as_bytes(),
        );
    });
    let request = "POST / HTTP/1.1\r\nHost: h\r\nConnection: close\r\nTransfer-Encoding: chunked\r\n\r\n\
                   3\r\nabc\r\n0\r\nSecret: x\r\n\r\n";
    for (drop, wanted) in [(false, ("1", true)), (true, ("0", false))] {
        let port = free_port();
        let (of_request, of_response) = match drop {
            true => ("  option http-drop-request-trailers\n", "  option http-drop-response-trailers\n"),
            false => ("", ""),
        };
        let _weir = Weir::start(
            &format!(
                "{DEFAULTS}frontend f\n  bind 127.0.0.1:{port}\n{of_response}  default_backend b\nbackend b\n{of_request}  \
                 server s {}\n",
                local(&origin)
            ),
            &[port],
        );
        let all = String::from_utf8_lossy(&Client::connect(port).send(request).read_to_end()).into_owned();
        assert_eq!(
            (all.contains(&format!("1\r\n{}\r\n0\r\n", wanted.0)), all.contains("Foo: bar")),
            (true, wanted.1),
            "{all}"
        );
    }
}

#[test]
fn proxied_request_gets_407() {
    let origin = Origin::text("hello");
    let rules = "  option http-use-proxy-header\n  http-request auth realm x\n";
    let (_weir, port) = listen("", rules, &local(&origin));
    assert_eq!(ask(port, "GET /x HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n").status, 401);
    let proxied = ask(port, "GET http://h/x HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n");
    assert_eq!(proxied.status, 407);
    assert!(proxied.header("proxy-authenticate").is_some(), "{proxied:?}");
}

#[test]
fn forwarded_header_only_has_valid_names_and_addresses() {
    let (origin, port) = (Origin::echo(), free_port());
    let cases = [
        ("for-expr str(abc)", "for=_abc"),
        ("for-expr str(_)", "for=__"),
        ("for-expr str([::1])", "for=\"[::1]\""),
        ("for-expr str(\"a b\")", "for=unknown"),
        ("for-expr str(1.2.3.4:80)", "for=unknown"),
        ("by-expr src by_port-expr str(123456)", "by=\"127.0.0.1:_123456\""),
        ("by-expr src by_port-expr str(unknown)", "by=\"127.0.0.1:_unknown\""),
        ("by-expr str(\"a b\") by_port-expr str(x/y)", "by=\"unknown\""),
        ("host-expr str(a.b:81)", "host=\"a.b:81\""),
        ("host-expr str(_a)", "host=\"\""),
        ("host-expr req.hdr(none)", "host=\"\""),
        ("host", "host=\"\""),
    ];
    let backends: String = (0..cases.len())
        .map(|number| {
            let (option, _) = cases[number];
            format!(
                "backend b{number}\n  option forwarded {option}\n  server s 127.0.0.1:{}\n",
                origin.port()
            )
        })
        .collect();
    let text = format!(
        "defaults\n  mode http\n  timeout client 20s\n  timeout connect 10s\n  timeout server 20s\n\
         frontend f\n  bind 127.0.0.1:{port}\n  use_backend b%[path,field(2,/)]\n{backends}"
    );
    let _weir = Weir::start(&text, &[port]);
    for (number, (option, expected)) in cases.iter().enumerate() {
        let answer = client::exchange(port, &format!("GET /{number} HTTP/1.1\r\nHost: x_y\r\n\r\n"));
        let seen = answer.expect("a response").text();
        let wanted = format!("forwarded: {expected}");
        assert!(seen.lines().any(|line| line == wanted), "{option}: {seen}");
    }
}

#[test]
fn option_forwarded_appends_to_an_existing_line() {
    let (origin, port) = (Origin::echo(), free_port());
    let text = format!(
        "defaults\n  mode http\n  timeout client 20s\n  timeout connect 10s\n  timeout server 20s\n\
         listen l\n  bind 127.0.0.1:{port}\n  option forwarded for\n  server s 127.0.0.1:{}\n",
        origin.port()
    );
    let _weir = Weir::start(&text, &[port]);
    for (sent, expected) in [
        ("", &["for=127.0.0.1"][..]),
        ("Forwarded: for=a\r\n", &["for=a,for=127.0.0.1"]),
        ("Forwarded: for=a, for=b\r\n", &["for=a, for=b,for=127.0.0.1"]),
        ("Forwarded: for=a\r\nX: y\r\nForwarded: for=b\r\n", &["for=a", "for=b,for=127.0.0.1"]),
        ("Forwarded:\r\n", &["", "for=127.0.0.1"]),
    ] {
        let answer = client::exchange(port, &format!("GET / HTTP/1.1\r\nHost: h\r\n{sent}\r\n"));
        let seen = answer.expect("a response").text();
        let fields = seen.lines().filter_map(|line| line.split_once(':'));
        let hops: Vec<&str> = fields
            .filter(|(name, _)| name.eq_ignore_ascii_case("forwarded"))
            .map(|(_, value)| value.trim())
            .collect();
        assert_eq!(hops, expected, "{sent}: {seen}");
    }
}

#[test]
fn both_lengths_keep_the_connection_if_allowed() {
    let ports = [free_port(), free_port()];
    let run = |port: u16, global: &str| {
        let text = format!(
            "global\n  {global}\ndefaults\n  mode http\n  timeout client 20s\nfrontend f\n  bind 127.0.0.1:{port}\n  \
             http-request wait-for-body time 5s\n  http-request return status 200 content-type text/plain lf-string %[req.body]\n"
        );
        Weir::start(&text, &[port])
    };
    let _runs = [run(ports[0], ""), run(ports[1], "h1-do-not-close-on-insecure-transfer-encoding")];
    let request = "POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n";
    for (port, stays) in ports.into_iter().zip([false, true]) {
        let mut client = Client::connect(port);
        let first = client.send(request).response().expect("an answer");
        assert_eq!(
            (first.text().as_str(), first.header("connection")),
            ("hello", (!stays).then_some("close"))
        );
        let second = if stays { client.send(request).response() } else { None };
        assert_eq!(second.map(|answer| answer.text()), stays.then(|| "hello".to_owned()));
        assert!(stays || client.read_to_end().is_empty());
    }
}

#[test]
fn unusual_field_names_are_refused_with_the_option() {
    let odd = "GET /x HTTP/1.1\r\nHost: h\r\nX_Y: 1\r\nConnection: close\r\n\r\n";
    let reject = "option http-restrict-req-hdr-names reject";
    let scene = Scene::start("", reject, "server s 127.0.0.1:1");
    assert!(scene.talk(odd).starts_with("HTTP/1.1 403 "));
    assert_eq!(scene.line(), "f/<NOSRV> 0/-1/-1/-1 403 PR-- 0 GET /x HTTP/1.1");
    assert_eq!(scene.counts("f,FRONTEND", &["dreq"]), ["dreq=1"]);
    assert_eq!(scene.counts("b,BACKEND", &["stot"]), ["stot=0"]);
    let scene = Scene::start("", "", &format!("{reject}\n  server s 127.0.0.1:1"));
    assert!(scene.talk(odd).starts_with("HTTP/1.1 403 "));
    assert_eq!(scene.line(), "b/<NOSRV> 0/-1/-1/-1 403 PR-- 0 GET /x HTTP/1.1");
    assert_eq!(scene.counts("b,BACKEND", &["dreq"]), ["dreq=1"]);
    let delete = "option http-restrict-req-hdr-names delete\n  http-request return status 418 if { req.hdr(x_y) -m found }\n  \
                  http-request return status 200";
    let scene = Scene::start("", delete, "");
    assert!(scene.talk(odd).starts_with("HTTP/1.1 200 "), "rules do not see it either");
}
