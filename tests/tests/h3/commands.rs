//! Commands of the runtime socket about QUIC connections, and trace sources.

use weir_tests::http3::{Http3Client, Http3Request, Http3Sessions, QuicClient};
use weir_tests::{Origin, eventually};

use super::start;

const LOCAL: &str = " http-request return status 200 content-type text/plain string ok";

/// A HEADERS frame with `:method GET`, `:scheme https`, `:path /` and `:authority a`.
const REQUEST: [u8; 10] = [1, 8, 0, 0, 0xd1, 0xd7, 0xc1, 0x50, 1, b'a'];

#[test]
fn show_quic_lists_connections_in_all_formats() {
    let origin = Origin::start(|_, _| {
        [b"HTTP/1.1 200 OK\r\nContent-Length: 20000000\r\n\r\n".to_vec(), vec![b'x'; 20_000_000]].concat()
    });
    let backend = format!("backend b\n server s 127.0.0.1:{}", origin.port());
    let scene = start("", " default_backend b", &backend);
    let ask = |command: &str| scene.weir.ask(command);
    let empty = ask("show quic");
    assert!(empty.starts_with("# conn/frontend ") && empty.trim_end().lines().count() == 1, "{empty}");
    let client = QuicClient::connect(scene.port, &Http3Sessions::new("h3")).expect("a connection");
    // A response that is not read fills the windows.
    let _streams = client.runtime.block_on(async {
        let (mut send, receive) = client.connection.open_bi().await.expect("a stream");
        send.write_all(&REQUEST).await.expect("a request");
        let _ = send.finish();
        (send, receive)
    });
    let lines = |text: String| text.lines().map(str::to_owned).collect::<Vec<_>>();
    let serves = || {
        client.idle(5);
        ask("show quic stream").contains("st=HCR")
    };
    assert!(eventually(serves), "{}", ask("show quic full"));
    let row = lines(ask("show quic"))[1].clone();
    let words: Vec<&str> = row.split_whitespace().collect();
    let [name, "ESTAB", _, _, _, local, remote, ours, theirs] = words[..] else { panic!("{row}") };
    let id = name.split('[').next().expect("a number").to_owned();
    assert!(id.starts_with("0x") && name.ends_with("]/f"), "{name}");
    assert_eq!(local, format!("127.0.0.1:{}", scene.port));
    assert!(remote.starts_with("127.0.0.1:"), "{remote}");
    assert!(ours.len() == 16 && theirs.len() == 16, "eight bytes each: {ours} {theirs}");
    let stream = ask("show quic stream");
    assert!(stream.starts_with(&format!("{id}.0000: st=HCR ")), "{stream}");
    let full = ask("show quic full");
    for part in ["* 0x", "loc. TPs: odcid=", "rem. TPs: iscid=", "midle_timeout=30000ms", "ms_bidi=100"] {
        assert!(full.contains(part), "{part}: {full}");
    }
    for part in ["st=opened", "mux=ready", "fd=", "[01rtt]", "cc: state=", "cwnd=", "sc=1 ", "id=0 st=HCR"] {
        assert!(full.contains(part), "{part}: {full}");
    }
    let levels = ["TPs", "fd=", "[01rtt]", "cwnd=", "qcc="];
    for (wanted, shown) in [("tp", 0), ("sock", 1), ("pktns", 2), ("cc", 3), ("mux", 4)] {
        let text = ask(&format!("show quic {wanted} {id}"));
        for (at, mark) in levels.iter().enumerate() {
            assert_eq!(text.contains(mark), at == shown, "{wanted}: {text}");
        }
    }
    assert!(ask(&format!("show quic {id}")).contains("cwnd="), "one connection is shown in full");
    assert!(ask("show quic oneline all").contains(&id));
    for filter in ["clo", "be", "oneline clo", "oneline 0x1"] {
        assert!(!ask(&format!("show quic {filter}")).contains(&id), "{filter}");
    }
    assert!(ask("show quic help").starts_with("Usage: show quic "));
    assert!(ask("show quic bla").starts_with("Invalid argument"));
    let sessions = ask("show sess");
    assert!(sessions.contains("proto=quic4 src=127.0.0.1:"), "{sessions}");
    let descriptors = ask("show fd");
    let listener = format!("l.st=RDY fe=f fam=ipv4 lport={} mux=QUIC", scene.port);
    assert!(descriptors.contains(&listener), "{descriptors}");
    client.connection.close(0x100_u32.into(), b"");
    client.idle(20);
    assert!(eventually(|| !ask("show quic").contains(&id)), "closed connections are not listed");
}

#[test]
fn traces_of_quic_and_h3_report_connections_and_requests() {
    let scene = start("", LOCAL, "");
    let ask = |command: &str| scene.weir.ask(command);
    for source in ["quic", "h3"] {
        let answer = ask(&format!("trace {source} sink buf0 level developer verbosity clean start now"));
        assert_eq!(answer.trim(), "", "{source}");
    }
    let mut client = Http3Client::connect(scene.port);
    assert_eq!(client.exchange(&Http3Request::get("/seen")).status, 200);
    client.close();
    let wanted = [
        "|quic|1|",
        "first datagram of a client",
        "new connection",
        "handshake complete",
        "alpn=h3",
        "datagrams received",
        "datagrams sent",
        "connection closed",
        "Application(256)",
        "|h3|1|",
        "new client connection",
        "received a request",
        "GET https://localhost/seen",
        "sending a response",
        "stream ended",
    ];
    let mut told = String::new();
    let all = eventually(|| {
        told = ask("show events buf0");
        wanted.iter().all(|text| told.contains(text))
    });
    let missing: Vec<_> = wanted.iter().filter(|text| !told.contains(**text)).collect();
    assert!(all, "{missing:?}: {told}");
    assert!(ask("trace quic event").contains("+ new_conn "));
    assert!(ask("trace quic lock").contains("qconn"));
}

#[test]
fn facts_about_the_connection_are_those_of_quic() {
    let names = [
        "fc_http_major",
        "fc_rtt(us)",
        "fc_rttvar(us)",
        "fc_lost",
        "fc_reordering",
        "fc_retrans",
        "fc_sacked",
        "fc_unacked",
        "fc_fackets",
        "fc_glitches",
        "fc_nb_streams",
        "fc_settings_streams_limit",
        "fs.id",
        "fs.rst_code",
        "fs.aborted",
        "ssl_fc",
        "ssl_fc_alpn",
        "ssl_fc_has_early",
        "ssl_fc_is_resumed",
        "ssl_fc_protocol",
        "ssl_fc_unique_id,hex,length",
        "ssl_fc_server_random,hex,length",
        "req.ver",
    ];
    let format: Vec<String> = names.iter().map(|name| format!("%[{name}]")).collect();
    let rules = format!(
        " http-request return status 200 content-type text/plain lf-string \"%HV|%HPO|{}\"",
        format.join("|")
    );
    let scene = start("", &rules, "");
    let mut client = Http3Client::connect(scene.port);
    client.exchange(&Http3Request::get("/first"));
    let body = client.exchange(&Http3Request::get("/path?query")).body;
    let body = String::from_utf8_lossy(&body).into_owned();
    let values: Vec<&str> = body.split('|').collect();
    assert_eq!(values[..3], ["HTTP/3.0", "/path", "3"], "{body}");
    for (at, time) in [(3, "round-trip time"), (4, "variation")] {
        assert!(values[at].parse::<u32>().is_ok_and(|us| us > 0 && us < 10_000_000), "{time}: {body}");
    }
    assert_eq!(values[5..11], ["0", "0", "", "", "", ""], "{body}");
    assert_eq!(values[11..16], ["0", "1", "100", "4", ""], "{body}");
    assert_eq!(values[16..], ["0", "1", "h3", "0", "0", "TLSv1.3", "96", "64", "3.0"], "{body}");
}
