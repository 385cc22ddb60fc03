//! Changes to a request by rules reach the server and the log unchanged: host and authority, captures, services.

use weir_tests::Origin;
use weir_tests::client::Client;
use weir_tests::log_scene::Scene;

/// Returns the head that a server receives for `request` after `rule`.
fn received(rule: &str, request: &str) -> String {
    let origin = Origin::echo();
    let scene = Scene::start("", rule, &format!("server s 127.0.0.1:{}", origin.port()));
    Client::connect(scene.port).send(request).response().expect("an answer").text()
}

#[test]
fn authority_and_host_stay_equal_when_rules_change_one() {
    const ABSOLUTE: &str = "GET http://h.test:81/p?q HTTP/1.1\r\nHost: h.test:81\r\n\r\n";
    const ORIGIN: &str = "GET /p HTTP/1.1\r\nHost: h.test\r\n\r\n";
    for (rule, request, target, host) in [
        ("set-header host new", ABSOLUTE, "http://new/p?q", "host: new"),
        ("set-header Host new:82", ORIGIN, "/p", "host: new:82"),
        ("replace-header host .* z", ABSOLUTE, "http://z/p?q", "host: z"),
        ("replace-value Host .* z.test", ABSOLUTE, "http://z.test/p?q", "host: z.test"),
        ("set-uri http://other.test/u", ORIGIN, "http://other.test/u", "host: other.test"),
        ("set-uri http://other.test:99/u", ABSOLUTE, "http://other.test:99/u", "host: other.test:99"),
        ("set-uri /x", ABSOLUTE, "/x", "host: h.test:81"),
        ("set-path /x", ABSOLUTE, "http://h.test:81/x?q", "host: h.test:81"),
    ] {
        let head = received(&format!("http-request {rule}"), request);
        assert!(head.starts_with(&format!("GET {target} HTTP/1.1")), "{rule}: {head}");
        assert!(head.to_ascii_lowercase().lines().any(|line| line == host), "{rule}: {head}");
    }
}

#[test]
fn capture_rule_overrides_capture_response() {
    let origin =
        Origin::start(|_, _| b"HTTP/1.1 200 OK\r\nX: ex\r\nY: why\r\nContent-Length: 0\r\n\r\n".to_vec());
    let frontend = "capture response header X len 10\n  log-format %hs\n  http-response capture hdr(Y) id 0";
    let scene = Scene::start("", frontend, &format!("server s 127.0.0.1:{}", origin.port()));
    Client::connect(scene.port).send("GET / HTTP/1.1\r\nHost: a\r\n\r\n").response().expect("an answer");
    assert_eq!(scene.line_with_times(), "{why}");
}

#[test]
fn backend_response_does_not_count_as_intercepted() {
    for (frontend, backend, intercepted) in [("http-request return", "", 1), ("", "http-request return", 0)] {
        let scene = Scene::start("", frontend, &format!("{backend}\n  server s 127.0.0.1:1"));
        Client::connect(scene.port).send("GET / HTTP/1.1\r\nHost: a\r\n\r\n").response().expect("an answer");
        scene.line();
        assert_eq!(scene.counts("f,FRONTEND", &["intercepted"]), [format!("intercepted={intercepted}")]);
    }
}

#[test]
fn rules_see_the_body_of_a_generated_response() {
    let rules = "http-after-response set-header x-body %[res.body,length]\n  http-request return content-type a/b string hello";
    let scene = Scene::start("", rules, "server s 127.0.0.1:1");
    let answer = Client::connect(scene.port).send("GET / HTTP/1.1\r\nHost: a\r\n\r\n").response();
    assert_eq!(answer.expect("an answer").header("x-body"), Some("5"));
}

#[test]
fn maintenance_closes_idle_connections() {
    let origin = Origin::text("ok");
    let scene = Scene::start("http-reuse always", "", &format!("server s 127.0.0.1:{}", origin.port()));
    let mut client = Client::connect(scene.port);
    let mut get = || client.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n").response().expect("an answer").status;
    assert_eq!((get(), get(), origin.connections()), (200, 200, 1));
    scene.weir.ask("set server b/s state maint");
    scene.weir.ask("set server b/s state ready");
    assert_eq!((get(), origin.connections()), (200, 2));
    assert!(weir_tests::eventually(|| idle(&scene, "b/s") == ["1", "0", "1"]), "{:?}", idle(&scene, "b/s"));
    assert_eq!(get(), 200);
    assert!(weir_tests::eventually(|| idle(&scene, "b/s") == ["0", "1", "1"]), "{:?}", idle(&scene, "b/s"));
    scene.weir.ask("disable server b/s");
    assert_eq!(idle(&scene, "b/s"), ["0", "0", "0"]);
}

/// Returns a server's `unsafe_nb`, `safe_nb` and `idle_cur`.
fn idle(scene: &Scene, server: &str) -> [String; 3] {
    let shown = scene.weir.ask("show servers conn");
    let line = shown.lines().find_map(|line| line.strip_prefix(server)).unwrap_or_default();
    let column = |number| line.split(' ').nth(number).unwrap_or_default().to_owned();
    [column(11), column(12), column(14)]
}

#[test]
fn maintenance_of_a_tracked_server_closes_idle_connections() {
    let origin = Origin::text("ok");
    let backend = format!(
        "server s 127.0.0.1:{port} track last/t\nbackend middle\n  server m 127.0.0.1:{port} check inter 1h\n\
         backend last\n  server t 127.0.0.1:{port} track middle/m",
        port = origin.port()
    );
    let scene = Scene::start("http-reuse always", "", &backend);
    let mut client = Client::connect(scene.port);
    client.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n").response().expect("an answer");
    assert!(weir_tests::eventually(|| idle(&scene, "b/s") == ["1", "0", "1"]), "{:?}", idle(&scene, "b/s"));
    scene.weir.ask("disable server middle/m");
    assert_eq!(idle(&scene, "b/s"), ["0", "0", "0"]);
}

#[test]
fn show_sess_shows_the_state_of_a_stream() {
    let (release, held) = std::sync::mpsc::channel::<()>();
    let held = std::sync::Mutex::new(held);
    let origin = Origin::start(move |_, _| {
        let _ = held.lock().expect("nobody panics with it").recv();
        b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n".to_vec()
    });
    let scene = Scene::start("", "", &format!("server s 127.0.0.1:{}", origin.port()));
    let mut client = Client::connect(scene.port);
    client.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n");
    let shown = || scene.weir.ask("show sess");
    assert!(weir_tests::eventually(|| shown().contains("act=response")), "{}", shown());
    release.send(()).expect("the server waits");
    client.response().expect("an answer");
    assert!(weir_tests::eventually(|| !shown().contains("act=response")), "{}", shown());
}
