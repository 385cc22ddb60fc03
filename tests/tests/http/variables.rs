//! Variables and formats in rules: the lifetime and size of variables, and the values formats see.

use weir_tests::client::Client;
use weir_tests::listen::{ask, listen, local};
use weir_tests::log_scene::{GET_ROOT, scene};
use weir_tests::{Origin, Weir, client, free_port};

#[test]
fn variables_beyond_their_limits_stay_unset() {
    let origin = Origin::text("hello");
    let rules = "  http-request set-var(txn.small) str(x)\n  http-request set-var(req.large) req.hdr(x-large)\n  \
                 http-request return status 200 content-type text/plain lf-string %[var(txn.small)]%[var(req.large)]\n";
    let request = |length: usize| {
        format!("GET / HTTP/1.1\r\nHost: h\r\nX-Large: {}\r\nConnection: close\r\n\r\n", "y".repeat(length))
    };
    for limit in ["reqres", "txn", "sess", "proc", "global"] {
        let (_weir, port) = listen(&format!("  tune.vars.{limit}-max-size 1000\n"), rules, &local(&origin));
        for _ in 0..20 {
            assert_eq!(ask(port, &request(100)).body.len(), 101, "{limit}");
            assert_eq!(ask(port, &request(1000)).body.len(), 1, "{limit}");
        }
    }
}

#[test]
fn rule_formats_see_captures_and_their_own_status() {
    let port = free_port();
    let _weir = Weir::start(
        &format!(
            "defaults\n  mode http\n  timeout client 20s\nfrontend f\n  bind 127.0.0.1:{port}\n  \
             capture request header x-a len 20\n  capture request header x-b len 20\n  \
             http-request set-var-fmt(txn.early) \"%hr %ST\"\n  \
             http-request deny deny_status 429 content-type text/plain lf-string \"%ST\" if {{ path /much }}\n  \
             http-request return status 201 content-type text/plain lf-string \"%[var(txn.early)] %{{+Q}}hr %ST\"\n"
        ),
        &[port],
    );
    let told = |path: &str| client::exchange_with(port, path, "x-a: one\r\n").map(|answer| answer.text());
    assert_eq!(told("/").as_deref(), Some("{one|} -1 \"{one|}\" 201"));
    assert_eq!(told("/much").as_deref(), Some("429"));
}

#[test]
fn variables_of_the_request_end_with_it() {
    let origin = Origin::text("ok");
    let frontend = "http-request set-var(req.a) str(x)\n  http-request set-var(txn.b) str(y)\n  \
        http-request return status 200 if { path /here }\n  \
        http-response set-header x-var %[var(req.a)]/%[var(txn.b)]\n  \
        http-after-response set-header x-after %[var(req.a)]/%[var(txn.b)]";
    let scene = scene("", frontend, "", &origin, "");
    let answer = Client::connect(scene.port).send(GET_ROOT).response().expect("an answer");
    assert_eq!((answer.header("x-var"), answer.header("x-after")), (Some("/y"), Some("/y")));
    let here =
        Client::connect(scene.port).send(GET_ROOT.replace(" / ", " /here ")).response().expect("an answer");
    assert_eq!(here.header("x-after"), Some("/y"));
}
