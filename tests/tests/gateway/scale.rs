//! Many routes: the work for a request does not grow with their number.

use std::time::Instant;

use serde_json::json;
use weir_tests::{Origin, eventually};

use crate::scene::Scene;

/// A gateway with that many routes, each for a host, with two paths and a condition on a header.
fn scene(routes: usize, origin: &Origin) -> Scene {
    let mut scene = Scene::new();
    scene.service("app", &[origin.port()]);
    for number in 0..routes {
        let to = json!([{ "name": "app", "port": 80 }]);
        let path = |value: &str| json!({ "path": { "type": "PathPrefix", "value": value } });
        let header = json!({ "path": { "type": "PathPrefix", "value": "/b" }, "headers": [{ "name": "x-version", "value": "2" }] });
        let rules = json!([{ "matches": [path("/a"), header], "backendRefs": to }, { "backendRefs": to }]);
        let spec = json!({ "parentRefs": [{ "name": "gateway" }], "hostnames": [format!("h{number}.example.com")], "rules": rules });
        scene.add("HTTPRoute", &format!("route-{number}"), json!({ "spec": spec }));
    }
    scene.start()
}

/// The rules that a request for the last host passes.
fn rules_passed(scene: &Scene, host: &str) -> usize {
    let answer = scene.weir().ask(&format!("explain GET http://{host}:{}/b/c src 192.0.2.1", scene.port));
    assert!(answer.contains("test_app_80"), "{answer}");
    answer.lines().filter(|line| line.contains("jumps to") || line.contains("does")).count()
}

#[test]
fn a_request_passes_the_same_number_of_rules_whatever_the_number_of_routes() {
    let origin = Origin::text("ok");
    let (few, many) = (scene(2, &origin), scene(1000, &origin));
    let started = Instant::now();
    many.write();
    println!("translated 1000 routes in {:?}", started.elapsed());
    for (scene, host) in [(&few, "h1.example.com"), (&many, "h999.example.com")] {
        assert!(eventually(|| scene.get(host, "/b", "").text() == "ok"), "{host}");
    }
    let (of_few, of_many) = (rules_passed(&few, "h1.example.com"), rules_passed(&many, "h999.example.com"));
    assert_eq!(of_few, of_many);
    assert!(of_few > 2, "{of_few}");
}
