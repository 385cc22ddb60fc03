//! `term_events` for streams that end in different ways.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, Shutdown, TcpStream, UdpSocket};

use weir_tests::client::Client;
use weir_tests::{Origin, PATIENCE, Weir, free_port};

/// Answers a request as its path says.
fn serve(mut stream: TcpStream) {
    let mut head = [0; 1024];
    let peeked = stream.peek(&mut head).unwrap_or(0);
    if head[..peeked].starts_with(b"GET /reset ") {
        // Unread bytes turn the close into a reset.
        return;
    }
    while let Ok(n) = stream.read(&mut head)
        && n > 0
    {
        let request = String::from_utf8_lossy(&head[..n]);
        let answer: &str = match request.split(' ').nth(1).unwrap_or_default() {
            "/whole" | "/close" => "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi",
            "/until-close" => "HTTP/1.0 200 OK\r\n\r\nhi",
            "/half" => "HTTP/1.1 200",
            "/cut" => "HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nhi",
            "/junk" => "junk\r\n\r\n",
            "/chunk" => "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nhi\r\nzz\r\n",
            "/tunnel" => "HTTP/1.1 101 Switching\r\nConnection: upgrade\r\nUpgrade: x\r\n\r\n",
            "/silent" => continue,
            _ => "",
        };
        let _ = stream.write_all(answer.as_bytes());
        if !matches!(request.split(' ').nth(1), Some("/whole" | "/close" | "/tunnel")) {
            let _ = stream.shutdown(Shutdown::Both);
            return;
        }
        if answer.contains(" 101 ") {
            // Closes when anything arrives.
            let _ = stream.read(&mut head);
            return;
        }
    }
}

/// Returns a configuration with an HTTP frontend that logs the events, and a TCP frontend.
fn configuration(http: u16, tcp: u16, origin: u16, log: u16) -> String {
    let refuses = free_port();
    format!(
        "defaults
  log 127.0.0.1:{log} local0
  log-format \"%ts %[term_events]\"
  option dontlognull
  retries 0
  timeout client 20s
  timeout connect 20s
  timeout server 20s
frontend http
  mode http
  bind 127.0.0.1:{http}
  http-request deny if {{ path /deny }}
  http-request return status 200 if {{ path /return }}
  http-request reject if {{ path /reject }}
  http-response deny if {{ capture.req.uri /whole }} {{ capture.req.method PUT }}
  use_backend refuses if {{ path /refused }}
  use_backend empty if {{ path /nobody }}
  use_backend page if {{ path /page }}
  use_backend hurried if {{ path /silent }}
  use_backend closes if {{ path /close }}
  default_backend web
backend web
  mode http
  server s 127.0.0.1:{origin}
backend closes
  mode http
  option http-server-close
  server s 127.0.0.1:{origin}
backend hurried
  mode http
  timeout server 10ms
  server s 127.0.0.1:{origin}
backend refuses
  mode http
  server s 127.0.0.1:{refuses}
backend empty
  mode http
backend page
  mode http
  stats uri /page
listen tcp
  mode tcp
  bind 127.0.0.1:{tcp}
  server s 127.0.0.1:{origin}
"
    )
}

#[test]
fn term_events_show_how_each_layer_ended() {
    let origin = Origin::raw(serve);
    let log = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port of the loopback interface");
    log.set_read_timeout(Some(PATIENCE)).expect("the timeout is not zero");
    let (http, tcp) = (free_port(), free_port());
    let log_port = log.local_addr().expect("a bound socket has an address").port();
    let _weir = Weir::start(&configuration(http, tcp, origin.port(), log_port), &[http, tcp]);
    let told = || {
        let mut line = [0; 2048];
        let n = log.recv(&mut line).expect("a log line comes");
        let line = String::from_utf8_lossy(&line[..n]).trim_end().to_owned();
        line.split_once("]: ").map_or(line.clone(), |(_, message)| message.to_owned())
    };
    let cases = [
        ("GET /whole", "-- {,,e1,s1S1,E1,,}"),
        ("GET /close", "-- {,,e1,s1S1,E1,M1,F1}"),
        ("PUT /whole", "PH {,,e1,S8S1s1,E1,M1,F1}"),
        ("GET /until-close", "-- {f1,m1,e1,S2s1,E2E1,M2M1,F2F1}"),
        ("GET /end", "SH {,,e1,S5s1,E5E1,M5M1,F2F1}"),
        ("GET /reset", "SH {,,e1,S5s1,E6E1,M6M1,F3}"),
        ("GET /half", "PH {,,e1,S5S9s1,E5E1,M5M1,F2F1}"),
        ("GET /cut", "SD {f1,m1,e1,S5s1,E5E1,M5M1,F2F1}"),
        ("GET /junk", "PH {,,e1,S6S1S9s1,E9E1,M1,F1}"),
        ("GET /silent", "sH {,,e1,S7S1s1,E1,M1,F1}"),
        ("GET /refused", "SC {,,e1,S1s1,,,F7}"),
        ("GET /nobody", "SC {,,e1,S1s1,,-,-}"),
        ("GET /deny", "PR {,,e1,s8S1s1,,-,-}"),
        ("GET /return", "LR {,,e1,s8S1s1,,-,-}"),
        ("GET /reject", "PR {f1,m1,e1,s8S1s1,,-,-}"),
        ("GET /page", "LR {,,e1,S2S1s1,E2E1,-,-}"),
        ("POST", "PR {,m9,-,-,-,-,-}"),
    ];
    for (request, events) in cases {
        let mut client = Client::connect(http);
        client.send(format!("{request} HTTP/1.1\r\nHost: h\r\n\r\n"));
        assert_eq!(told(), events, "{request}");
    }
    // The client half-closes: within a head, within a body, while it waits for the response.
    let cases = [
        ("GET / HT", "CR {f2,m5,-,-,-,-,-}"),
        (
            "POST /silent HTTP/1.1\r\nHost: h\r\nContent-Length: 9\r\n\r\nhi",
            "CH {f2f1,m5m1,e5e1,s5s1S1,E1,M1,F1}",
        ),
        ("GET /tunnel HTTP/1.1\r\nHost: h\r\nConnection: upgrade\r\nUpgrade: x\r\n\r\n", ""),
    ];
    for (request, events) in cases {
        let mut client = Client::connect(http);
        client.send(request);
        if events.is_empty() {
            assert!(client.read_head().contains(" 101 "));
            client.send("end").read_to_end();
            drop(client);
            assert_eq!(told(), "-- {f1f2,m1m2m1,e1e2,S2s1s2S1,E2E1,M2M1,F2F1}");
            continue;
        }
        client.shut().read_to_end();
        assert_eq!(told(), events, "{request:?}");
    }
    let mut client = Client::connect(tcp);
    client.send("GET /whole HTTP/1.1\r\n\r\n");
    assert!(client.read_head().contains(" 200 "));
    client.shut().read_to_end();
    assert_eq!(told(), "-- {f2f1,m2m1,e1,s2S1S2s1,E1,M1M2M1,F1F2}");
    let mut client = Client::connect(tcp);
    client.send("GET /half").read_to_end();
    drop(client);
    assert_eq!(told(), "-- {f1f2,m1m2m1,e1,S2s1s2S1,E1,M2M1,F2F1}");
}
