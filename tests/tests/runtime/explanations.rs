//! `explain` on the runtime socket and as a command: what would happen to a request.

use std::process::Command;

use weir_tests::client::{exchange, exchange_with};
use weir_tests::logs::{DEFAULTS, GLOBAL};
use weir_tests::{Origin, Weir, eventually, free_port, scratch};

/// A frontend with rules that depend on the path, headers, a map and a table.
fn configuration(port: u16, map: &str, origins: &[Origin; 3]) -> String {
    let [first, second, third] = [0, 1, 2].map(|at| origins[at].port());
    format!(
        "frontend web
    bind 127.0.0.1:{port}
    acl internal src 10.0.0.0/8 192.168.0.0/16
    acl is_api path_beg /api/ /v2/
    http-request track-sc0 src table visits
    http-request deny deny_status 429 if {{ sc_http_req_rate(0) gt 1000 }}
    http-request deny if {{ path_beg /admin }} !internal
    http-request set-var(txn.tier) str(gold) if {{ req.hdr(x-tier) -m str gold }} or {{ url_param(tier) gold }}
    http-request set-path /v1%[path] if is_api
    http-request set-map({map}) %[path] app if {{ path /learn }}
    http-request set-var(proc.last) path
    http-request sc-inc-gpc0(0)
    http-request return status 204 if {{ path /gone }} {{ sc_inc_gpc0(0) gt 100000 }}
    http-request redirect location /new%[query] code 301 unless !{{ path /old }} || internal
    use_backend %[req.hdr(host),field(1,:),map({map},app)] if {{ path_beg /v1 }}
    http-request redirect location /n%[sc_inc_gpc0(0)] if {{ path /counted }}
    use_backend static if {{ path_end .css .js }}
    use_backend missing%[path] if {{ path /nowhere }}
    force-be-switch if {{ sc_inc_gpc0(0) gt 1000000 }}
    default_backend app
backend app
    cookie SRV insert
    http-request deny deny_status 413 if {{ method POST }} {{ req.hdr(x-size) -m int gt 1000 }}
    http-request set-header x-tier %[var(txn.tier)]
    server a1 127.0.0.1:{first} cookie a1
    server a2 127.0.0.1:{second} cookie a2 disabled
backend static
    balance uri
    hash-type consistent
    server s1 127.0.0.1:{first}
    server s2 127.0.0.1:{second}
    server s3 127.0.0.1:{third}
backend api
    use-server i2 if {{ path_sub two }}
    server i1 127.0.0.1:{third} weight 0
    server i2 127.0.0.1:{second}
backend visits
    stick-table type ip size 1k expire 1m store http_req_rate(10s),gpc0
"
    )
}

struct Scene {
    weir: Weir,
    port: u16,
    _origins: [Origin; 3],
    _directory: weir_tests::Scratch,
}

fn scene() -> Scene {
    let origins = [Origin::text("first"), Origin::text("second"), Origin::text("third")];
    let (port, directory) = (free_port(), scratch("explain"));
    let map = directory.join("hosts.map");
    std::fs::write(&map, "api.example api\n").expect("the file is writable");
    let sections = configuration(port, &map.display().to_string(), &origins);
    let weir = Weir::start(&format!("{GLOBAL}{DEFAULTS}{sections}"), &[port]);
    Scene { weir, port, _origins: origins, _directory: directory }
}

/// The result that a response shows: its status, or the server.
fn result_of(scene: &Scene, method: &str, path: &str, fields: &str) -> String {
    let request = format!("{method} {path} HTTP/1.1\r\nhost: api.example\r\n{fields}\r\n");
    let response = exchange(scene.port, &request).expect("there is a response");
    match (response.status, &*response.text()) {
        (200, "first") => "/a1 |/s1 ".to_owned(),
        (200, "second") => "/s2 |/i2 ".to_owned(),
        (200, "third") => "/s3 ".to_owned(),
        (status, _) => format!("status {status}"),
    }
}

#[test]
fn explanations_agree_with_real_requests() {
    let scene = scene();
    let requests = [
        ("GET", "/", ""),
        ("GET", "/admin/x", ""),
        ("GET", "/old", ""),
        ("GET", "/old?a=1", "x-a: b\r\n"),
        ("GET", "/v2/two", ""),
        ("GET", "/api/two?tier=gold", ""),
        ("GET", "/nowhere", ""),
        ("GET", "/gone", ""),
        ("POST", "/form", "x-size: 2000\r\ncontent-length: 0\r\n"),
        ("POST", "/form", "x-size: 20\r\ncontent-length: 0\r\n"),
        ("GET", "/a.css", ""),
        ("GET", "/b.css", ""),
        ("GET", "/c.js", ""),
        ("GET", "/d/e/f.js", ""),
        ("GET", "/x", "cookie: SRV=a1\r\n"),
        ("GET", "/x", "cookie: SRV=a2\r\n"),
    ];
    for (method, path, fields) in requests {
        let words: Vec<String> = fields.lines().map(|field| format!(" '{field}'")).collect();
        let command = format!("explain {method} {path} src 127.0.0.1 'host: api.example'{}", words.concat());
        let explained = scene.weir.ask(&command);
        let last =
            explained.lines().rfind(|line| line.starts_with("result")).unwrap_or(&explained).to_owned();
        let real = result_of(&scene, method, path, fields);
        let agrees = real.split('|').any(|one| format!("{last} ").contains(one));
        assert!(agrees, "{command}: really {real}\n{explained}{}", scene.weir.messages());
    }
}

#[test]
fn rules_show_their_values_patterns_and_effects() {
    let scene = scene();
    let text = scene.weir.ask("explain GET http://api.example/v2/two?tier=gold src 10.1.2.3");
    for line in [
        "request   GET /v2/two?tier=gold for host `api.example`, from 10.1.2.3",
        "does   `10.1.2.3` has no entry in table `visits`",
        "false  { path_beg /admin }  `/v2/two`",
        "true   or { url_param(tier) gold }  `gold` matches `gold`",
        "does   `gold`",
        "true   is_api  [path_beg /api/ /v2/] `/v2/two` matches `/v2/`",
        "does   `GET /v1/v2/two?tier=gold`",
        "skip   the action has side effects and is not run",
        "finds  the name `api`",
        "uses   api",
        "use-server i2 if { path_sub two }",
        "true   { path_sub two }  `/v1/v2/two` matches `two`",
        "i1  UP, weight 0, 0 requests",
        "result    sent to api/i2 (127.0.0.1:",
    ] {
        assert!(text.contains(line), "{line}:\n{text}");
    }
    let text = scene.weir.ask("explain GET /gone");
    assert!(
        text.contains("{ sc_inc_gpc0(0) gt 100000 }  not evaluated, because it has side effects"),
        "{text}"
    );
    let text = scene.weir.ask("explain GET /admin/ src 192.168.1.1");
    assert!(
        text.contains(
            "false  !internal  [src 10.0.0.0/8 192.168.0.0/16] `192.168.1.1` matches `192.168.0.0/16`"
        ),
        "{text}"
    );
}

/// Counters of all proxies and servers, in columns of `show stat` that do not change by themselves.
fn counters(weir: &Weir) -> Vec<String> {
    let text = weir.ask("show stat");
    let mut lines = text.lines().map(|line| line.split(',').collect::<Vec<_>>());
    let names = lines.next().unwrap_or_default();
    let wanted = ["svname", "stot", "bin", "dreq", "lbtot", "req_tot", "intercepted", "status"];
    let places = wanted.map(|name| names.iter().position(|column| column.trim_start_matches("# ") == name));
    lines
        .map(|line| {
            places.iter().flatten().filter_map(|at| line.get(*at).copied()).collect::<Vec<_>>().join(",")
        })
        .collect()
}

#[test]
fn explanations_change_nothing() {
    let scene = scene();
    assert!(exchange_with(scene.port, "/", "").is_some());
    let entry = || scene.weir.ask("show table visits");
    assert!(eventually(|| entry().contains("use=0")), "the connection ends: {}", entry());
    let state = || {
        let entry = entry();
        let entry = entry.split_once(" gpc0=").map(|(_, counters)| counters.to_owned());
        (entry, scene.weir.ask("show map"), scene.weir.ask("get var proc.last"), counters(&scene.weir))
    };
    let before = state();
    assert!(before.0.is_some() && before.3.len() > 4, "{before:?}");
    for path in ["/", "/learn", "/gone", "/a.css", "/v2/x", "/admin", "/counted"] {
        let text = scene.weir.ask(&format!("explain GET {path}"));
        assert!(text.contains("has an entry in table `visits`"), "{text}");
    }
    assert_eq!(state(), before);
}

#[test]
fn questions_without_an_answer_are_explained() {
    let scene = scene();
    for (command, part) in [
        ("explain", "the method is missing"),
        ("explain GET", "the URL is missing"),
        ("explain GET example.org", "neither a path nor"),
        ("explain GET / from 10.0.0.1", "unexpected `from`"),
        ("explain frontend nope GET /", "There is no frontend `nope`"),
        ("explain G@T /", "`G@T` is not a valid method"),
    ] {
        let text = scene.weir.ask(command);
        assert!(text.contains(part), "{command}: {text}");
    }
}

#[test]
fn a_configuration_is_explained_without_a_process() {
    let directory = scratch("explain-offline");
    let (file, map) = (directory.join("haproxy.cfg"), directory.join("hosts.map"));
    let origins = [Origin::text("first"), Origin::text("second"), Origin::text("third")];
    let port = free_port();
    let sections = configuration(port, &map.display().to_string(), &origins);
    std::fs::write(&map, "api.example api\n").expect("the file is writable");
    std::fs::write(&file, format!("{DEFAULTS}{sections}")).expect("the file is writable");
    let run = |words: &[&str]| {
        let output = Command::new(weir_tests::program()).args(words).output().expect("the program runs");
        let all = [output.stdout, output.stderr].concat();
        (output.status.code(), String::from_utf8_lossy(&all).into_owned())
    };
    let path = file.to_str().expect("the path is UTF-8");
    let url = format!("http://api.example:{port}/api/two");
    let (code, text) = run(&["explain", "-f", path, "GET", &url, "src", "10.0.0.1"]);
    assert_eq!(code, Some(0), "{text}");
    assert!(text.contains("result    sent to api/i2 "), "{text}");
    let (code, text) = run(&["explain", "-f", path, "GET", "https://api.example/", "x: y", "-z"]);
    assert!(code == Some(2) && text.contains("unexpected `-z`"), "{text}");
    std::fs::write(&file, "frontend web\n    bnd :80\n").expect("the file is writable");
    let (code, text) = run(&["explain", "-f", path, "GET", "/"]);
    assert!(code == Some(2) && text.contains("bnd"), "{text}");
    let (code, text) = run(&["explain", "GET", "/"]);
    assert!(code == Some(2) && text.contains("Usage"), "{text}");
    // Nothing listens, and no server got a request.
    assert_eq!(origins.iter().map(Origin::requests).sum::<usize>(), 0);
}
