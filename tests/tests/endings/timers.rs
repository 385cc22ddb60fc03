//! The timers in log lines (manual, 8.4): which timer includes which wait.

use weir_tests::client::Client;
use weir_tests::log_scene::{GET_ROOT, PAUSE, POST_HALF, Scene, slowly, timers};
use weir_tests::{Origin, free_port};

#[test]
fn request_time_includes_waits_of_rules_and_for_bodies() {
    let cases: &[(&str, &str, &[&str])] = &[
        ("http-request pause 250ms", "", &[GET_ROOT]),
        ("", "http-request pause 250ms", &[GET_ROOT]),
        ("http-request wait-for-body time 20s", "", &[POST_HALF, "def"]),
        ("option http-buffer-request", "", &[POST_HALF, "def"]),
        ("", "option http-buffer-request", &[POST_HALF, "def"]),
        ("tcp-request inspect-delay 250ms\n  tcp-request content accept if WAIT_END", "", &[GET_ROOT]),
        (
            "tcp-request inspect-delay 250ms\n  tcp-request content accept if { req.len gt 100000 }",
            "",
            &[GET_ROOT],
        ),
        ("http-request pause 250ms\n  http-request return status 200", "", &[GET_ROOT]),
    ];
    for (frontend, backend, pieces) in cases {
        let origin = Origin::text("ok");
        let server = format!("{backend}\n  server s 127.0.0.1:{}", origin.port());
        let scene = Scene::start("", frontend, &server);
        assert_eq!(slowly(scene.port, pieces).expect("an answer").status, 200, "{frontend} {backend}");
        let times = timers(&scene);
        assert!(times[0] >= PAUSE as i64 - 5, "{frontend} {backend}: {times:?}");
        assert_eq!(times.iter().max(), Some(&times[0]), "{frontend} {backend}: {times:?}");
    }
}

#[test]
fn tcp_streams_have_no_request_time_but_all_captures() {
    let origin = Origin::raw(|mut stream| {
        weir_tests::request::more(&mut stream, &mut Vec::new());
    });
    let frontend = "tcp-request inspect-delay 10ms\n  tcp-request content capture req.rdp_cookie(a) len 20\n  \
                    declare capture response len 9\n  log-format \"%Tq %TR [%hr] [%hs] [%hrl]\"";
    let scene = Scene::start("mode tcp", frontend, &format!("server s 127.0.0.1:{}", origin.port()));
    slowly(scene.port, &["abcd"]);
    assert_eq!(scene.line_with_times(), "-1 -1 [{}] [{}] [-]");
}

#[test]
fn rule_response_keeps_the_time_of_the_replaced_one() {
    for (rule, status) in [("return status 201", 201), ("deny", 502), ("redirect location /x", 302)] {
        let origin = Origin::text("ok");
        let server = format!("http-response {rule}\n  server s 127.0.0.1:{}", origin.port());
        let scene = Scene::start("", "", &server);
        let mut client = Client::connect(scene.port);
        assert_eq!(client.send(GET_ROOT).response().expect("an answer").status, status);
        assert!(timers(&scene).iter().all(|time| *time >= 0), "{rule}");
        assert_eq!(client.send(GET_ROOT).response().expect("the connection stays").status, status);
        if rule == "deny" {
            assert_eq!(scene.counts("b,BACKEND", &["dresp"]), ["dresp=2"]);
        }
    }
}

#[test]
fn a_rejected_request_has_no_times() {
    for rule in ["reject", "silent-drop"] {
        let scene = Scene::start("", &format!("http-request {rule}"), "server s 127.0.0.1:1");
        let mut client = Client::connect(scene.port);
        client.send(GET_ROOT);
        assert!(scene.line_with_times().starts_with("f/<NOSRV> -1/-1/-1/-1 "), "{rule}");
    }
}

#[test]
fn unanswered_requests_do_not_count_in_averages() {
    let refused = free_port();
    let scene = Scene::start("timeout connect 50ms", "", &format!("server s 127.0.0.1:{refused}"));
    Client::connect(scene.port).send(GET_ROOT).response().expect("an answer");
    assert_eq!(scene.line(), "b/s 0/0/-1/-1 503 SC-- 1 GET / HTTP/1.1");
    assert_eq!(scene.counts("b,BACKEND", &["ttime_max"]), ["ttime_max=0"]);
}
