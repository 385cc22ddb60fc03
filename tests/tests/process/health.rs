//! `weir health`: whether the process that runs a configuration answers.

use std::process::Command;

use weir_tests::{Weir, free_port, program};

/// Exit code and all output.
fn health(arguments: &[&str]) -> (Option<i32>, String) {
    let output = Command::new(program()).arg("health").args(arguments).output().expect("the program runs");
    (output.status.code(), String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned())
}

#[test]
fn a_process_is_healthy_until_it_ends() {
    let port = free_port();
    let text = format!(
        "global\n  stats socket \"$SOCKET\" level admin\ndefaults\n  mode http\n  timeout client 5s\n\
         frontend f\n  bind 127.0.0.1:{port}\n  http-request return status 200\n"
    );
    let directory = weir_tests::scratch("health");
    let directory = directory.directory();
    let (file, socket) = (directory.join("weir.cfg"), directory.join("runtime"));
    let text = text.replace("$SOCKET", &socket.display().to_string());
    std::fs::write(&file, &text).expect("the directory takes files");
    let (file, socket) = (file.display().to_string(), socket.display().to_string());
    let mut weir = Weir::start(&text, &[port]);
    let expected = format!("healthy: process {}, up ", weir.pid());
    for arguments in [["-f", &file], ["--socket", &socket]] {
        let (code, output) = health(&arguments);
        assert!(code == Some(0) && output.starts_with(&expected), "{arguments:?}: {output}");
    }
    weir.signal("TERM");
    weir.await_end();
    let (code, output) = health(&["-f", &file]);
    assert!(code == Some(1) && output.starts_with("unhealthy: unix@"), "{output}");
}

#[test]
fn without_a_runtime_socket_a_listener_has_to_accept() {
    let port = free_port();
    let text = format!("frontend f\n  mode tcp\n  timeout client 5s\n  bind *:{port}\n");
    let directory = weir_tests::scratch("health");
    let file = directory.directory().join("weir.cfg");
    std::fs::write(&file, &text).expect("the directory takes files");
    let file = file.display().to_string();
    let (code, output) = health(&["-f", &file, "--timeout", "20"]);
    assert!(code == Some(1) && output.contains("Connection refused"), "{output}");
    let _weir = Weir::start(&text, &[port]);
    let (code, output) = health(&["-f", &file]);
    assert!(code == Some(0) && output.contains("accepts connections"), "{output}");
}

#[test]
fn a_wrong_command_or_configuration_is_explained() {
    let (code, output) = health(&[]);
    assert!(code == Some(2) && output.starts_with("Usage: weir health"), "{output}");
    let (code, output) = health(&["-f", "/nonexistent/weir.cfg"]);
    assert!(code == Some(1) && output.contains("run `weir -c` for details"), "{output}");
}
