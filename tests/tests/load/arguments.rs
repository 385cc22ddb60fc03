//! The command line: usage, errors, names of the program, the configuration of `-C`.

use std::os::unix::fs::symlink;
use std::process::Command;

use weir_tests::{Origin, check, program, scratch};

use super::run;

#[test]
fn errors_name_the_cause_and_exit_with_1() {
    for (words, error) in [
        (&["-x"][..], "weir load: unknown option '-x': weir load --help lists the options\n"),
        (&[][..], "weir load: no URL was given: "),
        (
            &["--server", "verify required", "https://127.0.0.1/"][..],
            "weir load: verify required: no CA is trusted: ",
        ),
    ] {
        let output = run(words);
        let text = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.code() == Some(1) && text.starts_with(error), "{words:?}: {text}");
        assert!(output.stdout.is_empty(), "{words:?}");
    }
}

#[test]
fn traces_show_connections_and_responses() {
    let origin = Origin::text("ok");
    let url = format!("http://127.0.0.1:{}/x", origin.port());
    let output = run(&["--traces", "-n", "2", "-r", "1", &url]);
    let text = String::from_utf8_lossy(&output.stderr);
    let count = |part: &str| text.lines().filter(|line| line.contains(part)).count();
    assert_eq!(count(&format!("connecting to 127.0.0.1:{}", origin.port())), 2, "{text}");
    assert_eq!(count(&format!("{url}: 200 after ")), 2, "{text}");
}

#[test]
fn the_program_may_be_called_haload() {
    let directory = scratch("haload");
    let path = directory.directory().join("haload");
    symlink(program(), &path).expect("the directory takes files");
    let output = Command::new(&path).arg("-v").output().expect("the program runs");
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(text.starts_with("haload version ") && output.status.success(), "{text}");
    let output = Command::new(&path).arg("--help").output().expect("the program runs");
    assert!(String::from_utf8_lossy(&output.stdout).contains("Usage: weir load [options] URL"));
}

#[test]
fn the_printed_configuration_is_valid() {
    let words = [
        "-C",
        "-m",
        "5",
        "-r",
        "3",
        "-F",
        "--server",
        "quic-cc-algo newreno(1m) verify none",
        "--defaults",
        "timeout connect 2s",
        "http://127.0.0.1:1/",
        "-2c",
        "http://127.0.0.1:1/",
        "-2",
        "--tls-curves",
        "P-256",
        "https://localhost:2/",
        "--tls-ciphersuites",
        "TLS_AES_128_GCM_SHA256",
        "-3",
        "quic://127.0.0.1:3/",
        "http://127.0.0.1:4/",
        "https://127.0.0.1:5/",
    ];
    let output = run(&words);
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success() && text.contains("tune.quic.be.stream.max-concurrent 5"), "{text}");
    assert!(text.contains("smart-connect\n") && text.contains("max-reuse 2"), "{text}");
    let directory = scratch("load-configuration");
    let file = directory.directory().join("weir.cfg");
    std::fs::write(&file, &text).expect("the directory takes files");
    let verdict = check(&file, directory.directory());
    assert!(verdict.accepted() && verdict.warnings().is_empty(), "{verdict:?}\n{text}");
}
