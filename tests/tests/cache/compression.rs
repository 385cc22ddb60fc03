//! Compression of bodies: every keyword, the choice of the coding and the resulting head, exceptions, requests, filters, counters
//! and limits. The expected results were observed with HAProxy 3.5.

use std::sync::{Arc, Mutex};

use weir_tests::client::Client;
use weir_tests::compression::{accepting, ask, content, decoded, origin, payload, start, start_with};
use weir_tests::{Origin, Weir, eventually, free_port, recipe};

#[test]
fn client_preference_selects_the_coding() {
    let origin = origin(500);
    let be = |algorithms: &str| {
        start(&format!(
            "listen l\n bind PORT\n compression algo {algorithms}\n compression type text/plain\n server s 127.0.0.1:{}\n",
            origin.port()
        ))
    };
    let (_weir, port) = be("gzip deflate");
    for (accepted, expected) in [
        ("gzip, deflate", Some("gzip")),
        ("deflate, gzip", Some("deflate")),
        ("gzip;q=0.5, deflate", Some("deflate")),
        ("deflate;q=0.5,gzip;q=0.5", Some("deflate")),
        ("*;q=0, gzip;q=0.750, deflate;q=0.500", Some("gzip")),
        ("*;q=0, gzip;q=0.500, deflate;q=0.750", Some("deflate")),
        ("*", Some("deflate")),
        ("gzip;q=0", None),
        ("gzip;q=0.0", None),
        ("gzip; q=0.001", Some("gzip")),
        ("gzip ;q=1", Some("gzip")),
        ("gzip;q=abc", Some("gzip")),
        ("gzip;x=1;q=0", None),
        ("GZIP", Some("gzip")),
        ("x-gzip", None),
        ("br, zstd", None),
        ("identity", None),
    ] {
        assert_eq!(accepting(port, "", accepted).header("content-encoding"), expected, "{accepted}");
    }
    assert_eq!(ask(port, "", "").header("content-encoding"), None);
    assert_eq!(ask(port, "", "").header("vary"), None);
    let twice = ask(port, "", "Accept-Encoding: br\r\nAccept-Encoding: gzip\r\n");
    assert_eq!(twice.header("content-encoding"), Some("gzip"));
    // If the configuration names codings that HAProxy does not have, its order decides among equals.
    let (_weir, port) = be("zstd br gzip");
    for (accepted, expected) in [
        ("gzip, deflate, br, zstd", Some("zstd")),
        ("gzip, deflate, br", Some("br")),
        ("gzip, deflate", Some("gzip")),
        ("gzip, br;q=0.9, zstd;q=0.8", Some("gzip")),
        ("*", Some("zstd")),
    ] {
        assert_eq!(accepting(port, "", accepted).header("content-encoding"), expected, "{accepted}");
    }
}

#[test]
fn broken_browsers_get_uncompressed_bodies() {
    let origin = origin(500);
    let (_weir, port) = start(&format!(
        "listen l\n bind PORT\n compression algo gzip\n server s 127.0.0.1:{}\n",
        origin.port()
    ));
    for (agent, expected) in [
        ("Mozilla/4", None),
        ("Mozilla/4.0 (compatible; MSIE 5.0)", None),
        ("Mozilla/4.0 (compatible; MSIE 6.0; Windows NT 5.1)", None),
        ("Mozilla/4.0 (compatible; MSIE 6.0; Windows NT 5.1; SV1)", Some("gzip")),
        ("Mozilla/4.0 (compatible; MSIE 7.0; Windows NT 6.0)", Some("gzip")),
        ("Mozilla/5.0", Some("gzip")),
    ] {
        let response = ask(port, "", &format!("Accept-Encoding: gzip\r\nUser-Agent: {agent}\r\n"));
        assert_eq!(response.header("content-encoding"), expected, "{agent}");
    }
}

#[test]
fn identity_changes_only_the_framing() {
    let origin = origin(500);
    let (weir, port) = start(&format!(
        "frontend f\n bind PORT\n default_backend b\nbackend b\n compression algo identity\n server s 127.0.0.1:{}\n",
        origin.port()
    ));
    let response = ask(port, "ETag:%\"x\"", "");
    assert_eq!(response.header("content-encoding"), None);
    assert_eq!(response.header("transfer-encoding"), Some("chunked"));
    assert_eq!(response.header("etag"), Some("W/\"x\""));
    assert!(payload(&response) == content(500));
    assert!(eventually(|| weir.stat("b,BACKEND", "comp_byp") == "500"));
    assert_eq!(weir.stat("b,BACKEND", "comp_in"), "0");
    assert_eq!(weir.stat("b,BACKEND", "comp_rsp"), "1");
}

#[test]
fn clients_may_prefer_identity_to_a_coding() {
    let origin = origin(500);
    let (_weir, port) = start(&format!(
        "frontend f\n bind PORT\n default_backend b\nbackend b\n compression algo gzip identity\n server s 127.0.0.1:{}\n",
        origin.port()
    ));
    for (accepted, coding) in [
        ("identity;q=1, gzip;q=0.5", None),
        ("identity;q=0.5, gzip", Some("gzip")),
        ("gzip, identity", Some("gzip")),
    ] {
        assert_eq!(accepting(port, "", accepted).header("content-encoding"), coding, "{accepted}");
    }
}

#[test]
fn unchangeable_responses_are_not_compressed() {
    let origin = origin(500);
    let (_weir, port) = start(&format!(
        "listen l\n bind PORT\n compression algo gzip\n compression type text/plain text/css\n server s 127.0.0.1:{}\n",
        origin.port()
    ));
    for (path, expected) in [
        ("status=201", Some("gzip")),
        ("status=203", Some("gzip")),
        ("status=206", None),
        ("status=400", None),
        ("status=500", None),
        ("old", None),
        ("untyped", None),
        ("untyped&Content-Type:%text/html", None),
        ("untyped&Content-Type:%TEXT/CSS;%charset=x", Some("gzip")),
        ("untyped&Content-Type:%multipart/mixed", None),
        ("Content-Encoding:%identity", Some("identity")),
        ("Cache-Control:%no-transform", None),
        ("Cache-Control:%max-age=1,%No-Transform", None),
        ("Cache-Control:%max-age=1&Cache-Control:%no-transform", None),
        ("ETag:%\"invalid", None),
        ("ETag:%W/invalid", None),
        ("ETag:%\"one\"&ETag:%\"two\"", None),
        ("ETag:%\"one\"", Some("gzip")),
    ] {
        let response = accepting(port, path, "gzip");
        assert_eq!(response.header("content-encoding"), expected, "{path}");
        if expected != Some("gzip") {
            assert_eq!(response.header("content-length"), Some("500"), "{path}");
            assert!(response.body == content(500), "{path}");
        }
    }
    for status in ["204", "304"] {
        let response = accepting(port, &format!("status={status}&bodiless&ETag:%\"a\""), "gzip");
        assert_eq!((response.header("content-encoding"), response.header("etag")), (None, Some("\"a\"")));
    }
    let head =
        Client::connect(port).send("HEAD / HTTP/1.1\r\nHost: a\r\nAccept-Encoding: gzip\r\n\r\n").read_head();
    assert!(head.to_ascii_lowercase().contains("content-length: 500"), "{head}");
    let old =
        Client::connect(port).send("GET / HTTP/1.0\r\nAccept-Encoding: gzip\r\n\r\n").response().unwrap();
    assert!(old.header("content-encoding").is_none() && old.body == content(500));
}

#[test]
fn vary_names_accept_encoding() {
    let origin = origin(500);
    let (_weir, port) = start(&format!(
        "listen l\n bind PORT\n compression algo gzip\n server s 127.0.0.1:{}\n",
        origin.port()
    ));
    for (path, expected) in [
        ("Vary:%Other", "Other,Accept-Encoding"),
        ("Vary:%accept-encoding", "accept-encoding"),
        ("Vary:%Other,Accept-Encoding", "Other,Accept-Encoding"),
        ("Vary:%*", "*,Accept-Encoding"),
        ("Vary:%", "Accept-Encoding"),
    ] {
        assert_eq!(accepting(port, path, "gzip").header("vary"), Some(expected), "{path}");
    }
    let two = Client::connect(port)
        .send("GET /Vary:%A&Vary:%B HTTP/1.1\r\nHost: a\r\nAccept-Encoding: gzip\r\n\r\n")
        .read_head()
        .to_ascii_lowercase();
    assert!(two.contains("vary: a\r\n") && two.contains("vary: b,accept-encoding\r\n"), "{two}");
    assert_eq!(accepting(port, "ETag:%W/\"w\"", "gzip").header("etag"), Some("W/\"w\""));
}

#[test]
fn short_bodies_may_be_left_alone() {
    let origin = origin(900);
    let (_weir, port) = start(&format!(
        "frontend f\n bind PORT\n compression minsize-res 10\n default_backend b\n\
         backend b\n compression algo gzip\n compression minsize-res 901\n server s 127.0.0.1:{}\n",
        origin.port()
    ));
    assert_eq!(accepting(port, "", "gzip").header("content-encoding"), None);
    // A body of unknown length does not count as short.
    assert_eq!(accepting(port, "chunked", "gzip").header("content-encoding"), Some("gzip"));
}

#[test]
fn backend_settings_precede_frontend_and_extend_defaults() {
    let origin = origin(500);
    let (_weir, port) = start(&format!(
        " compression algo deflate\n compression type text/html\n\
         frontend f\n bind PORT\n compression algo br\n default_backend b\n\
         backend b\n compression algo gzip\n compression type text/plain\n compression offload\n server s 127.0.0.1:{}\n",
        origin.port()
    ));
    assert_eq!(accepting(port, "", "gzip").header("content-encoding"), Some("gzip"));
    assert_eq!(accepting(port, "", "deflate").header("content-encoding"), Some("deflate"));
    assert_eq!(accepting(port, "", "br").header("content-encoding"), None);
    let html = accepting(port, "untyped&Content-Type:%text/html", "gzip");
    assert_eq!(html.header("content-encoding"), Some("gzip"));
}

/// A head and a body.
type Message = (String, Vec<u8>);

/// Answers with the request's fields about encodings.
fn mirror(fields: &'static [&'static str]) -> (Origin, Arc<Mutex<Vec<Message>>>) {
    let seen: Arc<Mutex<Vec<Message>>> = Arc::default();
    let kept = seen.clone();
    let origin = Origin::start(move |head, body| {
        let lines: Vec<&str> = head
            .lines()
            .filter(|line| fields.iter().any(|field| line.to_ascii_lowercase().starts_with(field)))
            .collect();
        kept.lock().expect("the list").push((lines.join("|").to_ascii_lowercase(), body.to_vec()));
        b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n".to_vec()
    });
    (origin, seen)
}

#[test]
fn offload_removes_accept_encoding() {
    let (origin, seen) = mirror(&["accept-encoding"]);
    let (_weir, port) = start(&format!(
        "frontend f\n bind PORT\n default_backend plain if {{ path /plain }}\n use_backend plain if {{ path /plain }}\n default_backend b\n\
         backend b\n compression algo gzip\n compression offload\n server s 127.0.0.1:{0}\n\
         backend plain\n compression algo gzip\n server s 127.0.0.1:{0}\n",
        origin.port()
    ).replace(" default_backend plain if { path /plain }\n", ""));
    for (path, accepted, expected) in
        [("", "gzip, br", ""), ("", "br", "accept-encoding: br"), ("plain", "gzip", "accept-encoding: gzip")]
    {
        accepting(port, path, accepted);
        let (told, _) = seen.lock().unwrap().pop().expect("a request");
        assert_eq!(told, expected, "{path} {accepted}");
    }
}

#[test]
fn requests_are_compressed_if_configured() {
    let (origin, seen) = mirror(&["content-", "transfer-encoding", "vary"]);
    let (_weir, port) = start(&format!(
        "listen l\n bind PORT\n compression direction request\n compression algo-req gzip\n compression minsize-req 50\n compression type-req text/plain\n server s 127.0.0.1:{}\n",
        origin.port()
    ));
    let body = content(70_000);
    let send = |fields: &str, body: &[u8]| {
        let head = format!("POST / HTTP/1.1\r\nHost: a\r\n{fields}Content-Length: {}\r\n\r\n", body.len());
        Client::connect(port).send([head.as_bytes(), body].concat()).response().expect("an answer");
        seen.lock().unwrap().pop().expect("a request")
    };
    let (told, got) = send("Content-Type: text/plain\r\n", &body);
    assert!(told.contains("content-encoding: gzip") && told.contains("transfer-encoding: chunked"), "{told}");
    assert!(!told.contains("content-length") && !told.contains("vary"), "{told}");
    assert!(decoded("gzip", &got) == body);
    for (fields, length) in [
        ("Content-Type: text/plain\r\n", 49),
        ("Content-Type: text/html\r\n", 100),
        ("", 100),
        ("Content-Type: multipart/form-data\r\n", 100),
        ("Content-Type: text/plain\r\nContent-Encoding: foo\r\n", 100),
        ("Content-Type: text/plain\r\nCache-Control: no-transform\r\n", 100),
    ] {
        let (told, got) = send(fields, &body[..length]);
        assert!(told.contains(&format!("content-length: {length}")), "{fields:?}: {told}");
        assert!(got == body[..length], "{fields:?}");
    }
    let chunked = "POST / HTTP/1.1\r\nHost: a\r\nContent-Type: text/plain\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n6\r\n world\r\n0\r\n\r\n";
    Client::connect(port).send(chunked).response().expect("an answer");
    let (told, got) = seen.lock().unwrap().pop().expect("a request");
    assert!(told.contains("content-encoding: gzip"), "{told}");
    assert_eq!(decoded("gzip", &got), b"hello world");
}

#[test]
fn retried_request_is_compressed_again() {
    let seen: Arc<Mutex<Vec<Vec<u8>>>> = Arc::default();
    let kept = seen.clone();
    let origin = Origin::start(move |_, body| {
        let mut seen = kept.lock().expect("the list");
        seen.push(body.to_vec());
        let status = if seen.len() == 1 { 503 } else { 200 };
        format!("HTTP/1.1 {status} X\r\nContent-Length: 0\r\n\r\n").into_bytes()
    });
    let (_weir, port) = start(&format!(
        "listen l\n bind PORT\n filter comp-req\n compression algo-req gzip\n retry-on 503\n retries 2\n server s 127.0.0.1:{}\n",
        origin.port()
    ));
    let response = Client::connect(port)
        .send("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\nhello")
        .response()
        .expect("an answer");
    assert_eq!(response.status, 200);
    let seen = seen.lock().unwrap();
    assert_eq!(seen.len(), 2);
    assert!(seen.iter().all(|body| decoded("gzip", body) == b"hello"));
}

#[test]
fn filters_select_a_direction_and_sequences_omit_them() {
    let origin = origin(500);
    for (lines, expected) in [
        ("compression algo gzip", true),
        ("filter compression\n compression algo gzip", true),
        ("filter comp-res\n compression algo gzip", true),
        ("filter comp-req\n compression algo gzip", false),
        ("filter comp-req\n filter comp-res\n compression algo gzip", true),
        ("compression direction request\n compression algo gzip", false),
        ("compression direction response\n compression algo gzip", true),
        ("filter compression\n filter-sequence response comp-req\n compression algo gzip", false),
        ("filter-sequence response comp-res\n compression algo gzip", true),
        ("filter trace quiet\n filter comp-res\n compression algo gzip", true),
        ("filter comp-res", false),
    ] {
        let (_weir, port) =
            start(&format!("listen l\n bind PORT\n {lines}\n server s 127.0.0.1:{}\n", origin.port()));
        let is_coded = accepting(port, "", "gzip").header("content-encoding").is_some();
        assert_eq!(is_coded, expected, "{lines}");
    }
}

#[test]
fn samples_and_counters_report_compression() {
    let origin = origin(30_000);
    let (weir, port) = start(&format!(
        "frontend f\n bind PORT\n default_backend b\nbackend b\n compression algo gzip\n compression type text/plain\n \
         http-response set-header x-comp %[res.comp],%[res.comp_algo]\n server s 127.0.0.1:{}\n",
        origin.port()
    ));
    let response = accepting(port, "", "gzip");
    assert_eq!(response.header("x-comp"), Some("1,gzip"));
    assert_eq!(ask(port, "", "").header("x-comp"), Some("0,"));
    assert_eq!(accepting(port, "status=404", "gzip").header("content-encoding"), None);
    let given = payload(&response).len().to_string();
    for (proxy, side) in [("f", "FRONTEND"), ("b", "BACKEND")] {
        assert!(eventually(|| weir.stat(&format!("{proxy},{side}"), "comp_rsp") == "1"));
        assert_eq!(weir.stat(&format!("{proxy},{side}"), "comp_in"), "30000");
        assert_eq!(weir.stat(&format!("{proxy},{side}"), "comp_out"), given);
        assert_eq!(weir.stat(&format!("{proxy},{side}"), "comp_byp"), "0");
    }
    let info = weir.ask("show info");
    let used = info.lines().find_map(|line| line.strip_prefix("ZlibMemUsage: ")).expect("a line");
    assert!(used.parse::<u64>().expect("a number") > 0, "{info}");
}

#[test]
fn process_limits_disable_compression() {
    let origin = origin(30_000);
    let listen =
        format!("listen l\n bind PORT\n compression algo br\n server s 127.0.0.1:{}\n", origin.port());
    // This is less than one br encoder needs.
    let (weir, port) = start_with(" maxzlibmem 0\n maxcompcpuusage 100\n", &listen);
    assert_eq!(accepting(port, "", "br").header("content-encoding"), Some("br"));
    drop(weir);
    let (weir, port) = start_with(" maxcomprate 1\n", &listen);
    let info = weir.ask("show info");
    assert!(info.contains("CompressBpsRateLim: 1024\n"), "{info}");
    // The first encoder leaves no room for a second.
    let mut refused = false;
    for _ in 0..200 {
        let response = accepting(port, "", "br");
        let is_coded = response.header("content-encoding").is_some();
        let plain = if is_coded { decoded("br", &payload(&response)) } else { response.body };
        assert!(plain == content(30_000));
        refused |= !is_coded;
        if refused {
            break;
        }
    }
    assert!(refused);
    assert!(eventually(|| weir.stat("l,FRONTEND", "comp_byp") != "0"));
    weir.ask("set rate-limit http-compression global 0");
    assert_eq!(accepting(port, "", "br").header("content-encoding"), Some("br"));
    drop(weir);
    let (_weir, port) = start_with(" maxcompcpuusage 0\n", &listen);
    let response = accepting(port, "", "br");
    assert!(
        response.header("content-encoding").is_none()
            || decoded("br", &payload(&response)) == content(30_000)
    );
}

#[test]
fn recipe_compresses_text_for_each_client() {
    let origin = origin(5000);
    let port = free_port();
    let text = recipe("compression.cfg", port, &[("192.0.2.10:80", origin.port())]);
    let _weir = Weir::start(&text, &[port]);
    for (accepted, expected) in [
        ("gzip, deflate, br, zstd", Some("zstd")),
        ("gzip, deflate, br", Some("br")),
        ("gzip, deflate", Some("gzip")),
        ("deflate", None),
    ] {
        let response = accepting(port, "", accepted);
        assert_eq!(response.header("content-encoding"), expected, "{accepted}");
        assert!(decoded(expected.unwrap_or_default(), &payload(&response)) == content(5000), "{accepted}");
    }
    let picture = accepting(port, "untyped&Content-Type:%image/png", "zstd");
    assert_eq!(picture.header("content-encoding"), None);
}
