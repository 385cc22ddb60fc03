//! Certificates and crt-lists changed on the runtime socket while the program runs, and TLS with servers added at run time
//! (management manual, 9.3: `set ssl cert` and similar commands).

use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};

use weir_tests::certificates::{DEFAULTS, first_certificate, pay, s_client, serves, swap, text};
use weir_tests::tls::shown;
use weir_tests::{Authority, Weir, eventually, free_port};

/// A client that keeps its connection.
struct Kept {
    child: Child,
    output: BufReader<std::process::ChildStdout>,
}

impl Kept {
    fn open(port: u16, name: &str) -> Self {
        let mut child = Command::new("openssl")
            .args(["s_client", "-quiet", "-connect", &format!("127.0.0.1:{port}"), "-servername", name])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .expect("openssl runs");
        let output = BufReader::new(child.stdout.take().expect("it is piped"));
        Self { child, output }
    }

    /// Returns the first line of the response to a request.
    fn ask(&mut self) -> String {
        let input = self.child.stdin.as_mut().expect("it is piped");
        input.write_all(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n").expect("the connection is open");
        let mut first = String::new();
        self.output.read_line(&mut first).expect("an answer");
        let mut line = String::new();
        while self.output.read_line(&mut line).expect("an answer") > 2 {
            line.clear();
        }
        first.trim().to_owned()
    }
}

impl Drop for Kept {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn certificate_swap_under_load_fails_no_connection() {
    let (authority, other) = (Authority::new(), Authority::new());
    let (old, new) = (authority.issue(&["one.test"]), other.issue(&["one.test"]));
    let (port, name) = (free_port(), shown(&old));
    let weir = Weir::start(
        &format!(
            "{DEFAULTS}frontend fe\n bind 127.0.0.1:{port} ssl crt {name}\n http-request return status 200\n"
        ),
        &[port],
    );
    assert!(serves(port, "one.test", &old));
    let mut kept = Kept::open(port, "one.test");
    assert_eq!(kept.ask(), "HTTP/1.1 200 OK");
    let (stop, failed, done) = (AtomicBool::new(false), AtomicUsize::new(0), AtomicUsize::new(0));
    let (stop, failed, done) = (Arc::new(stop), Arc::new(failed), Arc::new(done));
    let clients: Vec<_> = (0..3)
        .map(|_| {
            let (stop, failed, done) = (stop.clone(), failed.clone(), done.clone());
            std::thread::spawn(move || {
                while !stop.load(Relaxed) {
                    let url = format!("https://127.0.0.1:{port}/");
                    let fine = Command::new("curl").args(["-sfk", "--max-time", "10", &url]).status();
                    if !fine.is_ok_and(|status| status.success()) {
                        failed.fetch_add(1, Relaxed);
                    }
                    done.fetch_add(1, Relaxed);
                }
            })
        })
        .collect();
    for round in 0..20 {
        let before = done.load(Relaxed);
        swap(&weir, &name, &text(if round % 2 == 0 { &new } else { &old }));
        assert!(eventually(|| done.load(Relaxed) > before));
    }
    swap(&weir, &name, &text(&new));
    stop.store(true, Relaxed);
    clients.into_iter().for_each(|client| client.join().expect("it ends"));
    assert_eq!(failed.load(Relaxed), 0);
    assert!(serves(port, "one.test", &new));
    assert_eq!(kept.ask(), "HTTP/1.1 200 OK", "the connection of before goes on");
}

#[test]
fn changes_take_effect_at_commit_and_bad_ones_do_not() {
    let authority = Authority::new();
    let (old, new) = (authority.issue(&["one.test"]), authority.issue_rsa(&["two.test"]));
    let (port, name) = (free_port(), shown(&old));
    let weir = Weir::start(
        &format!("{DEFAULTS}frontend fe\n bind 127.0.0.1:{port} ssl crt {name} strict-sni\n"),
        &[port],
    );
    let told = weir.ask(&format!("show ssl cert {name}"));
    for line in [
        &*format!("Filename: {name}\nCrt filename: {name}\nKey filename: {name}\n"),
        "Status: Used\nSerial: ",
        "Subject Alternative Name: DNS:one.test\nAlgorithm: EC256\n",
        "Subject: /O=Weir/CN=one.test\nIssuer: /CN=Test authority\n",
    ] {
        assert!(told.contains(line), "{line}: {told}");
    }
    let set = |name: &str, payload: &str| pay(&weir, &format!("set ssl cert {name}"), payload);
    assert_eq!(
        set(&name, "garbage").trim(),
        format!(
            "unable to load certificate from file '{name}': no start line.\nCan't load the payload\n\
             Can't update {name}!"
        )
    );
    assert!(set("nobody", "x").starts_with("Can't replace a certificate which is not referenced by"));
    assert!(weir.ask(&format!("commit ssl cert {name}")).starts_with("No ongoing transaction!"));
    assert!(set(&name, &text(&new)).starts_with("Transaction created"));
    assert!(set("nobody", "x").starts_with("The ongoing transaction is about"));
    assert!(weir.ask("show ssl cert").starts_with(&format!("# transaction\n*{name}\n# filename\n{name}\n")));
    assert!(weir.ask(&format!("show ssl cert *{name}")).contains("Status: Uncommitted"));
    assert!(weir.ask(&format!("show ssl cert *{name}")).contains("Algorithm: RSA2048"));
    assert!(weir.ask(&format!("del ssl cert {name}")).contains("ongoing transaction for the certificate"));
    assert!(serves(port, "one.test", &old), "nothing was committed yet");
    assert!(weir.ask(&format!("abort ssl cert {name}")).starts_with("Transaction aborted"));
    assert!(weir.ask(&format!("del ssl cert {name}")).contains("in use, can't be deleted!"));
    // A key of another certificate is refused at the commit.
    assert!(set(&format!("{name}.key"), &text(&new)).starts_with("Transaction created"));
    let answer = weir.ask(&format!("commit ssl cert {name}"));
    assert!(answer.starts_with("inconsistencies between private key and certificate loaded"), "{answer}");
    assert!(serves(port, "one.test", &old));
    assert!(weir.ask(&format!("abort ssl cert {name}")).starts_with("Transaction aborted"));
    swap(&weir, &name, &text(&new));
    assert!(serves(port, "two.test", &new), "its names come with it");
    assert!(first_certificate(&s_client(port, "one.test", &[])).is_none(), "and those of before go");
    let dumped = weir.ask(&format!("dump ssl cert {name}"));
    assert!(dumped.starts_with("-----BEGIN PRIVATE KEY-----\n"), "{dumped}");
    assert_eq!(first_certificate(&dumped), first_certificate(&text(&new)));
}

#[test]
fn crt_list_and_directory_entries_can_be_added_and_removed() {
    let authority = Authority::new();
    let [first, second, third] =
        ["first.test", "second.test", "third.test"].map(|name| authority.issue(&[name]));
    let directory = weir_tests::scratch("certificates");
    std::fs::copy(&first, directory.join("first.pem")).expect("the directory takes files");
    let list = directory.join("list.txt");
    std::fs::write(&list, format!("# a comment\n{} [alpn http/1.1] one.test !no.test\n", shown(&first)))
        .expect("the directory takes files");
    let files = directory.join("files");
    std::fs::create_dir(&files).expect("the directory takes directories");
    std::fs::rename(directory.join("first.pem"), files.join("first.pem")).expect("it moves");
    let (port, other, list, files) = (free_port(), free_port(), shown(&list), shown(&files));
    let weir = Weir::start(
        &format!(
            "{DEFAULTS}frontend fe\n bind 127.0.0.1:{port} ssl crt-list {list} strict-sni\n \
             bind 127.0.0.1:{other} ssl crt {files} strict-sni\n http-request return status 200\n"
        ),
        &[port, other],
    );
    assert_eq!(weir.ask("show ssl crt-list").trim(), format!("{files}\n{list}"));
    let path = shown(&first);
    let lines = weir.ask(&format!("show ssl crt-list {list}"));
    assert_eq!(lines.trim(), format!("# {list}\n{path} [alpn http/1.1] one.test !no.test"));
    for (file, certificate) in [("second", &second), ("third", &third)] {
        assert_eq!(
            weir.ask(&format!("add ssl crt-list {list} {file}")).trim(),
            format!("Can't edit the crt-list: certificate '{file}' does not exist!")
        );
        weir.ask(&format!("new ssl cert {file}"));
        assert_eq!(
            weir.ask(&format!("add ssl crt-list {list} {file}")).trim(),
            format!("Can't edit the crt-list: certificate '{file}' is empty!")
        );
        swap(&weir, file, &text(certificate));
    }
    assert_eq!(
        weir.ask(&format!("add ssl crt-list {list} second")).trim(),
        format!("Inserting certificate 'second' in crt-list '{list}'.\nSuccess!")
    );
    assert!(serves(port, "second.test", &second));
    let add = |line: &str| pay(&weir, &format!("add ssl crt-list {list}"), line);
    assert!(add("third [alpn http/1.1 ssl-max-ver TLSv1.2] *.wild.test !not.wild.test").contains("Success!"));
    assert!(serves(port, "any.wild.test", &third) && !serves(port, "not.wild.test", &third));
    assert!(s_client(port, "any.wild.test", &[]).contains("TLSv1.2"), "its options count");
    for (line, error) in [
        ("third [nonsense x]", "Can't edit the crt-list: parsing [CLI:1]: unknown ssl keyword nonsense"),
        ("third [alpn]", "Can't edit the crt-list: parsing [CLI:1]: ssl args out of '[]' for alpn"),
        ("third [ca-file none verify required]", "Can't edit the crt-list: 'ca-file' : unable to load none"),
        ("third a\nthird b", "Can't edit the crt-list: only one line of payload is supported!"),
    ] {
        assert_eq!(add(line).trim(), error);
    }
    assert!(add("third again.test").contains("Success!"));
    assert!(serves(port, "again.test", &third));
    let numbered = weir.ask(&format!("show ssl crt-list -n {list}"));
    assert!(
        numbered.contains("\nsecond:3\nthird:4 [alpn http/1.1 ssl-max-ver TLSv1.2] *.wild.test"),
        "{numbered}"
    );
    assert!(weir.ask("del ssl cert third").contains("in use, can't be deleted!"));
    assert!(
        weir.ask(&format!("del ssl crt-list {list} third")).contains("in several entries, please specify")
    );
    assert_eq!(
        weir.ask(&format!("del ssl crt-list {list} third:4")).trim(),
        format!("Entry 'third' deleted in crtlist '{list}'!")
    );
    assert!(!serves(port, "any.wild.test", &third) && serves(port, "again.test", &third));
    assert!(weir.ask(&format!("del ssl crt-list {list} third:5")).contains("deleted"));
    assert!(!serves(port, "again.test", &third));
    // A directory accepts certificates, but no options.
    assert!(weir.ask(&format!("add ssl crt-list {files}/ third")).contains("Success!"));
    assert!(serves(other, "third.test", &third));
    assert!(
        weir.ask(&format!("add ssl crt-list {files} third")).contains("already exists in this directory!")
    );
    assert!(
        pay(&weir, &format!("add ssl crt-list {files}"), "second a.test").contains("this is a directory")
    );
    assert!(weir.ask(&format!("del ssl crt-list {files} third")).contains("deleted"));
    assert!(!serves(other, "third.test", &third));
    assert_eq!(weir.ask("del ssl cert third").trim(), "Certificate 'third' deleted!");
}

#[test]
fn listener_names_are_shown_with_their_certificates() {
    let authority = Authority::new();
    let (first, expired) =
        (authority.issue(&["one.test", "*.wild.test"]), authority.issue_expired(&["old.test"]));
    let (port, list) = (free_port(), weir_tests::scratch("names").file("list"));
    std::fs::write(&list, format!("{} *.a.test !b.a.test\n", shown(&expired))).expect("it takes files");
    let weir = Weir::start(
        &format!(
            "{DEFAULTS}frontend fe\n bind 127.0.0.1:{port} ssl crt {} crt-list {}\nfrontend other\n",
            shown(&first),
            shown(&list)
        ),
        &[port],
    );
    let place = format!("fe/{}:9", weir.directory().join("haproxy.cfg").display());
    let rows = |command: &str| {
        let told = weir.ask(command);
        let mut lines = told.trim().lines();
        assert_eq!(
            lines.next(),
            Some("# Frontend/Bind\tSNI\tNegative Filter\tType\tFilename\tNotAfter\tNotBefore")
        );
        let cut = |line: &str| line.split('\t').take(5).collect::<Vec<_>>().join(" ");
        lines.map(cut).collect::<Vec<_>>()
    };
    let (own, old) = (shown(&first), shown(&expired));
    let wild = format!("{place} *.a.test !b.a.test  ecdsa {old}");
    assert_eq!(
        rows("show ssl sni"),
        [
            format!("{place} one.test - ecdsa {own}"),
            format!("{place} * - ecdsa {own}"),
            wild.clone(),
            format!("{place} *.wild.test - ecdsa {own}"),
        ]
    );
    assert_eq!(rows("show ssl sni -f fe -A"), [wild]);
    assert_eq!(rows("show ssl sni -f fe -A -t 60d").len(), 4);
    assert!(rows("show ssl sni -f other").is_empty());
    assert_eq!(weir.ask("show ssl sni -f none").trim(), "Couldn't find the specified frontend!");
    assert_eq!(weir.ask("show ssl sni -t z").trim(), "'-t z' : unexpected character 'z'");
    assert_eq!(weir.ask("show ssl providers").trim(), "Loaded providers : \n\t- aws-lc");
}

#[test]
fn load_extra_files_selects_files_next_to_a_certificate() {
    let authority = Authority::new();
    let whole = text(&authority.issue(&["one.test"]));
    let (certificate, key) = whole.split_at(whole.find("-----BEGIN PRIVATE").expect("a key"));
    let directory = weir_tests::scratch("beside");
    let at = |name: &str| directory.join(name);
    for (name, part) in
        [("one.crt", certificate), ("one.key", key), ("two.pem", certificate), ("two.pem.key", key)]
    {
        std::fs::write(at(name), part).expect("it takes files");
    }
    let port = free_port();
    let with = |global: &str, file: &str| {
        DEFAULTS.replace("global\n", &format!("global\n {global}\n"))
            + &format!("frontend fe\n bind 127.0.0.1:{port} ssl crt {}\n", shown(&at(file)))
    };
    for (global, file, accepted) in [
        ("ssl-load-extra-files all", "two.pem", true),
        ("ssl-load-extra-files none", "two.pem", false),
        ("ssl-load-extra-files sctl key", "two.pem", true),
        ("ssl-load-extra-files all", "one.crt", false),
        ("ssl-load-extra-files nothing", "two.pem", false),
    ] {
        let configuration = at("haproxy.cfg");
        std::fs::write(&configuration, with(global, file)).expect("it takes files");
        assert_eq!(weir_tests::check(&configuration, &directory).accepted(), accepted, "{global} {file}");
    }
    let weir = Weir::start(&with("ssl-load-extra-del-ext", "one.crt"), &[port]);
    let new = text(&authority.issue_rsa(&["one.test"]));
    let (certificate, key) = new.split_at(new.find("-----BEGIN PRIVATE").expect("a key"));
    let name = shown(&at("one.crt"));
    let set = |file: &Path, payload: &str| pay(&weir, &format!("set ssl cert {}", shown(file)), payload);
    assert!(set(&at("one.crt"), certificate).starts_with("Transaction created"));
    assert!(set(&at("one.key"), key).starts_with(&format!("Transaction updated for certificate {name}!")));
    assert!(weir.ask(&format!("commit ssl cert {name}")).contains("Success!"));
    assert_eq!(first_certificate(&s_client(port, "one.test", &[])), first_certificate(certificate));
}

#[test]
fn added_server_may_use_a_certificate_without_a_file() {
    let authority = Authority::new();
    let own = authority.issue(&["one.test"]);
    let (port, inner) = (free_port(), free_port());
    let weir = Weir::start(
        &format!(
            "{DEFAULTS}frontend fe\n bind 127.0.0.1:{port}\n default_backend be\nbackend be\n\
             frontend inner\n bind 127.0.0.1:{inner} ssl crt {} ca-file {} verify required\n \
             http-request return status 200\n",
            shown(&own),
            shown(&authority.own()),
        ),
        &[port, inner],
    );
    assert!(weir.ask("new ssl cert memory").contains("New empty certificate store 'memory'!"));
    swap(&weir, "memory", &text(&own));
    let status = || {
        let told = weir.ask("show ssl cert memory");
        told.lines().find_map(|line| line.strip_prefix("Status: ").map(str::to_owned))
    };
    assert_eq!(status().as_deref(), Some("Unused"));
    let added =
        weir.ask(&format!("add server be/s 127.0.0.1:{inner} ssl verify none no-sni-auto crt memory"));
    assert!(added.contains("New server registered."), "{added}");
    assert_eq!(status().as_deref(), Some("Used"));
    assert!(weir.ask("del ssl cert memory").contains("in use, can't be deleted!"));
    weir.ask("enable server be/s");
    let answer = weir_tests::client::exchange(port, "GET / HTTP/1.1\r\nHost: a\r\n\r\n").expect("an answer");
    assert_eq!(answer.status, 200);
    weir.ask("disable server be/s");
    assert!(eventually(|| weir.ask("del server be/s").contains("Server deleted.")));
    assert_eq!(status().as_deref(), Some("Unused"));
    assert_eq!(weir.ask("del ssl cert memory").trim(), "Certificate 'memory' deleted!");
}

#[test]
fn server_tls_can_be_switched_if_configured() {
    let authority = Authority::new();
    let own = shown(&authority.issue(&["one.test"]));
    let (port, inner) = (free_port(), free_port());
    let weir = Weir::start(
        &format!(
            "{DEFAULTS}frontend fe\n bind 127.0.0.1:{port}\n default_backend be\n\
             backend be\n default-server ssl verify none\n server s 127.0.0.1:{inner} no-ssl\n\
             backend other\n server s 127.0.0.1:{inner} no-ssl\n\
             frontend inner\n bind 127.0.0.1:{inner} ssl crt {own}\n http-request return status 200\n"
        ),
        &[port, inner],
    );
    let status = || {
        weir_tests::client::exchange(port, "GET / HTTP/1.1\r\nHost: a\r\n\r\n").map(|answer| answer.status)
    };
    let shown = |backend: &str| {
        let all = weir.ask(&format!("show servers state {backend}"));
        all.lines().nth(2).and_then(|line| line.split(' ').rev().nth(4).map(str::to_owned))
    };
    assert_eq!((status(), shown("be").as_deref()), (Some(502), Some("-1")));
    assert!(weir.ask("set server be/s ssl on").contains("server ssl setting updated."));
    assert_eq!((status(), shown("be").as_deref()), (Some(200), Some("1")));
    assert!(weir.ask("set server be/s ssl off").contains("server ssl setting updated."));
    assert_eq!((status(), shown("be").as_deref()), (Some(502), Some("0")));
    assert!(weir.ask("set server other/s ssl on").contains("'set server <srv> ssl' cannot be set"));
    assert_eq!(shown("other").as_deref(), Some("-1"));
    assert!(weir.ask("set server be/s ssl perhaps").contains("expects 'on' or 'off'"));
}

#[test]
fn checks_of_an_added_server_use_tls_if_configured() {
    let authority = Authority::new();
    let own = shown(&authority.issue(&["one.test"]));
    let inner = free_port();
    let weir = Weir::start(
        &format!(
            "{DEFAULTS}backend be\n option httpchk\n\
             frontend inner\n bind 127.0.0.1:{inner} ssl crt {own}\n http-request return status 200\n"
        ),
        &[inner],
    );
    let line = format!("127.0.0.1:{inner} ssl verify none check inter 20ms");
    for (name, words, expected) in [("plain", "", &["L7RSP", "SOCKERR"][..]), ("tls", "check-ssl", &["L7OK"])]
    {
        let added = weir.ask(&format!("add server be/{name} {line} {words}"));
        assert!(added.contains("New server registered."), "{added}");
        weir.ask(&format!("enable server be/{name}"));
        weir.ask(&format!("enable health be/{name}"));
        let told = || weir.stat(&format!("be,{name}"), "check_status");
        assert!(eventually(|| expected.contains(&&*told())), "{name}: {}", told());
    }
}

#[test]
fn scripts_may_replace_certificates() {
    let authority = Authority::new();
    let (first, second) = (authority.issue(&["a.test"]), authority.issue(&["a.test"]));
    let script = weir_tests::scratch("certificates").file("set.lua");
    let lines = r#"
        local first, second = ...
        core.register_cli({ "swap" }, "swap : uses the other certificate", function(applet)
            local file = io.open(second)
            CertCache.set{ filename = first, crt = file:read("a") }
            local ok, why = pcall(CertCache.set, { filename = first, crt = "nonsense" })
            applet:send(tostring(ok) .. " " .. why .. "\n")
            local ok, why = pcall(ACME.challenge_ready, first, "a.test")
            applet:send(tostring(ok) .. " " .. why .. "\n")
        end)
    "#;
    std::fs::write(&script, lines).expect("scripts can be written");
    let (port, shown) = (free_port(), |path: &Path| path.display().to_string());
    let load = format!("global\n lua-load {} {} {}\n", shown(&script), shown(&first), shown(&second));
    let configuration = DEFAULTS.replacen("global\n", &load, 1);
    let configuration = format!(
        "{configuration}frontend f\n bind 127.0.0.1:{port} ssl crt {}\n http-request return status 204\n",
        shown(&first)
    );
    let weir = Weir::start(&configuration, &[port]);
    assert!(serves(port, "a.test", &first));
    let said = weir.ask("swap");
    assert!(serves(port, "a.test", &second), "{said}\n{}", weir.messages());
    assert!(said.contains("false") && said.contains("set.lua:6: CertCache.set: "), "{said}");
    assert!(said.contains("ACME.challenge_ready: Couldn't find an ACME task"), "{said}");
}
