//! Messages in both directions, byte for byte.

use http_types::{HeaderMap, HeaderValue, Method};
use weir_tests::http3::{Http3Client, Http3Request};
use weir_tests::{Origin, free_port};

use super::start;

/// Bytes that differ from their neighbours.
pub(super) fn bytes(length: usize) -> Vec<u8> {
    (0..length).map(|at| (at ^ (at >> 8) ^ (at >> 16)) as u8).collect()
}

/// A server that returns as many bytes as its path requests, or repeats the body of a request.
pub(super) fn origin() -> Origin {
    Origin::start(|head, body| {
        let path = head.split(' ').nth(1).unwrap_or_default();
        let answer = match path.strip_prefix("/get/").and_then(|length| length.parse().ok()) {
            Some(length) => bytes(length),
            None => body.to_vec(),
        };
        let head = format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\nX-Path: {path}\r\n\r\n", answer.len());
        [head.as_bytes(), &answer].concat()
    })
}

fn scene(origin: &Origin) -> super::Scene {
    let backend = format!("backend b\n server s 127.0.0.1:{}", origin.port());
    start("", " default_backend b", &backend)
}

#[test]
fn bodies_of_all_sizes_arrive_in_both_directions() {
    let origin = origin();
    let scene = scene(&origin);
    let mut client = Http3Client::connect(scene.port);
    for length in [0, 1, 100, 1_200, 16_384, 65_537, 1 << 20, 10 << 20] {
        let response = client.exchange(&Http3Request::get(&format!("/get/{length}")));
        assert_eq!((response.status, response.body.len()), (200, length));
        assert!(response.body == bytes(length), "{length} bytes received");
        let sent = bytes(length);
        let plain = client.exchange(&Http3Request::post("/echo", &sent));
        assert!(plain.body == sent, "{length} bytes sent without a length");
        let declared = Http3Request::post("/echo", &sent).with("content-length", &length.to_string());
        assert!(client.exchange(&declared).body == sent, "{length} bytes sent with their length");
    }
    assert_eq!(origin.connections(), 1, "one connection to the server is enough");
}

#[test]
fn concurrent_and_consecutive_requests_get_their_own_responses() {
    let origin = origin();
    let scene = scene(&origin);
    let mut client = Http3Client::connect(scene.port);
    let requests: Vec<_> = (0..100).map(|at| Http3Request::get(&format!("/get/{}", at * 997))).collect();
    for (at, response) in client.exchange_all(&requests).into_iter().enumerate() {
        assert!(response.expect("a response").body == bytes(at * 997), "request {at}");
    }
    for at in 0..1_000 {
        let response = client.exchange(&Http3Request::get(&format!("/get/{}", at % 300)));
        assert!(response.body == bytes(at % 300), "request {at}");
    }
    // More than the client may open at first.
    assert_eq!(scene.weir.stat("f,FRONTEND", "h3req"), "1100");
    assert_eq!(scene.weir.stat("f,FRONTEND", "h3sess"), "1");
}

#[test]
fn trailers_and_interim_responses_pass_both_ways() {
    let origin = Origin::start(|head, _| {
        let trailer = if head.contains("x-end") || head.contains("X-End") { "told" } else { "none" };
        let first = "HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n";
        let head = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nTrailer: x-sum\r\n\r\n";
        format!("{first}{head}3\r\nabc\r\n0\r\nx-sum: {trailer}\r\n\r\n").into_bytes()
    });
    let scene = scene(&origin);
    let mut client = Http3Client::connect(scene.port);
    let mut trailers = HeaderMap::new();
    trailers.insert("x-end", HeaderValue::from_static("yes"));
    let request = Http3Request { trailers: Some(trailers), ..Http3Request::post("/", b"body") };
    let response = client.exchange(&request);
    assert_eq!((response.status, &*response.body), (200, &b"abc"[..]));
    assert_eq!(response.interim, [103]);
    assert!(response.trailers.expect("trailers").contains_key("x-sum"));
}

#[test]
fn responses_without_a_body_end_with_their_head() {
    let origin = Origin::start(|head, _| match head {
        head if head.starts_with("HEAD") => b"HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n".to_vec(),
        head if head.contains("/304") => b"HTTP/1.1 304 Not Modified\r\nETag: \"a\"\r\n\r\n".to_vec(),
        _ => b"HTTP/1.1 204 No Content\r\n\r\n".to_vec(),
    });
    let scene = scene(&origin);
    let mut client = Http3Client::connect(scene.port);
    let head = client.exchange(&Http3Request { method: Method::HEAD, ..Http3Request::get("/") });
    assert_eq!((head.status, head.body.len()), (200, 0));
    assert_eq!(head.fields["content-length"], "1000");
    let unchanged = client.exchange(&Http3Request::get("/304"));
    assert_eq!((unchanged.status, unchanged.body.len()), (304, 0));
    assert_eq!(unchanged.fields["etag"], "\"a\"");
    assert_eq!(client.exchange(&Http3Request::get("/")).status, 204);
}

#[test]
fn unreachable_servers_and_rules_answer_as_over_tcp() {
    let rules = " http-request deny if { path /deny }\n http-request redirect location /there if { path /here }\n \
                 http-request return status 200 content-type text/plain lf-string \"%HV %[fc_http_major] %[ssl_fc_sni] \
                 %[ssl_fc_protocol] %[ssl_fc_alpn] %[dst_port]\" if { path /local }\n default_backend b";
    let scene = start("", rules, &format!("backend b\n server s 127.0.0.1:{}", free_port()));
    let mut client = Http3Client::connect(scene.port);
    assert_eq!(client.exchange(&Http3Request::get("/deny")).status, 403);
    assert_eq!(client.exchange(&Http3Request::get("/here")).fields["location"], "/there");
    assert_eq!(client.exchange(&Http3Request::get("/elsewhere")).status, 503);
    let local = client.exchange(&Http3Request::get("/local"));
    let expected = format!("HTTP/3.0 3 localhost TLSv1.3 h3 {}", scene.port);
    assert_eq!(String::from_utf8_lossy(&local.body), expected);
}

#[test]
fn requests_cancelled_by_the_client_end_at_the_server() {
    let origin = Origin::raw(|mut stream| {
        use std::io::{Read, Write};
        let mut head = [0; 4096];
        let _ = stream.read(&mut head);
        let _ = stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 1000000000\r\n\r\n");
        while stream.write_all(&[b'x'; 65_536]).is_ok() {}
    });
    let scene = scene(&origin);
    let client = Http3Client::connect(scene.port);
    let (connection, runtime) = client.quic();
    runtime.block_on(async {
        // A HEADERS frame with `:method GET`, `:scheme https`, `:path /` and `:authority a`.
        let (mut send, mut receive) = connection.open_bi().await.expect("a stream");
        let head = [0, 0, 0xd1, 0xd7, 0xc1, 0x50, 1, b'a'];
        send.write_all(&[&[1, head.len() as u8][..], &head].concat()).await.expect("a request");
        let mut bytes = [0; 1000];
        receive.read_exact(&mut bytes).await.expect("the beginning of a response");
        receive.stop(0x10c_u32.into()).expect("an open stream");
        let _ = send.reset(0x10c_u32.into());
        // The frames are sent while the runtime runs.
        tokio::time::sleep(std::time::Duration::from_millis(200)).await;
    });
    assert!(weir_tests::eventually(|| scene.weir.stat("b,s", "scur") == "0"), "the server's connection ends");
    assert!(client.quic().0.close_reason().is_none(), "the connection goes on");
}
