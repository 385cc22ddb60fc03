//! Options of certificates in crt-lists and `ssl-f-use`, and their errors; and `ktls`, which is allowed there too.

use std::fs;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::Arc;

use tls::connector::Connecting;
use tls::{Connector, Parameters, Session, TLS13};
use weir_tests::tls::{handshake, shown};
use weir_tests::{Authority, Scratch, Verdict, Weir, check, free_port, scratch};

const DEFAULTS: &str =
    "defaults\n mode http\n timeout client 10s\n timeout server 10s\n timeout connect 3s\n";

const EXPERIMENTAL: &str = "global\n expose-experimental-directives\n";

/// A directory with a crt-list, in which this line follows the name of a certificate.
struct Scene {
    directory: Scratch,
    authority: Authority,
    certificate: String,
}

impl Scene {
    fn new() -> Self {
        let authority = Authority::new();
        let certificate = shown(&authority.issue(&["one.test"]));
        Self { directory: scratch("lists"), authority, certificate }
    }

    /// Returns the path of a list with this line.
    fn list(&self, line: &str) -> String {
        let file = self.directory.join("list");
        fs::write(&file, format!("{} {line}\n", self.certificate)).expect("a file");
        shown(&file)
    }

    fn check(&self, text: &str) -> Verdict {
        let file = self.directory.join("haproxy.cfg");
        fs::write(&file, text).expect("a file");
        check(&file, &self.directory)
    }
}

fn frontend(port: u16, words: &str, more: &str) -> String {
    format!(
        "{DEFAULTS}frontend fe\n bind 127.0.0.1:{port} ssl {words}\n{more} http-request return status 200\n"
    )
}

#[test]
fn crt_list_options_override_the_bind_line() {
    let scene = Scene::new();
    let authority = shown(&scene.authority.own());
    #[rustfmt::skip]
    let cases = [
        ("[alpn http/1.1]",                                  &["-alpn", "http/1.1"][..],      "ALPN protocol: http/1.1"),
        ("[no-alpn]",                                        &["-alpn", "http/1.1"],          "No ALPN negotiated"),
        ("[ciphers ECDHE-ECDSA-AES256-GCM-SHA384]",          &["-tls1_2"],                    "Cipher is ECDHE-ECDSA-AES256-GCM-SHA384"),
        ("[ciphersuites TLS_CHACHA20_POLY1305_SHA256]",      &[],                             "Cipher is TLS_CHACHA20_POLY1305_SHA256"),
        ("[curves P-384]",                                   &[],                             "Server Temp Key: ECDH, secp384r1, 384 bits"),
        ("[ecdhe P-384]",                                    &[],                             "Server Temp Key: ECDH, secp384r1, 384 bits"),
        ("[ssl-max-ver TLSv1.2]",                            &[],                             "New, TLSv1.2"),
        ("[ssl-min-ver TLSv1.3]",                            &["-tls1_2"],                    "alert protocol version"),
        ("[sigalgs ECDSA+SHA256]",                           &[],                             "Peer signing digest: SHA256"),
        (&format!("[verify optional ca-file {authority}]"),  &[],                             "Acceptable client certificate CA names"),
        (&format!("[verify optional ca-verify-file {authority}]"), &[],                       "No client certificate CA names sent"),
        (&format!("[verify optional ca-file {authority} no-ca-names]"), &[],                  "No client certificate CA names sent"),
        (&format!("[verify optional ca-file {authority} client-sigalgs RSA+SHA256]"), &["-tls1_2"], "Requested Signature Algorithms: RSA+SHA256"),
    ];
    for (line, arguments, wanted) in cases {
        let port = free_port();
        let _weir = Weir::start(&frontend(port, &format!("crt-list {}", scene.list(line)), ""), &[port]);
        let seen = handshake(port, &[&["-servername", "one.test"], arguments].concat());
        assert!(seen.contains(wanted), "{line}: {seen}");
    }
}

#[test]
fn negated_wildcards_do_not_affect_other_lines() {
    let scene = Scene::new();
    let (list, port) = (scene.directory.join("list"), free_port());
    let lines = format!(
        "{} [verify none] !*.cert.test\n{} [verify required ca-file {}] *.cert.test\n",
        scene.certificate,
        shown(&scene.authority.issue(&["two.test"])),
        shown(&scene.authority.own()),
    );
    fs::write(&list, lines).expect("a file");
    let _weir = Weir::start(&frontend(port, &format!("crt-list {}", shown(&list)), ""), &[port]);
    let seen = handshake(port, &["-servername", "x.cert.test"]);
    assert!(seen.contains("CN=two.test") || seen.contains("CN = two.test"), "{seen}");
    assert!(seen.contains("Acceptable client certificate CA names"), "{seen}");
    let seen = handshake(port, &["-servername", "other.test"]);
    assert!(!seen.contains("two.test") && seen.contains("No client certificate CA names sent"), "{seen}");
}

#[test]
fn excluded_wildcards_warn_unless_they_are_alone() {
    let scene = Scene::new();
    for (filter, warns) in [("!*", false), ("!*.one.test", true)] {
        let list = scene.list(filter);
        let verdict = scene.check(&frontend(free_port(), &format!("crt-list {list}"), ""));
        assert!(verdict.accepted(), "{filter}: {}", verdict.messages);
        assert_eq!(verdict.warnings().is_empty(), !warns, "{filter}: {}", verdict.messages);
    }
}

#[test]
fn unknown_options_are_refused_with_line_and_suggestion() {
    let scene = Scene::new();
    for (line, wanted) in [
        ("[alpm http/1.1] one.test", "unknown ssl keyword alpm; did you mean 'alpn' maybe ?"),
        ("[strict-sni] one.test", "unknown ssl keyword strict-sni"),
        ("[no-alpn x] one.test", "unknown ssl keyword x"),
        ("[alpn] one.test", "ssl args out of '[]' for alpn"),
        ("[verify maybe] one.test", "'verify' : unknown verify method 'maybe'"),
        ("[ssl-min-ver TLSv9] one.test", "'TLSv9' : unknown ssl/tls version"),
        ("[npn h2] one.test", "'npn' : library does not support TLS NPN extension"),
        ("[ocsp-update maybe] one.test", "'ocsp-update' : expecting <on|off>"),
        ("[ktls maybe] one.test", "'ktls' expects \"on\" or \"off\" as an argument, got 'maybe'."),
        ("[key] one.test", "`key` expects a file"),
    ] {
        let list = scene.list(line);
        let text = frontend(free_port(), &format!("crt-list {list}"), "");
        let verdict = scene.check(&format!("{EXPERIMENTAL}{text}"));
        assert_ne!(verdict.code, Some(0), "{line}");
        assert!(verdict.messages.contains(wanted), "{line}: {}", verdict.messages);
        assert!(verdict.messages.contains(&format!("{list}:1")), "{line}: {}", verdict.messages);
    }
    let text = frontend(free_port(), "", &format!(" ssl-f-use crt {} alpm h2\n", scene.certificate));
    let verdict = scene.check(&text);
    assert!(verdict.messages.contains("unknown ssl keyword alpm"), "{}", verdict.messages);
}

#[test]
fn ktls_option_reports_user_space_tls() {
    let scene = Scene::new();
    let certificate = &scene.certificate;
    let list = |word: &str| format!("crt-list {}", scene.list(&format!("[ktls {word}] one.test")));
    let server = |word: &str| {
        format!("listen l\n bind :{}\n server s 127.0.0.1:1 ssl verify none ktls {word}\n", free_port())
    };
    let of_bind = |word: &str| frontend(free_port(), &format!("crt {certificate} ktls {word}"), "");
    let of_list = |word: &str| frontend(free_port(), &list(word), "");
    let of_frontend =
        |word: &str| frontend(free_port(), "", &format!(" ssl-f-use crt {certificate} ktls {word}\n"));
    let of_server =
        |word: &str| format!("{}{}", frontend(free_port(), &format!("crt {certificate}"), ""), server(word));
    type Make<'a> = &'a dyn Fn(&str) -> String;
    let all: [(&str, Make<'_>); 4] =
        [("bind", &of_bind), ("crt-list", &of_list), ("ssl-f-use", &of_frontend), ("server", &of_server)];
    for (place, make) in all {
        let refused = scene.check(&make("on"));
        assert!(
            refused.messages.contains("'ktls' directive is experimental"),
            "{place}: {}",
            refused.messages
        );
        assert_ne!(refused.code, Some(0), "{place}");
        let warned = scene.check(&format!("{EXPERIMENTAL}{}", make("on")));
        assert_eq!(warned.code, Some(0), "{place}: {}", warned.messages);
        let warnings = warned.warnings();
        let told = warnings
            .iter()
            .any(|text| text.contains("haproxy.cfg:") && text.contains("TLS is handled in user space"));
        assert!(told, "{place}: {}", warned.messages);
        for (global, word) in [("", "off"), ("global\n noktls\n", "on")] {
            let verdict = scene.check(&format!("{EXPERIMENTAL}{global}{}", make(word)));
            assert!(
                verdict.code == Some(0) && !verdict.messages.contains("user space"),
                "{place}: {}",
                verdict.messages
            );
        }
    }
    let wrong = scene.check(&format!("{EXPERIMENTAL}{}", of_bind("")));
    assert!(
        wrong.messages.contains("'ktls' expects \"on\" or \"off\" as an argument."),
        "{}",
        wrong.messages
    );
    // The certificate is still served.
    let port = free_port();
    let text = frontend(port, &format!("crt {certificate} ktls on"), "");
    let _weir = Weir::start(&format!("{EXPERIMENTAL}{text}"), &[port]);
    assert!(handshake(port, &[]).contains("CONNECTED"));
}

/// Returns how many bytes a server sends in a handshake with a client that does or does not accept compressed certificates.
fn said_by_server(port: u16, takes: bool) -> usize {
    let parameters = Parameters { min: TLS13, compresses: takes, ..Parameters::default() };
    let connecting = Connecting { parameters, ..Connecting::default() };
    let connector = Arc::new(Connector::new(&connecting).expect("its words are good"));
    let mut session = Session::connect(&connector, Some("one.test")).expect("a hello can be made");
    let mut stream = TcpStream::connect(("127.0.0.1", port)).expect("somebody listens");
    let (mut all, mut received, mut room) = (0, 0, vec![0; 20_000]);
    while !session.handshake(&room[..received]).expect("the handshake goes on") {
        stream.write_all(session.unsent()).expect("it is taken");
        session.sent(usize::MAX);
        received = stream.read(&mut room).expect("it answers");
        all += received;
    }
    all
}

#[test]
fn certificates_are_compressed_if_accepted_and_enabled() {
    let scene = Scene::new();
    let names: Vec<String> = (0..50).map(|n| format!("host-{n}.one.test")).collect();
    let names: Vec<&str> = names.iter().map(|name| &**name).collect();
    let certificate = shown(&scene.authority.issue(&names));
    let text = |port: u16, value: &str| {
        let frontend = frontend(port, &format!("crt {certificate}"), "");
        format!("global\n tune.ssl.certificate-compression {value}\n{frontend}")
    };
    let said = ["auto", "off"].map(|value| {
        let port = free_port();
        let _weir = Weir::start(&text(port, value), &[port]);
        [true, false].map(|takes| said_by_server(port, takes))
    });
    let [[compressed, plain], [off, off_plain]] = said;
    // The certificate has over a kilobyte of similar names.
    assert!(compressed + 500 < plain.min(off).min(off_plain), "{said:?}");
    for value in ["", "on"] {
        assert_ne!(scene.check(&text(free_port(), value)).code, Some(0), "{value}");
    }
}
