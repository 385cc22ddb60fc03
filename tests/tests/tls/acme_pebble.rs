//! Certificates ordered from Pebble, which is as strict as a real CA (manual, section 12.8). If Pebble is not installed, each test
//! reports that and passes; `acme.rs` does not need it.

use std::process::Command;

use weir_tests::pebble::{Pebble, Settings};
use weir_tests::tls::{certificate_fact as fact, handshake, order_status as status};
use weir_tests::{Authority, NameServer, Scratch, Weir, Zone, eventually, free_port, scratch};

/// A name server that resolves all names to 127.0.0.1, a CA, and ports for the program.
struct Scene {
    names: NameServer,
    pebble: Pebble,
    http: u16,
    tls: u16,
    /// The directory of the program's certificates.
    files: Scratch,
}

const HOSTS: [&str; 4] = ["localhost", "a.test", "b.test", "c.test"];

impl Scene {
    fn start(settings: Settings<'_>) -> Option<Scene> {
        let here = || Zone::Addresses(vec!["127.0.0.1"]);
        let names = NameServer::start(&HOSTS.map(|host| (host, here())));
        let (http, tls) = (free_port(), free_port());
        let pebble = Pebble::start(Settings { names: names.port(), http, tls, ..settings })?;
        Some(Scene { names, pebble, http, tls, files: scratch("ordered") })
    }

    fn file(&self, name: &str) -> String {
        self.files.join(name).display().to_string()
    }

    /// Returns a configuration with these lines in the store, the `acme` section and the TLS bind line.
    fn configuration(&self, load: &str, section: &str, bind: &str) -> String {
        let Scene { names, pebble, http, tls, files } = self;
        let (names, files, url) = (names.port(), files.display(), pebble.url());
        let authority = pebble.authority();
        let authority = authority.display();
        format!(
            "global\n stats socket runtime level admin\n httpclient.ssl.ca-file {authority}\n \
             httpclient.resolvers.prefer ipv4\n\
             resolvers default\n nameserver own 127.0.0.1:{names}\n\
             defaults\n mode http\n timeout client 10s\n timeout server 10s\n timeout connect 3s\n\
             crt-store s\n crt-base {files}\n {load}\n\
             frontend f\n bind 127.0.0.1:{http}\n bind 127.0.0.1:{tls} ssl {bind}\n \
             http-request return status 200 content-type text/plain lf-string \
             \"%[path,field(-1,/)].%[path,field(-1,/),map(virt@acme)]\\n\" \
             if {{ path_beg '/.well-known/acme-challenge/' }}\n http-request return status 204\n\
             acme LE\n directory {url}\n account-key {files}/account.key\n contact me@a.test\n {section}\n"
        )
    }

    fn run(&self, configuration: &str) -> Weir {
        Weir::start(configuration, &[self.http, self.tls])
    }
}

/// Waits until a certificate with another serial number than `old` is installed and no order is in progress.
fn await_new(scene: &Scene, weir: &Weir, certificate: &str, old: &str) -> String {
    let mut serial = String::new();
    let came = eventually(|| {
        serial = fact(weir, certificate, "Serial");
        status(weir, certificate, 2) == "Scheduled"
            && serial != old
            && fact(weir, certificate, "Issuer").contains("Pebble")
    });
    assert!(came, "{}\n{}", weir.messages(), scene.pebble.log());
    serial
}

#[test]
fn http_challenges_order_renew_and_keep_certificates() {
    let Some(scene) = Scene::start(Settings { refuses: 25, ..Settings::default() }) else { return };
    let load = "load crt a.pem alias a acme LE domains a.test,b.test\n \
                load crt b.crt key b.key alias b acme RSA domains b.test";
    let second = format!(
        "acme RSA\n directory {}\n account-key {}\n challenge http-01\n keytype RSA\n bits 2048\n reuse-key on\n \
         map virt@acme\n profile shortlived\n",
        scene.pebble.url(),
        scene.file("account.key")
    );
    let section = format!(
        "challenge http-01\n keytype ECDSA\n curves P-256\n profile default\n map virt@acme\n{second}"
    );
    let load = load.replace("b.key", &scene.file("b.key"));
    let configuration = scene.configuration(&load, &section, "crt @s/a crt @s/b");
    let mut weir = scene.run(&configuration);
    let first = await_new(&scene, &weir, "@s/a", "");
    await_new(&scene, &weir, "@s/b", "");
    assert_eq!(fact(&weir, "@s/a", "Algorithm"), "EC256");
    assert_eq!(fact(&weir, "@s/a", "Subject Alternative Name"), "DNS:a.test, DNS:b.test");
    assert_eq!(fact(&weir, "@s/b", "Algorithm"), "RSA2048");
    assert!(status(&weir, "@s/b", 4).starts_with("5d "), "{}", weir.ask("acme status"));
    assert!(status(&weir, "@s/a", 6).starts_with("82d "), "{}", weir.ask("acme status"));
    let shown = handshake(scene.tls, &["-servername", "a.test"]);
    assert!(shown.contains("Pebble Intermediate"), "{shown}");
    assert_eq!(weir.ask("show map virt@acme").trim(), "", "no token is left");

    let key = |name: &str| {
        let text = std::fs::read_to_string(scene.file(name)).expect("it was written");
        text.split_once("-----END PRIVATE KEY-----").map(|(key, _)| key.to_owned())
    };
    let (key_of_a, key_of_b) = (key("a.pem"), key("b.key"));
    let mut serial = first;
    for _ in 0..2 {
        weir.ask("acme renew @s/a");
        serial = await_new(&scene, &weir, "@s/a", &serial);
    }
    let serial_of_b = fact(&weir, "@s/b", "Serial");
    weir.ask("acme renew @s/b");
    let serial_of_b = await_new(&scene, &weir, "@s/b", &serial_of_b);
    assert!(key("a.pem") != key_of_a && key("b.key") == key_of_b, "`reuse-key` alone keeps the key");

    weir.signal("TERM");
    weir.await_end();
    let account = std::fs::read(scene.file("account.key")).expect("it was written");
    let again = scene.run(&configuration);
    assert_eq!(fact(&again, "@s/a", "Serial"), serial);
    assert_eq!(fact(&again, "@s/b", "Serial"), serial_of_b);
    assert_eq!(status(&again, "@s/a", 2), "Scheduled");
    again.ask("acme renew @s/a");
    await_new(&scene, &again, "@s/a", &serial);
    assert_eq!(std::fs::read(scene.file("account.key")).expect("it is there"), account);
    assert!(scene.pebble.log().contains("There are now 1 accounts in memory"));
    assert!(!scene.pebble.log().contains("There are now 2 accounts in memory"));
}

#[test]
fn failed_challenge_is_reported_and_can_be_retried() {
    let Some(scene) = Scene::start(Settings::default()) else { return };
    let configuration = scene.configuration(
        "load crt a.pem alias a acme LE domains a.test",
        "challenge http-01\n map virt@acme",
        "crt @s/a",
    );
    let configuration = configuration.replace("global\n", "global\n acme.scheduler off\n");
    // While the map has an entry, a wrong response precedes the right one.
    let right = "http-request return status 200 content-type";
    let wrong = format!(
        "http-request return status 200 content-type text/plain string wrong if {{ path_beg /.well-known/ }} {{ str(x),map(virt@wrong) -m \
         found }}\n {right}"
    );
    let weir = scene.run(&configuration.replace(right, &wrong));
    assert_eq!(status(&weir, "@s/a", 2), "Stopped", "nothing is ordered by itself");
    weir.ask("add map virt@wrong x 1");
    weir.ask("acme renew @s/a");
    let told = weir.says("acme: @s/a: challenge error: ");
    assert!(told, "{}", weir.messages());
    assert!(eventually(|| status(&weir, "@s/a", 2) == "Stopped"));
    weir.ask("del map virt@wrong x");
    weir.ask("acme renew @s/a");
    let came = eventually(|| fact(&weir, "@s/a", "Issuer").contains("Pebble"));
    assert!(came, "{}\n{}", weir.messages(), scene.pebble.log());
}

#[test]
fn dns_records_are_announced_as_events_and_awaited() {
    let Some(scene) = Scene::start(Settings::default()) else { return };
    let configuration = scene.configuration(
        "load crt w.pem alias w acme LE domains *.a.test,a.test,b.test",
        "challenge dns-01\n challenge-ready cli,dns\n dns-delay 1s\n dns-timeout 1m\n provider-name own\n \
         acme-vars 'zone=\"a\" ttl=60'",
        "crt @s/w",
    );
    let weir = scene.run(&configuration);
    let mut events = String::new();
    let told = eventually(|| {
        events = weir.ask("show events dpapi");
        events.matches("acme deploy @s/w thumbprint ").count() == 3
    });
    assert!(told, "{events}\n{}", weir.messages());
    assert!(events.contains("\nprovider-name \"own\"\nacme-vars \"zone=\\\"a\\\" ttl=60\"\n"), "{events}");
    let mut records: Vec<(String, String)> = Vec::new();
    for event in events.split("acme deploy").skip(1) {
        let quoted = |mark: &str| {
            let rest = event.split_once(mark).expect("the mark is there").1;
            rest.split('"').next().unwrap_or_default().to_owned()
        };
        records.push((quoted("\"value\": \""), quoted("dns-01-record \"")));
    }
    for (name, _) in &records {
        let texts = records.iter().filter(|(own, _)| own == name).map(|(_, text)| text.clone()).collect();
        scene.names.say(&format!("_acme-challenge.{name}"), Zone::Texts(texts));
    }
    let ready = |domain: &str| weir.ask(&format!("acme challenge_ready @s/w domain {domain}"));
    assert!(ready("nobody.test").contains("Couldn't find an ACME task"));
    assert!(ready("b.test").contains("Remaining challenges to deploy: 2"));
    assert!(weir.ask("acme renew @s/w").contains("Task already exists"));
    assert!(ready("a.test").contains("All challenges ready"));
    await_new(&scene, &weir, "@s/w", "");
    assert!(weir.ask("show events dpapi").contains("acme newcert @s/w\n"));
    assert_eq!(fact(&weir, "@s/w", "Subject Alternative Name"), "DNS:*.a.test, DNS:a.test, DNS:b.test");
}

#[test]
fn persistent_dns_record_is_found_automatically() {
    let Some(scene) = Scene::start(Settings::default()) else { return };
    let configuration = scene.configuration(
        "load crt p.pem alias p acme LE domains a.test",
        "challenge dns-persist-01\n challenge-ready dns\n dns-delay 1s",
        "crt @s/p",
    );
    let weir = scene.run(&configuration);
    let mut events = String::new();
    let told = eventually(|| {
        events = weir.ask("show events dpapi");
        events.contains("dns-persist-01-record")
    });
    assert!(told, "{events}\n{}", weir.messages());
    let record = events.split_once("dns-persist-01-record \"").expect("it is there").1;
    let record = record.split('"').next().unwrap_or_default().to_owned();
    assert!(record.contains("; accounturi=https://localhost:"), "{record}");
    scene.names.say("_validation-persist.a.test", Zone::Texts(vec![record]));
    let serial = await_new(&scene, &weir, "@s/p", "");
    let before = weir.ask("show events dpapi").matches("acme deploy").count();
    weir.ask("acme renew @s/p");
    await_new(&scene, &weir, "@s/p", &serial);
    assert_eq!(weir.ask("show events dpapi").matches("acme deploy").count(), before);
}

#[test]
fn tls_challenges_work_with_client_verification() {
    let Some(scene) = Scene::start(Settings::default()) else { return };
    let authority = Authority::new();
    let configuration = scene.configuration(
        "load crt t.pem alias t acme LE domains a.test,b.test ips 127.0.0.1",
        "challenge tls-alpn-01",
        &format!("crt @s/t strict-sni verify required ca-file {}", authority.own().display()),
    );
    let weir = scene.run(&configuration);
    await_new(&scene, &weir, "@s/t", "");
    let names = Command::new("openssl")
        .args(["x509", "-noout", "-ext", "subjectAltName", "-in", &scene.file("t.pem")])
        .output()
        .expect("openssl runs: `make tools` installs it");
    let names = String::from_utf8_lossy(&names.stdout).into_owned();
    assert!(names.contains("DNS:a.test") && names.contains("IP Address:127.0.0.1"), "{names}");
    // The challenge has ended, so the bind line's own requirements apply again.
    let shown = handshake(scene.tls, &["-servername", "a.test", "-alpn", "acme-tls/1"]);
    assert!(!shown.contains("ALPN protocol: acme-tls/1"), "{shown}");
}

#[test]
fn accounts_are_bound_to_external_accounts() {
    let key = "zWNDZM6eQGHWpSRTPal5eIUYFTu7EajVIoguysqZ9wG44nMEtx3MUAsUDkMTQ12W";
    let Some(scene) = Scene::start(Settings { binding: Some(("kid-1", key)), ..Settings::default() }) else {
        return;
    };
    std::fs::write(scene.file("kid"), "kid-1\n").expect("it can be written");
    std::fs::write(scene.file("mac"), format!("{key}\n")).expect("it can be written");
    let section = format!(
        "eab-key-id {}\n eab-mac-key {}\n eab-mac-alg HS256\n map virt@acme",
        scene.file("kid"),
        scene.file("mac")
    );
    let configuration =
        scene.configuration("load crt e.pem alias e acme LE domains c.test", &section, "crt @s/e");
    let weir = scene.run(&configuration);
    await_new(&scene, &weir, "@s/e", "");
}
