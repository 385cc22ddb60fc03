//! The command line from outside: what flags do beyond being understood.

use std::process::{Command, Output};

use weir_tests::{Weir, free_port, program, scratch};

fn run(arguments: &[&str], configuration: &str) -> Output {
    let directory = scratch("arguments");
    std::fs::write(directory.join("a.cfg"), configuration).expect("the temporary directory takes files");
    std::fs::create_dir(directory.join("empty")).expect("and directories");
    Command::new(program()).args(arguments).current_dir(&directory).output().expect("the program runs")
}

fn configuration(port: u16) -> String {
    format!(
        "global\n  nbthread 1\n  stats socket runtime level admin\n\
         defaults\n  mode http\n  timeout client 1s\n  timeout connect 1s\n  timeout server 1s\n\
         frontend f\n  bind 127.0.0.1:{port}\n"
    )
}

#[test]
fn limits_of_the_command_line_are_in_force() {
    let port = free_port();
    let weir = Weir::start_with(&configuration(port), &["-db", "-m", "4000", "-n", "50", "-N", "7"], &[port]);
    let info = weir.ask("show info");
    for expected in ["Memmax_MB: 4000\n", "Memmax_bytes: 4194304000\n", "Maxconn: 50\n"] {
        assert!(info.contains(expected), "{expected}: {info}");
    }
    let limits =
        std::fs::read_to_string(format!("/proc/{}/limits", weir.pid())).expect("the process's limits");
    let data = limits.lines().find(|line| line.starts_with("Max data size")).unwrap_or_default();
    assert!(data.contains(" 4194304000 "), "{data}");
    let stat = weir.ask("show stat f 1 -1");
    // The seventh column: `slim`.
    let slim =
        stat.lines().find_map(|line| line.strip_prefix("f,FRONTEND,")?.split(',').nth(4).map(str::to_owned));
    assert_eq!(slim.as_deref(), Some("7"), "{stat}");
}

#[test]
fn objects_that_are_loaded_can_be_listed() {
    let output = run(&["-dL", "-q", "-c", "-f", "a.cfg"], &configuration(1));
    let text = String::from_utf8_lossy(&output.stdout);
    let mut lines = text.lines();
    assert_eq!((output.status.code(), lines.next()), (Some(0), Some("List of loaded object files:")));
    let own = std::fs::canonicalize(program()).expect("the program's path").display().to_string();
    let all: Vec<&str> = lines.collect();
    assert!(all.contains(&own.as_str()) && all.iter().any(|path| path.contains("libc.so")), "{text}");
}

#[test]
fn what_cannot_be_read_is_said_in_words() {
    let cases = [
        ("nowhere.cfg", "Cannot open configuration file/directory nowhere.cfg : No such file or directory\n"),
        ("empty", "No configuration file found in directory empty\n"),
    ];
    for (file, expected) in cases {
        let output = run(&["-c", "-f", file], "");
        let text = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.code() == Some(1) && text.contains(expected), "{text}");
    }
    let output = run(&["-c", "-f", "a.cfg"], ".warning \"careful\"\n");
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.code() == Some(0) && text.starts_with("Warnings were found.\n"), "{text}");
}
