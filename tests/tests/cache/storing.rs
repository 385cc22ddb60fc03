//! Caches: which responses are stored and for whom, hits in both HTTP versions, filters and rules, counters, logs, the runtime
//! socket, reloads. HAProxy's own scenarios (`cache/*`) are among the regression tests.

use std::sync::atomic::{AtomicUsize, Ordering};

use weir_tests::caching::{around, is_hit, ok, start};
use weir_tests::chunks::chunked;
use weir_tests::client::{Client, exchange, exchange_with, get};
use weir_tests::logs::Collector;
use weir_tests::multiplexed::{DATA, Frames};
use weir_tests::{Origin, Weir, eventually, free_port, recipe};

/// Starts an origin that answers every request with its number in a body, fresh for a minute, and with the fields after the `?` in
/// the path, separated by semicolons and with percent signs for spaces.
fn numbered() -> Origin {
    let count = AtomicUsize::new(0);
    Origin::start(move |head, _| {
        let number = count.fetch_add(1, Ordering::Relaxed) + 1;
        let path = head.split(' ').nth(1).unwrap_or_default();
        let fields: String = match path.split_once('?') {
            Some((_, said)) => {
                said.split(';').map(|field| format!("{}\r\n", field.replace('%', " "))).collect()
            }
            None => "Cache-Control: max-age=60\r\n".to_owned(),
        };
        let body = format!("number {number} of {path}");
        format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n{fields}\r\n{body}", body.len()).into_bytes()
    })
}

/// Returns bytes without repetitions.
fn content(length: usize) -> Vec<u8> {
    (0..length).map(|at| ((at * 7) ^ (at >> 8)) as u8).collect()
}

#[test]
fn a_second_request_does_not_reach_the_server() {
    let origin = numbered();
    let (weir, port) = around(&origin, "", "");
    let first = ok(get(port, "/a"));
    assert!(!is_hit(&first));
    assert_eq!(first.header("age"), None);
    let second = ok(get(port, "/a"));
    assert!(is_hit(&second));
    assert_eq!(second.body, first.body);
    assert!(second.header("age").is_some_and(|age| age.parse::<u32>().is_ok()), "{}", second.head);
    assert_eq!(second.header("content-length"), first.header("content-length"));
    assert!(!is_hit(&ok(get(port, "/b"))));
    assert_eq!(origin.requests(), 2);
    let shown = weir.ask("show cache");
    assert!(shown.contains(": c (shctx:0x"), "{shown}");
    assert_eq!(shown.matches("type:full").count(), 2, "{shown}");
    assert!(shown.contains("refcount:0, expire:"), "{shown}");
}

#[test]
fn head_and_conditional_requests_use_a_stored_get() {
    let origin = numbered();
    let (_weir, port) = around(&origin, "", "");
    let tagged = "/?ETag:%\"x\";Last-Modified:%Thu,%22%Oct%2020%16:51:12%GMT;Content-Type:%text/plain";
    let whole = ok(get(port, tagged));
    let mut client = Client::connect(port);
    client.send(format!("HEAD {tagged} HTTP/1.1\r\nHost: test\r\n\r\n"));
    assert!(
        client.read_head().to_ascii_lowercase().contains(&format!("content-length: {}", whole.body.len()))
    );
    let mut ask = |fields: &str| {
        client.send(format!("GET {tagged} HTTP/1.1\r\nHost: test\r\n{fields}\r\n"));
        client.response().expect("a response")
    };
    for fields in [
        "If-None-Match: \"y\", W/\"x\"\r\n",
        "If-None-Match: *\r\n",
        "If-Modified-Since: Thu, 22 Oct 2020 16:51:12 GMT\r\n",
    ] {
        let response = ask(fields);
        assert_eq!(response.status, 304, "{fields}");
        assert!(response.body.is_empty() && response.header("content-length").is_none(), "{}", response.head);
        assert_eq!(response.header("etag"), Some("\"x\""));
        assert_eq!(response.header("content-type"), None);
    }
    for fields in [
        "If-None-Match: \"y\"\r\nIf-Modified-Since: Thu, 22 Oct 2020 16:51:12 GMT\r\n",
        "If-Modified-Since: Thu, 22 Oct 2020 16:51:11 GMT\r\n",
        "If-Modified-Since: whenever\r\n",
    ] {
        let response = ask(fields);
        assert_eq!((response.status, &response.body), (200, &whole.body), "{fields}");
    }
    assert_eq!(origin.requests(), 1);
}

#[test]
fn private_responses_are_not_stored() {
    let origin = numbered();
    let (_weir, port) = around(&origin, "", "");
    let plain = ok(get(port, "/"));
    let authorized = ok(exchange_with(port, "/", "Authorization: Basic eDp5\r\n"));
    assert!(!is_hit(&authorized));
    assert_ne!(authorized.body, plain.body);
    // A response to an authorised request is not stored for others either.
    let again = ok(exchange_with(port, "/mine", "Authorization: Basic eDp5\r\n"));
    assert_ne!(ok(get(port, "/mine")).body, again.body);
    for path in [
        "/?Cache-Control:%private,%max-age=60",
        "/?Cache-Control:%no-store",
        "/?Cache-Control:%no-cache=\"set-cookie\",%max-age=60",
        "/?Set-Cookie:%a=b;Cache-Control:%max-age=60",
        "/?Vary:%cookie;Cache-Control:%max-age=60",
        "/?x-nothing:%said",
    ] {
        get(port, path);
        assert!(!is_hit(&ok(get(port, path))), "{path}");
    }
    let shared = "/?Set-Cookie:%a=b;Cache-Control:%public,%max-age=60";
    get(port, shared);
    assert!(is_hit(&ok(get(port, shared))));
}

#[test]
fn requests_with_bodies_and_other_hosts_miss() {
    let origin = numbered();
    let (_weir, port) = around(&origin, "", "");
    ok(get(port, "/"));
    let with_body = exchange(port, "GET / HTTP/1.1\r\nHost: test\r\nContent-Length: 1\r\n\r\nx");
    assert!(!is_hit(&ok(with_body)));
    assert!(!is_hit(&ok(exchange(port, "GET / HTTP/1.1\r\nHost: other\r\n\r\n"))));
    assert!(!is_hit(&ok(exchange(port, "GET / HTTP/1.0\r\nHost: other\r\n\r\n"))));
    assert!(is_hit(&ok(exchange(port, "GET http://OTHER/ HTTP/1.1\r\nHost: other\r\n\r\n"))));
    // A POST invalidates the stored response.
    ok(exchange(port, "POST / HTTP/1.1\r\nHost: other\r\nContent-Length: 0\r\n\r\n"));
    assert!(!is_hit(&ok(exchange(port, "GET / HTTP/1.1\r\nHost: other\r\n\r\n"))));
}

#[test]
fn bodies_of_every_length_are_stored_unchanged() {
    for is_chunked in [false, true] {
        for length in [0, 1, 2047, 2048, 2049, 16 * 1024, 16 * 1024 + 1, 1 << 20] {
            let body = content(length);
            let sent = body.clone();
            let origin = Origin::start(move |_, _| {
                let mut response = b"HTTP/1.1 200 OK\r\nCache-Control: max-age=60\r\n".to_vec();
                if is_chunked {
                    response.extend_from_slice(b"Transfer-Encoding: chunked\r\n\r\n");
                    response.extend_from_slice(&chunked(&sent, 5000, ""));
                } else {
                    response.extend_from_slice(format!("Content-Length: {}\r\n\r\n", sent.len()).as_bytes());
                    response.extend_from_slice(&sent);
                }
                response
            });
            let (_weir, port) = around(&origin, " max-object-size 2000000\n", "");
            ok(get(port, "/"));
            let mut client = Client::connect(port);
            for _ in 0..3 {
                client.send("GET / HTTP/1.1\r\nHost: test\r\n\r\n");
                let response = client.response().expect("a response");
                assert!(is_hit(&response), "{length} bytes, chunked: {is_chunked}");
                assert!(response.body == body, "{length} bytes, chunked: {is_chunked}");
            }
            assert_eq!(origin.requests(), 1);
        }
    }
}

#[test]
fn http2_streams_get_hits_too() {
    let body = content(100_000);
    let sent = body.clone();
    let origin = Origin::start(move |_, _| {
        let head =
            format!("HTTP/1.1 200 OK\r\nCache-Control: max-age=60\r\nContent-Length: {}\r\n\r\n", sent.len());
        [head.as_bytes(), &sent].concat()
    });
    let proxy = format!(
        "listen p\n bind PORT proto h2\n http-request cache-use c\n http-response cache-store c\n\
         server s 127.0.0.1:{}\n",
        origin.port()
    );
    let (_weir, port) = start(" max-object-size 200000\n", &proxy);
    let mut frames = Frames::connect(port);
    for stream in [1, 3, 5] {
        frames.send(8, 0, 0, &(1u32 << 20).to_be_bytes());
        frames.get(stream, "/");
        frames.send(8, 0, stream, &(1u32 << 20).to_be_bytes());
        let (fields, _) = frames.next_head();
        assert!(fields.iter().any(|field| field == ":status: 200"), "{fields:?}");
        assert_eq!(fields.iter().any(|field| field.starts_with("age")), stream > 1, "{fields:?}");
        let mut got = Vec::new();
        loop {
            let frame = frames.next_of(DATA);
            got.extend_from_slice(&frame.payload);
            if frame.flags & 1 != 0 {
                break;
            }
        }
        assert!(got == body);
    }
    assert_eq!(origin.requests(), 1);
}

#[test]
fn rules_after_cache_use_still_apply() {
    let origin = numbered();
    let (_weir, port) = around(
        &origin,
        "",
        " http-request deny if { req.hdr(x-no) -m found }\n http-request set-var(txn.bad) bool(true) if { req.hdr(x-bad) -m found }\n\
         http-response add-header x-rule yes\n\
         http-response deny status 418 if { var(txn.bad) -m bool } { res.cache_hit }\n",
    );
    ok(get(port, "/"));
    assert_eq!(ok(get(port, "/")).header("x-rule"), Some("yes"));
    assert_eq!(exchange_with(port, "/", "x-no: 1\r\n").map(|response| response.status), Some(403));
    let refused = exchange_with(port, "/", "x-bad: 1\r\n").expect("a response");
    assert_eq!(refused.status, 418, "{}", refused.head);
    assert!(!refused.text().contains("number"), "{}", refused.text());
    assert!(is_hit(&ok(get(port, "/"))));
}

#[test]
fn hits_are_compressed() {
    let text = "again and again ".repeat(500);
    let sent = text.clone();
    let origin = Origin::start(move |_, _| {
        format!(
            "HTTP/1.1 200 OK\r\nCache-Control: max-age=60\r\nContent-Type: text/plain\r\nContent-Length: {}\r\n\r\n{sent}",
            sent.len()
        )
        .into_bytes()
    });
    let (_weir, port) = around(&origin, "", " compression algo gzip\n compression type text/plain\n");
    for fresh in [false, true] {
        let coded = ok(exchange_with(port, "/", "Accept-Encoding: gzip\r\n"));
        assert_eq!(
            (is_hit(&coded), coded.header("content-encoding")),
            (fresh, Some("gzip")),
            "{}",
            coded.head
        );
        assert!(coded.body.len() < 1000);
        let plain = ok(get(port, "/"));
        assert!(is_hit(&plain));
        assert_eq!((plain.text(), plain.header("content-encoding")), (text.clone(), None));
    }
    assert_eq!(origin.requests(), 1);
}

#[test]
fn incomplete_responses_are_not_stored() {
    let cut = Origin::raw(|mut stream| {
        use std::io::{Read, Write};
        let _ = stream.read(&mut [0; 4096]);
        let _ = stream
            .write_all(b"HTTP/1.1 200 OK\r\nCache-Control: max-age=60\r\nContent-Length: 10\r\n\r\nhalf");
    });
    let (weir, port) = around(&cut, "", " retries 0\n");
    for _ in 0..2 {
        get(port, "/");
    }
    let shown = weir.ask("show cache");
    assert!(!shown.contains("type:"), "{shown}");
    assert!(shown.contains("available blocks:8192"), "{shown}");
}

#[test]
fn counters_and_logs_show_hits() {
    let origin = numbered();
    let port = free_port();
    let log = Collector::new();
    let weir = Weir::start(
        &format!(
            "global\n stats socket runtime level admin\n\
             defaults\n mode http\n timeout client 20s\n timeout connect 5s\n timeout server 20s\n log 127.0.0.1:{} local0\n\
             frontend f\n bind 127.0.0.1:{port}\n log-format \"%b/%s %ST %tsc %[res.cache_name]\"\n default_backend b\n\
             backend b\n http-request cache-use c\n http-response cache-store c\n server s 127.0.0.1:{}\n\
             cache c\n total-max-size 1\n",
            log.port(),
            origin.port()
        ),
        &[],
    );
    assert!(eventually(|| !weir.ask("show info").is_empty()));
    let mut client = Client::connect(port);
    for _ in 0..3 {
        client.send("GET / HTTP/1.1\r\nHost: h\r\n\r\n");
        assert!(client.response().is_some());
    }
    let line = || {
        let text = log.next();
        text.split_once("]: ").map_or(text.clone(), |(_, text)| text.trim_end().to_owned())
    };
    assert_eq!(line(), "b/s 200 ---- -");
    assert_eq!([line(), line()], ["b/<CACHE> 200 LR-- c", "b/<CACHE> 200 LR-- c"]);
    let counted = ["cache_lookups", "cache_hits", "cache_hint_hits"].map(|name| weir.stat("b,BACKEND", name));
    assert_eq!(counted, ["3", "2", "0"]);
}

#[test]
fn stored_responses_survive_an_in_place_reload() {
    let origin = numbered();
    let (weir, port) = around(&origin, "", "");
    let first = ok(get(port, "/"));
    let answer = weir.ask("reload");
    let again = ok(get(port, "/"));
    assert!(is_hit(&again), "{answer}");
    assert_eq!(again.body, first.body);
}

#[test]
fn bandwidth_limits_apply_to_hits() {
    let origin = numbered();
    let (_weir, port) = around(
        &origin,
        "",
        " filter cache c\n filter bwlim-out out default-limit 1m default-period 1s\n http-response set-bandwidth-limit out\n",
    );
    let first = ok(get(port, "/"));
    let second = ok(get(port, "/"));
    assert!(is_hit(&second));
    assert_eq!(first.body, second.body);
}

#[test]
fn ranges_are_served_from_complete_objects() {
    let origin = numbered();
    let (_weir, port) = around(&origin, " process-range on\n", "");
    let path = "/?Cache-Control:%max-age=60;ETag:%\"x\"";
    let whole = ok(get(port, path)).text();
    let last = whole.len() - 1;
    let ask = |fields: &str| {
        let response = exchange_with(port, path, fields).expect("a response");
        let range = response.header("content-range").map(str::to_owned);
        (response.status, response.text(), range)
    };
    let total = whole.len();
    assert_eq!(ask("Range: bytes=0-2\r\n"), (206, whole[..3].into(), Some(format!("bytes 0-2/{total}"))));
    assert_eq!(
        ask("Range: bytes=-1\r\n"),
        (206, whole[last..].into(), Some(format!("bytes {last}-{last}/{total}")))
    );
    assert_eq!(ask("Range: bytes=3-\r\nIf-Range: \"x\"\r\n").0, 206);
    assert_eq!(ask("Range: bytes=3-\r\nIf-Range: \"y\"\r\n"), (200, whole.clone(), None));
    assert_eq!(ask("Range: bytes=0-1,3-4\r\n"), (200, whole.clone(), None));
    assert_eq!(ask("Range: bytes=9999-\r\n"), (416, String::new(), Some(format!("bytes */{total}"))));
    assert_eq!(origin.requests(), 1);
}

#[test]
fn purged_objects_are_fetched_again() {
    let origin = numbered();
    let (weir, port) = around(
        &origin,
        " purge-tags cache-tag\n",
        " http-request cache-purge c key %[req.hdr(host)]%[path] if { method PURGE }\n\
         http-request cache-purge c prefix %[req.hdr(host)]%[path] if { method PURGEALL }\n\
         http-request cache-purge c tag %[req.hdr(x-tag)] if { method PURGETAG }\n\
         http-request return status 204 if { method PURGE PURGEALL PURGETAG }\n",
    );
    let paths = ["/a/1", "/a/2", "/b?Cache-Control:%max-age=60;Cache-Tag:%red,%blue"];
    let hits = || paths.map(|path| is_hit(&ok(get(port, path))));
    assert_eq!(hits(), [false; 3]);
    assert_eq!(hits(), [true; 3]);
    let purge = |request: &str| {
        let response = exchange(port, &format!("{request} HTTP/1.1\r\nHost: test\r\nx-tag: blue\r\n\r\n"));
        assert_eq!(response.map(|response| response.status), Some(204));
    };
    purge("PURGE /a/1");
    assert_eq!(hits(), [false, true, true]);
    purge("PURGEALL /a");
    assert_eq!(hits(), [false, false, true]);
    purge("PURGETAG /");
    assert_eq!(hits(), [true, true, false]);
    assert_eq!(weir.ask("clear cache c key test/a/1").trim(), "1 objects removed");
    assert_eq!(hits(), [false, true, true]);
    assert_eq!(weir.ask("clear cache c tag red").trim(), "1 objects removed");
    assert_eq!(weir.ask("clear cache c prefix test/a").trim(), "2 objects removed");
    assert_eq!(hits(), [false; 3]);
    assert_eq!(weir.ask("clear cache c").trim(), "3 objects removed");
    assert_eq!(weir.ask("clear cache d").trim(), "No such cache");
    assert!(weir.ask("clear cache c key").contains("Required arguments"));
}

#[test]
fn recipe_caches_pages_and_allows_purging() {
    let origin = numbered();
    let port = free_port();
    let servers = [("192.0.2.10:8080", origin.port()), ("192.0.2.11:8080", origin.port())];
    let text = recipe("caching.cfg", port, &servers).replace("/var/cache/weir", "files");
    let _weir = Weir::start(&text, &[port]);
    let first = ok(get(port, "/page"));
    let again = ok(get(port, "/page"));
    assert_eq!((again.header("x-cache"), &again.body), (Some("hit"), &first.body));
    let range = exchange_with(port, "/page", "Range: bytes=0-5\r\n").expect("a response");
    assert_eq!((range.status, range.text().as_str()), (206, "number"));
    let purged = exchange(port, "PURGE /page HTTP/1.1\r\nHost: test\r\n\r\n").expect("a response");
    assert_eq!(purged.status, 204);
    assert_eq!(ok(get(port, "/page")).header("x-cache"), None);
}
