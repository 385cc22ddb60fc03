//! OCSP responses that the program fetches by itself, and its HTTP client in general (manual, 12.7 `ocsp-update`, 3.1
//! `ocsp-update.…`, 3.10 `httpclient.…`).

use std::collections::HashMap;
use std::io::{BufRead, BufReader};
use std::net::{Ipv4Addr, UdpSocket};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use weir_tests::tls::shown;
use weir_tests::{Authority, NameServer, Origin, Weir, Zone, check, eventually, free_port, scratch};

const DEFAULTS: &str =
    "defaults\n mode http\n timeout client 10s\n timeout server 10s\n timeout connect 3s\n log global\n";

/// Receives the program's logs.
struct Collector(UdpSocket);

impl Collector {
    fn new() -> Self {
        let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port of the loopback interface");
        socket.set_read_timeout(Some(Duration::from_secs(30))).expect("a socket takes a timeout");
        Self(socket)
    }

    fn line(&self) -> String {
        let address = self.0.local_addr().expect("a bound socket has an address");
        format!(" log {address} local0\n")
    }

    /// Returns the next log line about OCSP updates, without its header.
    fn update(&self) -> String {
        let mut room = [0; 4096];
        loop {
            let length = self.0.recv(&mut room).expect("there is a line within the time");
            let line = String::from_utf8_lossy(&room[..length]).into_owned();
            if let Some((_, rest)) = line.trim_end().split_once("]: ")
                && rest.contains("<OCSP-UPDATE>")
            {
                let level = line[..line.find('>').unwrap_or(0)].trim_start_matches('<').to_owned();
                return format!("{level} {rest}");
            }
        }
    }
}

/// The responder of the tests: its responses by path, with type and body.
#[derive(Clone, Default)]
struct Answers(Arc<Mutex<HashMap<String, Vec<u8>>>>);

impl Answers {
    fn say(&self, path: &str, response: Vec<u8>) {
        self.0.lock().expect("nobody panics with it").insert(path.to_owned(), response);
    }

    /// Starts the responder; each path also matches everything below it.
    fn start(&self) -> Origin {
        let own = self.clone();
        Origin::start(move |head, _| {
            let path = head.split(' ').nth(1).unwrap_or_default();
            let all = own.0.lock().expect("nobody panics with it");
            let found = all.iter().find(|(known, _)| path.contains(known.as_str()));
            found.map_or_else(
                || b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n".to_vec(),
                |one| one.1.clone(),
            )
        })
    }
}

fn response(content_type: &str, body: &[u8]) -> Vec<u8> {
    let head =
        format!("HTTP/1.1 200 OK\r\nContent-Type: {content_type}\r\nContent-Length: {}\r\n\r\n", body.len());
    [head.as_bytes(), body].concat()
}

fn good(file: &Path) -> Vec<u8> {
    response("application/ocsp-response", &std::fs::read(file).expect("the authority wrote it"))
}

/// Returns a file with a certificate, its key and its issuer.
fn with_issuer(certificate: &Path, authority: &Authority) -> PathBuf {
    let part = |path: &Path| std::fs::read(path).expect("the authority wrote it");
    let whole = certificate.with_extension("whole");
    std::fs::write(&whole, [part(certificate), part(&authority.own())].concat()).expect("it can be written");
    whole
}

/// Returns a crt-list with options, each certificate for its own name.
fn list(lines: &[(&Path, &str)]) -> PathBuf {
    // Next to the first certificate, whose CA keeps the directory.
    let path = lines[0].0.with_file_name(format!("crt-list-{}", fastrand::u64(..)));
    let text: String = lines.iter().map(|(file, options)| format!("{} {options}\n", shown(file))).collect();
    std::fs::write(&path, text).expect("the temporary directory takes files");
    path
}

/// Returns whether the port staples a response with that status for `name`.
fn staples(port: u16, name: &str, status: &str) -> bool {
    let output = Command::new("openssl")
        .args(["s_client", "-status", "-connect", &format!("127.0.0.1:{port}"), "-servername", name])
        .stdin(Stdio::null())
        .output()
        .expect("openssl runs: `make tools` installs it");
    String::from_utf8_lossy(&output.stdout).contains(&format!("Cert Status: {status}"))
}

/// Returns the columns of a certificate's row in `show ssl ocsp-updates`, from the path on.
fn row(weir: &Weir, certificate: &Path) -> Option<Vec<String>> {
    let all = weir.ask("show ssl ocsp-updates");
    let line = all.lines().find(|line| line.contains(&shown(certificate)))?;
    Some(line.split(" | ").skip(1).map(str::to_owned).collect())
}

/// Returns the result code of the last update of a certificate, and its text.
fn outcome(weir: &Weir, certificate: &Path) -> (String, String) {
    let row = row(weir, certificate).expect("it is in the list");
    (row[5].clone(), row[6].clone())
}

#[test]
fn responses_are_fetched_at_start_stapled_and_logged() {
    let (authority, log, answers) = (Authority::new(), Collector::new(), Answers::default());
    let responder = answers.start();
    let base = format!("http://127.0.0.1:{}", responder.port());
    let certificate = authority.issue_asking(&["a.test"], &format!("{base}/a"));
    let other = authority.issue_asking(&["b.test"], &format!("{base}/b"));
    answers.say("/a", good(&authority.answer(&certificate, false)));
    let (own, other) = (with_issuer(&certificate, &authority), with_issuer(&other, &authority));
    let list = list(&[(&own, "[ocsp-update on] a.test"), (&other, "[ocsp-update off] b.test")]);
    let port = free_port();
    let weir = Weir::start(
        &format!(
            "global\n stats socket runtime level admin\n{}{DEFAULTS}frontend f\n bind 127.0.0.1:{port} ssl crt-list {}\n http-request return status 200\n",
            log.line(),
            shown(&list)
        ),
        &[port],
    );
    assert_eq!(log.update(), format!("133 <OCSP-UPDATE> {} 1 \"Update successful\" 0 1", shown(&own)));
    assert!(staples(port, "a.test", "revoked"), "the answer is stapled at once");
    assert!(!staples(port, "b.test", "revoked") && row(&weir, &other).is_none());
    let row = row(&weir, &own).expect("it is in the list");
    assert_eq!(row[3..], ["1", "0", "1", "Update successful"]);
    let shown_of = |file: &Path| weir.ask(&format!("show ssl cert {}", shown(file)));
    assert!(shown_of(&own).contains("Option: ocsp-update on\n"));
    assert!(shown_of(&other).contains("Option: ocsp-update off\n"));
    assert_eq!(responder.requests(), 1);
}

/// Returns a certificate and a running responder that knows it; `None` if the port was taken.
fn start_openssl(authority: &Authority) -> Option<(PathBuf, Child)> {
    let responder = free_port();
    let certificate = authority.issue_asking(&["a.test"], &format!("http://127.0.0.1:{responder}"));
    // This also creates an index that includes the certificate.
    let index = authority.answer(&certificate, true).with_file_name("answers.txt");
    let file = |name: &str| shown(&index.with_file_name(name));
    let mut child = Command::new("openssl")
        .args(["ocsp", "-index", &shown(&index), "-CA", &file("ca.pem"), "-rsigner", &file("ca.pem")])
        .args(["-rkey", &file("ca.key"), "-ndays", "1", "-nrequest", "1", "-port", &responder.to_string()])
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .expect("openssl runs: `make tools` installs it");
    let mut lines = BufReader::new(child.stderr.take().expect("it is piped")).lines();
    let listens = lines.any(|line| line.is_ok_and(|line| line.contains("waiting for OCSP client")));
    if listens {
        return Some((certificate, child));
    }
    let _ = child.wait();
    None
}

#[test]
fn openssl_responder_works() {
    let (authority, log) = (Authority::rsa(), Collector::new());
    let port = free_port();
    // The port may be taken in the meantime.
    let started = (0..5).find_map(|_| start_openssl(&authority));
    let (certificate, mut child) = started.expect("openssl finds a port");
    let own = with_issuer(&certificate, &authority);
    let _weir = Weir::start(
        &format!(
            "global\n httpclient.retries 3\n ocsp-update.mode on\n{}{DEFAULTS}frontend f\n bind 127.0.0.1:{port} ssl crt {}\n http-request return status 200\n",
            log.line(),
            shown(&own)
        ),
        &[port],
    );
    let line = log.update();
    let _ = child.kill();
    let _ = child.wait();
    assert_eq!(line, format!("133 <OCSP-UPDATE> {} 1 \"Update successful\" 0 1", shown(&own)));
    assert!(staples(port, "a.test", "good"));
}

/// Splits a DER value into its tag, its contents, and the rest.
fn split(der: &[u8]) -> (u8, &[u8], &[u8]) {
    let (length, from) = match der[1] {
        short @ 0..=0x7f => (usize::from(short), 2),
        0x81 => (usize::from(der[2]), 3),
        _ => (usize::from(der[2]) << 8 | usize::from(der[3]), 4),
    };
    (der[0], &der[from..from + length], &der[from + length..])
}

fn put(tag: u8, contents: &[u8]) -> Vec<u8> {
    let length = contents.len();
    let head = match length {
        0..=0x7f => vec![tag, length as u8],
        0x80..=0xff => vec![tag, 0x81, length as u8],
        _ => vec![tag, 0x82, (length >> 8) as u8, length as u8],
    };
    [&head, contents].concat()
}

/// Returns a response with `change` applied to the signed data, signed again by `authority`, if given.
fn changed(answer: &Path, authority: Option<&Authority>, change: impl Fn(&mut Vec<u8>)) -> Vec<u8> {
    let der = std::fs::read(answer).expect("the authority wrote it");
    let (_, whole, _) = split(&der);
    let (_, _, bytes) = split(whole);
    let (_, bytes, _) = split(bytes);
    let (_, bytes, _) = split(bytes);
    let (_, _, octets) = split(bytes);
    let oid = &bytes[..bytes.len() - octets.len()];
    let (_, octets, _) = split(octets);
    let (_, basic, _) = split(octets);
    let (_, _, behind) = split(basic);
    let mut data = basic[..basic.len() - behind.len()].to_vec();
    change(&mut data);
    let (_, _, signature) = split(behind);
    let algorithm = &behind[..behind.len() - signature.len()];
    let signature = match authority {
        Some(authority) => put(0x03, &[&[0], &*authority.sign_bytes(&data)].concat()),
        None => signature.to_vec(),
    };
    let basic = put(0x30, &[&data, algorithm, &signature].concat());
    let bytes = put(0x30, &[oid, &put(0x04, &basic)].concat());
    put(0x30, &[&[0x0a, 1, 0], &*put(0xa0, &bytes)].concat())
}

/// Changes the year in the last date of the signed data: the end of the response's validity.
fn outlived(data: &mut [u8]) {
    let at = data.windows(2).rposition(|two| two == [0x18, 15]).expect("there is a date");
    data[at + 2..at + 6].copy_from_slice(b"2001");
}

#[test]
fn invalid_responses_are_not_stapled() {
    let (authority, stranger, answers) = (Authority::new(), Authority::new(), Answers::default());
    let responder = answers.start();
    let uri = |name: &str| format!("http://127.0.0.1:{}/{name}/", responder.port());
    let issue = |name: &str| authority.issue_asking(&[&format!("{name}.test")], &uri(name));
    let kinds = [
        ("good", "1", "Update successful"),
        ("delegated", "1", "Update successful"),
        ("failing", "2", "HTTP error"),
        ("huge", "2", "HTTP error"),
        ("untyped", "3", "Missing \"ocsp-response\" header"),
        ("tampered", "4", "OCSP response check failure (OCSP response: the issuer's signature is invalid)"),
        ("forged", "4", "OCSP response check failure (OCSP response: the issuer's signature is invalid)"),
        (
            "usurped",
            "4",
            "OCSP response check failure (OCSP response: the signer is not authorized to sign OCSP responses)",
        ),
        (
            "other",
            "4",
            "OCSP response check failure (OCSP single response: Certificate ID does not match certificate and issuer)",
        ),
        ("garbage", "4", "OCSP response check failure (Unable to parse OCSP response)"),
        ("later", "4", "OCSP response check failure (OCSP response status not successful)"),
        ("outlived", "5", "Error during insertion (OCSP single response: no longer valid.)"),
    ];
    let mut lines = Vec::new();
    let ocsp = "application/ocsp-response";
    for (kind, ..) in kinds {
        let certificate = issue(kind);
        let answer = authority.answer(&certificate, true);
        let bytes = std::fs::read(&answer).expect("the authority wrote it");
        answers.say(
            &format!("/{kind}/"),
            match kind {
                "delegated" => {
                    good(&authority.answer_by(&authority.issue_responder("responder.test"), &certificate))
                }
                "usurped" => good(&authority.answer_by(&certificate, &certificate)),
                "failing" => b"HTTP/1.1 500 Oops\r\nContent-Length: 0\r\n\r\n".to_vec(),
                "huge" => response(ocsp, &vec![0x30; 300 << 10]),
                "untyped" => response("text/html", &bytes),
                "tampered" => response(
                    ocsp,
                    &changed(&answer, None, |data| {
                        let at = data.windows(2).position(|two| two == [0x18, 15]).expect("there is a date");
                        data[at + 2] = b'3';
                    }),
                ),
                "forged" => response(ocsp, &changed(&answer, Some(&stranger), |_| {})),
                "other" => good(&authority.answer(&issue("third"), true)),
                "garbage" => response(ocsp, b"not DER"),
                "later" => response(ocsp, &[0x30, 3, 0x0a, 1, 3]),
                "outlived" => response(ocsp, &changed(&answer, Some(&authority), |data| outlived(data))),
                _ => response(ocsp, &bytes),
            },
        );
        lines.push((kind, with_issuer(&certificate, &authority)));
    }
    let options: Vec<String> =
        kinds.iter().map(|(kind, ..)| format!("[ocsp-update on] {kind}.test")).collect();
    let all: Vec<(&Path, &str)> =
        lines.iter().zip(&options).map(|((_, file), options)| (&**file, &**options)).collect();
    let port = free_port();
    let weir = Weir::start(
        &format!(
            "global\n stats socket runtime level admin\n{DEFAULTS}frontend f\n bind 127.0.0.1:{port} ssl crt-list {}\n http-request return status 200\n",
            shown(&list(&all))
        ),
        &[port],
    );
    for ((kind, file), (_, number, text)) in lines.iter().zip(kinds) {
        assert!(eventually(|| outcome(&weir, file).0 != "0"), "{kind} is asked about");
        assert_eq!(outcome(&weir, file), (number.to_owned(), text.to_owned()), "{kind}");
        assert_eq!(staples(port, &format!("{kind}.test"), "good"), number == "1", "{kind}");
        let row = row(&weir, file).expect("it is in the list");
        let counts = if number == "1" { ["1", "0"] } else { ["0", "1"] };
        assert_eq!((row[3..5].to_vec(), row[2] == "-"), (counts.map(str::to_owned).to_vec(), number != "1"));
    }
}

#[test]
fn update_command_updates_one_certificate_once() {
    let (authority, log, answers) = (Authority::new(), Collector::new(), Answers::default());
    let responder = answers.start();
    let uri = format!("http://127.0.0.1:{}/a", responder.port());
    let certificate = authority.issue_asking(&["a.test"], &uri);
    let own = with_issuer(&certificate, &authority);
    std::fs::copy(authority.answer(&certificate, true), format!("{}.ocsp", shown(&own)))
        .expect("it is there");
    let silent = with_issuer(&authority.issue(&["b.test"]), &authority);
    answers.say("/a", good(&authority.answer(&certificate, false)));
    let port = free_port();
    let weir = Weir::start(
        &format!(
            "global\n stats socket runtime level admin\n{}{DEFAULTS}frontend f\n bind 127.0.0.1:{port} ssl crt {} crt {}\n http-request return status 200\n",
            log.line(),
            shown(&own),
            shown(&silent)
        ),
        &[port],
    );
    let ask = |name: &str| weir.ask(format!("update ssl ocsp-response {name}").trim());
    assert_eq!(ask("").trim(), "'update ssl ocsp-response' expects a filename");
    assert!(ask("nobody").starts_with(
        "Unknown certificate! 'update ssl ocsp-response' expects an already known certificate file name.\nCan't send ocsp request for nobody!"
    ));
    assert!(ask(&shown(&silent)).contains("Can't send ocsp request for"));
    assert!(staples(port, "a.test", "good"));
    assert_eq!(ask(&shown(&own)).trim(), "");
    assert_eq!(log.update(), format!("133 <OCSP-UPDATE> {} 1 \"Update successful\" 0 1", shown(&own)));
    assert!(staples(port, "a.test", "revoked"));
    assert!(row(&weir, &own).is_none(), "it is asked about once");
    answers.say("/a", b"HTTP/1.1 503 Busy\r\nContent-Length: 0\r\n\r\n".to_vec());
    ask(&shown(&own));
    assert_eq!(log.update(), format!("133 <OCSP-UPDATE> {} 2 \"HTTP error\" 1 0", shown(&own)));
    let exchange = log.update();
    assert!(
        exchange.starts_with("134 -:- [") && exchange.contains("] <OCSP-UPDATE> -/- 0/0/-1/-1/"),
        "{exchange}"
    );
    assert!(exchange.contains(" 503 0 - - ---- 0/0/0/0/0 0/0 {} \"GET http://127.0.0.1:"), "{exchange}");
    assert!(staples(port, "a.test", "revoked"), "the answer of before is kept");
}

/// Returns the configuration of a frontend at `port`, preceded by lines of `global`.
fn of_one(global: &str, port: u16, bind: &str) -> String {
    format!(
        "global\n stats socket runtime level admin\n{global}{DEFAULTS}frontend f\n bind 127.0.0.1:{port} ssl {bind}\n http-request return status 200\n"
    )
}

#[test]
fn global_settings_control_updates() {
    let (authority, log, answers) = (Authority::new(), Collector::new(), Answers::default());
    let proxy = answers.start();
    // The name cannot be resolved: only the proxy is contacted.
    let certificate = authority.issue_asking(&["a.test"], "http://responder.invalid/a");
    let own = with_issuer(&certificate, &authority);
    answers.say("http://responder.invalid/a/", good(&authority.answer(&certificate, true)));
    let global = format!(
        "{} ocsp-update.mode on\n ocsp-update.mindelay 1000\n ocsp-update.maxdelay 2000\n ocsp-update.httpproxy 127.0.0.1:{}\n",
        log.line(),
        proxy.port()
    );
    let port = free_port();
    let weir = Weir::start(&of_one(&global, port, &format!("crt {}", shown(&own))), &[port]);
    assert!(log.update().contains(" 1 \"Update successful\" 0 1"));
    let columns = row(&weir, &own).expect("it is in the list");
    let seconds = |text: &str| {
        let part = |from: usize| text[from..from + 2].parse::<u32>().expect("a number of two digits");
        part(12) * 3600 + part(15) * 60 + part(18)
    };
    let pause = (seconds(&columns[1]) + 86_400 - seconds(&columns[2])) % 86_400;
    assert_eq!(pause, 2000, "{columns:?}");
    drop(weir);
    let port = free_port();
    let global = " ocsp-update.mode on\n ocsp-update.disable on\n";
    let weir = Weir::start(&of_one(global, port, &format!("crt {}", shown(&own))), &[port]);
    assert!(row(&weir, &own).is_none() && !staples(port, "a.test", "good"));
}

#[test]
fn stores_and_added_lines_may_enable_updates() {
    let (authority, log, answers) = (Authority::new(), Collector::new(), Answers::default());
    let responder = answers.start();
    let base = format!("http://127.0.0.1:{}", responder.port());
    let certificate = authority.issue_asking(&["a.test"], &format!("{base}/a"));
    let later = authority.issue_asking(&["b.test"], &format!("{base}/b"));
    for (path, file) in [("/a", &certificate), ("/b", &later)] {
        answers.say(path, good(&authority.answer(file, true)));
    }
    let (own, later) = (with_issuer(&certificate, &authority), with_issuer(&later, &authority));
    let list = list(&[(&own, "a.test")]);
    let port = free_port();
    let configuration = of_one(
        // The log line belongs to the global section, so it precedes the store.
        &format!("{}crt-store\n load crt {} ocsp-update on\n", log.line(), shown(&own)),
        port,
        &format!("crt-list {}", shown(&list)),
    );
    let weir = Weir::start(&configuration, &[port]);
    assert!(log.update().contains(&format!("{} 1 ", shown(&own))));
    let text = std::fs::read_to_string(&later).expect("it was written");
    assert!(weir.ask(&format!("new ssl cert {}", shown(&later))).contains("New empty certificate"));
    let set = weir.ask(&format!("set ssl cert {} <<\n{text}\n", shown(&later)));
    assert!(set.contains("Transaction"), "{set}");
    assert!(weir.ask(&format!("commit ssl cert {}", shown(&later))).contains("Success"));
    let add = |line: &str| weir.ask(&format!("add ssl crt-list {} <<\n{line}\n\n", shown(&list)));
    let added = add(&format!("{} [ocsp-update on] b.test", shown(&later)));
    assert!(added.contains("Success"), "{added}");
    assert!(log.update().contains(&format!("{} 1 ", shown(&later))));
    assert!(staples(port, "b.test", "good"));
    let refused = add(&format!("{} [ocsp-update off] c.test", shown(&later)));
    assert!(refused.contains("different parameter 'ocsp-update' : previously 'on' vs 'off'"), "{refused}");
    weir.ask(&format!("del ssl crt-list {} {}", shown(&list), shown(&later)));
    assert!(row(&weir, &later).is_none() && row(&weir, &own).is_some());
    assert!(weir.ask("show ssl ocsp-response").contains(&shown(&later)), "its answer is kept");
}

#[test]
fn contradictory_update_settings_are_refused() {
    let authority = Authority::new();
    let own = with_issuer(&authority.issue_asking(&["a.test"], "http://127.0.0.1:1/"), &authority);
    let crt = format!("crt {}", shown(&own));
    let of = |options: &str| format!("crt-list {}", shown(&list(&[(&own, options)])));
    let (on, off, none) = (of("[ocsp-update on] a.test"), of("[ocsp-update off] a.test"), of("a.test"));
    let mode = " ocsp-update.mode on\n";
    for (global, bind, is_good) in [
        ("", format!("{crt} {on}"), false),
        ("", format!("{on} {none}"), false),
        ("", format!("{on} {off}"), false),
        (mode, format!("{crt} {off}"), false),
        ("", format!("{crt} {off} {none}"), true),
        (mode, format!("{crt} {on} {none}"), true),
    ] {
        let directory = scratch("check");
        let file = directory.join("haproxy.cfg");
        std::fs::write(&file, of_one(global, free_port(), &bind)).expect("the directory takes files");
        let verdict = check(&file, &directory);
        assert_eq!(verdict.accepted(), is_good, "{global}{bind}: {:?}", verdict.alerts());
        let says = verdict.messages.contains("different parameter 'ocsp-update'");
        assert_eq!(says, !is_good, "{bind}: {}", verdict.messages);
    }
}

#[test]
fn responders_are_resolved_and_verified() {
    let (authority, stranger) = (Authority::new(), Authority::new());
    let (log, answers) = (Collector::new(), Answers::default());
    let responder = answers.start();
    let names = NameServer::start(&[
        ("responder.test", Zone::Addresses(vec!["127.0.0.1"])),
        ("other.test", Zone::Addresses(vec!["127.0.0.1"])),
    ]);
    let front = free_port();
    let secure = with_issuer(&authority.issue(&["responder.test"]), &authority);
    let responder_front = Weir::start(
        &format!(
            "{DEFAULTS}listen l\n bind 127.0.0.1:{front} ssl crt {}\n server s 127.0.0.1:{}\n",
            shown(&secure),
            responder.port()
        ),
        &[front],
    );
    let ask = |uri: &str, global: &str| {
        let certificate = authority.issue_asking(&["a.test"], uri);
        answers.say("/a/", good(&authority.answer(&certificate, true)));
        let own = with_issuer(&certificate, &authority);
        let port = free_port();
        let global = format!(
            "{} httpclient.retries 0\n httpclient.timeout.connect 5s\n httpclient.resolvers.prefer ipv4\n{global}\
             resolvers own\n nameserver n 127.0.0.1:{}\n",
            log.line(),
            names.port()
        );
        let configuration =
            of_one(&global, port, &format!("crt-list {}", shown(&list(&[(&own, "[ocsp-update on]")]))));
        let weir = Weir::start(&configuration, &[port]);
        let line = log.update();
        let number = line.split(' ').nth(3).unwrap_or_default().to_owned();
        if number == "2" {
            let exchange = log.update();
            assert!(exchange.contains(" 503 0 - - SC-- "), "{exchange}");
        }
        drop(weir);
        number
    };
    let own = " httpclient.resolvers.id own\n";
    let plain = format!("http://responder.test:{}/a", responder.port());
    assert_eq!(ask(&plain, own), "1", "the name is resolved by the section that is named");
    assert_eq!(ask(&plain, &format!("{own} httpclient.resolvers.disabled on\n")), "2", "or by nobody");
    let https = format!("https://responder.test:{front}/a");
    let trusting = format!("{own} httpclient.ssl.ca-file {}\n", shown(&authority.own()));
    assert_eq!(ask(&https, &trusting), "1", "its certificate is good");
    let misled = format!("{own} httpclient.ssl.ca-file {}\n", shown(&stranger.own()));
    assert_eq!(ask(&https, &misled), "2", "nobody trusts its authority");
    assert_eq!(ask(&https, &format!("{misled} httpclient.ssl.verify none\n")), "1", "anybody is trusted");
    let misnamed = format!("https://other.test:{front}/a");
    assert_eq!(ask(&misnamed, &trusting), "2", "its certificate is for another name");
    let by_address = format!("https://127.0.0.1:{front}/a");
    assert_eq!(ask(&by_address, &trusting), "2", "nor is it for an address");
    drop(responder_front);
}

#[test]
fn invalid_settings_are_reported() {
    for (line, cause) in [
        ("ocsp-update.mode maybe", "'on' or 'off'"),
        ("ocsp-update.mindelay 4000", "'ocsp-update.mindelay' can not be higher than"),
        ("tune.ssl.ocsp-update.maxdelay 200", "can not be lower than tune.ssl.ocsp-update.mindelay."),
        ("tune.ssl.ocsp-update.mindelay x", "x"),
        ("ocsp-update.httpproxy /run/x", "'/run/x'"),
        ("httpclient.resolvers.id nobody", "nobody"),
        ("httpclient.resolvers.prefer v4", "'ipv4'"),
        ("httpclient.ssl.verify optional", "'required'"),
        ("httpclient.ssl.ca-file /nobody", "/nobody"),
        ("httpclient.retries many", "many"),
        ("httpclient.timeout.connect soon", "httpclient.timeout.connect"),
    ] {
        let directory = scratch("check");
        let file = directory.join("haproxy.cfg");
        std::fs::write(&file, format!("global\n {line}\n")).expect("the directory takes files");
        let verdict = check(&file, &directory);
        assert!(!verdict.accepted(), "{line}");
        assert!(verdict.alerts().iter().any(|alert| alert.contains(cause)), "{line}: {:?}", verdict.alerts());
    }
}

#[test]
fn response_is_shown_in_openssls_format() {
    let authority = Authority::new();
    let certificate = authority.issue(&["one.test"]);
    let signer = authority.issue_responder("ocsp.test");
    for answer in [
        authority.answer(&certificate, true),
        authority.answer(&certificate, false),
        authority.answer_by(&signer, &certificate),
    ] {
        let beside = format!("{}.ocsp", shown(&certificate));
        let issuer = format!("{}.issuer", shown(&certificate));
        std::fs::copy(&answer, &beside).expect("a file");
        std::fs::copy(authority.own(), &issuer).expect("a file");
        let port = free_port();
        let weir = Weir::start(
            &format!(
                "global\n stats socket runtime level admin\ndefaults\n mode http\n timeout client 5s\n\
                 frontend fe\n bind 127.0.0.1:{port} ssl crt {}\n",
                shown(&certificate)
            ),
            &[port],
        );
        let output = Command::new("openssl")
            .args(["ocsp", "-noverify", "-text", "-respin"])
            .arg(&answer)
            .output()
            .expect("openssl runs: `make tools` installs it");
        // An empty line would end the answer.
        let text = String::from_utf8_lossy(&output.stdout).replace("\n\n", "\n \n");
        for words in ["", "text "] {
            let told = weir.ask(&format!("show ssl ocsp-response {words}{}", shown(&certificate)));
            assert_eq!(told.trim_end(), text.trim_end(), "{}", answer.display());
        }
        assert!(text.contains("Signature Value:"), "{text}");
    }
}
