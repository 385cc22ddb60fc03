//! `weir haterm`: its options become a configuration, which runs like any other.

use std::os::unix::fs::symlink;
use std::process::{Command, Output};

use weir_tests::client::get;
use weir_tests::http3::{Http3Client, Http3Request};
use weir_tests::tls::handshake;
use weir_tests::{Weir, check, eventually, free_port, program, scratch};

fn run(arguments: &[&str]) -> Output {
    Command::new(program()).arg("haterm").args(arguments).output().expect("the program runs")
}

fn printed(arguments: &[&str]) -> String {
    let output = run(&[arguments, &["-C"]].concat());
    assert!(output.status.success(), "{output:?}");
    String::from_utf8(output.stdout).expect("text")
}

#[test]
fn the_printed_configuration_is_valid_and_has_all_options() {
    let directory = scratch("haterm");
    let (port, tls) = (free_port(), free_port());
    let address = format!("127.0.0.1:{port}:{tls}");
    let all = [
        "-L",
        &address,
        "-L",
        "[::1]:8080:8443",
        "-G",
        "maxconn 99\\n\\tnbthread 1",
        "-F",
        "http-request set-header c d",
        "-F",
        "http-request set-header a b",
        "-T",
        "trace h2 sink stderr start now",
        "-d",
        "-b",
        "3072",
        "-c",
        "P-521",
        "--tcp-bind-opts",
        "maxconn 9",
        "--quic-bind-opts",
        "maxconn 7",
    ];
    for arguments in [&["-L", &address][..], &["-L", ":8080"], &all] {
        let text = printed(arguments);
        let file = directory.join("printed.cfg");
        std::fs::write(&file, &text).expect("the directory takes files");
        let verdict = check(&file, &directory);
        assert!(verdict.accepted() && verdict.warnings().is_empty(), "{text}\n{}", verdict.messages);
    }
    let text = printed(&all);
    let lines: Vec<&str> = text.lines().map(str::trim).collect();
    let binds = |start: &str, end: &str| {
        lines.iter().filter(|line| line.starts_with(start) && line.ends_with(end)).count()
    };
    assert_eq!(binds("bind ", " maxconn 9"), 4, "{text}");
    assert_eq!(binds("bind quic", " maxconn 7"), 2, "{text}");
    for line in [
        "maxconn 99",
        "nbthread 1",
        "http-request set-header c d",
        "http-request set-header a b",
        "mode haterm",
    ] {
        assert!(lines.contains(&line), "{line}:\n{text}");
    }
    assert!(text.contains(" 3072 ") && text.contains(" P-521 ") && text.contains("trace quic sink"));
    assert!(
        lines.iter().any(|line| line.starts_with(&format!("bind 127.0.0.1:{tls} ")) && line.contains("ssl"))
    );
    assert!(!printed(&["-L", ":8080"]).contains("ssl"));
}

#[test]
fn every_version_is_served() {
    let (port, tls) = (free_port(), free_port());
    let address = format!("127.0.0.1:{port}:{tls}");
    let arguments = [
        "haterm",
        "-L",
        &address,
        "-G",
        "stats socket runtime level admin\\n\\tnbthread 1",
        "-F",
        "http-request set-header c d",
    ];
    let weir = Weir::start_without_file(&arguments, &[port, tls]);
    assert_eq!(get(port, "/?s=3").expect("a response").text(), ".12");
    let response = Http3Client::connect(tls).exchange(&Http3Request::get("/?s=5"));
    assert_eq!((response.status, response.body.as_slice()), (200, &b".1234"[..]));
    for (arguments, bits) in [
        (&["-alpn", "h2", "-servername", "localhost", "-sigalgs", "ecdsa_secp384r1_sha384"][..], 384),
        (&["-alpn", "http/1.1", "-sigalgs", "rsa_pss_rsae_sha256"], 2048),
    ] {
        let shown = handshake(tls, arguments);
        assert!(shown.contains(&format!("ALPN protocol: {}", arguments[1])), "{shown}");
        assert!(shown.contains("CN = localhost") || shown.contains("CN=localhost"), "{shown}");
        assert!(shown.contains(&format!("Server public key is {bits} bit")), "{shown}");
    }
    assert!(eventually(|| weir.stat("___haterm_frontend___,FRONTEND", "hrsp_2xx") == "2"));
    // The generated configuration is read again, and its certificates are kept.
    assert_eq!(weir.ask("reload dry-run").trim(), "nothing has changed");
}

#[test]
fn a_program_called_haterm_takes_its_options() {
    let directory = scratch("haterm");
    let link = directory.join("haterm");
    symlink(program(), &link).expect("the directory takes links");
    let output = Command::new(&link).args(["-L", ":8080", "-C"]).output().expect("the program runs");
    assert!(output.status.success() && String::from_utf8_lossy(&output.stdout).contains("mode haterm"));
    let output = Command::new(&link).output().expect("the program runs");
    assert_eq!(output.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&output.stderr).contains("Usage: weir haterm"));
}

#[test]
fn wrong_options_are_explained() {
    for (arguments, wanted) in [
        (&[][..], "use -L"),
        (&["-L", "80"], "'80' is not an address"),
        (&["-L", ":80:0"], "':80:0' is not an address"),
        (&["-L", ":80", "-G"], "'-G' needs a value"),
        (&["-x"], "unknown option '-x'"),
    ] {
        let output = run(arguments);
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(1), "{arguments:?}");
        assert!(said.contains(wanted) && said.contains("Usage: weir haterm"), "{said}");
    }
    // A wrong value is reported with its line.
    let output = run(&["-L", "127.0.0.1:8080:8443", "-b", "1000"]);
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(!output.status.success() && said.contains("haterm:") && said.contains("1000"), "{said}");
    assert!(run(&["--help"]).status.success() && run(&["-v"]).status.success());
}
