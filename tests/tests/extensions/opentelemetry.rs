//! Traces (`opentelemetry` sections, `trace-to`): the spans of requests, the trace context on the way, and sampling.

use weir_tests::client::{Client, exchange, get};
use weir_tests::multiplexed::{END_STREAM, Frames};
use weir_tests::otlp::{OtlpCollector, SeenSpan};
use weir_tests::{Origin, Weir, eventually, free_port};

const PARENT: &str = "traceparent: 00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
const TRACE: &str = "4bf92f3577b34da6a3ce929d0e0e4736";

const SERVER: i32 = 2;
const CLIENT: i32 = 3;

/// Starts the program with a section of these lines, a frontend of these lines and a backend of these lines.
fn start(collector: &OtlpCollector, section: &str, front: &str, back: &str) -> (Weir, u16) {
    let (port, to) = (free_port(), collector.port());
    let configuration = format!(
        "global\n stats socket runtime level admin\n\
         opentelemetry c\n endpoint http://127.0.0.1:{to}\n interval 50ms\n {section}\n\
         defaults\n mode http\n timeout connect 5s\n timeout client 20s\n timeout server 20s\n retries 2\n option redispatch 1\n\
         frontend f\n bind 127.0.0.1:{port}\n trace-to c\n {front}\n default_backend b\n\
         backend b\n {back}\n"
    );
    (Weir::start(&configuration, &[port]), port)
}

fn server(origin: &Origin) -> String {
    format!("server s 127.0.0.1:{}", origin.port())
}

fn only(spans: &[SeenSpan], kind: i32) -> Vec<&SeenSpan> {
    spans.iter().filter(|span| span.kind == kind).collect()
}

/// Sends a request with these header lines, and returns the head that the server received.
fn passed_on(port: u16, fields: &str) -> String {
    let request = format!("GET /x HTTP/1.1\r\nHost: h\r\n{fields}\r\n");
    exchange(port, &request).expect("a response").text()
}

fn header<'a>(head: &'a str, name: &str) -> Option<&'a str> {
    let mut values = head.lines().filter_map(|line| line.split_once(": ")).filter(|(own, _)| *own == name);
    let found = values.next().map(|(_, value)| value);
    assert!(values.next().is_none(), "several headers `{name}`: {head}");
    found
}

#[test]
fn a_request_has_a_server_span_and_a_client_span_with_the_stable_attributes() {
    let (collector, origin) = (OtlpCollector::http(), Origin::text("ok"));
    let section = "resource service.name edge\n attribute http.route %[var(txn.route)]\n attribute user %[var(txn.user)]";
    let front = "http-request set-var(txn.route) str(/items/{id})";
    let (_weir, port) = start(&collector, section, front, &server(&origin));
    let request = "GET /items/7?q=1 HTTP/1.1\r\nHost: shop.test:81\r\nUser-Agent: me\r\n\r\n";
    assert_eq!(exchange(port, request).map(|response| response.status), Some(200));
    let spans = collector.await_spans(3);
    let ([outer], [inner]) = (&only(&spans, SERVER)[..], &only(&spans, CLIENT)[..]) else {
        panic!("{spans:#?}")
    };
    assert_eq!((&*outer.name, &*outer.parent, outer.is_error), ("GET /items/{id}", "", false));
    let expected = [
        ("http.request.method", "GET"),
        ("url.scheme", "http"),
        ("url.path", "/items/7"),
        ("url.query", "q=1"),
        ("http.response.status_code", "200"),
        ("server.address", "shop.test"),
        ("server.port", "81"),
        ("client.address", "127.0.0.1"),
        ("network.peer.address", "127.0.0.1"),
        ("network.protocol.version", "1.1"),
        ("user_agent.original", "me"),
        ("http.route", "/items/{id}"),
        ("weir.frontend", "f"),
        ("weir.backend", "b"),
        ("weir.termination_state", "--"),
    ];
    for (name, value) in expected {
        assert_eq!(outer.get(name), value, "{name}");
    }
    assert!(!outer.attributes.contains_key("error.type") && !outer.attributes.contains_key("user"));
    assert_eq!((&*inner.name, &inner.parent, &inner.trace), ("GET", &outer.id, &outer.trace));
    let to = origin.port().to_string();
    let expected = [
        ("url.full", format!("http://127.0.0.1:{to}/items/7?q=1")),
        ("server.address", "127.0.0.1".to_owned()),
        ("server.port", to.clone()),
        ("network.peer.port", to),
        ("http.response.status_code", "200".to_owned()),
        ("weir.server", "s".to_owned()),
    ];
    for (name, value) in expected {
        assert_eq!(inner.get(name), value, "{name}");
    }
    let connect = spans.iter().find(|span| span.name == "connect").expect("the connection is new");
    assert_eq!(connect.parent, inner.id);
    assert!(
        outer.times.0 <= inner.times.0 && inner.times.0 <= connect.times.0 && inner.times.1 <= outer.times.1
    );
    let resource = collector.received().resource;
    assert_eq!(resource.get("service.name").map(String::as_str), Some("edge"));
    assert!(resource.contains_key("host.name") && resource.contains_key("service.version"));
}

#[test]
fn the_context_of_the_sender_is_continued_and_passed_on() {
    let (collector, origin) = (OtlpCollector::http(), Origin::echo());
    let (_weir, port) = start(&collector, "", "", &server(&origin));
    let seen = passed_on(port, &format!("{PARENT}\r\ntracestate: a=1,b@v=2\r\nbaggage: k=v\r\n"));
    let spans = collector.await_spans(3);
    let ([outer], [inner]) = (&only(&spans, SERVER)[..], &only(&spans, CLIENT)[..]) else {
        panic!("{spans:#?}")
    };
    assert_eq!((&*outer.trace, &*outer.parent, &*outer.state), (TRACE, "00f067aa0ba902b7", "a=1,b@v=2"));
    assert_eq!(outer.flags, 0x301, "sampled, and the parent is remote");
    let sent = format!("00-{TRACE}-{}-01", inner.id);
    assert_eq!(header(&seen, "traceparent"), Some(&*sent));
    assert_eq!(header(&seen, "tracestate"), Some("a=1,b@v=2"));
    assert_eq!(header(&seen, "baggage"), Some("k=v"));
}

#[test]
fn an_invalid_context_begins_a_new_trace() {
    let (collector, origin) = (OtlpCollector::http(), Origin::echo());
    let (_weir, port) = start(&collector, "", "", &server(&origin));
    let wrong = [
        "traceparent: 00-00000000000000000000000000000000-00f067aa0ba902b7-01\r\ntracestate: a=1\r\n"
            .to_owned(),
        format!("traceparent: 00-{}-00f067aa0ba902b7-01\r\n", TRACE.to_uppercase()),
        format!("{PARENT}-x\r\n"),
        format!("{PARENT}\r\n{PARENT}\r\n"),
        "tracestate: a=1\r\n".to_owned(),
    ];
    for fields in &wrong {
        let seen = passed_on(port, fields);
        let sent = header(&seen, "traceparent").expect("a new context");
        assert!(sent.len() == 55 && sent.ends_with("-01") && !sent.contains(TRACE), "{fields}: {sent}");
        assert_eq!(header(&seen, "tracestate"), None, "{fields}");
    }
    let seen = passed_on(port, &format!("{PARENT}\r\ntracestate: not a list\r\n"));
    assert!(header(&seen, "traceparent").is_some_and(|sent| sent.contains(TRACE)));
    assert_eq!(header(&seen, "tracestate"), None, "a malformed state is removed");
    let outer = collector.await_all(|received| only(&received.spans, SERVER).len() > wrong.len()).spans;
    assert_eq!(only(&outer, SERVER).iter().filter(|span| span.parent.is_empty()).count(), wrong.len());
}

#[test]
fn every_attempt_has_a_span_and_its_own_context() {
    let collector = OtlpCollector::http();
    let (flaky, good) =
        (Origin::start(|_, _| b"HTTP/1.1 503 No\r\nContent-Length: 0\r\n\r\n".to_vec()), Origin::echo());
    let back = format!(
        "retry-on 503 conn-failure\n balance roundrobin\n server gone 127.0.0.1:{}\n server flaky 127.0.0.1:{}\n server good 127.0.0.1:{}",
        free_port(),
        flaky.port(),
        good.port()
    );
    let (_weir, port) = start(&collector, "", "", &back);
    let seen = passed_on(port, "");
    // The two failed attempts without their connections, the last one, and the request itself; one attempt had no connection.
    let spans = collector.await_spans(6);
    let attempts = only(&spans, CLIENT);
    let told: Vec<_> = attempts
        .iter()
        .map(|span| {
            let count = span.get("http.request.resend_count");
            (
                span.get("weir.server"),
                count,
                span.get("error.type"),
                span.get("http.response.status_code"),
                span.is_error,
            )
        })
        .collect();
    assert_eq!(
        told,
        [
            ("gone", "", "connection_failed", "", true),
            ("flaky", "1", "503", "503", true),
            ("good", "2", "", "200", false)
        ]
    );
    let sent = header(&seen, "traceparent").expect("a context");
    assert_eq!(&sent[36..52], attempts[2].id, "the server is told the span of its own attempt");
    assert_eq!(only(&spans, SERVER).len(), 1);
}

#[test]
fn a_hedged_request_has_two_spans() {
    let (collector, fast) = (OtlpCollector::http(), Origin::text("ok"));
    let slow = Origin::raw(|stream| {
        let mut bytes = Vec::new();
        // The request is cancelled, which ends the connection.
        let _ = std::io::Read::read_to_end(&mut &stream, &mut bytes);
    });
    let back = format!(
        "hedge after 20ms max 100%\n balance first\n server slow 127.0.0.1:{} maxconn 10\n server fast 127.0.0.1:{} maxconn 10",
        slow.port(),
        fast.port()
    );
    let (_weir, port) = start(&collector, "", "", &back);
    assert_eq!(get(port, "/").map(|response| response.status), Some(200));
    let spans = collector.await_all(|received| only(&received.spans, CLIENT).len() == 2).spans;
    let told: Vec<_> = only(&spans, CLIENT)
        .iter()
        .map(|span| (span.get("weir.server"), span.get("error.type"), span.get("http.request.resend_count")))
        .collect();
    assert_eq!(told, [("slow", "cancelled", ""), ("fast", "", "1")]);
}

#[test]
fn the_sender_or_the_ratio_decides_about_sampling() {
    let (collector, origin) = (OtlpCollector::http(), Origin::echo());
    let (weir, port) = start(&collector, "sampling 0%", "", &server(&origin));
    let unsampled = PARENT.replace("-01", "-00");
    let flags = |fields: &str| {
        let seen = passed_on(port, fields);
        header(&seen, "traceparent").map(|sent| sent[53..].to_owned())
    };
    assert_eq!(flags("").as_deref(), Some("00"));
    assert_eq!(flags(&format!("{unsampled}\r\n")).as_deref(), Some("00"));
    assert_eq!(flags(&format!("{PARENT}\r\n")).as_deref(), Some("01"));
    let spans = collector.await_spans(3);
    assert!(spans.iter().all(|span| span.trace == TRACE), "{spans:#?}");
    assert!(weir.ask("show opentelemetry c").contains("c traces "));

    let (collector, origin) = (OtlpCollector::http(), Origin::echo());
    let (_weir, port) = start(&collector, "sampling 0%\n parent continue", "", &server(&origin));
    let seen = passed_on(port, &format!("{PARENT}\r\n"));
    let sent = header(&seen, "traceparent").expect("a context");
    assert!(sent.contains(TRACE) && sent.ends_with("-00"), "{sent}");

    let (_weir, port) = start(&collector, "parent ignore", "", &server(&origin));
    let seen = passed_on(port, &format!("{PARENT}\r\ntracestate: a=1\r\n"));
    assert!(header(&seen, "traceparent").is_some_and(|sent| !sent.contains(TRACE) && sent.ends_with("-01")));
    assert_eq!(header(&seen, "tracestate"), None);
}

#[test]
fn failed_and_slow_requests_are_kept() {
    let collector = OtlpCollector::http();
    let origin = Origin::start(|head, _| {
        let status = if head.contains("/bad") { "500 Bad" } else { "200 OK" };
        format!("HTTP/1.1 {status}\r\nContent-Length: 0\r\n\r\n").into_bytes()
    });
    let front =
        "http-request set-var(txn.wait) int(200)\n http-request pause var(txn.wait) if { path /slow }";
    let section = "sampling 0%\n keep errors\n keep slower-than 150ms\n url-query off";
    let (_weir, port) = start(&collector, section, front, &server(&origin));
    for path in ["/good", "/bad?secret=1", "/slow", "/good"] {
        assert!(get(port, path).is_some(), "{path}");
    }
    let mut client = Client::connect(port);
    assert_eq!(client.send("nonsense\r\n\r\n").response().map(|response| response.status), Some(400));
    let spans = collector.await_all(|received| only(&received.spans, SERVER).len() == 2).spans;
    let told: Vec<_> = only(&spans, SERVER)
        .iter()
        .map(|span| (span.get("url.path"), span.get("weir.kept"), span.get("error.type"), span.flags & 1))
        .collect();
    assert_eq!(told, [("/bad", "error", "500", 0), ("/slow", "slow", "", 0)]);
    assert!(only(&spans, CLIENT).len() >= 2, "attempts are kept with their requests");
    assert!(!format!("{spans:?}").contains("secret"), "{spans:#?}");
}

#[test]
fn http2_and_tcp_streams_have_spans() {
    let (collector, origin) = (OtlpCollector::http(), Origin::echo());
    let (_weir, port) = start(&collector, "", "", &server(&origin));
    let mut client = Frames::connect(port);
    let fields = [
        (":method", "GET"),
        (":scheme", "http"),
        (":authority", "h"),
        (":path", "/two"),
        ("traceparent", &PARENT["traceparent: ".len()..]),
    ];
    client.head(1, END_STREAM, &fields);
    let (head, _) = client.next_head();
    assert_eq!(head[0], ":status: 200");
    let spans = collector.await_spans(2);
    let outer = only(&spans, SERVER)[0];
    assert_eq!(
        (outer.get("network.protocol.version"), outer.get("url.path"), &*outer.trace),
        ("2", "/two", TRACE)
    );

    let collector = OtlpCollector::http();
    let (port, to) = (free_port(), collector.port());
    let configuration = format!(
        "opentelemetry c\n endpoint http://127.0.0.1:{to}\n interval 50ms\n\
         listen f\n mode tcp\n timeout connect 5s\n timeout client 20s\n timeout server 20s\n bind 127.0.0.1:{port}\n trace-to c\n {}\n",
        server(&origin)
    );
    let _weir = Weir::start(&configuration, &[port]);
    assert_eq!(get(port, "/").map(|response| response.status), Some(200));
    let received = collector.await_all(|received| {
        received.spans.iter().any(|span| span.kind == SERVER && span.get("weir.bytes_in") != "0")
    });
    let outer = received.spans.iter().find(|span| span.kind == SERVER && span.get("weir.bytes_in") != "0");
    let outer = outer.expect("the span was waited for");
    assert_eq!((&*outer.name, outer.get("network.transport")), ("tcp", "tcp"));
    let inner = received.spans.iter().find(|span| span.kind == CLIENT && span.parent == outer.id);
    assert_eq!(inner.map(|span| span.get("weir.server")), Some("s"));
}

#[test]
fn queues_scripts_and_caches_have_spans() {
    let (collector, origin) = (OtlpCollector::http(), Origin::text("ok"));
    let script = weir_tests::Scratch::holding(
        "a.lua",
        "core.register_action('wait', {'http-req'}, function() core.msleep(5) end)",
    );
    let (port, to) = (free_port(), collector.port());
    let configuration = format!(
        "global\n lua-load {}\n\
         opentelemetry c\n endpoint http://127.0.0.1:{to}\n interval 50ms\n\
         cache k\n total-max-size 4\n\
         listen f\n mode http\n timeout connect 5s\n timeout client 20s\n timeout server 20s\n timeout queue 1ms\n\
         bind 127.0.0.1:{port}\n trace-to c\n http-request cache-use k\n http-request lua.wait\n server s 127.0.0.1:{} maxconn 1\n",
        script.display(),
        origin.port()
    );
    let _weir = Weir::start(&configuration, &[port]);
    assert_eq!(get(port, "/").map(|response| response.status), Some(200));
    let spans = collector.await_all(|received| received.spans.iter().any(|span| span.kind == SERVER)).spans;
    let outer = only(&spans, SERVER)[0];
    let steps: Vec<_> = spans
        .iter()
        .filter(|span| span.kind == 1 && span.parent == outer.id)
        .map(|span| (&*span.name, span.get("weir.name"), span.times.1 - span.times.0 >= 5_000_000))
        .collect();
    assert_eq!(steps, [("cache", "k", false), ("lua", "lua.wait", true)]);
}

#[test]
fn the_fetches_name_the_trace_in_rules() {
    let (collector, origin) = (OtlpCollector::http(), Origin::text("ok"));
    let front = "http-response set-header x-trace %[trace_id]/%[span_id]/%[trace_sampled]";
    let (_weir, port) = start(&collector, "", front, &server(&origin));
    let response = get(port, "/").expect("a response");
    let spans = collector.await_spans(2);
    let outer = only(&spans, SERVER)[0];
    let expected = format!("{}/{}/1", outer.trace, outer.id);
    assert_eq!(response.header("x-trace"), Some(&*expected));

    // Without `trace-to`, nothing is added to the request and the fetches have no value.
    let (port, origin) = (free_port(), Origin::echo());
    let configuration = format!(
        "listen f\n mode http\n timeout connect 5s\n timeout client 20s\n timeout server 20s\n bind 127.0.0.1:{port}\n \
         http-response set-header x-trace <%[trace_id]>\n {}\n",
        server(&origin)
    );
    let _weir = Weir::start(&configuration, &[port]);
    let response = get(port, "/").expect("a response");
    assert_eq!(response.header("x-trace"), Some("<>"));
    assert!(!response.text().contains("traceparent"));
    assert!(eventually(|| origin.requests() == 1));
}
