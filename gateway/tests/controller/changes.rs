//! Changes of objects: what reaches the traffic, what is reloaded, and what is written back.

use serde_json::{Value, json};
use weir_tests::certificates::serves;
use weir_tests::{Authority, Origin, eventually, free_port};

use crate::scene::{NAMESPACE, Scene, endpoints, gateway, http_listener, https_listener, route, secret};

#[test]
fn routes_appear_and_scaling_does_not_reload() {
    let (one, two) = (Origin::text("one"), Origin::text("two"));
    let scene = Scene::start();
    assert_eq!(scene.get("/").0, 404);
    scene.serve("app", "/", &[one.port()]);
    scene.await_answer("/", 200, "one");
    let accepted = || scene.route_condition("app", "Accepted");
    assert!(eventually(|| accepted()["status"] == "True"), "{}", scene.controller.messages());
    assert_eq!(accepted()["observedGeneration"], 1);
    let programmed = || scene.gateway_condition("web", "Programmed")["status"].clone();
    assert!(eventually(|| programmed() == "True"));
    let (reloads, pid) = (scene.controller.metric("reloads_total"), scene.controller.proxy_pid());
    scene.server.apply(endpoints("app", &[two.port()]));
    scene.await_answer("/", 200, "two");
    scene.server.apply(endpoints("app", &[]));
    scene.await_answer("/", 503, "");
    scene.server.apply(endpoints("app", &[one.port()]));
    scene.await_answer("/", 200, "one");
    assert_eq!(scene.controller.metric("reloads_total"), reloads);
    // Measures are updated after the proxy has answered the controller.
    assert!(eventually(|| scene.controller.metric("endpoint_list_updates_total") >= 3.0));
    scene.server.delete("HTTPRoute", NAMESPACE, "app");
    scene.await_answer("/", 404, "");
    assert!(eventually(|| scene.controller.metric("reloads_total") > reloads));
    assert_eq!(scene.controller.proxy_pid(), pid, "reloads keep the process");
}

#[test]
fn paths_change_without_a_reload() {
    let origin = Origin::text("one");
    let scene = Scene::start();
    scene.serve("app", "/one", &[origin.port()]);
    scene.await_answer("/one", 200, "one");
    // The status is written after the reload was counted.
    assert!(eventually(|| scene.route_condition("app", "Accepted")["status"] == "True"));
    let reloads = scene.controller.metric("reloads_total");
    for path in ["/two", "/three"] {
        scene.server.apply(route("app", path));
        scene.await_answer(path, 200, "one");
        scene.await_answer("/one", 404, "");
    }
    assert!(eventually(|| scene.controller.metric("route_updates_total") == 2.0));
    assert_eq!(scene.controller.metric("reloads_total"), reloads);
}

#[test]
fn statuses_are_written_once() {
    let origin = Origin::text("one");
    let scene = Scene::start();
    scene.serve("app", "/", &[origin.port()]);
    assert!(eventually(|| scene.route_condition("app", "Accepted")["status"] == "True"));
    let time = scene.route_condition("app", "Accepted")["lastTransitionTime"].clone();
    assert!(time.is_string());
    // A change that alters no status, and one that does.
    scene.serve("other", "/other", &[origin.port()]);
    assert!(eventually(|| scene.route_condition("other", "Accepted")["status"] == "True"));
    // The Gateway counts its routes.
    let attached = || scene.gateway_field("web", "/status/listeners/0/attachedRoutes");
    assert!(eventually(|| attached() == 2), "{}", attached());
    let writes = scene.server.writes();
    scene.server.apply(endpoints("other", &[]));
    scene.await_answer("/other", 503, "");
    assert_eq!(scene.server.writes(), writes);
    assert_eq!(scene.route_condition("app", "Accepted")["lastTransitionTime"], time);
}

#[test]
fn entries_of_other_controllers_stay() {
    let scene = Scene::start();
    let mut route = route("app", "/");
    let foreign =
        json!({"controllerName": "example.com/other", "parentRef": {"name": "other"}, "conditions": []});
    route["status"] = json!({"parents": [foreign]});
    scene.server.apply(route);
    let parents = || scene.server.object("HTTPRoute", NAMESPACE, "app")["status"]["parents"].clone();
    assert!(eventually(|| parents().as_array().is_some_and(|all| all.len() == 2)), "{}", parents());
    assert_eq!(parents()[0], foreign);
    // The backend does not exist, and the status has the reason.
    let resolved =
        scene.server.condition("HTTPRoute", NAMESPACE, "app", "/status/parents/1/conditions", "ResolvedRefs");
    assert_eq!(
        (&resolved["status"], &resolved["reason"]),
        (&Value::from("False"), &Value::from("BackendNotFound"))
    );
    scene.await_answer("/", 500, "");
}

#[test]
fn a_renewed_secret_needs_no_reload() {
    let (old, new) = (Authority::new(), Authority::new());
    let (first, second) = (old.issue(&["www.shop.test"]), new.issue(&["www.shop.test"]));
    let scene = Scene::start();
    let port = free_port();
    scene.server.apply(secret("tls", &first));
    let listeners = json!([http_listener("http", scene.port), https_listener("https", port, "tls")]);
    scene.server.apply(gateway("web", listeners));
    assert!(eventually(|| serves(port, "www.shop.test", &first)), "{}", scene.controller.messages());
    // The status is written after the reload was counted.
    assert!(eventually(|| scene.gateway_field("web", "/status/listeners/1/name") == "https"));
    let reloads = scene.controller.metric("reloads_total");
    scene.server.apply(secret("tls", &second));
    assert!(eventually(|| serves(port, "www.shop.test", &second)), "{}", scene.controller.messages());
    assert_eq!(scene.controller.metric("reloads_total"), reloads);
    assert!(eventually(|| scene.controller.metric("certificate_updates_total") == 1.0));
}

#[test]
fn many_changes_fail_no_request() {
    let (echo, one, two) = (Origin::echo(), Origin::text("one"), Origin::text("two"));
    let scene = Scene::start();
    scene.serve("echo", "/", &[echo.port()]);
    scene.serve("app", "/app", &[one.port()]);
    scene.await_answer("/app", 200, "one");
    let loads = [scene.start_load(true), scene.start_load(false)];
    for round in 0..20 {
        let (origin, text) = if round % 2 == 0 { (&two, "two") } else { (&one, "one") };
        scene.server.apply(endpoints("app", &[origin.port()]));
        scene.server.apply(route("extra", &format!("/extra/{round}")));
        scene.await_answer("/app", 200, text);
        scene.await_answer(&format!("/extra/{round}"), 500, "");
    }
    for load in loads {
        load.go_on(10);
        assert_eq!(load.end(), Vec::<String>::new());
    }
}
