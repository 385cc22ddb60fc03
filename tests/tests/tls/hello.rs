//! Information about the ClientHello and the keys of connections: client fingerprints (JA3) and key logs, compared with independent
//! implementations.

use std::path::Path;
use std::process::{Command, Stdio};

use weir_tests::client::{Client, exchange};
use weir_tests::openssl::OpensslServer;
use weir_tests::tls::shown;
use weir_tests::{Authority, Weir, eventually, free_port, scratch};

const DEFAULTS: &str =
    "defaults\n mode http\n timeout client 10s\n timeout server 10s\n timeout connect 3s\n";

/// Recorded ClientHellos, of `openssl s_client` and of a client that sends GREASE (RFC 8701), with their JA3 from another program:
/// the text and its MD5.
const RECORDED: &[(&str, &str, &str)] = &[
    (
        "16030101470100014303032cde72485d92e9bf0c1db793484d040a3c3856bab8e5b1c0ac632fc0ec83732220b6899f49ccd81ed8bcafefbe75a87e9b268a98a4b7671e19a97c56e942a3e276003e130213031301c02cc030009fcca9cca8ccaac02bc02f009ec024c028006bc023c0270067c00ac0140039c009c0130033009d009c003d003c0035002f00ff010000bc0000000d000b0000086f6e652e74657374000b000403000102000a00160014001d0017001e0019001801000101010201030104002300000010000e000c02683208687474702f312e310016000000170000000d002a0028040305030603080708080809080a080b080408050806040105010601030303010302040205020602002b0009080304030303020301002d00020101003300260024001d00203486838474d1ce12df1f27b5d1f32a597e3111fc390c658a7c4f376774ba5a09",
        "771,4866-4867-4865-49196-49200-159-52393-52392-52394-49195-49199-158-49188-49192-107-49187-49191-103-49162-49172-57-49161-49171-51-157-156-61-60-53-47-255,0-11-10-35-16-22-23-13-43-45-51,29-23-30-25-24-256-257-258-259-260,0-1-2",
        "5A1EDC7F170AF1014FC65C994878E63C",
    ),
    (
        "16030100b0010000ac0303000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f0000280a0a13011302130313041305c02bcca900ff56009999c0a000050004000a0033fafa003cc0af00000100005b3a3a00000000000d000b0000086f6e652e74657374000a00080006dada001d0017000b0003020001000d000800064a4a040308040010000e000c02683208687474702f312e31002b0007061a1a03040303ff010001002a2a000100",
        "771,4865-4866-4867-4868-4869-49195-52393-255-22016-39321-49312-5-4-10-51-60-49327-0,0-10-11-13-16-43-65281,29-23,0-1",
        "FEB1FE9E18B0509107DE844284FEDD4F",
    ),
];

fn bytes(digits: &str) -> Vec<u8> {
    let byte =
        |pair: &[u8]| u8::from_str_radix(std::str::from_utf8(pair).expect("digits"), 16).expect("digits");
    digits.as_bytes().chunks(2).map(byte).collect()
}

#[test]
fn manuals_recipe_gives_the_ja3_of_recorded_hellos() {
    let authority = Authority::new();
    let certificate = shown(&authority.issue(&["one.test"]));
    let port = free_port();
    let text = format!(
        "global\n tune.ssl.capture-buffer-size 200\n{DEFAULTS}frontend fe\n log stderr len 4096 format raw local0\n \
         bind 127.0.0.1:{port} ssl crt {certificate}\n \
         error-log-format \"<%[ssl_fc_protocol_hello_id],%[ssl_fc_cipherlist_bin(1),be2dec(-,2)],%[ssl_fc_extlist_bin(1),be2dec(-,2)],\
         %[ssl_fc_eclist_bin(1),be2dec(-,2)],%[ssl_fc_ecformats_bin,be2dec(-,1)]>\"\n"
    );
    let weir = Weir::start(&text, &[port]);
    for (hello, ja3, _) in RECORDED {
        Client::connect(port).send(bytes(hello)).shut().read_to_end();
        let line = format!("<{ja3}>");
        assert!(weir.says(&line), "{line}\n{}", weir.messages());
    }
}

#[test]
fn hello_lists_are_available_with_and_without_grease() {
    let authority = Authority::new();
    let certificate = shown(&authority.issue(&["one.test"]));
    for (size, expected) in [
        (
            200,
            "<771> <0A0A1301> <13011302> <0A0A> <1301> <UNKNOWN(0a0a),TLS_AES_128_GCM_SHA256> <-3236962843500642590> \
             <3A3A0000> <0000000A> <DADA001D0017> <001D0017> <0001> <4A4A04030804> <04030804> <1A1A03040303> <03040303>",
        ),
        (
            43,
            "<771> <0A0A1301> <13011302> <0A0A> <1301> <UNKNOWN(0a0a),TLS_AES_128_GCM_SHA256> <-3236962843500642590> \
             <3A3A> <-> <-> <-> <-> <-> <-> <-> <->",
        ),
        (0, "<-> <-> <-> <-> <-> <-> <-> <-> <-> <-> <-> <-> <-> <-> <-> <->"),
    ] {
        let port = free_port();
        let text = format!(
            "global\n tune.ssl.capture-cipherlist-size {size}\n{DEFAULTS}frontend fe\n log stderr len 4096 format raw local0\n \
             bind 127.0.0.1:{port} ssl crt {certificate}\n \
             error-log-format \"<%[ssl_fc_protocol_hello_id]> <%[ssl_fc_cipherlist_bin,hex,bytes(0,8)]> <%[ssl_fc_cipherlist_bin(1),hex,bytes(0,8)]> \
             <%[ssl_fc_cipherlist_hex,bytes(0,4)]> <%[ssl_fc_cipherlist_hex(1),bytes(0,4)]> <%[ssl_fc_cipherlist_str,bytes(0,36)]> \
             <%[ssl_fc_cipherlist_xxh]> <%[ssl_fc_extlist_bin,hex,bytes(0,8)]> <%[ssl_fc_extlist_bin(1),hex,bytes(0,8)]> \
             <%[ssl_fc_eclist_bin,hex]> <%[ssl_fc_eclist_bin(1),hex]> <%[ssl_fc_ecformats_bin,hex]> \
             <%[ssl_fc_sigalgs_bin,hex]> <%[ssl_fc_sigalgs_bin(1),hex]> \
             <%[ssl_fc_supported_versions_bin,hex]> <%[ssl_fc_supported_versions_bin(1),hex]>\"\n"
        );
        let weir = Weir::start(&text, &[port]);
        Client::connect(port).send(bytes(RECORDED[1].0)).shut().read_to_end();
        assert!(weir.says(expected), "{size}: {}", weir.messages());
    }
}

/// Returns the output of `openssl s_client` and its own key log.
fn ask(port: u16, version: &str, log: &Path) -> (String, String) {
    let mut child = Command::new("openssl")
        .args(["s_client", version, "-ign_eof", "-connect", &format!("127.0.0.1:{port}"), "-keylogfile"])
        .arg(log)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .expect("openssl runs: `make tools` installs it");
    let mut input = child.stdin.take().expect("it was asked for");
    let request = b"GET / HTTP/1.1\r\nHost: one.test\r\nConnection: close\r\n\r\n";
    let _ = std::io::Write::write_all(&mut input, request);
    let output = child.wait_with_output().expect("it ends with the connection");
    let keys = std::fs::read_to_string(log).unwrap_or_default();
    (String::from_utf8_lossy(&output.stdout).into_owned(), keys)
}

#[test]
fn key_logs_match_the_clients() {
    let authority = Authority::new();
    let certificate = shown(&authority.issue(&["one.test"]));
    let directory = scratch("keys");
    let (port, without) = (free_port(), free_port());
    let rule = "http-request return status 200 content-type text/plain lf-string \
        \"CLIENT_HANDSHAKE_TRAFFIC_SECRET %[ssl_fc_client_random,hex] %[ssl_fc_client_handshake_traffic_secret]\\n\
        SERVER_HANDSHAKE_TRAFFIC_SECRET %[ssl_fc_client_random,hex] %[ssl_fc_server_handshake_traffic_secret]\\n\
        CLIENT_TRAFFIC_SECRET_0 %[ssl_fc_client_random,hex] %[ssl_fc_client_traffic_secret_0]\\n\
        SERVER_TRAFFIC_SECRET_0 %[ssl_fc_client_random,hex] %[ssl_fc_server_traffic_secret_0]\\n\
        EXPORTER_SECRET %[ssl_fc_client_random,hex] %[ssl_fc_exporter_secret]\\n\
        CLIENT_RANDOM %[ssl_fc_client_random,hex] %[ssl_fc_session_key,hex]\\n\
        early %[ssl_fc_client_early_traffic_secret]%[ssl_fc_early_exporter_secret]\\n\
        id %[ssl_fc_session_id,hex] %[ssl_fc_server_random,length]\\n\"";
    let start = |port: u16, global: &str| {
        let text = format!(
            "global\n {global}\n{DEFAULTS}frontend fe\n bind 127.0.0.1:{port} ssl crt {certificate} no-tls-tickets\n {rule}\n"
        );
        Weir::start(&text, &[port])
    };
    let _weir = start(port, "tune.ssl.keylog on");
    for version in ["-tls1_2", "-tls1_3"] {
        let (told, keys) = ask(port, version, &directory.join(version));
        let mut compared = 0;
        for line in keys.lines().filter(|line| !line.starts_with('#')) {
            let line = line.to_lowercase();
            assert!(told.lines().any(|told| told.to_lowercase() == line), "{version} {line}\n{told}");
            compared += 1;
        }
        assert_eq!(compared, if version == "-tls1_2" { 1 } else { 5 }, "{keys}");
        assert!(told.contains("\nearly \n"), "{told}");
        if version == "-tls1_3" {
            // The secret with which the last ticket resumes the session.
            let of = |begin: &str| {
                let mut lines = told.lines().rev();
                lines.find_map(|line| line.trim().strip_prefix(begin)).unwrap_or_default().to_lowercase()
            };
            let key = of("Resumption PSK: ");
            assert!(!key.is_empty() && of("CLIENT_RANDOM ").ends_with(&format!(" {key}")), "{told}");
        } else {
            let id =
                told.lines().find_map(|line| line.trim().strip_prefix("Session-ID: ")).unwrap_or_default();
            assert!(told.contains(&format!("\nid {id} ")), "{told}");
        }
    }
    let _other = start(without, "tune.ssl.keylog off");
    let (told, _) = ask(without, "-tls1_3", &directory.join("unused"));
    assert!(
        told.lines().any(|line| line.starts_with("EXPORTER_SECRET ") && line.trim_end().len() == 80),
        "{told}"
    );
}

#[test]
fn server_connection_keys_match_the_servers() {
    let authority = Authority::new();
    let certificate = authority.issue(&["one.test"]);
    let directory = scratch("server-keys");
    let log = directory.join("log");
    for (line, begins) in [
        ("force-tlsv12", &["CLIENT_RANDOM "][..]),
        (
            "force-tlsv13",
            &[
                "CLIENT_HANDSHAKE_TRAFFIC_SECRET ",
                "SERVER_HANDSHAKE_TRAFFIC_SECRET ",
                "CLIENT_TRAFFIC_SECRET_0 ",
                "SERVER_TRAFFIC_SECRET_0 ",
                "EXPORTER_SECRET ",
            ],
        ),
    ] {
        let (port, server) = (free_port(), free_port());
        let _ = std::fs::remove_file(&log);
        let origin =
            OpensslServer::start(server, &certificate, &["-quiet", "-www", "-keylogfile", &shown(&log)]);
        let text = format!(
            "global\n tune.ssl.keylog on\n{DEFAULTS}listen outer\n bind 127.0.0.1:{port}\n retries 100\n \
             server s 127.0.0.1:{server} ssl verify none {line}\n http-response return status 200 content-type text/plain lf-string \
             \"CLIENT_HANDSHAKE_TRAFFIC_SECRET %[ssl_bc_client_random,hex] %[ssl_bc_client_handshake_traffic_secret]\\n\
             SERVER_HANDSHAKE_TRAFFIC_SECRET %[ssl_bc_client_random,hex] %[ssl_bc_server_handshake_traffic_secret]\\n\
             CLIENT_TRAFFIC_SECRET_0 %[ssl_bc_client_random,hex] %[ssl_bc_client_traffic_secret_0]\\n\
             SERVER_TRAFFIC_SECRET_0 %[ssl_bc_client_random,hex] %[ssl_bc_server_traffic_secret_0]\\n\
             EXPORTER_SECRET %[ssl_bc_client_random,hex] %[ssl_bc_exporter_secret]\\n\
             CLIENT_RANDOM %[ssl_bc_client_random,hex] %[ssl_bc_session_key,hex]\\n\
             early <%[ssl_bc_client_early_traffic_secret]%[ssl_bc_early_exporter_secret]>\\n\
             id %[ssl_bc_session_id,hex,length] %[ssl_bc_server_random,hex,length]\\n\"\n"
        );
        let _weir = Weir::start(&text, &[port]);
        let mut told = String::new();
        let answered = eventually(|| {
            told =
                exchange(port, "GET / HTTP/1.1\r\nHost: a\r\n\r\n").map_or(String::new(), |got| got.text());
            told.contains("CLIENT_RANDOM")
        });
        drop(origin);
        assert!(answered, "{line}: {told}");
        let keys = std::fs::read_to_string(&log).unwrap_or_default().to_lowercase();
        for begin in begins {
            let line = told.lines().find(|line| line.starts_with(begin)).unwrap_or_default().to_lowercase();
            assert!(keys.lines().any(|kept| kept == line), "{line}\n{keys}");
        }
        // A server that issues tickets sends no session id in TLS 1.2.
        let id = if line == "force-tlsv12" { "\nid  64" } else { "\nid 64 64" };
        assert!(told.contains("early <>") && told.contains(id), "{told}");
    }
}

/// Returns the Finished messages that `openssl` printed with `-msg`, in order, without headers.
fn finished(shown: &str) -> Vec<String> {
    let mut found = Vec::new();
    let mut lines = shown.lines();
    while let Some(line) = lines.next() {
        if line.contains("Handshake [length") && line.trim_end().ends_with("Finished") {
            let digits = lines.by_ref().take_while(|line| line.starts_with("    "));
            let digits: String =
                digits.flat_map(|line| line.chars().filter(|one| !one.is_whitespace())).collect();
            found.push(digits.get(8..).unwrap_or_default().to_uppercase());
        }
    }
    found
}

#[test]
fn unique_id_is_the_right_finished_message() {
    let authority = Authority::new();
    let certificate = shown(&authority.issue(&["one.test"]));
    let directory = scratch("unique");
    let session = shown(&directory.join("session"));
    let port = free_port();
    let text = format!(
        "{DEFAULTS}frontend fe\n bind 127.0.0.1:{port} ssl crt {certificate}\n \
         http-request return status 200 content-type text/plain lf-string \"id=%[ssl_fc_unique_id,hex]\"\n"
    );
    let _weir = Weir::start(&text, &[port]);
    for version in ["-tls1_2", "-tls1_3"] {
        for (argument, is_resumed) in [("-sess_out", false), ("-sess_in", true)] {
            let target = format!("127.0.0.1:{port}");
            let mut child = Command::new("openssl")
                .args(["s_client", version, "-msg", "-ign_eof", "-connect", &target, argument, &session])
                .stdin(Stdio::piped())
                .stdout(Stdio::piped())
                .stderr(Stdio::null())
                .spawn()
                .expect("openssl runs");
            let mut input = child.stdin.take().expect("it was asked for");
            let request = b"GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n";
            let _ = std::io::Write::write_all(&mut input, request);
            let output = child.wait_with_output().expect("it ends with the connection");
            let told = String::from_utf8_lossy(&output.stdout).into_owned();
            let both = finished(&told);
            assert_eq!(both.len(), 2, "{told}");
            // In TLS 1.3 the server's always comes first.
            let ours_first = version == "-tls1_3" || is_resumed;
            let place = usize::from(ours_first != is_resumed);
            assert!(told.contains(&format!("id={}", both[place])), "{version} {is_resumed}\n{told}");
        }
    }
}

#[test]
fn server_unique_id_is_the_servers_finished_message() {
    let authority = Authority::new();
    let certificate = shown(&authority.issue(&["one.test"]));
    let directory = scratch("server-unique");
    for line in ["force-tlsv12", "force-tlsv13"] {
        let (port, server) = (free_port(), free_port());
        let log = directory.join(line);
        let file = std::fs::File::create(&log).expect("the directory takes files");
        let mut origin = Command::new("openssl")
            .args(["s_server", "-msg", "-www", "-cert", &certificate, "-key", &certificate, "-accept"])
            .arg(format!("127.0.0.1:{server}"))
            .stdin(Stdio::null())
            .stdout(file)
            .stderr(Stdio::null())
            .spawn()
            .expect("openssl runs");
        let text = format!(
            "{DEFAULTS}listen outer\n bind 127.0.0.1:{port}\n retries 0\n server s 127.0.0.1:{server} ssl verify none no-ssl-reuse {line}\n \
             http-response return status 200 content-type text/plain lf-string \"id=%[ssl_bc_unique_id,hex]\"\n"
        );
        let _weir = Weir::start(&text, &[port]);
        let mut told = String::new();
        let answered = eventually(|| {
            told =
                exchange(port, "GET / HTTP/1.1\r\nHost: a\r\n\r\n").map_or(String::new(), |got| got.text());
            told.starts_with("id=")
        });
        let id = told.trim_start_matches("id=").to_owned();
        let place = usize::from(line == "force-tlsv12");
        let seen = eventually(|| {
            let shown = std::fs::read_to_string(&log).unwrap_or_default();
            finished(&shown).get(place) == Some(&id)
        });
        let _ = origin.kill();
        let _ = origin.wait();
        assert!(answered && seen, "{line} {told}\n{}", std::fs::read_to_string(&log).unwrap_or_default());
    }
}
