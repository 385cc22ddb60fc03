//! Persistence and capture cookies as seen by clients, servers, rules and logs.

use weir_tests::Origin;
use weir_tests::client::Client;
use weir_tests::log_scene::{GET_ROOT, scene};

#[test]
fn cookie_is_removed_by_the_side_that_set_it() {
    let origin = Origin::text("ok");
    let cookie = "cookie SRV insert indirect httponly secure domain a.test attr X=1";
    let scene = scene("", "", cookie, &origin, "");
    let answer = Client::connect(scene.port).send(GET_ROOT).response().expect("an answer");
    let wanted = "SRV=; Expires=Thu, 01-Jan-1970 00:00:01 GMT; path=/; domain=a.test; HttpOnly; Secure; X=1";
    assert_eq!(answer.header("set-cookie"), Some(wanted));
}

#[test]
fn after_response_rules_see_the_persistence_cookie() {
    let origin = Origin::text("ok");
    let scene =
        scene("", "http-after-response del-header set-cookie", "cookie SRV insert", &origin, "cookie v");
    let answer = Client::connect(scene.port).send(GET_ROOT).response().expect("an answer");
    assert_eq!(answer.header("set-cookie"), None);
}

#[test]
fn denied_requests_are_logged_with_their_cookie() {
    let origin =
        Origin::start(|_, _| b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\nSet-Cookie: SRV=own\r\n\r\n".to_vec());
    let cases = [
        ("cookie SRV insert\n  http-request deny", "cookie v", "SRV=v", "b/s 0/-1/-1/-1 403 PRVN 0"),
        ("cookie SRV insert\n  http-request deny", "cookie v", "SRV=w", "b/<NOSRV> 0/-1/-1/-1 403 PRIN 0"),
        (
            "cookie SRV insert\n  http-request return status 200",
            "cookie v",
            "SRV=v",
            "b/<NOSRV> 0/-1/-1/-1 200 LRNN 0",
        ),
        ("cookie SRV prefix", "", "SRV=v~own", "b/s 0/0/0/0 200 --IP 0"),
    ];
    for (backend, parameters, cookie, line) in cases {
        let scene = scene("", "", backend, &origin, parameters);
        let request = format!("GET / HTTP/1.1\r\nHost: a\r\nCookie: {cookie}\r\n\r\n");
        Client::connect(scene.port).send(request).response().expect("an answer");
        assert_eq!(scene.line(), format!("{line} GET / HTTP/1.1"), "{backend}");
    }
}

#[test]
fn captured_cookie_reflects_changes_by_rules() {
    let origin = Origin::text("ok");
    let cases = [
        ("", "A=2"),
        ("http-request set-header cookie A=7", "A=7"),
        ("http-request del-header cookie", "-"),
        ("http-request deny", "A=2"),
        ("http-request return status 200", "-"),
    ];
    for (rule, captured) in cases {
        for (frontend, backend) in [(rule, ""), ("", rule)] {
            let frontend = format!("capture cookie A= len 10\n  log-format %CC\n  {frontend}");
            let scene = scene("", &frontend, backend, &origin, "");
            let request = "GET / HTTP/1.1\r\nHost: a\r\nCookie: B=1; A=2\r\n\r\n";
            Client::connect(scene.port).send(request).response().expect("an answer");
            assert_eq!(scene.line_with_times(), captured, "{frontend} {backend}");
        }
    }
}

/// Each of several cookies with one name loses its own prefix.
#[test]
fn each_cookie_loses_its_own_prefix() {
    let origin = Origin::echo();
    let scene = scene("", "", "cookie SRV prefix", &origin, "cookie v");
    let request = "GET / HTTP/1.1\r\nHost: a\r\nCookie: SRV=v; B=1; SRV=v~own; SRV=w~other\r\n\r\n";
    let answer = Client::connect(scene.port).send(request).response().expect("an answer");
    assert!(answer.text().contains("Cookie: SRV=v; B=1; SRV=own; SRV=other"), "{}", answer.text());
}
