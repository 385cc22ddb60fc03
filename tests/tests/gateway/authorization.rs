//! External authorization, and sessions that are kept by a header.

use serde_json::{Value, json};
use weir_tests::{Origin, eventually};

use crate::scene::Scene;

/// An authorization service that permits requests with `authorization: yes`, and describes them in its responses.
fn judge() -> Origin {
    Origin::start(|head, _| {
        let text = head.to_ascii_lowercase();
        let first = text.lines().next().unwrap_or_default().to_owned();
        let has = |field: &str| text.contains(&format!("\r\n{field}\r\n"));
        if has("authorization: yes") {
            let names = ["x-extra", "cookie", "host"];
            let seen: Vec<&str> =
                names.into_iter().filter(|name| text.contains(&format!("\r\n{name}: "))).collect();
            let seen = format!("{first} {}", seen.join(" "));
            return format!("HTTP/1.1 204 OK\r\nX-User: ann\r\nX-Other: b\r\nX-Question: {seen}\r\n\r\n")
                .into_bytes();
        }
        let status = if has("authorization: other") { "403 No" } else { "401 Who" };
        format!("HTTP/1.1 {status}\r\nX-Why: {first}\r\nContent-Type: text/plain\r\nContent-Length: 6\r\n\r\nno way").into_bytes()
    })
}

fn prefix(path: &str) -> Value {
    json!([{ "path": { "type": "PathPrefix", "value": path } }])
}

#[test]
fn a_service_decides_about_requests() {
    let (judge, echo) = (judge(), Origin::echo());
    let mut scene = Scene::new();
    scene.service("judge", &[judge.port()]);
    scene.service("echo", &[echo.port()]);
    scene.service("empty", &[]);
    let rule = |path: &str, auth: Value| {
        json!({ "matches": prefix(path), "filters": [{ "type": "ExternalAuth", "externalAuth": auth }],
            "backendRefs": [{ "name": "echo", "port": 80 }] })
    };
    let to = |name: &str| json!({ "name": name, "port": 80 });
    let listed = json!({ "path": "/check", "allowedHeaders": ["X-Extra"], "allowedResponseHeaders": ["X-User", "X-Question"] });
    scene.route(
        "route",
        json!([
            rule("/listed", json!({ "protocol": "HTTP", "backendRef": to("judge"), "http": listed })),
            rule("/all", json!({ "protocol": "HTTP", "backendRef": to("judge") })),
            rule("/empty", json!({ "protocol": "HTTP", "backendRef": to("empty") })),
            rule("/missing", json!({ "protocol": "HTTP", "backendRef": to("absent") })),
            rule("/grpc", json!({ "protocol": "GRPC", "backendRef": to("judge") })),
            { "backendRefs": [to("echo")] },
        ]),
    );
    let scene = scene.start();
    scene.await_status("/", 200);
    assert!(eventually(|| scene.get("x", "/all", "").status == 401));
    let fields = "Authorization: yes\r\nX-Extra: 1\r\nCookie: a=b\r\nX-User: forged\r\n";
    let seen = scene.get("x", "/listed/a?b=c", fields).text().to_ascii_lowercase();
    assert!(seen.starts_with("get /listed/a?b=c "), "{seen}");
    assert!(seen.contains("x-question: get /check/listed/a?b=c http/1.1 x-extra host\r\n"), "{seen}");
    assert!(seen.contains("x-user: ann\r\n") && !seen.contains("forged"), "{seen}");
    assert!(!seen.contains("x-other"), "{seen}");
    let seen = scene.get("x", "/all", "Authorization: yes\r\n").text().to_ascii_lowercase();
    assert!(seen.contains("x-user: ann\r\n") && seen.contains("x-other: b\r\n"), "{seen}");
    let answer = scene.get("x", "/listed/a", "Authorization: other\r\n");
    assert_eq!(
        (answer.status, answer.text(), answer.header("x-why")),
        (403, "no way".into(), Some("get /check/listed/a http/1.1"))
    );
    assert_eq!(answer.header("content-type"), Some("text/plain"));
    for method in ["PATCH", "DELETE", "OPTIONS"] {
        let request = format!(
            "{method} /all HTTP/1.1\r\nHost: x\r\nAuthorization: yes\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
        );
        let seen = scene.ask(&request).text().to_ascii_lowercase();
        assert!(seen.contains(&format!("x-question: {} /all ", method.to_ascii_lowercase())), "{seen}");
    }
    for (path, status) in [("/empty", 503), ("/missing", 500), ("/grpc", 503)] {
        assert_eq!(scene.get("x", path, "Authorization: yes\r\n").status, status, "{path}");
    }
}

#[test]
fn sessions_stay_by_a_header() {
    let names = ["a", "b", "c", "d"].map(|name| (name, Origin::text(name)));
    let mut scene = Scene::new();
    scene.service("app", &names.each_ref().map(|(_, origin)| origin.port()));
    let session = json!({ "sessionName": "X-Session", "type": "Header" });
    let to = json!([{ "name": "app", "port": 80 }]);
    scene.route("route", json!([{ "sessionPersistence": session, "backendRefs": to }]));
    let scene = scene.start();
    scene.await_status("/", 200);
    let mut seen = std::collections::BTreeSet::new();
    for _ in 0..12 {
        let first = scene.get("x", "/", "");
        let value = first.header("x-session").expect("a session");
        assert_eq!(first.header("set-cookie"), None);
        for _ in 0..4 {
            assert_eq!(scene.get("x", "/", &format!("X-Session: {value}\r\n")).text(), first.text());
        }
        seen.insert(first.text());
    }
    assert!(seen.len() > 1, "{seen:?}");
}
