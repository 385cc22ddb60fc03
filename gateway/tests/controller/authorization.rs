//! External authorization: the request to the service, and the effect of its responses.

use serde_json::{Value, json};
use weir_tests::{Origin, Weir, free_port};

use crate::scene::{Scene, endpoints, route, service};

/// A cluster with a route `/` to an application, which an authorization service at a port has to permit.
fn guarded(app: &Origin, port: u16, mut settings: Value) -> Scene {
    let scene = Scene::start();
    for (name, port) in [("app", app.port()), ("judge", port)] {
        scene.server.apply(service(name));
        scene.server.apply(endpoints(name, &[port]));
    }
    settings["backendRef"] = json!({"name": "judge", "port": 80});
    let mut route = route("app", "/");
    route["spec"]["rules"][0]["filters"] = json!([{"type": "ExternalAuth", "externalAuth": settings}]);
    scene.server.apply(route);
    scene
}

fn response(status: &str, headers: &str, body: &[u8]) -> Vec<u8> {
    let head = format!("HTTP/1.1 {status}\r\n{headers}Content-Length: {}\r\n\r\n", body.len());
    [head.as_bytes(), body].concat()
}

/// A field with a length of a Protocol Buffers message.
fn text(field: u8, value: &[u8]) -> Vec<u8> {
    let length = u8::try_from(value.len()).expect("messages of tests are short");
    [&[field << 3 | 2, length], value].concat()
}

/// A response to a call: a message with its prefix.
fn called(message: &[u8]) -> Vec<u8> {
    let length = u32::try_from(message.len()).expect("messages of tests are short").to_be_bytes();
    response("200 OK", "Content-Type: application/grpc\r\n", &[&[0], &length[..], message].concat())
}

fn header(name: &str, value: &str) -> Vec<u8> {
    text(1, &[text(1, name.as_bytes()), text(2, value.as_bytes())].concat())
}

#[test]
fn services_with_http_permit_and_deny() {
    let judge = Origin::start(|head, _| match head {
        head if head.starts_with("GET /check/good ") => response("200 OK", "X-User: ann\r\n", b""),
        _ => response("401 Unauthorized", "WWW-Authenticate: Basic\r\n", b"sign in"),
    });
    let app = Origin::echo();
    let settings = json!({"protocol": "HTTP",
        "http": {"path": "/check", "allowedResponseHeaders": ["X-User"]}});
    let scene = guarded(&app, judge.port(), settings);
    scene.await_answer("/bad", 401, "sign in");
    let (status, request) = scene.get("/good");
    assert_eq!(status, 200);
    assert!(request.to_lowercase().contains("x-user: ann"), "{request}");
    drop(judge);
    scene.await_answer("/good", 503, "");
    assert_eq!(app.requests(), 1);
}

#[test]
fn services_with_grpc_permit_and_deny() {
    let judge = Origin::start(|head, body| {
        let asks = |path: &str| body.windows(path.len()).any(|own| own == path.as_bytes());
        let status = |code: u8| text(1, &[1 << 3, code]);
        if !head.starts_with("POST /envoy.service.auth.v3.Authorization/Check ")
            || !head.to_lowercase().contains("content-type: application/grpc")
            || body[..5] != [&[0], &(body.len() as u32 - 5).to_be_bytes()[..]].concat()
        {
            response("400 Bad Request", "", b"")
        } else if asks("/good") {
            let headers = [text(2, &header("X-User", "ann")), text(5, b"x-secret")].concat();
            called(&[status(0), text(3, &headers)].concat())
        } else if asks("/bad") {
            let reply =
                [text(1, &[1 << 3, 0x91, 0x03]), text(2, &header("X-Why", "no")), text(3, b"sign in")];
            called(&[status(16), text(2, &reply.concat())].concat())
        } else if asks("/broken") {
            called(&[0xff; 20])
        } else {
            response("200 OK", "Content-Type: application/grpc\r\ngrpc-status: 14\r\n", b"")
        }
    });
    // gRPC needs HTTP/2, which the origin does not speak.
    let port = free_port();
    let _http2 = Weir::start(
        &format!(
            "defaults\n    mode http\n    timeout connect 10s\n    timeout client 60s\n    timeout server 60s\n\
             listen http2\n    bind 127.0.0.1:{port} proto h2\n    server judge 127.0.0.1:{}\n",
            judge.port()
        ),
        &[port],
    );
    let app = Origin::echo();
    let scene = guarded(&app, port, json!({"protocol": "GRPC"}));
    scene.await_answer("/bad", 401, "sign in");
    let (status, request) = scene.get("/good");
    assert_eq!(status, 200);
    assert!(request.to_lowercase().contains("x-user: ann"), "{request}");
    for path in ["/broken", "/failing"] {
        assert_eq!(scene.get(path).0, 503, "{path}");
    }
    assert_eq!(app.requests(), 1);
}
