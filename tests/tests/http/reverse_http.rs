//! Reverse HTTP: client connections that become server connections (`attach-srv`, `rhttp@` servers), and listeners that open their
//! connections themselves (`bind rhttp@…`, `nbconn`).

use std::net::{TcpListener, TcpStream};
use std::thread;

use weir_tests::client::{Client, get, get_now};
use weir_tests::multiplexed::{
    ACK, DATA, END_STREAM, Frames, GOAWAY, HEADERS, PREFACE, PROTOCOL_ERROR, SETTINGS,
};
use weir_tests::tls::shown;
use weir_tests::versions::TIMEOUTS;
use weir_tests::{Authority, Origin, Weir, check, eventually, free_port, scratch};

/// The GOAWAY code without a specific reason.
const INTERNAL_ERROR: u32 = 2;

const GLOBAL: &str = "global\n expose-experimental-directives\n stats socket runtime level admin\n log stderr format raw local0\n";

/// A program to which clients attach as a server.
struct Edge {
    weir: Weir,
    /// The port for requests.
    public: u16,
    /// The port at which clients attach.
    private: u16,
}

impl Edge {
    /// Starts the program. `front` are lines of the attaching frontend, `rule` is the end of its `attach-srv` rule; `back` and
    /// `server` are for the server's backend.
    fn start(global: &str, (bind, rule): (&str, &str), back: &str, server: &str) -> Edge {
        let (public, private) = (free_port(), free_port());
        let weir = Weir::start(
            &format!(
                "{GLOBAL}{global}{TIMEOUTS} option httplog\n\
                 frontend public\n bind 127.0.0.1:{public}\n default_backend b\n\
                 frontend private\n bind 127.0.0.1:{private} {bind}\n tcp-request session attach-srv b/s {rule}\n\
                 backend b\n{back}\n server s rhttp@ {server}\n"
            ),
            &[public, private],
        );
        Edge { weir, public, private }
    }

    fn plain() -> Edge {
        Edge::start(" nbthread 1\n", ("proto h2", ""), "", "")
    }

    /// Returns the number of the server's idle connections.
    fn idle(&self) -> String {
        let answer = self.weir.ask("show servers conn b");
        let line = answer.lines().nth(1).unwrap_or_default().to_owned();
        line.split(' ').nth(14).unwrap_or_default().to_owned()
    }

    /// Returns an attached client that waits for requests.
    fn attach(&self) -> Frames {
        let mut device = Frames::connect(self.private);
        device.find(|frame| frame.kind == SETTINGS && frame.flags & ACK != 0).expect("an acknowledgement");
        device.send(SETTINGS, ACK, 0, b"");
        device
    }
}

/// Answers requests with their paths until the connection ends.
fn serve(mut device: Frames) {
    while let Some(frame) = device.find(|frame| frame.kind == HEADERS) {
        let path =
            device.fields(&frame).into_iter().find_map(|line| Some(line.strip_prefix(":path: ")?.to_owned()));
        let body = path.unwrap_or_default();
        device.head(frame.stream, 0, &[(":status", "200")]).send(
            DATA,
            END_STREAM,
            frame.stream,
            body.as_bytes(),
        );
    }
}

/// Accepts a connection as an HTTP/2 server.
fn accept(listener: &TcpListener) -> Frames {
    Frames::take(accept_raw(listener))
}

fn accept_raw(listener: &TcpListener) -> TcpStream {
    listener.set_nonblocking(true).expect("a socket");
    let mut accepted = None;
    eventually(|| {
        accepted = listener.accept().ok();
        accepted.is_some()
    });
    let (stream, _) = accepted.expect("a connection");
    stream.set_nonblocking(false).expect("a socket");
    stream
}

#[test]
fn requests_are_sent_to_attached_clients() {
    let edge = Edge::plain();
    assert_eq!(get_now(edge.public, "/before").expect("an answer").status, 503);
    let logged = || edge.weir.messages().lines().find(|line| line.contains("GET /before")).map(str::to_owned);
    assert!(eventually(|| logged().is_some()));
    let line = logged().unwrap_or_default();
    let words: Vec<&str> = line.split(' ').collect();
    let times: Vec<&str> = words.get(4).map_or(vec![], |times| times.split('/').collect());
    assert_eq!((words[3], &times[2..4], words[5]), ("b/s", &["-1", "-1"][..], "503"), "{line}");
    assert!(line.contains(" SC-- "), "{line}");
    let mut device = edge.attach();
    assert!(eventually(|| edge.idle() == "1"), "{}", edge.weir.ask("show servers conn b"));
    let mut client = Client::connect(edge.public);
    // Streams of the accepting side have odd ids, because it is the client in this direction.
    for (number, stream) in [1, 3].into_iter().enumerate() {
        client.send(format!("GET /{number} HTTP/1.1\r\nHost: a.test\r\n\r\n"));
        let frame = device.next_of(HEADERS);
        assert_eq!(frame.stream, stream);
        let fields = device.fields(&frame);
        assert!(
            fields.contains(&format!(":path: /{number}")) && fields.contains(&":method: GET".into()),
            "{fields:?}"
        );
        device.head(stream, 0, &[(":status", "200")]).send(DATA, END_STREAM, stream, b"hello");
        let answer = client.response().expect("an answer");
        assert_eq!((answer.status, answer.text().contains("hello")), (200, true));
    }
    // The connection no longer counts as a client's.
    assert!(eventually(|| edge.weir.stat("private,FRONTEND", "scur") == "0"));
    assert_eq!(edge.weir.stat("b,s", "econ"), "1");
    assert_eq!((edge.weir.stat("b,s", "connect"), edge.weir.stat("b,s", "reuse")), ("0".into(), "2".into()));
    assert_eq!(edge.weir.stat("b,BACKEND", "h2_total_connections"), "1");
    assert_eq!(edge.weir.stat("private,FRONTEND", "h2_total_connections"), "0");
    // The connection ends when the client leaves.
    drop(device);
    assert!(eventually(|| edge.idle() == "0"));
    assert_eq!(get_now(edge.public, "/after").expect("an answer").status, 503);
}

#[test]
fn server_without_idle_connections_accepts_no_attachment() {
    let cases =
        [("http-reuse never", ""), ("", "pool-max-conn 0"), ("", "pool-purge-delay 0"), ("", "disabled")];
    for (back, server) in cases {
        let edge = Edge::start(" nbthread 1\n", ("proto h2", ""), &format!(" {back}\n"), server);
        let mut device = Frames::connect(edge.private);
        let end = device.next_of(GOAWAY);
        assert_eq!(end.number(4), INTERNAL_ERROR, "{back} {server}");
        assert!(device.rest().is_empty());
    }
}

#[test]
fn client_with_its_own_request_is_not_attached() {
    let edge = Edge::plain();
    let mut device = Frames::connect(edge.private);
    device.get(1, "/");
    assert_eq!(device.next_of(GOAWAY).number(4), PROTOCOL_ERROR);
    let mut other = Client::connect(edge.private);
    other.send("GET / HTTP/1.1\r\nHost: a.test\r\n\r\n");
    let answer = other.read_to_end();
    assert!(!answer.starts_with(b"HTTP/1"), "{}", String::from_utf8_lossy(&answer));
    assert_eq!(edge.idle(), "0");
}

#[test]
fn attaching_without_http2_is_reset() {
    let edge = Edge::start(" nbthread 1\n", ("", ""), "", "");
    for bytes in [PREFACE, b"GET / HTTP/1.1\r\nHost: a.test\r\n\r\n"] {
        let mut client = Client::connect(edge.private);
        client.send(bytes);
        assert_eq!(client.read_to_end(), b"");
    }
}

#[test]
fn silent_attaching_client_times_out() {
    let (public, private) = (free_port(), free_port());
    let _weir = Weir::start(
        &format!(
            "{GLOBAL}defaults\n mode http\n timeout client 500ms\n timeout connect 20s\n timeout server 20s\n\
             frontend public\n bind 127.0.0.1:{public}\n default_backend b\n\
             frontend private\n bind 127.0.0.1:{private} proto h2\n tcp-request session attach-srv b/s\n\
             backend b\n server s rhttp@\n"
        ),
        &[public, private],
    );
    let mut client = Client::connect(private);
    client.send(PREFACE);
    let answer = client.read_to_end();
    assert_eq!(answer.get(answer.len() - 14..answer.len() - 13), Some(&[GOAWAY][..]), "{answer:?}");
}

#[test]
fn requests_select_attached_connections_by_name() {
    let (public, one, two) = (free_port(), free_port(), free_port());
    let edge = Weir::start(
        &format!(
            "{GLOBAL} nbthread 1\n{TIMEOUTS}\
             frontend public\n bind 127.0.0.1:{public}\n default_backend b\n\
             frontend private\n bind 127.0.0.1:{one} proto h2\n bind 127.0.0.1:{two} proto h2\n \
             tcp-request session attach-srv b/s name dst_port\n\
             backend b\n server s rhttp@ pool-conn-name req.hdr(x-name)\n"
        ),
        &[public, one, two],
    );
    let attached = |port: u16| {
        let mut device = Frames::connect(port);
        device.find(|frame| frame.kind == SETTINGS && frame.flags & ACK != 0).expect("an acknowledgement");
        device
    };
    let (mut first, mut second) = (attached(one), attached(two));
    assert!(
        eventually(|| edge.ask("show servers conn b").contains(" 2 -1 2 2")),
        "{}",
        edge.ask("show servers conn b")
    );
    for (device, port) in [(&mut second, two), (&mut first, one)] {
        let mut client = Client::connect(public);
        client.send(format!("GET / HTTP/1.1\r\nHost: a.test\r\nX-Name: {port}\r\n\r\n"));
        assert!(device.next_head().0.contains(&format!("x-name: {port}")));
        device.head(1, END_STREAM, &[(":status", "204")]);
        assert_eq!(client.response().expect("an answer").status, 204);
    }
    let nobody = weir_tests::client::exchange_with(public, "/", "X-Name: nobody\r\n");
    assert_eq!(nobody.expect("an answer").status, 503);
}

#[test]
fn workers_use_attached_connections_of_others() {
    let (one, two, private) = (free_port(), free_port(), free_port());
    let edge = Weir::start(
        &format!(
            "{GLOBAL} nbthread 2\n{TIMEOUTS}\
             frontend public\n bind 127.0.0.1:{one} thread 1\n bind 127.0.0.1:{two} thread 2\n default_backend b\n\
             frontend private\n bind 127.0.0.1:{private} proto h2 thread 1\n tcp-request session attach-srv b/s\n\
             backend b\n server s rhttp@\n"
        ),
        &[one, two, private],
    );
    let device = Frames::connect(private);
    let served = thread::spawn(move || serve(device));
    for number in 0..20 {
        let (port, path) = ([two, one][number % 2], format!("/{number}"));
        // The connection is free again as soon as the previous request has ended, and the client may see that end first.
        let mut answer = None;
        assert!(eventually(|| {
            answer = get(port, &path).filter(|answer| answer.status == 200);
            answer.is_some()
        }));
        assert!(answer.expect("an answer").text().contains(&path), "{path}");
    }
    assert_eq!(edge.stat("b,BACKEND", "h2_total_connections"), "1");
    drop(edge);
    served.join().expect("the device ends with the connection");
}

#[test]
fn a_server_in_maintenance_loses_its_connections() {
    let edge = Edge::plain();
    let mut device = edge.attach();
    assert!(eventually(|| edge.idle() == "1"));
    edge.weir.ask("disable server b/s");
    assert!(device.rest().iter().all(|frame| frame.kind != HEADERS));
    edge.weir.ask("enable server b/s");
    assert_eq!(get_now(edge.public, "/").expect("an answer").status, 503);
}

#[test]
fn checks_use_attached_connections() {
    let edge = Edge::start(
        " nbthread 2\n",
        ("proto h2", ""),
        " option httpchk\n http-check send meth POST uri /up ver HTTP/1.1 hdr host x body state\n http-check expect string fine\n",
        "check inter 100ms fall 1 rise 1",
    );
    let status = || edge.weir.stat("b,s", "check_status");
    assert!(eventually(|| status() == "SOCKERR"), "{}", status());
    assert_eq!(edge.weir.stat("b,s", "status"), "DOWN");
    let mut device = edge.attach();
    for (body, wanted) in [("fine", "UP"), ("ill", "DOWN"), ("fine", "UP")] {
        let told = eventually(|| {
            let Some(frame) = device.find(|frame| frame.kind == HEADERS) else { return true };
            let fields = device.fields(&frame);
            for field in [":method: POST", ":path: /up", "host: x", "content-length: 5"] {
                let is = |line: &String| line == field || line.replacen(":authority", "host", 1) == field;
                assert!(fields.iter().any(is), "{field}: {fields:?}");
            }
            assert_eq!(device.next_of(DATA).payload, b"state");
            device.head(frame.stream, 0, &[(":status", "200")]).send(
                DATA,
                END_STREAM,
                frame.stream,
                body.as_bytes(),
            );
            edge.weir.stat("b,s", "status") == wanted
        });
        assert!(told, "{body}: {}", status());
    }
    assert_eq!(status(), "L7OK");
    drop(device);
    assert!(eventually(|| status() == "SOCKERR"), "{}", status());
}

/// Starts a program that opens connections to `listener`, and serves requests on them from an origin.
fn dialler(listener: &TcpListener, bind: &str, front: &str, server: &str, origin: &Origin) -> Weir {
    let port = listener.local_addr().expect("a bound socket has an address").port();
    Weir::start(
        &format!(
            "{GLOBAL}{TIMEOUTS}\
             frontend f\n bind rhttp@out/s {bind}\n{front}\n default_backend b\n\
             backend out\n server s 127.0.0.1:{port} {server}\n\
             backend b\n server o 127.0.0.1:{}\n",
            origin.port()
        ),
        &[],
    )
}

#[test]
fn reverse_listener_maintains_and_serves_its_connections() {
    let (listener, origin) = (TcpListener::bind("127.0.0.1:0").expect("a port"), Origin::echo());
    let weir = dialler(&listener, "nbconn 2", " option socket-stats\n", "proto h2", &origin);
    let mut peers = [accept(&listener), accept(&listener)];
    for (number, peer) in peers.iter_mut().enumerate() {
        let (head, _) = peer.get(1, &format!("/{number}")).next_head();
        assert_eq!(head[0], ":status: 200");
        let body = peer.next_of(DATA).payload;
        assert!(String::from_utf8_lossy(&body).starts_with(&format!("GET /{number} HTTP/1.1")));
    }
    let told = |text: &str| weir.messages().lines().filter(|line| line.contains(text)).count();
    assert!(
        eventually(|| told("preconnect f::out/s: Running with nbconn 2 reached.") == 1),
        "{}",
        weir.messages()
    );
    assert_eq!(told("preconnect f::out/s: Initiating."), 1);
    let columns = ["status", "scur", "slim", "stot"].map(|column| weir.stat("f,sock-1", column));
    assert_eq!(columns, ["FULL", "2", "2", "2"]);
    // Each connection that ends is opened again; a failure is reported once.
    drop(peers);
    for _ in 0..2 {
        drop(accept_raw(&listener));
    }
    assert!(eventually(|| told("preconnect f::out/s: Error encountered.") == 1), "{}", weir.messages());
    let mut again = [accept(&listener), accept(&listener)];
    assert_eq!(again[1].get(1, "/again").next_head().0[0], ":status: 200");
    assert!(eventually(|| told("Running with nbconn 2 reached.") == 2), "{}", weir.messages());
    assert_eq!(told("Error encountered."), 1);
    let answer = weir.ask("disable frontend f");
    assert!(answer.starts_with("Failed to pause frontend"), "{answer}");
    // A soft stop ends the opened connections, and no more are opened.
    weir.signal("USR1");
    for peer in &mut again {
        peer.next_of(GOAWAY);
    }
    drop(again);
    let mut weir = weir;
    assert_eq!(weir.await_end(), Some(0));
}

#[test]
fn opened_connections_follow_the_server_line() {
    use std::io::Read;
    let (listener, origin) = (TcpListener::bind("127.0.0.1:0").expect("a port"), Origin::text("x"));
    let port = listener.local_addr().expect("a bound socket has an address").port();
    let expected_v2 = b"\r\n\r\n\x00\r\nQUIT\n\x20\x00\x00\x00".to_vec();
    for (words, expected) in [("send-proxy", None), ("send-proxy-v2", Some(expected_v2))] {
        let _weir = dialler(&listener, "", "", &format!("proto h2 {words}"), &origin);
        let mut stream = accept_raw(&listener);
        let peer = stream.peer_addr().expect("an address").port();
        let expected = expected
            .unwrap_or_else(|| format!("PROXY TCP4 127.0.0.1 127.0.0.1 {peer} {port}\r\n").into_bytes());
        let mut received = vec![0; expected.len()];
        stream.read_exact(&mut received).expect("a header");
        assert_eq!(received, expected, "{words}");
        assert_eq!(Frames::take(stream).get(1, "/").next_head().0[0], ":status: 200");
    }
}

#[test]
fn connection_and_session_rules_apply_to_opened_connections() {
    let origin = Origin::text("x");
    for set in ["connection", "session"] {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let port = listener.local_addr().expect("a bound socket has an address").port();
        let rule = format!(" tcp-request {set} reject if {{ src_port {port} }} {{ str(no) -m str no }}\n");
        let weir = dialler(&listener, "", &rule, "proto h2", &origin);
        let mut peer = accept(&listener);
        peer.get(1, "/");
        assert!(peer.rest().iter().all(|frame| frame.kind != HEADERS), "{set}");
        let column = if set == "connection" { "dcon" } else { "dses" };
        assert!(eventually(|| weir.stat("f,FRONTEND", column) != "0"), "{set}");
    }
}

#[test]
fn requests_pass_two_programs_over_reversed_tls() {
    let authority = Authority::new();
    let (own, device) = (authority.issue(&["edge.test"]), authority.issue(&["device1"]));
    let (public, private) = (free_port(), free_port());
    let edge = Weir::start(
        &format!(
            "{GLOBAL} nbthread 2\n{TIMEOUTS}\
             frontend public\n bind 127.0.0.1:{public}\n default_backend b\n\
             frontend private\n bind 127.0.0.1:{private} ssl crt {} verify required ca-file {} alpn h2\n \
             tcp-request session attach-srv b/s name ssl_c_s_dn(CN)\n\
             backend b\n server s rhttp@ ssl sni req.hdr(x-name) verify none\n",
            shown(&own),
            shown(&authority.own())
        ),
        &[public, private],
    );
    let origin = Origin::start(|head, body| {
        let first = head.lines().next().unwrap_or_default();
        let text = format!("{first} {}", body.len()).into_bytes();
        [format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n", text.len()).into_bytes(), text].concat()
    });
    let device = Weir::start(
        &format!(
            "{GLOBAL} nbthread 2\n{TIMEOUTS}\
             frontend f\n bind rhttp@out/s nbconn 4\n http-request set-header x-tls %[ssl_fc],%[fc_http_major]\n \
             default_backend b\n\
             backend out\n server s 127.0.0.1:{private} ssl crt {} ca-file {} verifyhost edge.test alpn h2\n\
             backend b\n server o 127.0.0.1:{}\n",
            shown(&device),
            shown(&authority.own()),
            origin.port()
        ),
        &[],
    );
    let body = "x".repeat(300_000);
    let ask = |name: &str| {
        let mut client = Client::connect(public);
        client.send(format!(
            "POST /up HTTP/1.1\r\nHost: a.test\r\nX-Name: {name}\r\nContent-Length: {}\r\n\r\n{body}",
            body.len()
        ));
        client.response()
    };
    let mut answer = None;
    let served = eventually(|| {
        answer = ask("device1").filter(|answer| answer.status == 200);
        answer.is_some()
    });
    assert!(served, "{}\n{}", edge.messages(), device.messages());
    assert!(answer.expect("an answer").text().contains("POST /up HTTP/1.1 300000"));
    assert_eq!(ask("device2").expect("an answer").status, 503);
    assert_eq!(ask("").expect("an answer").status, 503);
}

#[test]
fn invalid_reverse_http_settings_are_reported_as_in_haproxy() {
    let directory = scratch("reverse");
    let common = " mode http\n timeout client 1s\n timeout connect 1s\n timeout server 1s\n";
    let servers = "backend b\n mode http\n server s rhttp@\n server n rhttp@ pool-conn-name req.hdr(x)\n\
                   backend p\n mode http\n server t 127.0.0.1:1 proto h2\n server u 127.0.0.1:1\n \
                   server v 127.0.0.1:1 ssl verify none alpn h2,http/1.1\n";
    let said = |global: &str, line: &str, more: &str| {
        let file = directory.join("reverse.cfg");
        let text = format!(
            "global\n {global}\nfrontend f\n{common} bind 127.0.0.1:1\n {line}\n default_backend b\n{servers}{more}"
        );
        std::fs::write(&file, text).expect("a file");
        check(&file, &directory)
    };
    let allowed = "expose-experimental-directives";
    #[rustfmt::skip]
    let cases = [
        ("bind rhttp@p/t nbconn 0", "'nbconn' : invalid value 0, must be > 0."),
        ("bind rhttp@p/t nbconn -1", "'nbconn' : invalid value -1, must be > 0."),
        ("bind rhttp@p/t nbconn many", "'nbconn' : invalid value 0, must be > 0."),
        ("bind rhttp@p/t nbconn", "'nbconn' : missing value."),
        ("bind 127.0.0.1:2 nbconn 2", "'nbconn' : only valid for reverse HTTP listeners."),
        ("bind rhttp@p/t ssl", "'ssl' option is not accepted for reverse HTTP"),
        ("bind rhttp@p/t proto h2", "'proto' option is not accepted for reverse HTTP"),
        ("bind rhttp@p/t maxconn 2", "'maxconn' option is not accepted for reverse HTTP"),
        ("bind rhttp@p/t,127.0.0.1:2", "'bind' : Cannot mix reverse HTTP bind with others."),
        ("bind rhttp@pt", "Invalid server name: 'pt'"),
        ("bind rhttp@x/t", "No such backend: 'x'"),
        ("bind rhttp@p/x", "No such server: 'p/x'"),
        ("bind rhttp@b/s", "Cannot use reverse HTTP server 'b/s' as target to a reverse bind"),
        ("bind rhttp@p/u", "Cannot reverse connect with server 'p/u' unless HTTP/2 is activated on it"),
        ("bind rhttp@p/v", "Cannot reverse connect with server 'p/v' unless HTTP/2 is activated on it"),
        ("tcp-request session attach-srv b/t", "Proxy 'f': attach-srv rule: no such server 'b/t'."),
        ("tcp-request session attach-srv x/s", "Proxy 'f': attach-srv rule: no such backend 'x/s'."),
        ("tcp-request session attach-srv s", "Proxy 'f': attach-srv rule: invalid server name 's'."),
        ("tcp-request session attach-srv b/s name", "missing name value"),
        ("tcp-request session attach-srv b/s name src", "attach-srv rule has a name argument while server 'b/s' does not use pool-conn-name"),
        ("tcp-request session attach-srv b/n", "attach-srv rule has no name argument while server 'b/n' uses pool-conn-name"),
        ("tcp-request content attach-srv b/s", "attach-srv"),
        ("mode tcp\n tcp-request session attach-srv b/s", "Proxy 'f': attach-srv rule requires HTTP proxy mode."),
    ];
    for (line, text) in cases {
        let verdict = said(allowed, line, "");
        assert!(verdict.code == Some(1) && verdict.messages.contains(text), "{line}: {}", verdict.messages);
    }
    let text = "server s uses reverse HTTP addressing which can only be used with HTTP mode.";
    let verdict = said(allowed, "", "backend c\n mode tcp\n server s rhttp@\n");
    assert!(verdict.code == Some(1) && verdict.messages.contains(text), "{}", verdict.messages);
    for right in [
        "bind rhttp@p/t name x id 7",
        "bind rhttp@p/t,rhttp@p/t nbconn 3 idle-ping 3s thread 1",
        "tcp-request session attach-srv b/n name src",
    ] {
        let verdict = said(allowed, right, "");
        assert_eq!(verdict.code, Some(0), "{right}: {}", verdict.messages);
    }
    let experimental = [
        ("bind rhttp@p/t", "'bind' : Address 'rhttp@p/t' is experimental"),
        ("bind 127.0.0.1:2 nbconn 2", "'nbconn' is experimental"),
        ("tcp-request session attach-srv b/s", "'attach-srv' action is experimental"),
        ("", "'server b/s' : Address 'rhttp@' is experimental"),
    ];
    for (line, text) in experimental {
        let verdict = said("", line, "");
        let whole = format!("{text}, must be allowed via a global 'expose-experimental-directives'");
        assert!(verdict.code == Some(1) && verdict.messages.contains(&whole), "{line}: {}", verdict.messages);
    }
}
