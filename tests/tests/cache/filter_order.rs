//! The order of filters (`filter`, `filter-sequence`): each sees the output of the one before it, in both directions, and so do
//! responses of caches and services; two in a row do not buffer more than allowed. The expected results were observed with HAProxy.
//! Only lower bounds of times are asserted.

use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use weir_tests::client::{Client, exchange, get};
use weir_tests::compression::{decoded, payload};
use weir_tests::{Origin, Weir, eventually, free_port, scratch};

/// A script filter that reports events under the name in its line, and changes bodies as that line says.
const SCRIPT: &str = r#"
    local Own = { flags = filter.FLT_CFG_FL_HTX }
    function Own:new()
        self.__index = self
        return setmetatable({ seen = { [true] = "", [false] = "" } }, self)
    end
    function Own:start_analyze(txn, chn) filter.register_data_filter(self, chn) end
    function Own:http_headers(txn, msg)
        local coding = (msg:get_headers()["content-encoding"] or {})[0]
        self.coding = self.coding or {}
        self.coding[msg:is_resp()] = coding or "none"
        if self.does == "upper" or self.does == "tail" or self.does == "more" then msg:set_body_len("chunked") end
    end
    function Own:http_payload(txn, msg)
        local body = msg:body() or ""
        self.seen[msg:is_resp()] = self.seen[msg:is_resp()] .. body
        if self.does == "upper" then msg:set(body:upper()) end
        if self.does == "more" and msg:is_resp() and #body > 0 then msg:append("more") end
        if self.does == "hold" then return 0 end
    end
    function Own:http_end(txn, msg)
        local seen = self.seen[msg:is_resp()]
        local kind = seen:sub(1, 2) == "\x1f\x8b" and "gzip" or (seen == seen:upper() and "upper" or "plain")
        core.Alert(string.format("SEEN %s %s %s %s %d.", self.name, msg:is_resp() and "response" or "request",
            self.coding[msg:is_resp()], kind, #seen))
        if self.does == "tail" and msg:is_resp() then msg:append("tail") end
    end
    core.register_filter("own", Own, function(own, args)
        own.name, own.does = args[1], args[2]
        return own
    end)
    core.register_service("take", "http", function(applet)
        local body = applet:receive() or ""
        applet:set_status(200)
        applet:start_response()
        applet:send(string.format("GOT %d %s", #body, body))
    end)
"#;

/// Starts a `listen` section with these lines and this server, with a cache `c` and that script.
fn start(mode: &str, lines: &str, server: u16) -> (Weir, u16) {
    let path = scratch("filter-order").file("own.lua");
    std::fs::write(&path, SCRIPT).expect("scripts can be written");
    let port = free_port();
    let text = format!(
        "global\n nbthread 1\n tune.lua.bool-sample-conversion normal\n lua-load {}\n\
         cache c\n total-max-size 4\n max-age 60\n\
         defaults\n mode {mode}\n timeout client 20s\n timeout connect 5s\n timeout server 20s\n\
         listen l\n bind 127.0.0.1:{port}\n{lines} server s 127.0.0.1:{server}\n",
        path.display()
    );
    (Weir::start(&text, &[port]), port)
}

/// Returns a compressible text.
fn text(length: usize) -> Vec<u8> {
    b"again and ".iter().copied().cycle().take(length).collect()
}

/// Answers with a cacheable text of `length` bytes, and describes the request's body in `x-got`.
fn origin(length: usize) -> Origin {
    Origin::start(move |head, body| {
        let coded = head.to_ascii_lowercase().contains("content-encoding: gzip");
        let plain = if coded { decoded("gzip", body) } else { body.to_vec() };
        let head = format!(
            "HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nCache-Control: max-age=60\r\n\
             X-Got: {coded} {} {}\r\nContent-Length: {length}\r\n\r\n",
            plain.len(),
            plain == plain.to_ascii_uppercase()
        );
        [head.as_bytes(), &text(length)].concat()
    })
}

const ACCEPTING: &str = "GET / HTTP/1.1\r\nHost: a\r\nAccept-Encoding: gzip\r\n\r\n";

/// Returns the number of response bytes reported by the trace of that name.
fn traced(messages: &str, name: &str) -> usize {
    let own = messages.lines().filter(|line| line.contains(&format!("[{name}/")));
    let told = own.filter(|line| line.contains("trace_http_payload") && line.contains("channel=RESPONSE"));
    told.filter_map(|line| line.split(" len=").nth(1)?.split(' ').next()?.parse::<usize>().ok()).sum()
}

/// Returns the reports of the script filters in order.
fn seen(weir: &Weir) -> Vec<String> {
    let messages = weir.messages();
    let told = messages.lines().filter_map(|line| line.split("SEEN ").nth(1));
    told.filter_map(|line| Some(line.split_once('.')?.0.to_owned())).collect()
}

#[test]
fn traces_see_bytes_before_and_after_compression() {
    let origin = origin(100_000);
    let lines =
        " filter trace name FIRST\n filter comp-res\n filter trace name LAST\n compression algo gzip\n";
    for (sequence, first_is_plain) in [
        ("", true),
        (" filter-sequence response trace,comp-res,trace\n", true),
        (" filter-sequence response comp-res,trace,trace\n", false),
    ] {
        let (weir, port) = start("http", &format!("{lines}{sequence}"), origin.port());
        let response = exchange(port, ACCEPTING).expect("an answer");
        let coded = payload(&response);
        assert!(decoded("gzip", &coded) == text(100_000));
        assert!(weir.says("trace_detach"));
        let messages = weir.messages();
        let plain = if first_is_plain { 100_000 } else { coded.len() };
        assert_eq!(
            (traced(&messages, "FIRST"), traced(&messages, "LAST")),
            (plain, coded.len()),
            "{sequence}"
        );
        let shown = |name: &str| {
            messages
                .lines()
                .any(|line| line.contains(&format!("[{name}/")) && line.ends_with("content-encoding: gzip"))
        };
        assert_eq!((shown("FIRST"), shown("LAST")), (!first_is_plain, true), "heads: {sequence}");
    }
}

#[test]
fn limits_count_bytes_before_and_after_compression() {
    let origin = origin(50_000);
    let limit = |limit: &str| {
        format!(
            " filter bwlim-out slow default-limit {limit}\n compression algo gzip\n \
             http-request set-bandwidth-limit slow\n"
        )
    };
    let before = format!("{} filter comp-res\n", limit("10000 default-period 100ms"));
    let (_weir, port) = start("http", &before, origin.port());
    let began = Instant::now();
    let response = exchange(port, ACCEPTING).expect("an answer");
    assert!(decoded("gzip", &payload(&response)) == text(50_000));
    assert!(began.elapsed() >= Duration::from_millis(300), "{:?}", began.elapsed());
    // Uncompressed, the text would take minutes.
    let behind = format!(" filter comp-res\n{}", limit("1000 default-period 5s"));
    let sequence = format!("{} filter comp-res\n", limit("1000 default-period 5s"));
    let sequence = format!("{sequence} filter-sequence response comp-res,bwlim-out\n");
    for lines in [behind, sequence] {
        let (_weir, port) = start("http", &lines, origin.port());
        let response = exchange(port, ACCEPTING).expect("an answer");
        assert!(decoded("gzip", &payload(&response)) == text(50_000));
    }
}

#[test]
fn scripts_work_before_and_after_compression() {
    let origin = origin(3000);
    let lines = " filter lua.own A upper\n filter comp-req\n filter comp-res\n filter lua.own B\n \
                 compression algo-req gzip\n compression algo-res gzip\n";
    let (weir, port) = start("http", lines, origin.port());
    let mut client = Client::connect(port);
    for length in [100, 100_000] {
        let head = format!(
            "POST / HTTP/1.1\r\nHost: a\r\nAccept-Encoding: gzip\r\nContent-Length: {length}\r\n\r\n"
        );
        client.send([head.as_bytes(), &text(length)].concat());
        let response = client.response().expect("an answer");
        assert_eq!(response.header("x-got"), Some(&*format!("true {length} true")));
        assert_eq!(response.header("content-encoding"), Some("gzip"));
        assert!(decoded("gzip", &payload(&response)) == text(3000).to_ascii_uppercase());
    }
    let seen = seen(&weir);
    let starts = |at: usize, with: &str| assert!(seen[at].starts_with(with), "{with}: {seen:?}");
    starts(0, "A request none plain 100");
    starts(1, "B request gzip gzip ");
    starts(2, "A response none plain 3000");
    starts(3, "B response gzip gzip ");
    assert_eq!(seen.len(), 8, "{seen:?}");
}

#[test]
fn script_after_compression_may_change_coded_bytes() {
    let origin = origin(3000);
    let lines = " filter comp-res\n filter lua.own B tail\n compression algo gzip\n";
    let (_weir, port) = start("http", lines, origin.port());
    let response = exchange(port, ACCEPTING).expect("an answer");
    let body = payload(&response);
    let coded = body.strip_suffix(b"tail").expect("what the filter adds");
    assert!(decoded("gzip", coded) == text(3000));
    // An uncompressed response passes it unchanged.
    let response = get(port, "/").expect("an answer");
    assert!(payload(&response) == [&text(3000)[..], b"tail"].concat());
}

#[test]
fn sequence_orders_filters_and_omits_unnamed_ones() {
    let origin = origin(3000);
    let lines = " filter lua.own A\n filter comp-res\n compression algo gzip\n";
    for (sequence, expected, coding) in [
        ("filter-sequence response comp-res,lua.own", "A response gzip gzip ", Some("gzip")),
        ("filter-sequence response lua.own,comp-res", "A response none plain 3000", Some("gzip")),
        ("filter-sequence response lua.own", "A response none plain 3000", None),
        ("filter-sequence response comp-res", "A request none upper 0", Some("gzip")),
    ] {
        let (weir, port) = start("http", &format!("{lines} {sequence}\n"), origin.port());
        let response = exchange(port, ACCEPTING).expect("an answer");
        assert_eq!(response.header("content-encoding"), coding, "{sequence}");
        let seen = seen(&weir);
        let last = seen.last().expect("what the filter saw");
        assert!(last.starts_with(expected), "{sequence}: {seen:?}");
    }
}

#[test]
fn frontend_filters_precede_backend_filters() {
    let origin = origin(3000);
    let path = scratch("filter-order").file("two.lua");
    std::fs::write(&path, SCRIPT).expect("scripts can be written");
    let port = free_port();
    let text = format!(
        "global\n nbthread 1\n tune.lua.bool-sample-conversion normal\n lua-load {}\n\
         defaults\n mode http\n timeout client 20s\n timeout connect 5s\n timeout server 20s\n\
         frontend f\n bind 127.0.0.1:{port}\n filter lua.own A\n filter comp-res\n compression algo gzip\n \
         default_backend b\n\
         backend b\n filter lua.own B\n server s 127.0.0.1:{}\n",
        path.display(),
        origin.port()
    );
    let weir = Weir::start(&text, &[port]);
    exchange(port, ACCEPTING).expect("an answer");
    let seen = seen(&weir);
    assert_eq!(seen[2], "A response none plain 3000");
    assert!(seen[3].starts_with("B response gzip gzip "), "{seen:?}");
}

#[test]
fn cache_and_service_responses_pass_filters_unlike_rules() {
    let origin = origin(3000);
    let lines = " filter lua.own A\n filter cache c\n filter comp-res\n filter lua.own B\n compression algo gzip\n \
                 stats uri /stats\n stats scope nobody\n \
                 http-request return status 200 content-type text/plain string \"again and again\" if { path /return }\n \
                 http-request cache-use c if { path / }\n http-response cache-store c\n";
    let behind = lines.replace(" filter lua.own A\n", "");
    let (weir, port) = start("http", &behind, origin.port());
    for _ in 0..2 {
        let response = exchange(port, ACCEPTING).expect("an answer");
        assert_eq!(response.header("content-encoding"), Some("gzip"));
        assert!(decoded("gzip", &payload(&response)) == text(3000));
    }
    assert_eq!(origin.requests(), 1, "the second came from the cache");
    let told = seen(&weir);
    assert_eq!(told.len(), 4, "{told:?}");
    assert_eq!(told[2], "B request none upper 0");
    assert_eq!(told[1], told[3]);
    assert!(told[3].starts_with("B response gzip gzip "), "{told:?}");
    let (_other, port) = start("http", lines, origin.port());
    for _ in 0..2 {
        exchange(port, ACCEPTING).expect("an answer");
    }
    assert_eq!(origin.requests(), 2, "a filter before the cache is in nobody's way");
    let before = seen(&_other).len();
    let page = exchange(port, &ACCEPTING.replace("GET /", "GET /stats")).expect("a page");
    assert_eq!((page.status, page.header("content-encoding")), (200, Some("gzip")));
    assert!(String::from_utf8_lossy(&decoded("gzip", &payload(&page))).contains("</title>"));
    let told = seen(&_other).split_off(before);
    assert_eq!(told[..2], ["A request none upper 0", "B request none upper 0"]);
    assert!(told[2].starts_with("A response none plain "), "{told:?}");
    assert!(told[3].starts_with("B response gzip gzip "), "{told:?}");
    let response = exchange(port, &ACCEPTING.replace("GET /", "GET /return")).expect("an answer");
    assert_eq!((response.status, response.header("content-encoding")), (200, None));
    assert_eq!(seen(&_other).len(), before + 4);
}

#[test]
fn cache_stores_filtered_output_and_hits_pass_filters() {
    let origin = origin(30);
    let lines = " filter lua.own A more\n filter cache c\n filter lua.own B\n \
                 http-request cache-use c\n http-response cache-store c\n";
    let (weir, port) = start("http", lines, origin.port());
    let fields = "GET / HTTP/1.1\r\nHost: a\r\n\r\n";
    let mut wanted = text(30);
    for round in 0..3 {
        if round < 2 {
            wanted.extend_from_slice(b"more");
        }
        let response = exchange(port, fields).expect("an answer");
        assert_eq!(response.header("age").is_some(), round > 0);
        assert_eq!(String::from_utf8_lossy(&payload(&response)), String::from_utf8_lossy(&wanted), "{round}");
    }
    assert_eq!(origin.requests(), 1, "the others came from the cache");
    let told = seen(&weir);
    let of_a: Vec<&String> = told.iter().filter(|line| line.starts_with("A response")).collect();
    assert_eq!(of_a, ["A response none plain 30", "A response none plain 34", "A response none plain 34"]);
}

#[test]
fn request_body_for_a_script_service_passes_filters() {
    let origin = origin(10);
    let lines = " filter lua.own A upper\n filter lua.own B\n http-request use-service lua.take\n";
    let (weir, port) = start("http", lines, origin.port());
    let bodies = [
        "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 9\r\n\r\nabc and d".to_owned(),
        "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n4\r\nabc \r\n5\r\nand d\r\n0\r\n\r\n".to_owned(),
    ];
    for fields in bodies {
        let response = exchange(port, &fields).expect("an answer");
        assert_eq!(String::from_utf8_lossy(&payload(&response)), "GOT 9 ABC AND D", "{fields}");
    }
    let told = seen(&weir);
    assert_eq!(told[..2], ["A request none plain 9", "B request none upper 9"], "{told:?}");
    // Much more than fits into all buffers on the way, and an empty body.
    let body = text(300_000);
    let head = format!("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: {}\r\n\r\n", body.len());
    let mut client = Client::connect(port);
    client.send([head.as_bytes(), &body].concat());
    let got = payload(&client.response().expect("an answer"));
    assert!(got == [b"GOT 300000 ", &body.to_ascii_uppercase()[..]].concat());
    client.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n");
    assert_eq!(payload(&client.response().expect("an answer")), b"GOT 0 ", "the connection goes on");
    assert_eq!(origin.requests(), 0);
}

#[test]
fn upload_limit_applies_to_services() {
    let origin = origin(10);
    let lines = " filter bwlim-in slow default-limit 1000 default-period 100ms\n \
                 http-request set-bandwidth-limit slow\n http-request use-service lua.take\n";
    let (_weir, port) = start("http", lines, origin.port());
    let body = text(5000);
    let head = format!("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: {}\r\n\r\n", body.len());
    let began = Instant::now();
    let mut client = Client::connect(port);
    client.send([head.as_bytes(), &body].concat());
    assert!(payload(&client.response().expect("an answer")) == [b"GOT 5000 ", &body[..]].concat());
    assert!(began.elapsed() >= Duration::from_millis(400), "{:?}", began.elapsed());
}

#[test]
fn download_limit_applies_to_cache_hits() {
    let origin = origin(5000);
    let lines = " filter cache c\n filter bwlim-out slow default-limit 1000 default-period 100ms\n \
                 http-request set-bandwidth-limit slow if { hdr(x-slow) -m found }\n \
                 http-request cache-use c\n http-response cache-store c\n";
    let (_weir, port) = start("http", lines, origin.port());
    assert!(exchange(port, "GET / HTTP/1.1\r\nHost: a\r\n\r\n").is_some());
    let began = Instant::now();
    let response = exchange(port, "GET / HTTP/1.1\r\nHost: a\r\nX-Slow: 1\r\n\r\n").expect("an answer");
    assert!(payload(&response) == text(5000) && response.header("age").is_some());
    assert!(began.elapsed() >= Duration::from_millis(400), "{:?}", began.elapsed());
}

/// Returns how many bytes `to` accepts, at most `most`, until it accepts none for a second.
fn taken(to: &mut TcpStream, most: usize) -> usize {
    to.set_write_timeout(Some(Duration::from_secs(1))).expect("a time");
    let (piece, mut all) = (text(64 * 1024), 0);
    while all < most {
        match to.write(&piece) {
            Ok(n) => all += n,
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => break,
            Err(_) => break,
        }
    }
    all
}

/// More than kernel buffers hold.
const MUCH: usize = 64 << 20;

#[test]
fn endless_request_is_not_buffered_between_scripts() {
    let origin = origin(10);
    for lines in [
        " filter lua.own A\n filter lua.own B hold\n",
        " filter lua.own A\n filter comp-req\n filter lua.own B hold\n compression algo-req identity\n",
    ] {
        let (_weir, port) = start("http", lines, origin.port());
        let mut client = TcpStream::connect(("127.0.0.1", port)).expect("a connection");
        let head = format!("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: {}\r\n\r\n", 2 * MUCH);
        client.write_all(head.as_bytes()).expect("a head");
        let taken = taken(&mut client, MUCH);
        assert!(taken < MUCH, "{lines}: all was taken");
    }
}

#[test]
fn endless_response_waits_for_later_filters() {
    let sent = Arc::new(AtomicUsize::new(0));
    let counted = sent.clone();
    let origin = Origin::raw(move |mut stream| {
        let mut head = [0; 1024];
        let _ = stream.read(&mut head);
        let head = "HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: 1000000000\r\n\r\n";
        let _ = stream.write_all(head.as_bytes());
        counted.store(taken(&mut stream, MUCH), Ordering::SeqCst);
    });
    let lines = " filter bwlim-out slow default-limit 2000 default-period 1s\n filter comp-res\n \
                 filter lua.own A\n filter trace name T quiet\n compression algo gzip\n \
                 http-request set-bandwidth-limit slow\n";
    let (_weir, port) = start("http", lines, origin.port());
    let mut client = Client::connect(port);
    client.send(ACCEPTING);
    assert!(client.read_head().contains("content-encoding: gzip"));
    // Bytes within the limit arrive although the encoder does not have enough for a block.
    assert_eq!(client.read_bytes(20).len(), 20);
    assert!(eventually(|| sent.load(Ordering::SeqCst) > 0));
    assert!(sent.load(Ordering::SeqCst) < MUCH);
}

#[test]
fn truncated_response_stays_truncated_after_filters() {
    let origin = Origin::raw(|mut stream| {
        let mut head = [0; 1024];
        let _ = stream.read(&mut head);
        let head = "HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: 5000\r\n\r\n";
        let _ = stream.write_all(&[head.as_bytes(), &text(3000)].concat());
    });
    let lines = " filter bwlim-out slow default-limit 100000 default-period 100ms\n filter lua.own A\n filter comp-res\n \
                 filter lua.own B\n filter trace name T quiet\n compression algo gzip\n \
                 http-request set-bandwidth-limit slow\n";
    let (_weir, port) = start("http", lines, origin.port());
    let mut client = Client::connect(port);
    client.send(ACCEPTING);
    let all = client.read_to_end();
    assert!(all.starts_with(b"HTTP/1.1 200") && !all.ends_with(b"\r\n0\r\n\r\n"));
}

#[test]
fn tcp_streams_pass_scripts_and_limits_in_order() {
    let origin = Origin::raw(|mut stream| {
        let mut all = vec![0; 64 * 1024];
        while let Ok(n) = stream.read(&mut all)
            && n > 0
        {
            let _ = stream.write_all(&all[..n]);
        }
    });
    let path = scratch("filter-order").file("tcp.lua");
    let script = r#"
        local Own = {}
        function Own:new() self.__index = self return setmetatable({}, self) end
        function Own:start_analyze(txn, chn) if chn:is_resp() then filter.register_data_filter(self, chn) end end
        function Own:tcp_payload(txn, chn)
            local data = chn:data()
            if #data > 0 then chn:set(data:sub(1, 1) .. data:sub(-1)) end
        end
        core.register_filter("ends", Own, function(own) return own end)
    "#;
    std::fs::write(&path, script).expect("scripts can be written");
    let port = free_port();
    let text = format!(
        "global\n nbthread 1\n tune.lua.bool-sample-conversion normal\n lua-load {}\n\
         defaults\n mode tcp\n timeout client 5s\n timeout connect 5s\n timeout server 5s\n\
         listen l\n bind 127.0.0.1:{port}\n option splice-auto\n \
         filter bwlim-out slow default-limit 100 default-period 100ms min-size 100\n filter lua.ends\n \
         tcp-response content set-bandwidth-limit slow\n server s 127.0.0.1:{}\n",
        path.display(),
        origin.port()
    );
    let _weir = Weir::start(&text, &[port]);
    let mut client = Client::connect(port);
    let began = Instant::now();
    client.send(b"(23456789)".repeat(50)).shut();
    // Five portions of a hundred bytes each, of which two are left.
    assert_eq!(String::from_utf8_lossy(&client.read_to_end()), "()()()()()");
    assert!(began.elapsed() >= Duration::from_millis(300), "{:?}", began.elapsed());
}
