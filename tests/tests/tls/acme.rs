//! Certificates ordered by ACME (manual, section 12.8), from the tests' own server. Tests against a real implementation are in
//! `acme_pebble.rs`.

use std::path::Path;
use std::process::{Command, Stdio};

use weir_tests::acme::{Acme, Ports};
use weir_tests::tls::{certificate_fact as fact, order_status as status};
use weir_tests::{Authority, Scratch, Verdict, Weir, check, eventually, free_port, scratch};

/// An ACME server, and ports for the program.
struct Scene {
    acme: Acme,
    ports: Ports,
    /// The directory of the program's certificates.
    files: Scratch,
}

const ANSWER: &str = "http-request return status 200 content-type text/plain lf-string \
                      \"%[path,field(-1,/)].%[path,field(-1,/),map(virt@acme)]\\n\" \
                      if { path_beg '/.well-known/acme-challenge/' }";

impl Scene {
    fn start() -> Scene {
        let ports = Ports { http: free_port(), tls: free_port() };
        Scene { acme: Acme::start(ports), ports, files: scratch("ordered") }
    }

    fn file(&self, name: &str) -> String {
        self.files.join(name).display().to_string()
    }

    /// Returns a configuration with these lines in the global section, store, `acme` section and TLS bind line.
    fn configuration(&self, global: &str, load: &str, section: &str, bind: &str) -> String {
        let Ports { http, tls } = self.ports;
        let (files, url) = (self.files.display(), self.acme.url());
        format!(
            "global\n stats socket runtime level admin\n {global}\n\
             defaults\n mode http\n timeout client 10s\n timeout server 10s\n timeout connect 3s\n\
             crt-store\n crt-base {files}\n {load}\n\
             frontend f\n bind 127.0.0.1:{http}\n bind 127.0.0.1:{tls} ssl {bind}\n {ANSWER}\n \
             http-request return status 204\n\
             acme LE\n directory {url}\n account-key {files}/account.key\n {section}\n"
        )
    }

    fn run(&self, configuration: &str) -> Weir {
        Weir::start(configuration, &[self.ports.http, self.ports.tls])
    }
}

/// Waits until the ordered certificate is installed.
fn await_issued(weir: &Weir, certificate: &str) {
    let came = eventually(|| {
        fact(weir, certificate, "Issuer") == "/CN=Test authority" && status(weir, certificate, 2) != "Running"
    });
    assert!(came, "{}", weir.messages());
}

/// Returns the output of a client of the listener.
fn client(port: u16, name: &str) -> String {
    let output = Command::new("openssl")
        .args(["s_client", "-connect", &format!("127.0.0.1:{port}"), "-servername", name])
        .stdin(Stdio::null())
        .output()
        .expect("openssl runs: `make tools` installs it");
    String::from_utf8_lossy(&output.stdout).into_owned()
}

#[test]
fn certificate_is_ordered_saved_and_renewed() {
    let scene = Scene::start();
    scene.acme.refuse("/order", "400 Bad Request", "badNonce", "");
    let load = "load crt a.pem alias a acme LE domains a.test,b.test";
    let section = "contact me@a.test\n challenge http-01\n keytype ECDSA\n curves P-256\n map virt@acme";
    let configuration = scene.configuration("", load, section, "crt @/a");
    let mut weir = scene.run(&configuration);
    await_issued(&weir, "@/a");
    assert_eq!(fact(&weir, "@/a", "Algorithm"), "EC256");
    assert_eq!(status(&weir, "@/a", 1), "LE");
    assert_eq!(status(&weir, "@/a", 2), "Scheduled");
    assert!(client(scene.ports.tls, "a.test").contains("CN = Test authority"));
    let first = fact(&weir, "@/a", "Serial");
    weir.ask("acme renew @/a");
    assert!(eventually(|| fact(&weir, "@/a", "Serial") != first && status(&weir, "@/a", 2) == "Scheduled"));
    let second = fact(&weir, "@/a", "Serial");
    assert!(weir.ask("show events dpapi").contains("acme newcert @/a\n"));
    weir.signal("TERM");
    weir.await_end();
    let again = scene.run(&configuration);
    assert_eq!(fact(&again, "@/a", "Serial"), second, "nothing was ordered at the start");
    assert_eq!(scene.acme.counts(), (1, 2));
    let mode = std::os::unix::fs::PermissionsExt::mode(
        &std::fs::metadata(scene.file("a.pem")).expect("it was written").permissions(),
    );
    assert_eq!(mode & 0o777, 0o600);
}

#[test]
fn orders_continue_after_an_in_place_reload() {
    let scene = Scene::start();
    let (load, section) =
        ("load crt a.pem alias a acme LE domains a.test", "challenge http-01\n map virt@acme");
    let configuration = scene.configuration("", load, section, "crt @/a");
    let weir = scene.run(&configuration);
    await_issued(&weir, "@/a");
    let first = fact(&weir, "@/a", "Serial");
    let reload = |text: &str| {
        std::fs::write(weir.directory().join("haproxy.cfg"), text).expect("the directory takes files");
        weir.ask("reload").trim().to_owned()
    };
    let said = reload(&(configuration.clone() + "backend new\n server s 127.0.0.1:1\n"));
    assert!(said.contains("backend new added"), "{said}");
    assert_eq!(fact(&weir, "@/a", "Serial"), first, "what was issued stays");
    weir.ask("acme renew @/a");
    assert!(
        eventually(|| fact(&weir, "@/a", "Serial") != first && status(&weir, "@/a", 2) == "Scheduled"),
        "{}",
        weir.messages()
    );
    // A certificate is ordered as soon as its line exists.
    let load = format!("{load}\n load crt b.pem alias b acme LE domains b.test");
    let said = reload(&scene.configuration("", &load, section, "crt @/a crt @/b"));
    assert!(said.contains("load"), "{said}");
    await_issued(&weir, "@/b");
    assert_eq!(scene.acme.counts().1, 3);
}

#[test]
fn tls_challenges_do_not_bypass_bind_options() {
    let scene = Scene::start();
    let clients = Authority::new();
    let bind = format!("crt @/t strict-sni verify required ca-file {}", clients.own().display());
    let load = "load crt t.pem alias t acme LE domains a.test";
    let weir = scene.run(&scene.configuration("", load, "challenge tls-alpn-01", &bind));
    await_issued(&weir, "@/t");
    let seen = scene.acme.seen();
    assert_eq!(seen.len(), 1);
    // Bytes that the client sends after its handshake are not treated as a request.
    assert!(seen[0].contains("ALPN protocol: acme-tls/1") && !seen[0].contains(" 204 "), "{}", seen[0]);
    // Nor are they answered: the connection ends with the handshake.
    assert!(!seen[0].contains("HTTP/1."), "{}", seen[0]);
}

#[test]
fn rate_limits_of_the_server_are_reported_and_respected() {
    let scene = Scene::start();
    scene.acme.refuse("/order", "429 Too Many Requests", "rateLimited", "Retry-After: 7200\r\n");
    let load = "load crt a.pem alias a acme LE domains a.test";
    let weir = scene.run(&scene.configuration("", load, "map virt@acme", "crt @/a"));
    assert!(weir.says("Aborting."), "{}", weir.messages());
    let messages = weir.messages();
    let told = "acme: @/a: \"said by the test\" (urn:ietf:params:acme:error:rateLimited) (HTTP status code 429) when \
                placing the order Aborting. Next attempt in 7200 seconds.";
    assert!(messages.contains(told), "{messages}");
    assert!(eventually(|| status(&weir, "@/a", 2) == "Scheduled"));
    let left = status(&weir, "@/a", 6);
    assert!(left.starts_with("0d 1h5") || left.starts_with("0d 2h00"), "{left}");
    // A manual request overrides this.
    weir.ask("acme renew @/a");
    await_issued(&weir, "@/a");
}

#[test]
fn certificate_that_cannot_be_saved_is_still_served() {
    let scene = Scene::start();
    std::fs::create_dir_all(scene.file("there")).expect("a directory");
    let load = "load crt there/a.pem alias a acme LE domains a.test";
    // The first attempt fails, so that the directory can be removed before a certificate arrives.
    scene.acme.refuse("/order", "429 Too Many Requests", "rateLimited", "Retry-After: 7200\r\n");
    let weir = scene.run(&scene.configuration("", load, "map virt@acme", "crt @/a"));
    assert!(weir.says("Aborting."), "{}", weir.messages());
    std::fs::remove_dir_all(scene.file("there")).expect("it is there");
    weir.ask("acme renew @/a");
    await_issued(&weir, "@/a");
    let file = scene.file("there/a.pem");
    assert!(weir.says(format!("cannot write {file}")), "{}", weir.messages());
}

#[test]
fn certificate_that_can_never_be_saved_is_not_ordered() {
    let scene = Scene::start();
    let load = "load crt missing/a.pem alias a acme LE domains a.test";
    let text = scene.configuration("", load, "map virt@acme", "crt @/a");
    let mut weir = Weir::start(&text, &[]);
    assert_eq!(weir.await_end(), Some(1), "{}", weir.messages());
    let file = scene.file("missing/a.pem");
    assert!(
        weir.messages().contains(&format!("cannot write {file}, the directory of a certificate")),
        "{}",
        weir.messages()
    );
}

#[test]
fn half_replaced_pair_is_completed_at_the_next_start() {
    let scene = Scene::start();
    let authority = Authority::new();
    let text = |path: &Path| std::fs::read_to_string(path).expect("a file");
    let (old, new) = (authority.issue(&["a.test"]), authority.issue_rsa(&["a.test"]));
    let (file, key_file) = (scene.file("a.pem"), scene.file("a.key"));
    let split = |pem: String| {
        let at = pem.find("-----BEGIN PRIVATE").or_else(|| pem.find("-----BEGIN EC")).expect("it has a key");
        (pem[..at].to_owned(), pem[at..].to_owned())
    };
    // The key belongs to the next certificate, whose pair an interrupted process left next to them.
    std::fs::write(&file, split(text(&old)).0).expect("a file");
    std::fs::write(&key_file, split(text(&new)).1).expect("a file");
    let load = format!("load crt {file} key {key_file} alias a acme LE domains a.test");
    let configuration = scene.configuration("", &load, "map virt@acme", "crt @/a");
    let mut refused = Weir::start(&configuration, &[]);
    assert_eq!(refused.await_end(), Some(1), "nothing tells what belongs together");
    let beside = scene.file(".a.pem.pair");
    std::fs::write(&beside, text(&new)).expect("a file");
    let weir = scene.run(&configuration);
    assert_eq!(fact(&weir, "@/a", "Algorithm"), "RSA2048", "{}", weir.messages());
    assert!(weir.says("which an earlier process had started"), "{}", weir.messages());
    assert!(!Path::new(&beside).exists());
    drop(weir);
    let weir = scene.run(&configuration);
    assert_eq!(fact(&weir, "@/a", "Algorithm"), "RSA2048", "{}", weir.messages());
    assert!(!weir.messages().contains("which an earlier process had started"));
}

#[test]
fn crt_list_certificate_is_renewed_in_its_file() {
    let scene = Scene::start();
    let before = Authority::new();
    let old = before.issue_expired(&["a.test"]);
    std::fs::copy(&old, scene.file("a.pem")).expect("it can be copied");
    let list = format!("{} [acme LE domains a.test] a.test\n", scene.file("a.pem"));
    std::fs::write(scene.file("list"), list).expect("it can be written");
    let section = "map virt@acme\n reuse-key on";
    let bind = format!("crt-list {}", scene.file("list"));
    let weir = scene.run(&scene.configuration("", "", section, &bind));
    await_issued(&weir, &scene.file("a.pem"));
    let text = |path: &Path| std::fs::read_to_string(path).expect("it is there");
    let now = text(Path::new(&scene.file("a.pem")));
    assert!(now.contains("-----BEGIN CERTIFICATE-----") && now != text(&old));
    let added = weir.ask(&format!(
        "add ssl crt-list {} <<\n{} [acme LE domains a.test] c.test\n\n",
        scene.file("list"),
        scene.file("a.pem")
    ));
    assert!(added.contains("orders cannot be added at run time"), "{added}");
}

#[test]
fn ssl_f_use_lines_order_certificates_for_the_frontend() {
    let scene = Scene::start();
    let before = Authority::new();
    let (old, other) = (before.issue_expired(&["a.test"]), before.issue(&["b.test"]));
    std::fs::copy(&old, scene.file("a.pem")).expect("it can be copied");
    let uses = format!(
        "ssl-f-use crt {} acme LE domains a.test\n ssl-f-use crt {} alpn http/1.1\n {ANSWER}",
        scene.file("a.pem"),
        other.display()
    );
    let configuration = scene.configuration("", "", "map virt@acme", "").replace(ANSWER, &uses);
    let weir = scene.run(&configuration);
    await_issued(&weir, &scene.file("a.pem"));
    let shown = weir.ask("show ssl crt-list @f");
    assert!(shown.contains("a.pem [acme LE domains a.test]") && shown.contains("[alpn http/1.1]"), "{shown}");
    assert!(client(scene.ports.tls, "b.test").contains("CN = b.test"));
}

#[test]
fn start_needs_neither_certificate_nor_server() {
    let scene = Scene::start();
    let closed = free_port();
    let load = "load crt a.pem alias a acme LE domains a.test";
    let configuration = scene.configuration("httpclient.retries 0", load, "map virt@acme", "crt @/a");
    let configuration = configuration.replace(&scene.acme.url(), &format!("http://127.0.0.1:{closed}/dir"));
    let weir = scene.run(&configuration);
    assert!(client(scene.ports.tls, "a.test").contains("CN = expired"));
    assert!(!Path::new(&scene.file("a.pem")).exists());
    assert!(Path::new(&scene.file("account.key")).exists());
    assert_eq!(status(&weir, "@/a", 2), "Running");
    let expected = "Task already exists for '@/a' certificate.\nCan't start the ACME client.\n\n";
    assert_eq!(weir.ask("acme renew @/a").trim_start(), expected);
}

#[test]
fn invalid_commands_are_reported() {
    let scene = Scene::start();
    let authority = Authority::new();
    let other = authority.issue(&["b.test"]);
    let load = "load crt a.pem alias a acme LE domains a.test";
    let bind = format!("crt @/a crt {}", other.display());
    let section = "challenge dns-01\n challenge-ready none";
    let weir = scene.run(&scene.configuration("acme.scheduler off", load, section, &bind));
    assert_eq!(status(&weir, "@/a", 2), "Stopped");
    assert_eq!(status(&weir, "@/a", 5), "-");
    for (command, answer) in [
        ("acme renew".to_owned(), "not enough parameters"),
        ("acme renew nobody".to_owned(), "Can't find the certificate 'nobody'."),
        (format!("acme renew {}", other.display()), "Can't start the ACME client."),
        ("acme challenge_ready @/a".to_owned(), "Not enough parameters"),
        ("acme challenge_ready @/a domain a.test".to_owned(), "Couldn't find an ACME task using crt \"@/a\""),
        ("show events".to_owned(), "dpapi      : type=buffer, 0 dropped, DPAPI ring buffer"),
    ] {
        let said = weir.ask(&command);
        assert!(said.contains(answer), "{command}: {said}");
    }
    // This server has no DNS challenge.
    weir.ask("acme renew @/a");
    let told = "acme: @/a: the server offers no dns-01 challenge for a.test";
    assert!(weir.says(told), "{}", weir.messages());
    assert!(!weir.messages().contains("Next attempt"));
}

/// Returns the result of `-c` for a configuration.
fn verdict(configuration: &str) -> Verdict {
    let directory = scratch("check");
    let file = directory.join("haproxy.cfg");
    std::fs::write(&file, configuration).expect("the temporary directory takes files");
    let verdict = check(&file, &directory);
    assert!(!directory.join("LE.account.key").exists(), "checking writes nothing");
    verdict
}

#[test]
fn section_errors_are_reported_with_their_line() {
    let section = |lines: &str| format!("acme LE\n directory https://ca.test/dir\n{lines}\n");
    let loaded = |load: &str, lines: &str| format!("crt-store s\n load crt x.pem {load}\n{}", section(lines));
    for (configuration, alert) in [
        (section(" challenge tls-01"), "tls-01"),
        (section(" challenge dns-01\n challenge-ready none,dns"), "can't combine 'none' with other keywords"),
        (section(" challenge dns-01\n challenge-ready soon"), "requires parameter separated by commas"),
        (
            section(" challenge http-01\n challenge-ready dns"),
            "is not compatible with the \"challenge-ready\" option",
        ),
        (section(" keytype DSA"), "DSA"),
        (section(" keytype RSA\n bits 1000"), "RSA keys of 1000 bits are not supported"),
        (section(" curves P-1"), "P-1"),
        (section(" reuse-key maybe"), "maybe"),
        (section(" eab-mac-alg MD5"), "MD5"),
        (section(" eab-key-id nowhere"), "external account binding requires a key identifier and a key"),
        (section(" eab-key-id nowhere\n eab-mac-key nowhere"), "cannot read 'nowhere'"),
        (
            section(" map virt@acme"),
            "acme section 'LE' has the map 'virt@acme' configured, but this map doesn't exist",
        ),
        (section(" dns-delay soon"), "in argument to <dns-delay>"),
        (section(" dns-timeout 1x"), "in argument to <dns-timeout>"),
        ("acme LE\n contact me\n".to_owned(), "acme: No directory defined in ACME section 'LE'."),
        ("acme LE\n directory ca.test\n".to_owned(), "invalid URL 'ca.test'"),
        ("acme\n directory https://ca.test/\n".to_owned(), "'acme' expects an <id> argument"),
        (section("") + &section(""), "acme 'LE' has same name as another acme"),
        (section(" account-keys x"), "account-keys"),
        (loaded("acme LE", ""), "has no domain or address to order it for"),
        (
            loaded("acme LX domains a.test", ""),
            "acme 'LX' was used on a crt line, but no 'LX' section exists!",
        ),
        (loaded("acme LE domains a.test,,b.test", ""), "is not a host name"),
        (loaded("acme LE ips 1.2.3", ""), "'1.2.3' is not an IP address"),
        (loaded("acme LE domains *.a.test", ""), "'*.a.test' requires a DNS challenge"),
        (
            loaded("acme LE ips 192.0.2.1", " challenge dns-01"),
            "192.0.2.1 cannot be validated by a DNS challenge",
        ),
        (loaded("acme LE domains a.test", " account-key haproxy.cfg"), "has no private key"),
        ("global\n acme.scheduler maybe\n".to_owned(), "maybe"),
    ] {
        let verdict = verdict(&configuration);
        let alerts = verdict.messages.lines().filter(|line| line.starts_with("[ALERT]"));
        assert!(
            verdict.code == Some(1) && alerts.clone().any(|line| line.contains(alert)),
            "{configuration}\n{alert}\n{}",
            verdict.messages
        );
    }
}

#[test]
fn check_mode_accepts_all_keywords_and_writes_nothing() {
    let port = free_port();
    let configuration = "global\n expose-experimental-directives\n acme.scheduler auto\n\
         crt-store s\n load crt x.pem alias x acme LE domains a.test,*.b.test\n\
         acme LE\n directory https://ca.test/dir\n contact me@a.test\n challenge dns-01\n \
         challenge-ready cli,delay,dns\n dns-delay 5s\n dns-timeout 2m\n provider-name own\n acme-vars a=b\n \
         keytype RSA\n bits 2048\n reuse-key off\n profile classic\n\
         frontend f\n bind 127.0.0.1:PORT ssl crt @s/x\n mode tcp\n timeout client 1s\n";
    let verdict = verdict(&configuration.replace("PORT", &port.to_string()));
    assert!(verdict.accepted() && verdict.warnings().is_empty(), "{}", verdict.messages);
}

#[test]
fn scripts_are_notified_of_new_certificates() {
    let scene = Scene::start();
    let script = scene.file("events.lua");
    let lines = r#"
        local notes = {}
        core.event_sub({ "ACME" }, function(event, data, sub, when)
            notes[#notes + 1] = event .. " " .. data.crtname .. " " .. tostring(data.domain)
        end)
        core.register_cli({ "notes" }, "notes : what was heard", function(applet)
            applet:send(table.concat(notes, "\n") .. "\n")
        end)
    "#;
    std::fs::write(&script, lines).expect("scripts can be written");
    let load = "load crt a.pem alias a acme LE domains a.test";
    let global = format!("lua-load {script}\n");
    let configuration = scene.configuration(&global, load, "challenge http-01\n map virt@acme", "crt @/a");
    let weir = scene.run(&configuration);
    await_issued(&weir, "@/a");
    assert!(eventually(|| weir.ask("notes").trim() == "ACME_NEWCERT @/a nil"), "{}", weir.ask("notes"));
}
