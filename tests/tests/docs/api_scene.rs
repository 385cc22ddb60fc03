//! The process that answers the examples of the runtime API, with servers, clients and files.

use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::{Shutdown, TcpStream};
use std::path::{Path, PathBuf};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use weir_tests::acme::{Acme, Ports};
use weir_tests::client::{Client, get};
use weir_tests::{
    Authority, NameServer, Origin, Scratch, Weir, Zone, eventually, free_port, scratch, workspace,
};

use crate::check::write;
use crate::substitute::Substitutes;

/// The other process of the group of peers.
const NEIGHBOR: &str = "global
    localpeer lb2
peers cluster
    peer lb1 127.0.0.1:10001
    peer lb2 127.0.0.1:10002
backend clients
    stick-table type ip size 100k expire 10m store gpc0,conn_cur,http_req_rate(10s) peers cluster
";

pub(crate) struct Scene {
    weir: Weir,
    substitutes: Substitutes,
    directory: Scratch,
    is_master: bool,
    web: u16,
    _neighbor: Option<Weir>,
    /// A request that gets no response.
    _waiting: Client,
    _origins: Vec<Origin>,
    _names: NameServer,
    _acme: Acme,
}

impl Scene {
    /// Starts everything and waits until the process serves. With `is_master`, the process has a master; with `has_neighbor`, its
    /// peer runs.
    pub(crate) fn start(is_master: bool, has_neighbor: bool) -> Self {
        let directory = scratch("runtime-api");
        let authority = Authority::new();
        let (origins, mut ports) = origins();
        let names = NameServer::start(&[("api.internal", Zone::Addresses(vec!["127.0.0.1"]))]);
        let acme = Acme::start(Ports { http: free_port(), tls: free_port() }).with_dns();
        let responder = responder(&directory, &authority);
        ports.insert(5353, names.port());
        ports.insert(14000, acme.port());
        files(&directory, &authority);
        let text = std::fs::read_to_string(workspace().join("docs/runtime-api/haproxy.cfg"));
        let text = text.expect("the configuration is readable");
        let substitutes = Substitutes::with_ports(&directory, &text, ports);
        let listed = substitutes.paths(
            "/etc/haproxy/www.pem [ocsp-update on] www.example.com\n/etc/haproxy/img.pem img.example.com\n",
        );
        write(&directory.join("etc/haproxy/crt-list.txt"), &listed);
        let web = substitutes.port(8080);
        let master = directory.join("run/haproxy/master.sock").display().to_string();
        let arguments: &[&str] = if is_master { &["-W", "-db", "-S", &master] } else { &["-db"] };
        let weir = Weir::start_with(&substitutes.apply(&text), arguments, &[web]);
        let neighbor =
            has_neighbor.then(|| Weir::start(&substitutes.apply(NEIGHBOR), &[substitutes.port(10002)]));
        let waiting = traffic(web);
        let mut origins = origins;
        origins.push(responder);
        let scene = Self {
            weir,
            substitutes,
            directory,
            is_master,
            web,
            _neighbor: neighbor,
            _waiting: waiting,
            _origins: origins,
            _names: names,
            _acme: acme,
        };
        let is_waiting = eventually(|| scene.waiting_request().is_some());
        assert!(is_waiting, "{}", scene.messages());
        scene
    }

    /// The socket for the examples.
    pub(crate) fn socket(&self) -> PathBuf {
        self.directory.join(if self.is_master { "run/haproxy/master.sock" } else { "run/haproxy/admin.sock" })
    }

    pub(crate) fn messages(&self) -> String {
        self.weir.messages()
    }

    /// A file of the scene, from `/etc/haproxy`.
    pub(crate) fn file(&self, name: &str) -> String {
        let path = self.directory.join("etc/haproxy").join(name);
        std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{name}: {error}"))
    }

    /// Requests a path from the frontend `web`.
    pub(crate) fn request(&self, path: &str) {
        assert!(get(self.web, path).is_some(), "no response for {path}");
    }

    /// Replaces a text in the configuration file.
    pub(crate) fn change(&self, old: &str, new: &str) {
        let path = self.weir.directory().join("haproxy.cfg");
        let text = std::fs::read_to_string(&path).expect("the configuration is readable");
        assert!(text.contains(old), "the configuration has no `{old}`");
        std::fs::write(&path, text.replace(old, new)).expect("the directory takes files");
    }

    /// A command of the page, for the process.
    pub(crate) fn complete(&self, command: &str) -> String {
        let mut text = self.substitutes.apply(command);
        if text.contains("0x…") {
            let id = self.waiting_request().expect("a request waits");
            text = text.replace("0x…", &id);
        }
        if text.contains("@!…") {
            text = text.replace("@!…", &format!("@!{}", self.worker()));
        }
        text
    }

    /// An answer of the process, for the page.
    pub(crate) fn revert(&self, text: &str) -> String {
        let text = text.replace(&self.weir.directory().display().to_string(), "/etc/haproxy");
        self.substitutes.revert(&text)
    }

    /// The address by which `show sess` lists the request that waits.
    fn waiting_request(&self) -> Option<String> {
        let listed = weir_tests::ask(&self.directory.join("run/haproxy/admin.sock"), "show sess");
        let line = listed.lines().find(|line| line.contains("be=reports"))?;
        Some(line.split(':').next()?.to_owned())
    }

    /// The process ID of the worker.
    fn worker(&self) -> String {
        let listed = weir_tests::ask(&self.socket(), "show proc");
        let line = listed.lines().find(|line| line.contains(" worker ")).expect("a worker is listed");
        line.split(' ').next().unwrap_or_default().to_owned()
    }
}

/// Servers, and their ports by those of the page.
fn origins() -> (Vec<Origin>, BTreeMap<u16, u16>) {
    let app = || {
        Origin::start(|head, _| {
            let more = if head.contains("/static/") {
                "Cache-Control: max-age=3600\r\nCache-Tag: assets\r\n"
            } else {
                ""
            };
            format!("HTTP/1.1 200 OK\r\n{more}Content-Length: 3\r\n\r\nok\n").into_bytes()
        })
    };
    // Sends no answer before its client leaves.
    let reports = Origin::raw(|mut stream| {
        let _ = stream.read_to_end(&mut Vec::new());
    });
    let agent = Origin::raw(|mut stream| {
        let _ = stream.write_all(b"up\n");
    });
    let all =
        vec![(8001, app()), (8002, app()), (8003, reports), (8004, app()), (8005, app()), (9001, agent)];
    let ports = all.iter().map(|(shown, origin)| (*shown, origin.port())).collect();
    (all.into_iter().map(|(_, origin)| origin).collect(), ports)
}

/// An OCSP responder, and the certificate that names it, with a response.
fn responder(directory: &Path, authority: &Authority) -> Origin {
    let response = std::sync::Arc::new(std::sync::OnceLock::<Vec<u8>>::new());
    let own = response.clone();
    let origin = Origin::start(move |_, _| {
        let body = own.get().map_or(&[][..], Vec::as_slice);
        let length = body.len();
        let head = format!(
            "HTTP/1.1 200 OK\r\nContent-Type: application/ocsp-response\r\nContent-Length: {length}\r\n\r\n"
        );
        [head.as_bytes(), body].concat()
    });
    let url = format!("http://127.0.0.1:{}", origin.port());
    let certificate = authority.issue_asking(&["www.example.com"], &url);
    let good = std::fs::read(authority.answer(&certificate, true)).expect("the authority wrote it");
    let text = |path: &Path| std::fs::read_to_string(path).expect("the authority wrote it");
    let folder = directory.join("etc/haproxy");
    write(&folder.join("www.pem"), &(text(&certificate) + &text(&authority.own())));
    write(&folder.join("www.ocsp.base64"), &STANDARD.encode(&good));
    std::fs::write(folder.join("www.pem.ocsp"), &good).expect("the directory takes files");
    response.set(good).expect("it is set once");
    origin
}

/// The files that the configuration names, and those for payloads.
fn files(directory: &Path, authority: &Authority) {
    let folder = directory.join("etc/haproxy");
    let text = |path: PathBuf| std::fs::read_to_string(path).expect("the authority wrote it");
    let revoked = authority.issue(&["revoked.example.com"]);
    let issued = |names: &[&str]| text(authority.issue(names));
    for (name, content) in [
        ("img-new.pem", issued(&["img.example.com"])),
        ("img.pem", issued(&["img.example.com"])),
        ("new.pem", issued(&["new.example.com"])),
        ("shop.pem", issued(&["shop.example.com"])),
        ("token.pem", issued(&["token.example.com"])),
        ("clients.pem", text(authority.own())),
        ("partners.pem", text(Authority::new().own())),
        ("clients.crl", text(authority.revoke(&[]))),
        ("revoked.crl", text(authority.revoke(&[&revoked]))),
        ("blocked.acl", "192.0.2.0/24\n198.51.100.7\n".to_owned()),
        ("hosts.json", "[]\n".to_owned()),
        ("paths.map", "/reports reports\n/api api\n".to_owned()),
        ("tickets.keys", (1..=3).map(|n| STANDARD.encode([n; 48]) + "\n").collect()),
    ] {
        write(&folder.join(name), &content);
    }
    for name in ["run/haproxy", "var/cache", "var/lib/haproxy"] {
        std::fs::create_dir_all(directory.join(name)).expect("the directory takes directories");
    }
}

/// Requests of all kinds. Returns the client of one that gets no response.
fn traffic(web: u16) -> Client {
    for path in ["/", "/static/logo.svg", "/static/site.css"] {
        assert!(get(web, path).is_some(), "no response for {path}");
    }
    // For `show errors`.
    if let Ok(mut stream) = TcpStream::connect(("127.0.0.1", web)) {
        let _ = stream.write_all(b"GET /\x01 HTTP/1.1\r\nHost: www.example.com\r\n\r\n");
        let _ = stream.shutdown(Shutdown::Write);
        let _ = stream.read_to_end(&mut Vec::new());
    }
    let mut waiting = Client::connect(web);
    waiting.send("GET /reports/2026 HTTP/1.1\r\nHost: www.example.com\r\n\r\n");
    waiting
}
