//! `weir ctl`: commands to the runtime socket without socat.

use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};

use weir_tests::{Origin, Scratch, Weir, free_port, scratch};

/// The exit code, the output and the errors of `weir ctl` with these arguments and this input.
fn ctl(words: &[&str], input: &str) -> (Option<i32>, String, String) {
    let mut process = Command::new(weir_tests::program())
        .arg("ctl")
        .args(words)
        .env_remove("WEIR_SOCKET")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the program runs");
    // A command that needs no input may end first.
    let _ = process.stdin.take().expect("a pipe").write_all(input.as_bytes());
    let output = process.wait_with_output().expect("the program ends");
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (output.status.code(), text(&output.stdout), text(&output.stderr))
}

/// A process with a runtime socket and a map, and its configuration.
fn start(origin: &Origin) -> (Weir, Scratch, String) {
    let (port, directory) = (free_port(), scratch("ctl"));
    let socket = directory.join("admin.sock");
    std::fs::write(directory.join("a.map"), "a 1\n").expect("the file is writable");
    let text = format!(
        "global\n  stats socket {} level admin\ndefaults\n  mode http\n  timeout client 5s\n  timeout connect 5s\n  \
         timeout server 5s\nfrontend f\n  bind 127.0.0.1:{port}\n  http-request set-header x %[path,map({})]\n  \
         default_backend app\nbackend app\n  server s1 127.0.0.1:{}\n",
        socket.display(),
        directory.join("a.map").display(),
        origin.port()
    );
    let weir = Weir::start(&text, &[port]);
    std::fs::write(directory.join("haproxy.cfg"), text).expect("the file is writable");
    let socket = socket.display().to_string();
    (weir, directory, socket)
}

fn shown(path: &Path) -> String {
    path.display().to_string()
}

#[test]
fn commands_are_answered_with_an_exit_code() {
    let origin = Origin::text("x");
    let (_weir, directory, socket) = start(&origin);
    let file = shown(&directory.join("haproxy.cfg"));
    for words in [["-s", &socket], ["-f", &file]] {
        let (code, output, errors) = ctl(&[&words[..], &["get", "weight", "app/s1"]].concat(), "");
        assert_eq!((code, &*output, &*errors), (Some(0), "1 (initial 1)\n", ""));
    }
    let (code, output, errors) = ctl(&["-s", &socket, "disable", "server", "app/none"], "");
    assert_eq!((code, &*output, &*errors), (Some(1), "", "No such server.\n"));
    let (code, _, errors) = ctl(&["-s", &socket, "frobnicate"], "");
    assert_eq!((code, &*errors), (Some(1), "Unknown command: 'frobnicate'. `help` lists the commands\n"));
    let (code, output, _) = ctl(&["-s", &socket, "disable server app/s1"], "");
    assert_eq!((code, &*output), (Some(0), ""));
}

#[test]
fn payloads_and_commands_are_read_from_standard_input() {
    let origin = Origin::text("x");
    let (_weir, directory, socket) = start(&origin);
    let map = shown(&directory.join("a.map"));
    let (code, output, errors) = ctl(&["-s", &socket, "add", "map", &map, "<<"], "b 2\nc 3\n");
    assert_eq!((code, &*output, &*errors), (Some(0), "", ""));
    let (_, output, _) = ctl(&["-s", &socket, "show", "map", &map], "");
    assert!(output.contains("c 3"), "{output}");
    let (code, output, _) = ctl(&["-s", &socket], "get weight app/s1\nshow version\n");
    assert!(code == Some(0) && output.contains("1 (initial 1)"), "{output}");
}

#[test]
fn missing_processes_and_wrong_arguments_are_explained() {
    let directory = scratch("ctl-nowhere");
    let nowhere = shown(&directory.join("none.sock"));
    let (code, _, errors) = ctl(&["-s", &nowhere, "show", "info"], "");
    assert!(
        code == Some(2) && errors.contains(&format!("cannot query the process on {nowhere}")),
        "{errors}"
    );
    let empty = directory.join("haproxy.cfg");
    std::fs::write(&empty, "defaults\n  mode http\n").expect("the file is writable");
    let (code, _, errors) = ctl(&["-f", &shown(&empty), "show", "info"], "");
    assert!(code == Some(2) && errors.contains("has no `stats socket`"), "{errors}");
    let (code, _, errors) = ctl(&["-x"], "");
    assert!(
        code == Some(2) && errors.contains("unknown option '-x'") && errors.contains("Usage"),
        "{errors}"
    );
    let (code, output, _) = ctl(&["--help"], "");
    assert!(code == Some(0) && output.contains("Usage: weir ctl"), "{output}");
}
