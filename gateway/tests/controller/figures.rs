//! Figures for 1,000 routes and 5,000 endpoints, which are printed and not asserted:
//!
//! ```sh
//! cargo test --release -p weir-gateway --test controller figures -- --ignored --nocapture
//! ```

use std::time::{Duration, Instant};

use serde_json::{Value, json};
use weir_tests::{Origin, free_port, scratch};

use crate::api_server::ApiServer;
use crate::scene::{Controller, NAMESPACE, Scene, endpoints, gateway, http_listener, route, service};

const ROUTES: usize = 1000;
const ENDPOINTS: usize = 5;
const ROUNDS: usize = 20;

/// A slice of which only the first endpoint answers.
fn slice(name: &str, port: u16) -> Value {
    let mut slice = endpoints(name, &[port]);
    let more = (2..=ENDPOINTS)
        .map(|number| json!({"addresses": [format!("127.0.1.{number}")], "conditions": {"ready": false}}));
    slice["endpoints"].as_array_mut().expect("a list").extend(more);
    slice
}

fn median(mut times: Vec<Duration>) -> String {
    times.sort();
    format!("median {:?}, longest {:?}", times[times.len() / 2], times[times.len() - 1])
}

/// Repeats a change, and returns the times until a request shows it.
fn timed(scene: &Scene, path: &str, mut change: impl FnMut(usize) -> (u16, &'static str)) -> String {
    let times = (0..ROUNDS).map(|round| {
        let begun = Instant::now();
        let (status, body) = change(round);
        loop {
            let answer = scene.get(path);
            if answer.0 == status && (body.is_empty() || answer.1 == body) {
                return begun.elapsed();
            }
            assert!(begun.elapsed() < Duration::from_secs(20), "{answer:?}: {}", scene.controller.messages());
        }
    });
    median(times.collect())
}

#[test]
#[ignore = "prints figures, which takes a minute"]
fn figures_of_a_thousand_routes() {
    let (one, two) = (Origin::text("one"), Origin::text("two"));
    let (server, directory, port) = (ApiServer::start(), scratch("gateway"), free_port());
    server.apply(json!({"kind": "GatewayClass", "metadata": {"name": "weir"},
        "spec": {"controllerName": "weir.dev/gateway-controller"}}));
    server.apply(json!({"kind": "Namespace", "metadata": {"name": NAMESPACE}}));
    server.apply(gateway("web", json!([http_listener("http", port)])));
    for number in 0..ROUTES {
        let name = format!("app-{number}");
        server.apply(service(&name));
        server.apply(slice(&name, one.port()));
        server.apply(route(&name, &format!("/{name}")));
    }
    let begun = Instant::now();
    let controller = Controller::start(&server, &directory.join("one"));
    controller.await_ready();
    let scene = Scene { server, controller, directory, port };
    scene.await_answer("/app-999", 200, "one");
    println!("start to traffic: {:?}", begun.elapsed());
    let endpoint = timed(&scene, "/app-500", |round| {
        let (origin, text) = if round % 2 == 0 { (&two, "two") } else { (&one, "one") };
        scene.server.apply(slice("app-500", origin.port()));
        (200, text)
    });
    println!("endpoint change to traffic: {endpoint}");
    let added = timed(&scene, "/extra", |round| {
        if round % 2 == 0 {
            scene.server.apply(route("app-7", "/extra"));
            (200, "one")
        } else {
            scene.server.apply(route("app-7", "/app-7"));
            (404, "")
        }
    });
    println!("route change to traffic: {added}");
    for series in ["translation_seconds", "apply_seconds"] {
        let mean = scene.controller.metric(&format!("{series}_sum"))
            / scene.controller.metric(&format!("{series}_count"));
        println!("{series}: mean {mean:.3}");
    }
    println!("memory of the controller: {} kB", scene.controller.memory());
}
