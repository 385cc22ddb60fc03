//! `show errors`: malformed messages from either side.

use weir_tests::log_scene::{LAST, Scene, says};

#[test]
fn show_errors_names_the_server_and_finds_a_response_by_either_proxy() {
    let origin = says(b"HTTP/1.1 200 OK\r\nBad Name: x\r\n\r\n", true);
    let scene = Scene::start("", "", &format!("server s 127.0.0.1:{}", origin.port()));
    assert!(scene.talk(LAST).starts_with("HTTP/1.1 502 "));
    for proxy in ["f", "b", "f response"] {
        let shown = scene.weir.ask(&format!("show errors {proxy}"));
        assert!(shown.contains("backend b (#3): invalid response\n"), "{proxy}: {shown}");
        assert!(shown.contains("  frontend f (#2), server s (#1), "), "{proxy}: {shown}");
    }
    assert!(!scene.weir.ask("show errors f request").contains("invalid response"));
}
