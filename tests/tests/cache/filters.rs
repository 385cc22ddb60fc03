//! Filters: bytes delayed by bandwidth limits or forwarded in random portions arrive complete, and no sooner than the limits allow.
//! Only lower bounds of times are asserted, far below the usual times.

use std::time::{Duration, Instant};

use weir_tests::chunks::{chunked, unchunked};
use weir_tests::client::Client;
use weir_tests::{Origin, Weir, eventually, free_port};

fn start(mode: &str, rules: &str, origin: &Origin) -> (Weir, u16) {
    let port = free_port();
    let text = format!(
        "global\n nbthread 2\n stats socket runtime level admin\n\
         defaults\n mode {mode}\n timeout client 20s\n timeout connect 5s\n timeout server 20s\n\
         listen l\n bind 127.0.0.1:{port}\n{rules} server s 127.0.0.1:{}\n",
        origin.port()
    );
    (Weir::start(&text, &[port]), port)
}

/// Returns bytes in which no part is equal to another.
fn content(length: usize) -> Vec<u8> {
    (0..length).map(|at| (at / 7 + at) as u8).collect()
}

/// Answers with `length` bytes, and the number of received bytes in `x-got`; chunked if the path says so.
fn origin(length: usize) -> Origin {
    Origin::start(move |head, body| {
        let (intact, body_length) = (body == content(body.len()), body.len());
        let bytes = content(length);
        let mut answer = format!("HTTP/1.1 200 OK\r\nX-Got: {body_length} {intact}\r\n").into_bytes();
        if head.starts_with("GET /chunked") {
            answer.extend_from_slice(b"Transfer-Encoding: chunked\r\n\r\n");
            answer.extend_from_slice(&chunked(&bytes, 1000, ""));
        } else {
            answer.extend_from_slice(format!("Content-Length: {length}\r\n\r\n").as_bytes());
            answer.extend_from_slice(&bytes);
        }
        answer
    })
}

fn get(client: &mut Client, path: &str) -> (Vec<u8>, Duration) {
    let began = Instant::now();
    let response =
        client.send(format!("GET {path} HTTP/1.1\r\nHost: a\r\n\r\n")).response().expect("an answer");
    assert_eq!(response.status, 200);
    let chunked = response.header("transfer-encoding").is_some();
    let body = if chunked { unchunked(&response.body).0 } else { response.body };
    (body, began.elapsed())
}

#[test]
fn responses_respect_the_limit_and_arrive_complete() {
    let origin = origin(5000);
    let rules = " filter bwlim-out slow default-limit 1000 default-period 100ms\n \
                 http-request set-bandwidth-limit slow if { path_beg /slow } || { path_beg /chunked }\n \
                 http-response set-bandwidth-limit slow limit int(2500) period int(200) if { status 200 } { src 127.0.0.1 } { capture.req.uri /other }\n";
    let (_weir, port) = start("http", rules, &origin);
    let mut client = Client::connect(port);
    for (path, least) in
        [("/fast", 0), ("/slow", 400), ("/chunked", 400), ("/other", 200), ("/slow?again", 400)]
    {
        let (body, time) = get(&mut client, path);
        assert!(body == content(5000), "{path}");
        assert!(time >= Duration::from_millis(least), "{path}: {time:?}");
    }
}

#[test]
fn timeouts_do_not_cut_limited_transfers() {
    let origin = origin(60);
    let rules = " timeout client 300ms\n timeout server 300ms\n \
                 filter bwlim-out slow default-limit 20 default-period 400ms min-size 20\n \
                 http-request set-bandwidth-limit slow\n";
    let (_weir, port) = start("http", rules, &origin);
    let (body, time) = get(&mut Client::connect(port), "/");
    assert!(body == content(60));
    assert!(time >= Duration::from_millis(800), "{time:?}");
}

#[test]
fn requests_are_limited_too() {
    let origin = origin(1);
    let rules = " filter bwlim-in slow default-limit 1k default-period 100ms min-size 500\n \
                 http-request set-bandwidth-limit slow limit req.hdr(x-limit)\n";
    let (_weir, port) = start("http", rules, &origin);
    let mut client = Client::connect(port);
    for (limit, least) in [("1000000", 0), ("1000", 400), ("nonsense", 350)] {
        let began = Instant::now();
        let mut request =
            format!("POST / HTTP/1.1\r\nHost: a\r\nX-Limit: {limit}\r\nContent-Length: 5000\r\n\r\n")
                .into_bytes();
        request.extend_from_slice(&content(5000));
        let response = client.send(request).response().expect("an answer");
        assert_eq!(response.header("x-got"), Some("5000 true"), "{limit}");
        assert!(began.elapsed() >= Duration::from_millis(least), "{limit}: {:?}", began.elapsed());
    }
}

#[test]
fn tcp_streams_are_limited_in_both_directions() {
    let origin = origin(5000);
    let rules = " filter bwlim-in up default-limit 10k default-period 1s\n \
                 filter bwlim-out down default-limit 1000 default-period 100ms\n \
                 option splice-response\n \
                 tcp-request content set-bandwidth-limit up\n \
                 tcp-response content set-bandwidth-limit down\n";
    let (_weir, port) = start("tcp", rules, &origin);
    let mut client = Client::connect(port);
    let (body, time) = get(&mut client, "/");
    assert!(body == content(5000));
    assert!(time >= Duration::from_millis(400), "{time:?}");
}

/// Returns the events of a trace without times, stream names and payload: the filter, the bytes still to come on both channels, and
/// the event.
fn told(messages: &str) -> Vec<String> {
    let events = messages.lines().filter_map(|line| {
        let (who, rest) = line.split_once("] [strm ")?;
        let (_, who) = who.split_once('[')?;
        let (masks, what) = rest.split_once("] ")?;
        let (_, masks) = masks.split_once(") ")?;
        let words: Vec<&str> = what.split_whitespace().filter(|word| !matches!(*word, "-" | ":")).collect();
        Some(format!("{} {masks} {}", who.trim(), words.join(" ")))
    });
    events.filter(|event| !event.contains("payload") && !event.contains("headers")).collect()
}

#[test]
fn trace_reports_steps_and_pending_bytes() {
    let origin = origin(5);
    let port = free_port();
    let text = format!(
        "defaults\n mode http\n timeout client 20s\n timeout connect 5s\n timeout server 20s\n\
         frontend fe\n bind 127.0.0.1:{port}\n filter trace name F\n tcp-request inspect-delay 5s\n \
         tcp-request content accept if TRUE\n option http-buffer-request\n default_backend be\n\
         backend be\n filter trace name B\n use-server s if TRUE\n tcp-response inspect-delay 5s\n \
         tcp-response content accept if TRUE\n server s 127.0.0.1:{}\n",
        origin.port()
    );
    let weir = Weir::start(&text, &[port]);
    let request = b"POST /a HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\n\r\n\0".to_vec();
    assert!(Client::connect(port).send(request).response().is_some());
    assert!(weir.says("trace_detach             : filter-type=frontend"));
    let messages = weir.messages();
    let mut lines = told(&messages);
    // The two fields of the response's head.
    lines.retain(|line| {
        !line.ends_with(": 5") && !line.contains("x-got") && !line.ends_with(": a") && !line.ends_with(": 1")
    });
    let expected = "\
        F/fe 0x00060037 0x00000000 trace_attach filter-type=frontend\n\
        F/fe 0x00060037 0x00000000 trace_stream_start\n\
        F/fe 0x00060037 0x00000000 trace_chn_start_analyze channel=REQUEST mode=HTTP (frontend)\n\
        F/fe 0x00060036 0x00000000 trace_chn_analyze channel=REQUEST mode=HTTP (frontend) analyzer=AN_REQ_INSPECT_FE step=PRE\n\
        F/fe 0x00060034 0x00000000 trace_chn_analyze channel=REQUEST mode=HTTP (frontend) analyzer=AN_REQ_INSPECT_FE step=POST\n\
        F/fe 0x00060034 0x00000000 trace_chn_analyze channel=REQUEST mode=HTTP (frontend) analyzer=AN_REQ_WAIT_HTTP step=PRE\n\
        F/fe 0x00060038 0x00000000 trace_chn_analyze channel=REQUEST mode=HTTP (frontend) analyzer=AN_REQ_WAIT_HTTP step=POST\n\
        F/fe 0x00060038 0x00000000 trace_chn_analyze channel=REQUEST mode=HTTP (frontend) analyzer=AN_REQ_HTTP_BODY step=PRE\n\
        F/fe 0x00060030 0x00000000 trace_chn_analyze channel=REQUEST mode=HTTP (frontend) analyzer=AN_REQ_HTTP_BODY step=POST\n\
        F/fe 0x00060030 0x00000000 trace_chn_analyze channel=REQUEST mode=HTTP (frontend) analyzer=AN_REQ_HTTP_PROCESS_FE step=PRE\n\
        F/fe 0x00060020 0x00000000 trace_chn_analyze channel=REQUEST mode=HTTP (frontend) analyzer=AN_REQ_HTTP_PROCESS_FE step=POST\n\
        F/fe 0x00060020 0x00000000 trace_chn_analyze channel=REQUEST mode=HTTP (frontend) analyzer=AN_REQ_SWITCHING_RULES step=PRE\n\
        B/be 0x00060000 0x00000000 trace_attach filter-type=backend\n\
        F/fe 0x00060000 0x00000000 trace_stream_set_backend backend=be\n\
        B/be 0x00060000 0x00000000 trace_stream_set_backend backend=be\n\
        F/fe 0x00060d40 0x20000000 trace_chn_analyze channel=REQUEST mode=HTTP (backend) analyzer=AN_REQ_SWITCHING_RULES step=POST\n\
        B/be 0x00060d40 0x20000000 trace_chn_start_analyze channel=REQUEST mode=HTTP (backend)\n";
    assert_eq!(lines[..17].join("\n") + "\n", expected);
    let steps = |who: &str| -> Vec<String> {
        let own = lines.iter().filter_map(|line| line.strip_prefix(who));
        own.filter_map(|line| Some(line.split_once("analyzer=")?.1.to_owned())).collect()
    };
    let both = |steps: &[&str]| -> Vec<String> {
        steps.iter().flat_map(|step| [format!("{step} step=PRE"), format!("{step} step=POST")]).collect()
    };
    let of_backend = both(&[
        "AN_REQ_HTTP_PROCESS_BE",
        "AN_REQ_SRV_RULES",
        "AN_REQ_HTTP_INNER",
        "AN_RES_INSPECT",
        "AN_RES_WAIT_HTTP",
        "AN_RES_HTTP_PROCESS_FE/BE",
    ]);
    assert_eq!(steps("B/be "), of_backend);
    assert!(steps("F/fe ").ends_with(&of_backend));
    let expected = "\
        F/fe 0x00040000 0x24000000 trace_chn_end_analyze channel=REQUEST mode=HTTP (backend)\n\
        B/be 0x00040000 0x24000000 trace_chn_end_analyze channel=REQUEST mode=HTTP (backend)\n\
        F/fe 0x00040000 0x20000000 trace_chn_end_analyze channel=RESPONSE mode=HTTP (backend)\n\
        B/be 0x00040000 0x20000000 trace_chn_end_analyze channel=RESPONSE mode=HTTP (backend)\n\
        B/be 0x00000000 0x00000000 trace_detach filter-type=backend\n\
        F/fe 0x00000000 0x00000000 trace_stream_stop\n\
        F/fe 0x00000000 0x00000000 trace_detach filter-type=frontend";
    assert_eq!(lines[lines.len() - 7..].join("\n"), expected);
    for line in [
        "[F/fe                ] filter initialized [quiet=false - fwd random=false - hexdump=false - max fwd=0]",
        "[B/be                ] filter initialized for thread tid 0",
    ] {
        assert!(messages.contains(line), "{line}: {messages}");
    }
}

#[test]
fn content_rules_run_before_body_wait_and_monitor_uri() {
    let origin = origin(5);
    let rules = " option http-buffer-request\n monitor-uri /up\n tcp-request content reject if METH_POST\n \
                 tcp-request content reject if { path /up }\n";
    let (_weir, port) = start("http", rules, &origin);
    // The rest of the body never arrives.
    let request = b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 10\r\n\r\n".to_vec();
    assert!(Client::connect(port).send(request).response().is_none());
    let request = b"GET /up HTTP/1.1\r\nHost: a\r\n\r\n".to_vec();
    assert!(Client::connect(port).send(request).response().is_none());
}

#[test]
fn filter_omitted_from_the_sequence_does_nothing() {
    let origin = origin(5000);
    let rules = " filter bwlim-out slow default-limit 1 default-period 1m\n filter trace name SEEN\n \
                 filter-sequence response trace\n filter-sequence request bwlim-out\n \
                 http-request set-bandwidth-limit slow\n";
    let (weir, port) = start("http", rules, &origin);
    assert!(get(&mut Client::connect(port), "/").0 == content(5000));
    let end = "trace_http_end           : channel=RESPONSE   - mode=HTTP  (backend)";
    assert!(weir.says(end), "{}", weir.messages());
    assert!(!weir.messages().contains("channel=REQUEST"), "{}", weir.messages());
}

#[test]
fn traced_bytes_in_random_portions_arrive_complete() {
    let origin = origin(200_000);
    let rules = " filter trace name BEFORE random-forwarding quiet\n \
                 filter trace name AFTER random-forwarding max-fwd 900 hexdump\n option splice-auto\n";
    let (weir, port) = start("http", rules, &origin);
    let mut client = Client::connect(port);
    for path in ["/", "/chunked"] {
        assert!(get(&mut client, path).0 == content(200_000), "{path}");
    }
    let mut request = b"POST /up HTTP/1.1\r\nHost: a\r\nContent-Length: 100000\r\n\r\n".to_vec();
    request.extend_from_slice(&content(100_000));
    let response = client.send(request).response().expect("an answer");
    assert_eq!(response.header("x-got"), Some("100000 true"));
    assert!(eventually(|| weir
        .messages()
        .matches("trace_detach             : filter-type=frontend")
        .count()
        == 3));
    let messages = weir.messages();
    for told in [
        " trace_attach             : filter-type=frontend",
        " trace_stream_start ",
        " trace_http_headers       : channel=REQUEST    - mode=HTTP  (backend)\tGET / HTTP/1.1",
        " trace_http_headers       : channel=RESPONSE   - mode=HTTP  (backend)\tHTTP/1.1 200 OK",
        " trace_http_payload       : channel=REQUEST    - mode=HTTP  (backend) - offset=0 - len=",
        "] \tcontent-length: 100000",
        "\t0x000000: 00 ",
        "[AFTER/",
    ] {
        assert!(messages.contains(told), "{told}");
    }
    assert!(!messages.contains("BEFORE"));
    let portions = messages
        .lines()
        .filter_map(|line| line.split(" len=").nth(1)?.split(' ').next()?.parse::<usize>().ok());
    assert!(portions.clone().all(|length| length <= 900) && portions.count() > 500);
}
