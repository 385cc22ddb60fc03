//! Outages and errors: traffic goes on, and the status has the reason.

use std::net::TcpListener;

use serde_json::json;
use weir_tests::certificates::serves;
use weir_tests::client::Client;
use weir_tests::{Authority, Origin, eventually, free_port};

use crate::scene::{
    Controller, NAMESPACE, Scene, endpoints, gateway, http_listener, https_listener, route, secret,
};

#[test]
fn outages_of_the_api_server_leave_the_traffic_alone() {
    let (echo, one, two) = (Origin::echo(), Origin::text("one"), Origin::text("two"));
    let scene = Scene::start();
    scene.serve("echo", "/", &[echo.port()]);
    scene.serve("app", "/app", &[one.port()]);
    scene.await_answer("/app", 200, "one");
    let load = scene.start_load(true);
    load.go_on(10);
    scene.server.stop();
    assert!(eventually(|| scene.controller.metric("watch_failures_total") > 0.0));
    load.go_on(20);
    assert_eq!(scene.controller.status("/readyz"), 200);
    // What changes in the meantime arrives with the next list.
    scene.server.apply(endpoints("app", &[two.port()]));
    scene.server.resume();
    scene.await_answer("/app", 200, "two");
    // Versions that the server has forgotten are listed again.
    scene.server.forget_versions();
    let lists = scene.server.lists();
    scene.server.apply(endpoints("app", &[one.port()]));
    scene.await_answer("/app", 200, "one");
    assert!(eventually(|| scene.server.lists() > lists));
    load.go_on(20);
    assert_eq!(load.end(), Vec::<String>::new());
}

#[test]
fn an_older_state_of_the_store_is_used() {
    let (echo, two) = (Origin::echo(), Origin::text("two"));
    let scene = Scene::start();
    scene.serve("app", "/", &[echo.port()]);
    scene.await_answer("/", 200, "");
    assert!(eventually(|| scene.route_condition("app", "Accepted")["status"] == "True"));
    let earlier = scene.server.snapshot();
    scene.serve("late", "/late", &[two.port()]);
    scene.await_answer("/late", 200, "two");
    let load = scene.start_load(true);
    scene.server.stop();
    scene.server.restore(earlier);
    scene.server.resume();
    assert!(eventually(|| scene.get("/late").1.contains("GET /late ")), "{}", scene.controller.messages());
    // Changes after the restore have versions that were seen before.
    scene.serve("new", "/new", &[two.port()]);
    scene.await_answer("/new", 200, "two");
    load.go_on(10);
    assert_eq!(load.end(), Vec::<String>::new());
}

#[test]
fn an_object_that_the_proxy_refuses_has_no_effect_on_others() {
    let origin = Origin::text("one");
    let scene = Scene::start();
    scene.serve("app", "/", &[origin.port()]);
    scene.await_answer("/", 200, "one");
    // The port belongs to another program.
    let other = TcpListener::bind("127.0.0.1:0").expect("the kernel has a port");
    let port = other.local_addr().expect("a bound socket").port();
    scene.server.apply(gateway("taken", json!([http_listener("http", port)])));
    let refused = || scene.gateway_condition("taken", "Programmed");
    assert!(eventually(|| refused()["status"] == "False"), "{}", scene.controller.messages());
    let message = refused()["message"].as_str().unwrap_or_default().to_owned();
    assert!(message.contains(&port.to_string()), "{message}");
    assert_eq!(scene.controller.metric("quarantined_objects"), 1.0);
    let events = || scene.server.below(&format!("/api/v1/namespaces/{NAMESPACE}/events"));
    let is_refusal = |event: &serde_json::Value| event["reason"] == "Refused" && event["type"] == "Warning";
    assert!(eventually(|| events().iter().any(is_refusal)), "{:?}", events());
    // Other changes take effect.
    scene.serve("more", "/more", &[origin.port()]);
    scene.server.apply(endpoints("more", &[]));
    scene.await_answer("/more", 503, "");
    // A new version of the object gets a new chance.
    drop(other);
    scene
        .server
        .apply(gateway("taken", json!([http_listener("http", port), http_listener("more", free_port())])));
    assert!(eventually(|| refused()["status"] == "True"), "{}", scene.controller.messages());
}

#[test]
fn a_deleted_secret_ends_only_its_listener() {
    let (authority, origin) = (Authority::new(), Origin::echo());
    let certificate = authority.issue(&["www.shop.test"]);
    let scene = Scene::start();
    let port = free_port();
    scene.server.apply(secret("tls", &certificate));
    let listeners = json!([http_listener("http", scene.port), https_listener("https", port, "tls")]);
    scene.server.apply(gateway("web", listeners));
    scene.serve("app", "/", &[origin.port()]);
    assert!(eventually(|| serves(port, "www.shop.test", &certificate)), "{}", scene.controller.messages());
    let load = scene.start_load(true);
    scene.server.delete("Secret", NAMESPACE, "tls");
    let resolved = || {
        let pointer = "/status/listeners/1/conditions";
        scene.server.condition("Gateway", NAMESPACE, "web", pointer, "ResolvedRefs")
    };
    assert!(eventually(|| resolved()["reason"] == "InvalidCertificateRef"), "{}", resolved());
    assert!(eventually(|| !serves(port, "www.shop.test", &certificate)));
    load.go_on(10);
    assert_eq!(load.end(), Vec::<String>::new());
}

#[test]
fn an_expired_certificate_stays_and_the_status_names_it() {
    let (authority, origin) = (Authority::new(), Origin::echo());
    let expired = authority.issue_expired(&["www.shop.test"]);
    let scene = Scene::start();
    let port = free_port();
    scene.server.apply(secret("tls", &expired));
    let listeners = json!([http_listener("http", scene.port), https_listener("https", port, "tls")]);
    scene.server.apply(gateway("web", listeners));
    scene.serve("app", "/", &[origin.port()]);
    assert!(eventually(|| serves(port, "www.shop.test", &expired)), "{}", scene.controller.messages());
    let load = scene.start_load(true);
    let resolved = || {
        let pointer = "/status/listeners/1/conditions";
        scene.server.condition("Gateway", NAMESPACE, "web", pointer, "ResolvedRefs")
    };
    let message = "the certificate of secret `shop/tls` has expired";
    assert!(eventually(|| resolved()["message"] == message), "{}", resolved());
    assert_eq!(resolved()["status"], "True");
    let events = || scene.server.below(&format!("/api/v1/namespaces/{NAMESPACE}/events"));
    assert!(eventually(|| events().iter().any(|event| event["reason"] == "CertificateExpired")));
    // A new certificate ends the complaint.
    scene.server.apply(secret("tls", &authority.issue(&["www.shop.test"])));
    assert!(eventually(|| resolved()["message"] == ""), "{}", resolved());
    load.go_on(10);
    assert_eq!(load.end(), Vec::<String>::new());
}

#[test]
fn of_two_gateways_on_a_port_the_first_one_keeps_it() {
    let (one, two) = (Origin::echo(), Origin::text("two"));
    let scene = Scene::start();
    scene.serve("app", "/", &[one.port()]);
    scene.await_answer("/", 200, "");
    let load = scene.start_load(true);
    // Both have the same time of creation, so that the names decide.
    scene.server.apply(gateway("younger", json!([http_listener("http", scene.port)])));
    let mut late = route("late", "/late");
    late["spec"]["parentRefs"] = json!([{"name": "younger"}]);
    scene.serve("late", "/late", &[two.port()]);
    scene.server.apply(late);
    let conflicted = || {
        let pointer = "/status/listeners/0/conditions";
        scene.server.condition("Gateway", NAMESPACE, "younger", pointer, "Conflicted")
    };
    assert!(eventually(|| conflicted()["status"] == "True"), "{}", scene.controller.messages());
    assert_eq!(conflicted()["reason"], "HostnameConflict");
    let message = conflicted()["message"].as_str().unwrap_or_default().to_owned();
    assert!(message.contains("shop/web"), "{message}");
    let accepted = || scene.route_condition("late", "Accepted");
    assert!(eventually(|| accepted()["reason"] == "NotAllowedByListeners"), "{}", accepted());
    assert_eq!(scene.gateway_condition("web", "Programmed")["status"], "True");
    // With the first one gone, the other one gets the port.
    load.go_on(10);
    assert_eq!(load.end(), Vec::<String>::new());
    scene.server.delete("Gateway", NAMESPACE, "web");
    scene.await_answer("/late", 200, "two");
    assert!(eventually(|| conflicted()["status"] == "False"), "{}", conflicted());
}

#[test]
fn another_process_takes_over_as_leader() {
    let scene = Scene::start();
    assert!(eventually(|| scene.controller.metric("leader") == 1.0));
    let follower = Controller::start(&scene.server, &scene.directory.join("two"));
    // Both bind the port, as pods of one node with host networking do not.
    assert!(eventually(|| follower.status("/healthz") == 200));
    assert_eq!(follower.metric("leader"), 0.0);
    let Scene { server, mut controller, .. } = scene;
    controller.terminate();
    assert!(controller.await_end(), "{}", controller.messages());
    assert!(eventually(|| follower.metric("leader") == 1.0), "{}", follower.messages());
    server.apply(route("late", "/late"));
    let condition =
        || server.condition("HTTPRoute", NAMESPACE, "late", "/status/parents/0/conditions", "Accepted");
    assert!(eventually(|| condition()["status"] == "True"), "{}", follower.messages());
}

#[test]
fn a_stop_lets_requests_finish() {
    let (sender, receiver) = std::sync::mpsc::channel::<()>();
    let receiver = std::sync::Mutex::new(receiver);
    let origin = Origin::start(move |_, _| {
        let _ = receiver.lock().map(|receiver| receiver.recv());
        b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nlate".to_vec()
    });
    let scene = Scene::start();
    scene.serve("app", "/", &[origin.port()]);
    assert!(eventually(|| scene.route_condition("app", "Accepted")["status"] == "True"));
    let mut client = Client::connect(scene.port);
    client.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n");
    assert!(eventually(|| origin.requests() == 1));
    let Scene { mut controller, .. } = scene;
    controller.terminate();
    assert!(eventually(|| controller.status("/readyz") != 200));
    sender.send(()).expect("the origin waits");
    assert_eq!(client.response().map(|response| response.text()), Some("late".to_owned()));
    assert!(controller.await_end(), "{}", controller.messages());
}
