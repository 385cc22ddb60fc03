//! The features of routes, seen by a client.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use serde_json::json;
use weir_tests::{Origin, eventually};

use crate::scene::Scene;

fn prefix(path: &str) -> serde_json::Value {
    json!({ "path": { "type": "PathPrefix", "value": path } })
}

fn to(name: &str) -> serde_json::Value {
    json!({ "name": name, "port": 80 })
}

/// Answers with this status after each request is counted.
fn counting(status: impl Fn(usize) -> u16 + Send + Sync + 'static) -> (Origin, Arc<AtomicUsize>) {
    let count = Arc::new(AtomicUsize::new(0));
    let own = Arc::clone(&count);
    let origin = Origin::start(move |_, _| {
        let number = own.fetch_add(1, Ordering::SeqCst);
        format!("HTTP/1.1 {} X\r\nContent-Length: 0\r\n\r\n", status(number)).into_bytes()
    });
    (origin, count)
}

#[test]
fn the_most_specific_rule_gets_the_request() {
    let origins = ["a", "b", "c", "d", "e"].map(|name| (name, Origin::text(name)));
    let mut scene = Scene::new();
    for (name, origin) in &origins {
        scene.service(name, &[origin.port()]);
    }
    let rules = json!([
        { "matches": [{ "path": { "type": "Exact", "value": "/one" } }], "backendRefs": [to("a")] },
        { "matches": [prefix("/one")], "backendRefs": [to("b")] },
        { "matches": [{ "path": { "type": "PathPrefix", "value": "/one/two" }, "headers": [{ "name": "X-A", "value": "it's, 1" }] }], "backendRefs": [to("c")] },
        { "matches": [{ "path": { "type": "RegularExpression", "value": "/r/[0-9]+" } }], "backendRefs": [to("d")] },
        { "matches": [{ "method": "PUT" }, { "queryParams": [{ "name": "q", "value": "x" }] }], "backendRefs": [to("e")] },
    ]);
    scene.route("route", rules);
    let host = json!({ "spec": { "parentRefs": [{ "name": "gateway" }], "hostnames": ["*.host.org"], "rules": [{ "matches": [prefix("/one")], "backendRefs": [to("e")] }] } });
    scene.add("HTTPRoute", "host", host);
    let inner = json!({ "spec": { "parentRefs": [{ "name": "gateway" }], "hostnames": ["*.zone.host.org"], "rules": [{ "backendRefs": [to("c")] }] } });
    scene.add("HTTPRoute", "inner", inner);
    let scene = scene.start();
    scene.await_status("/one", 200);
    for (host, path, fields, expected) in [
        ("x", "/one", "", "a"),
        ("x", "/one/", "", "b"),
        ("x", "/one/two", "", "b"),
        ("x", "/one/two", "x-a: it's, 1\r\n", "c"),
        ("x", "/one/two?q=x", "x-a: it's, 2\r\n", "b"),
        ("x", "/r/12", "", "d"),
        ("x", "/?q=x", "", "e"),
        ("a.b.host.org:80", "/one", "", "e"),
        ("A.HOST.ORG", "/one/x", "", "e"),
        ("a.zone.host.org", "/one", "", "c"),
        ("a.host.org", "/r/1", "", "d"),
        ("host.org", "/one", "", "a"),
    ] {
        assert!(eventually(|| scene.get(host, path, fields).text() == expected), "{host}{path}: {expected}");
    }
    for path in ["/onex", "/", "/r/12x", "/r/", "/ONE"] {
        assert_eq!(scene.get("x", path, "").status, 404, "{path}");
    }
    let put = scene.ask("PUT /any HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\nConnection: close\r\n\r\n");
    assert_eq!(put.text(), "e");
}

#[test]
fn filters_change_requests_and_responses() {
    let origin = Origin::echo();
    let mut scene = Scene::new();
    scene.service("echo", &[origin.port()]);
    let changes = json!({ "set": [{ "name": "X-Set", "value": "50% it's" }], "add": [{ "name": "X-Add", "value": "2" }], "remove": ["X-Gone", "Content-Length-Unknown"] });
    let rewrite = |replace: &str| json!({ "type": "URLRewrite", "urlRewrite": { "hostname": "inside.org", "path": { "type": "ReplacePrefixMatch", "replacePrefixMatch": replace } } });
    let redirect = |own: serde_json::Value| json!([{ "type": "RequestRedirect", "requestRedirect": own }]);
    scene.route("route", json!([
        { "matches": [prefix("/headers")], "filters": [{ "type": "RequestHeaderModifier", "requestHeaderModifier": changes }, { "type": "ResponseHeaderModifier", "responseHeaderModifier": changes }], "backendRefs": [to("echo")] },
        { "matches": [prefix("/old")], "filters": [rewrite("/new/")], "backendRefs": [to("echo")] },
        { "matches": [prefix("/strip")], "filters": [rewrite("/")], "backendRefs": [to("echo")] },
        { "matches": [prefix("/away")], "filters": redirect(json!({ "hostname": "there.org", "statusCode": 301, "path": { "type": "ReplacePrefixMatch", "replacePrefixMatch": "/x" } })) },
        { "matches": [prefix("/secure")], "filters": redirect(json!({ "scheme": "https", "statusCode": 308 })) },
        { "matches": [prefix("/port")], "filters": redirect(json!({ "port": 8083, "path": { "type": "ReplaceFullPath", "replaceFullPath": "/full" } })) },
    ]));
    let scene = scene.start();
    scene.await_status("/headers", 200);
    let answer = scene.get("x", "/headers", "X-Add: 1\r\nX-Gone: 1\r\n");
    let seen = answer.text().to_ascii_lowercase();
    assert!(seen.contains("x-set: 50% it's\r\n"), "{seen}");
    let added = ["x-add: 1\r\n", "x-add: 2\r\n"].map(|field| seen.find(field));
    assert!(added[0].is_some() && added[0] < added[1], "{seen}");
    assert!(!seen.contains("x-gone"), "{seen}");
    assert_eq!((answer.header("x-set"), answer.header("x-add")), (Some("50% it's"), Some("2")));
    for (path, expected) in [
        ("/old/a?b=c", "GET /new/a?b=c "),
        ("/old", "GET /new "),
        ("/strip/a", "GET /a "),
        ("/strip", "GET / "),
        ("/strip/", "GET / "),
    ] {
        let seen = scene.get("x", path, "").text();
        assert!(
            seen.starts_with(expected) && seen.to_ascii_lowercase().contains("host: inside.org"),
            "{path}: {seen}"
        );
    }
    let port = scene.port;
    for (path, status, location) in [
        ("/away/a?b", 301, format!("http://there.org:{port}/x/a?b")),
        ("/secure/a", 308, "https://x/secure/a".to_string()),
        ("/port/a", 302, "http://x:8083/full".to_string()),
    ] {
        let answer = scene.get("x", path, "");
        assert_eq!((answer.status, answer.header("location")), (status, Some(&*location)), "{path}");
    }
}

#[test]
fn weights_mirrors_and_missing_services() {
    let (one, ones) = counting(|_| 200);
    let (two, twos) = counting(|_| 200);
    let (copy, copies) = counting(|_| 200);
    let mut scene = Scene::new();
    scene.service("one", &[one.port()]);
    scene.service("two", &[two.port()]);
    scene.service("copy", &[copy.port()]);
    scene.service("empty", &[]);
    let weighted = |name: &str, weight: u32| json!({ "name": name, "port": 80, "weight": weight });
    scene.route("route", json!([
        { "matches": [prefix("/split")], "backendRefs": [weighted("one", 3), weighted("two", 1), weighted("copy", 0)] },
        { "matches": [prefix("/mirror")], "filters": [{ "type": "RequestMirror", "requestMirror": { "backendRef": to("copy") } }, { "type": "RequestMirror", "requestMirror": { "backendRef": to("copy"), "fraction": { "numerator": 0 } } }], "backendRefs": [to("one")] },
        { "matches": [prefix("/unknown")], "backendRefs": [to("absent")] },
        { "matches": [prefix("/none")] },
        { "matches": [prefix("/empty")], "backendRefs": [to("empty")] },
    ]));
    let scene = scene.start();
    scene.await_status("/mirror", 200);
    assert!(eventually(|| copies.load(Ordering::SeqCst) >= 1));
    let mirrored = copies.load(Ordering::SeqCst);
    ones.store(0, Ordering::SeqCst);
    for _ in 0..400 {
        assert_eq!(scene.get("x", "/split", "").status, 200);
    }
    let (ones, twos) = (ones.load(Ordering::SeqCst), twos.load(Ordering::SeqCst));
    assert!(ones + twos == 400 && (220..380).contains(&ones), "{ones} and {twos}");
    assert_eq!(copies.load(Ordering::SeqCst), mirrored, "a service of weight 0 gets no requests");
    for (path, status) in [("/unknown", 500), ("/none", 500), ("/empty", 503)] {
        assert_eq!(scene.get("x", path, "").status, status, "{path}");
    }
}

#[test]
fn timeouts_and_retries() {
    let (flaky, attempts) = counting(|number| if number % 3 == 2 { 200 } else { 503 });
    let slow = Origin::start(|_, _| {
        std::thread::sleep(Duration::from_secs(5));
        b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n".to_vec()
    });
    let (failing, failures) = counting(|_| {
        std::thread::sleep(Duration::from_millis(100));
        500
    });
    let mut scene = Scene::new();
    scene.service("flaky", &[flaky.port()]);
    scene.service("slow", &[slow.port()]);
    scene.service("failing", &[failing.port()]);
    scene.route("route", json!([
        { "matches": [prefix("/retry")], "retry": { "codes": [503], "attempts": 2, "backoff": "10ms" }, "backendRefs": [to("flaky")] },
        { "matches": [prefix("/plain")], "backendRefs": [to("flaky")] },
        { "matches": [prefix("/attempt")], "timeouts": { "backendRequest": "200ms" }, "backendRefs": [to("slow")] },
        { "matches": [prefix("/whole")], "timeouts": { "request": "200ms" }, "backendRefs": [to("slow")] },
        { "matches": [prefix("/budget")], "timeouts": { "request": "250ms" }, "retry": { "codes": [500], "attempts": 50 }, "backendRefs": [to("failing")] },
    ]));
    let scene = scene.start();
    scene.await_status("/retry", 200);
    attempts.store(0, Ordering::SeqCst);
    assert_eq!(scene.get("x", "/retry", "").status, 200);
    assert_eq!(attempts.load(Ordering::SeqCst), 3);
    assert_eq!(scene.get("x", "/plain", "").status, 503);
    assert_eq!(scene.get("x", "/attempt", "").status, 504);
    assert_eq!(scene.get("x", "/whole", "").status, 504);
    assert_eq!(scene.get("x", "/budget", "").status, 504);
    let failures = failures.load(Ordering::SeqCst);
    assert!((1..=4).contains(&failures), "{failures} attempts in 250 ms of 100 ms each");
}

#[test]
fn cross_origin_requests_are_answered_for_allowed_origins() {
    let origin = Origin::text("ok");
    let mut scene = Scene::new();
    scene.service("app", &[origin.port()]);
    let cors = json!({ "allowOrigins": ["https://a.example", "https://*.b.example"], "allowMethods": ["GET", "PUT"], "allowHeaders": ["X-A"], "exposeHeaders": ["X-B"], "allowCredentials": true, "maxAge": 60 });
    scene.route(
        "route",
        json!([{ "filters": [{ "type": "CORS", "cors": cors }], "backendRefs": [to("app")] }]),
    );
    let scene = scene.start();
    scene.await_status("/", 200);
    let preflight = |origin: &str| {
        scene.ask(&format!("OPTIONS / HTTP/1.1\r\nHost: x\r\nOrigin: {origin}\r\nAccess-Control-Request-Method: PUT\r\nConnection: close\r\n\r\n"))
    };
    for origin in ["https://a.example", "https://x.b.example"] {
        let answer = preflight(origin);
        assert_eq!(answer.header("access-control-allow-origin"), Some(origin));
        assert_eq!(answer.header("access-control-allow-methods"), Some("GET, PUT"));
        assert_eq!(answer.header("access-control-allow-headers"), Some("X-A"));
        assert_eq!(answer.header("access-control-max-age"), Some("60"));
        let answer = scene.get("x", "/", &format!("Origin: {origin}\r\n"));
        assert_eq!(
            (answer.text(), answer.header("access-control-allow-origin")),
            ("ok".into(), Some(origin))
        );
        assert_eq!(answer.header("access-control-allow-credentials"), Some("true"));
        assert_eq!(answer.header("access-control-expose-headers"), Some("X-B"));
    }
    for origin in ["https://c.example", "https://a.example.evil", "http://a.example"] {
        assert_eq!(preflight(origin).header("access-control-allow-origin"), None, "{origin}");
        let answer = scene.get("x", "/", &format!("Origin: {origin}\r\n"));
        assert_eq!(
            (answer.text(), answer.header("access-control-allow-origin")),
            ("ok".into(), None),
            "{origin}"
        );
    }
}

#[test]
fn sessions_stay_at_their_server() {
    let names = ["a", "b", "c", "d"].map(|name| (name, Origin::text(name)));
    let mut scene = Scene::new();
    scene.service("left", &[names[0].1.port(), names[1].1.port()]);
    scene.service("right", &[names[2].1.port(), names[3].1.port()]);
    let sticky = json!({ "sessionName": "sticky", "type": "Cookie" });
    scene.route("route", json!([{ "sessionPersistence": sticky, "backendRefs": [to("left"), to("right")] }]));
    let scene = scene.start();
    scene.await_status("/", 200);
    let mut seen = std::collections::BTreeSet::new();
    for _ in 0..8 {
        let first = scene.get("x", "/", "");
        let cookie = first.header("set-cookie").expect("a cookie");
        let (cookie, _) = cookie.split_once(';').expect("valid test data");
        assert!(cookie.starts_with("sticky="), "{cookie}");
        for _ in 0..4 {
            let next = scene.get("x", "/", &format!("Cookie: {cookie}\r\n"));
            assert_eq!(next.text(), first.text());
        }
        seen.insert(first.text());
    }
    assert!(seen.len() > 1, "{seen:?}");
}

#[test]
fn endpoints_change_without_a_reload() {
    let (old, new) = (Origin::text("old"), Origin::text("new"));
    let mut scene = Scene::new();
    scene.service("app", &[old.port()]);
    scene.route("route", json!([{ "backendRefs": [to("app")] }]));
    let mut scene = scene.start();
    assert!(eventually(|| scene.get("x", "/", "").text() == "old"));
    let before = scene.write().config;
    scene.service("app", &[new.port()]);
    assert_eq!(scene.write().config, before);
    assert!(eventually(|| scene.get("x", "/", "").text() == "new"));
    assert!(scene.weir().ask("show stat").contains("test_app_80"));
}
