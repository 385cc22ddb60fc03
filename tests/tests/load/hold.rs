//! Connections that are held open without requests (`--hold`).

use weir_tests::{Origin, eventually};

use super::endings::interrupt;
use super::multiplexed::{Scene, scene};
use super::{assert_all, load, number, start, summary};

/// The URLs of all protocols, with the options before them.
fn urls(scene: &Scene) -> Vec<(&'static str, String)> {
    let others = scene.urls().into_iter().map(|(option, url, _)| (option, url));
    [("-1", format!("http://127.0.0.1:{}/", scene.clear))].into_iter().chain(others).collect()
}

/// Returns a number of the frontend.
fn stat(scene: &Scene, name: &str) -> u64 {
    scene.weir.stat("f,FRONTEND", name).parse().expect("a number")
}

#[test]
fn connections_are_open_until_an_interrupt() {
    let scene = scene("", Origin::text("ok"));
    let mut answered = 0;
    for (option, url) in urls(&scene) {
        // Each user sends one request, because its connection is held after that.
        for words in [&["-u", "4", "-n", "4", "-r", "1"][..], &["-u", "1", "-n", "4"]] {
            let users = if words[1] == "4" { 4 } else { 1 };
            let mut child = start(&[&["--json", "--hold", "1h"], words, &[option, &url]].concat());
            answered += 4;
            let is_held = || stat(&scene, "hrsp_2xx") == answered && is_open(&scene, users);
            assert!(eventually(is_held), "{option} {words:?}: {}", stat(&scene, "scur"));
            // The connections outlast requests of others.
            assert_all(&load(&["-n", "50", option, &url]), 50);
            answered += 50;
            assert!(eventually(|| is_open(&scene, users)), "{option} {words:?}: {}", stat(&scene, "scur"));
            assert!(child.try_wait().is_ok_and(|status| status.is_none()), "{option} {words:?}");
            interrupt(child.id());
            let output = child.wait_with_output().expect("the program ends");
            let summary = summary(&output);
            assert_all(&summary, 4);
            assert_eq!(number(&summary, "connections"), users, "{option} {words:?}");
            assert!(eventually(|| is_open(&scene, 0)), "{option} {words:?}");
        }
    }
}

/// Whether this number of the frontend's connections are open.
fn is_open(scene: &Scene, number: u64) -> bool {
    stat(scene, "scur") == number
}

#[test]
fn users_go_on_after_the_time() {
    let scene = scene("", Origin::text("ok"));
    for (option, url) in urls(&scene) {
        let summary = load(&["-u", "2", "-n", "6", "-r", "1", "--hold", "50ms", option, &url]);
        assert_all(&summary, 6);
        assert_eq!(number(&summary, "connections"), 6, "{option}");
        // One of the users has held three connections.
        let seconds = summary["seconds"].as_f64().expect("a number");
        assert!(seconds >= 0.15, "{option}: {seconds}");
    }
}

#[test]
fn the_server_may_close_connections_that_are_held() {
    let scene = scene("", Origin::text("ok"));
    let urls = urls(&scene);
    let children: Vec<_> = urls
        .iter()
        .map(|(option, url)| start(&["--json", "-u", "2", "-n", "2", "-r", "1", "--hold", "1h", option, url]))
        .collect();
    let all = urls.len() as u64 * 2;
    assert!(eventually(|| stat(&scene, "hrsp_2xx") == all && stat(&scene, "scur") == all));
    scene.weir.signal("USR1");
    for ((option, url), child) in urls.iter().zip(children) {
        let output = child.wait_with_output().expect("the program ends");
        let summary = summary(&output);
        assert_all(&summary, 2);
        assert_eq!(number(&summary, "connections"), 2, "{option} {url}");
    }
}
