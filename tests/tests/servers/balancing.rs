//! In a cluster of Weir and HAProxy, both must send a key to the same server: the same requests go through both, for every
//! hash-based method, and the selected servers are compared; so are the cookies derived from server addresses.
//!
//! Requests without a key are compared too: they are distributed in HAProxy's order.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Mutex;

use weir_tests::client::Client;
use weir_tests::{Haproxy, Origin, Weir, free_port, scratch};

/// Servers of a backend: the text after `server sN 127.0.0.1:PORT`. `ORIGIN` and `SECOND` are ports.
const FARMS: &[(&str, &[&str])] = &[
    (
        "uneven",
        &["weight 1", "weight 3", "weight 10 id 77", "weight 100", "weight 0", "weight 2 backup", "weight 7"],
    ),
    ("even", &["", "id 5000", "", "disabled", ""]),
    ("divisible", &["weight 128", "weight 64", "weight 256 id 1000000", "weight 32"]),
    // With other weights, HAProxy's map includes backups after the first, which the manual reserves for `allbackups`.
    ("backups", &["disabled", "backup", "backup"]),
    ("one", &["weight 5"]),
];

/// Balancing lines, and the HAProxy version that introduced them.
const METHODS: &[(&str, (u32, u32))] = &[
    ("balance static-rr", (1, 5)),
    ("balance roundrobin", (1, 5)),
    ("balance source", (1, 5)),
    ("balance source\n hash-type map-based sdbm avalanche", (1, 5)),
    ("balance source\n hash-type consistent", (1, 5)),
    ("balance source\n hash-type consistent wt6", (1, 5)),
    ("balance uri", (1, 5)),
    ("balance uri whole\n hash-type map-based djb2", (1, 5)),
    ("balance uri len 9\n hash-type map-based wt6", (1, 5)),
    ("balance uri depth 2\n hash-type map-based crc32", (1, 5)),
    ("balance uri len 12 depth 1 whole\n hash-type consistent", (1, 5)),
    ("balance uri path-only\n hash-type consistent sdbm", (2, 3)),
    ("balance uri path-only whole depth 2\n hash-type consistent djb2 avalanche", (2, 3)),
    ("balance uri\n hash-type map-based sdbm avalanche", (1, 5)),
    ("balance uri\n hash-type map-based djb2 avalanche", (1, 5)),
    ("balance url_param user", (1, 5)),
    ("balance url_param user\n hash-type consistent crc32", (1, 6)),
    ("balance url_param user check_post\n hash-type map-based crc32 avalanche", (1, 6)),
    ("balance hdr(x-key)", (1, 5)),
    ("balance hdr(X-Key)\n hash-type consistent wt6 avalanche", (1, 5)),
    ("balance hdr(host) use_domain_only\n hash-type map-based djb2", (1, 5)),
    ("balance hdr(host) use_domain_only\n hash-type consistent djb2", (1, 5)),
    ("balance hash req.hdr(x-key)", (2, 6)),
    ("balance hash req.hdr(x-key),lower\n hash-type consistent", (2, 6)),
    ("balance hash src\n hash-type map-based wt6", (2, 6)),
    ("balance hash req.hdr(x-number),add(0)\n hash-type consistent djb2", (2, 6)),
    ("balance hash path,crc32\n hash-type consistent crc32 avalanche", (2, 6)),
    ("balance hash req.hdr(x-number)\n hash-type map-based none", (3, 0)),
    ("balance hash req.hdr(x-number)\n hash-type consistent none", (3, 0)),
    ("balance hash req.hdr(x-number)\n hash-type consistent none avalanche", (3, 0)),
    ("balance hash src\n hash-type consistent none", (3, 0)),
    ("balance uri\n hash-type consistent\n default-server hash-key addr", (3, 0)),
    ("balance uri\n hash-type consistent\n default-server hash-key addr-port", (3, 0)),
    ("balance uri\n hash-type consistent\n default-server hash-key id32", (3, 4)),
    ("balance uri\n hash-type consistent\n default-server hash-key guid", (3, 4)),
    ("balance uri\n hash-type consistent\n hash-balance-factor 1000", (1, 7)),
];

/// Requests, with a number for `N`: the text after the method, and header lines.
const TARGETS: &[&str] = &[
    "/N",
    "/a/N",
    "/a/b/N?user=N",
    "/a/N/c/d?x=1&user=uN&y=2",
    "http://other.example/N/b?user=N;z",
    "/N?user=",
    "/N?xuser=1",
    "/N?a=/b/c/d",
    "/deep/er/and/deep/er/N",
    "/N?user=a%20b&user=c",
];
const KEYS: &[&str] = &["N", "key-N", "N, second", "\"a,N\", b", "KEY-N", " N ", "", ",N"];
const HOSTS: &[&str] = &["hN.example.com", "hN.example.com:8080", "localhostN", "a.N.b.c", "N.example"];
const NUMBERS: &[&str] = &["N", "N77777", "-N", "+N", "4294967295N", "Nx"];
const SOURCES: &[&str] = &["10.0.N.7", "192.168.7.N", "2001:db8::N", "fe80::N:7:9:1"];
const COUNT: usize = 130;

/// Returns an element of a list with its number filled in.
fn fill(list: &[&str], number: usize) -> String {
    list[number % list.len()].replace('N', &(number * 7 % 251).to_string())
}

/// Returns a request, the same for all backends except for the backend's name. Bodies are only sent where needed: HAProxy examines
/// what it happens to have of them even without `check_post`, contrary to the manual.
fn request(number: usize, backend: &str, posts: bool) -> String {
    let (method, body) = if posts && number % 9 == 8 {
        ("POST", format!("a=1&user=p{number}&b=2"))
    } else {
        ("GET", String::new())
    };
    let key = if number % 11 == 10 { String::new() } else { format!("X-Key: {}\r\n", fill(KEYS, number)) };
    // The host of an absolute target and the field must agree.
    let target = fill(TARGETS, number);
    let host = if target.starts_with("http:") { "other.example".into() } else { fill(HOSTS, number) };
    format!(
        "{method} {target} HTTP/1.1\r\nHost: {host}\r\n{key}X-Number: {}\r\nX-Src: {}\r\nX-Backend: {backend}\r\n\
         Content-Length: {}\r\n\r\n{body}",
        fill(NUMBERS, number),
        fill(SOURCES, number),
        body.len(),
    )
}

/// Returns the backends supported by that HAProxy version: name and text.
fn backends(version: (u32, u32), origins: &[u16]) -> BTreeMap<String, String> {
    let mut all = BTreeMap::new();
    for (at, (method, since)) in METHODS.iter().enumerate().filter(|(_, (_, since))| *since <= version) {
        for (farm, servers) in FARMS {
            // Only a few farms matter for every method.
            if at % 3 != 0 && *farm == "backups" || at % 5 != 0 && *farm == "one" || *since > version {
                continue;
            }
            let name = format!("{farm}-{at}");
            let guid = |at: usize| match method.contains("hash-key guid") {
                true => format!("guid {name}.{at}"),
                false => String::new(),
            };
            let servers: String = servers
                .iter()
                .enumerate()
                .map(|(at, options)| {
                    format!(
                        " server s{at} 127.0.0.1:{} {options} {}\n",
                        origins[at % origins.len()],
                        guid(at)
                    )
                })
                .collect();
            let text = format!("backend {name}\n {method}\n http-response set-header x-server %s\n{servers}");
            all.insert(name, text);
        }
    }
    all
}

fn configuration(port: u16, socket: &Path, backends: impl Iterator<Item = String>) -> String {
    let backends: String = backends.collect();
    format!(
        "global\n nbthread 1\n stats socket {} level admin\n\
         defaults\n mode http\n timeout client 20s\n timeout connect 5s\n timeout server 20s\n\
         frontend f\n bind 127.0.0.1:{port}\n http-request set-src hdr_ip(x-src)\n use_backend %[req.hdr(x-backend)]\n{backends}",
        socket.display()
    )
}

/// The servers selected by a proxy, by backend, in the order of the requests.
type Chosen = BTreeMap<String, Vec<String>>;

fn ask(port: u16, texts: &BTreeMap<String, String>) -> Chosen {
    let next = Mutex::new(texts.iter());
    let chosen = Mutex::new(Chosen::new());
    std::thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| {
                while let Some((name, text)) = { next.lock().expect("no panic").next() } {
                    let mut client = Client::connect(port);
                    let servers = (0..COUNT).map(|number| {
                        let answer = client
                            .send(request(number, name, text.contains("check_post")))
                            .response()
                            .expect("an answer");
                        answer.header("x-server").map_or_else(|| answer.status.to_string(), str::to_owned)
                    });
                    let servers = servers.collect();
                    chosen.lock().expect("no panic").insert((*name).clone(), servers);
                }
            });
        }
    });
    chosen.into_inner().expect("no panic")
}

/// Returns commands that change weights and states, for backends with uneven weights.
fn changes(names: &[&String]) -> String {
    let change = |name: &&String| match name.split_once('-')?.0 {
        "uneven" => Some(format!("disable server {name}/s3")),
        "divisible" => Some(format!("set server {name}/s1 weight 0%")),
        _ => None,
    };
    names.iter().filter_map(change).collect::<Vec<_>>().join(";")
}

/// Returns whether a request has a key for the backend with that text.
fn has_key(text: &str, number: usize) -> bool {
    if text.contains("url_param") {
        return ["?user=", "&user="].iter().any(|it| TARGETS[number % TARGETS.len()].contains(it));
    }
    if text.to_ascii_lowercase().contains("(x-key)") {
        return number % 11 != 10 && !["", ",N"].contains(&KEYS[number % KEYS.len()]);
    }
    !["static-rr", "roundrobin"].iter().any(|name| text.contains(name))
}

/// Returns which of the requests selected by `counts` went to different servers.
fn differences(
    ours: &Chosen,
    theirs: &Chosen,
    texts: &BTreeMap<String, String>,
    counts: impl Fn(&str, usize) -> bool,
) -> Vec<String> {
    let mut wrong = Vec::new();
    for (name, own) in ours {
        let (other, text) = (&theirs[name], &texts[name]);
        let differing: Vec<usize> =
            (0..COUNT).filter(|at| counts(text, *at) && own[*at] != other[*at]).collect();
        if let Some(&first) = differing.first() {
            wrong.push(format!(
                "{} differ, the first, number {first}, goes to {} instead of {}:\n{text}\n{}",
                differing.len(),
                own[first],
                other[first],
                request(first, name, false),
            ));
        }
    }
    wrong
}

#[test]
fn keys_select_the_same_server_as_in_haproxy() {
    let version = Haproxy::version();
    let origins = [Origin::text("a"), Origin::text("b"), Origin::text("c")];
    let texts = backends(version, &origins.each_ref().map(Origin::port));
    let names: Vec<&String> = texts.keys().collect();
    let directory = scratch("balancing");
    let (own, other) = (directory.join("weir.sock"), directory.join("haproxy.sock"));
    let port = free_port();
    let weir = Weir::start(&configuration(port, &own, texts.values().cloned()), &[port]);
    let other_port = free_port();
    let text = configuration(other_port, &other, texts.values().cloned());
    let _running = Haproxy::start(&text, other_port);

    let (ours, theirs) = (ask(port, &texts), ask(other_port, &texts));
    let mut wrong = differences(&ours, &theirs, &texts, |_, _| true);
    // Unhashed keys may all fall close together.
    let spread = ours.iter().filter(|(name, _)| {
        name.starts_with("even") && ![" none", "hash-key"].iter().any(|it| texts[*name].contains(it))
    });
    for (name, servers) in spread {
        let used: std::collections::BTreeSet<_> = servers.iter().collect();
        assert!(used.len() >= 3, "the keys reach most servers of {name}: {used:?}");
    }
    // The comparison is repeated after changes of weights and states. The order for requests without a key then depends on the
    // history.
    for socket in [&own, &other] {
        assert_eq!(weir_tests::ask(socket, &changes(&names)).trim(), "");
    }
    let (ours, theirs) = (ask(port, &texts), ask(other_port, &texts));
    wrong.extend(differences(&ours, &theirs, &texts, has_key));
    assert!(wrong.is_empty(), "haproxy {version:?}: {}\n{}", wrong.len(), wrong.join("\n"));
    assert!(!weir.messages().contains("panicked"), "{}", weir.messages());
}

#[test]
fn dynamic_cookies_match_haproxy() {
    let origins: Vec<Origin> = (0..4).map(|_| Origin::text("x")).collect();
    let config = |port: u16| {
        let servers: String = origins
            .iter()
            .enumerate()
            .map(|(at, origin)| format!(" server s{at} 127.0.0.1:{}\n", origin.port()))
            .collect();
        format!(
            "defaults\n mode http\n timeout client 20s\n timeout connect 5s\n timeout server 20s\n\
             listen l\n bind 127.0.0.1:{port}\n balance roundrobin\n cookie SRV insert dynamic\n\
             dynamic-cookie-key a-secret\n http-response set-header x-server %s\n{servers}"
        )
    };
    let cookies = |port: u16| -> BTreeMap<String, String> {
        let one = |_| {
            let mut client = Client::connect(port);
            let answer = client.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n").response().expect("an answer");
            let get = |name| answer.header(name).unwrap_or_default().to_owned();
            (get("x-server"), get("set-cookie"))
        };
        (0..8).map(one).collect()
    };
    let port = free_port();
    let _weir = Weir::start(&config(port), &[port]);
    let ours = cookies(port);
    assert_eq!(ours.len(), 4, "{ours:?}");
    let other = free_port();
    let _running = Haproxy::start(&config(other), other);
    assert_eq!(ours, cookies(other));
}

/// Returns the first packet of an RDP connection (TPKT, X.224) with this cookie.
fn remote_desktop(cookie: &str) -> Vec<u8> {
    let line = format!("Cookie: {cookie}\r\n");
    let length = 11 + line.len();
    let mut packet = vec![3, 0, (length >> 8) as u8, length as u8, (length - 5) as u8, 0xe0, 0, 0, 0, 0, 0];
    packet.extend_from_slice(line.as_bytes());
    packet
}

#[test]
fn rdp_cookies_select_the_same_server_as_in_haproxy() {
    let origins = ["a", "b", "c"].map(|name| {
        Origin::raw(move |mut stream| {
            use std::io::{Read, Write};
            if stream.read(&mut [0; 512]).is_ok_and(|count| count > 0) {
                let _ = stream.write_all(name.as_bytes());
            }
        })
    });
    let servers: String = origins
        .iter()
        .enumerate()
        .map(|(at, origin)| format!(" server s{at} 127.0.0.1:{} weight {}\n", origin.port(), 1 + 2 * at))
        .collect();
    let config = |ports: [u16; 2]| {
        let listen = |name: &str, port: u16, options: &str| {
            format!(
                "listen {name}\n bind 127.0.0.1:{port}\n tcp-request inspect-delay 10s\n\
                 tcp-request content accept if {{ req.rdp_cookie_cnt gt 0 }}\n{options}\n{servers}"
            )
        };
        format!(
            "global\n nbthread 1\ndefaults\n mode tcp\n timeout client 20s\n timeout connect 5s\n timeout server 20s\n{}{}",
            listen("plain", ports[0], " balance rdp-cookie"),
            listen("named", ports[1], " balance rdp-cookie(Token)\n hash-type consistent wt6"),
        )
    };
    let chosen = |ports: [u16; 2]| -> Vec<String> {
        let cookies = (0..60).flat_map(|number| {
            [(ports[0], format!("mstshash=user{number}")), (ports[1], format!("token={}", number * 977))]
        });
        let ask = |(port, cookie): (u16, String)| {
            let answer = Client::connect(port).send(remote_desktop(&cookie)).read_to_end();
            String::from_utf8_lossy(&answer).into_owned()
        };
        cookies.map(ask).collect()
    };
    let ports = [free_port(), free_port()];
    let _weir = Weir::start(&config(ports), &ports);
    let ours = chosen(ports);
    assert!(["a", "b", "c"].iter().all(|name| ours.iter().any(|one| one == name)), "{ours:?}");
    let others = [free_port(), free_port()];
    let _running = Haproxy::start(&config(others), others[1]);
    assert_eq!(ours, chosen(others));
}
