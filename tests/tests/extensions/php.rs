//! PHP over FastCGI: Debian's php-fpm with the recipe from the documentation.

use weir_tests::client::{Client, exchange, get};
use weir_tests::peers::{Kind, Peer};
use weir_tests::versions::curl;
use weir_tests::{Weir, eventually, free_port, recipe};

/// Scripts by name.
const SCRIPTS: [(&str, &str); 5] = [
    ("index.php", "<?php echo 'index of ' . $_SERVER['REQUEST_URI'];"),
    (
        "echo.php",
        "<?php header('X-Method: ' . $_SERVER['REQUEST_METHOD']); http_response_code(201);\n\
         echo implode('|', [$_GET['a'] ?? '', $_SERVER['PATH_INFO'] ?? '', $_SERVER['HTTP_X_A'] ?? '', \
         $_SERVER['REMOTE_ADDR'], strlen(file_get_contents('php://input'))]);",
    ),
    ("large.php", "<?php for ($i = 0; $i < 3000; $i++) { echo str_repeat('x', 1000); }"),
    ("log.php", "<?php error_log('told by the script'); header('Location: /elsewhere');"),
    ("die.php", "<?php echo 'half'; flush(); exec('kill -9 ' . getmypid());"),
];

/// Starts the recipe with its server at `php` and its scripts in that directory.
fn start(php: &Peer) -> (Weir, u16) {
    start_with(php, "check")
}

/// Starts it with other check options of the server.
fn start_with(php: &Peer, check: &str) -> (Weir, u16) {
    for (name, text) in SCRIPTS {
        std::fs::write(php.files().join(name), text).expect("the temporary directory takes files");
    }
    let port = free_port();
    let text = recipe("php.cfg", port, &[("192.0.2.10:9000", php.port)])
        .replace("/var/www/html", &php.files().display().to_string())
        .replace("\nglobal\n", "\nglobal\n    stats socket runtime level admin\n")
        .replace("proto fcgi check", &format!("proto fcgi {check}"));
    (Weir::start(&text, &[port]), port)
}

#[test]
fn recipe_runs_php_scripts() {
    let php = Peer::start(Kind::Php);
    let (weir, port) = start(&php);
    assert_eq!(get(port, "/").expect("a response").text(), "index of /");

    let mut client = Client::connect(port);
    let body = "b".repeat(200_000);
    client.send(format!(
        "POST /echo.php/more/of%20it?a=1 HTTP/1.1\r\nHost: h\r\nX-A: field\r\nContent-Length: {}\r\n\r\n{body}",
        body.len()
    ));
    let answer = client.response().expect("a response");
    assert_eq!((answer.status, answer.header("x-method")), (201, Some("POST")));
    assert_eq!(answer.text(), "1|/more/of it|field|127.0.0.1|200000");
    // The connection is still usable.
    client.send("GET /echo.php HTTP/1.1\r\nHost: h\r\n\r\n");
    assert_eq!(client.response().expect("a response").text(), "|||127.0.0.1|0");

    assert_eq!(curl(&[&format!("http://127.0.0.1:{port}/large.php")]).len(), 3_000_000);
    let head = exchange(port, "HEAD /large.php HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n");
    assert_eq!(head.expect("a response").status, 200);
    let gone = get(port, "/none.php").expect("a response");
    assert_eq!((gone.status, gone.text().trim_end()), (404, "File not found."));
    let redirect = get(port, "/log.php").expect("a response");
    assert_eq!((redirect.status, redirect.header("location")), (302, Some("/elsewhere")));
    assert!(weir.says("told by the script"), "{}", weir.messages());
}

#[test]
fn dying_php_process_only_fails_its_own_request() {
    let php = Peer::start(Kind::Php);
    let (_weir, port) = start(&php);
    for _ in 0..5 {
        // The response is not marked as complete: its last chunk is missing.
        let cut = get(port, "/die.php");
        assert!(cut.is_none_or(|answer| answer.status == 502 || !answer.text().ends_with("0\r\n\r\n")));
        assert_eq!(get(port, "/").expect("a response").text(), "index of /");
    }
}

#[test]
fn recipe_check_detects_php_going_down_and_up() {
    let mut php = Peer::start(Kind::Php);
    let (weir, port) = start_with(&php, "check inter 50ms rise 1 fall 1");
    assert!(eventually(|| weir.stat("php,fpm1", "check_status") == "L7OK"));
    php.stop();
    assert!(eventually(|| weir.stat("php,fpm1", "status") == "DOWN"));
    assert_eq!(get(port, "/").expect("a response").status, 503);
    php.resume();
    assert!(eventually(|| weir.stat("php,fpm1", "status") == "UP"));
    assert_eq!(get(port, "/").expect("a response").text(), "index of /");
}
