//! Messages on standard error: their styles, advice about addresses, and `-d`.

use std::io::Write;
use std::net::TcpListener;
use std::process::{Command, Stdio};

use weir_tests::client::exchange_with;
use weir_tests::{Origin, eventually, free_port, scratch};

const DEFAULTS: &str =
    "defaults\n  mode http\n  timeout client 5s\n  timeout connect 5s\n  timeout server 5s\n";

/// Runs the program with these arguments on a configuration, and returns its messages.
fn messages(name: &str, configuration: &str, style: Option<&str>, words: &[&str]) -> String {
    let directory = scratch(name);
    let file = directory.join("haproxy.cfg");
    std::fs::File::create(&file)
        .and_then(|mut file| file.write_all(configuration.as_bytes()))
        .expect("the file is writable");
    let mut command = Command::new(weir_tests::program());
    command.args(words).arg("-f").arg(&file).env_remove("WEIR_MESSAGES");
    if let Some(style) = style {
        command.env("WEIR_MESSAGES", style);
    }
    let output = command.output().expect("the program runs");
    String::from_utf8_lossy(&output.stderr).into_owned()
}

#[test]
fn the_style_of_messages_can_be_selected() {
    let wrong = format!("{DEFAULTS}frontend f\n  bind :0\n  balanse x\n");
    let of = |style, words: &[&str]| messages("styles", &wrong, style, words);
    let plain = of(None, &["-c"]);
    assert!(plain.contains("[ALERT]") && plain.contains("haproxy.cfg:8]"), "{plain}");
    for rich in [of(Some("rich"), &["-c"]), of(None, &["-c", "--messages", "rich"])] {
        assert!(
            rich.contains("error: unknown keyword `balanse`") && rich.contains("8 |   balanse x"),
            "{rich}"
        );
        assert!(!rich.contains('\x1b'), "colours only on a terminal: {rich}");
    }
    for json in [of(Some("json"), &["-c"]), of(Some("rich"), &["-c", "--messages", "json"])] {
        let lines: Vec<serde_json::Value> = json
            .lines()
            .map(|line| serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {line}")))
            .collect();
        let found = lines.iter().find(|line| line["line"] == 8).unwrap_or_else(|| panic!("{json}"));
        assert_eq!(found["severity"], "error");
        assert_eq!((&found["column"], &found["end_column"]), (&3.into(), &10.into()), "{found}");
        assert!(found["file"].as_str().is_some_and(|file| file.ends_with("haproxy.cfg")));
    }
    let unknown = of(Some("yaml"), &["-c"]);
    assert!(unknown.contains("WEIR_MESSAGES is rich, haproxy or json, not 'yaml'"), "{unknown}");
    let unknown = of(None, &["-c", "--messages", "yaml"]);
    assert!(
        unknown.trim_end().ends_with("'--messages' needs rich, haproxy or json, not 'yaml'."),
        "{unknown}"
    );
}

#[test]
fn the_cause_of_a_wrong_argument_comes_last() {
    let text = messages("arguments", "", None, &["--no-such-option"]);
    assert!(text.contains("Usage: weir"), "{text}");
    assert!(text.trim_end().ends_with("unknown option '--no-such-option'."), "{text}");
}

#[test]
fn keyword_classes_are_listed_without_a_configuration() {
    let output = Command::new(weir_tests::program()).arg("-dKhelp").output().expect("the program runs");
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success() && text.contains("all: list all keywords"), "{text}");
}

#[test]
fn the_process_that_holds_an_address_is_named() {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port is free");
    let port = listener.local_addr().expect("it is bound").port();
    let text =
        messages("in-use", &format!("{DEFAULTS}frontend f\n  bind 127.0.0.1:{port}\n"), None, &["-db"]);
    assert!(text.contains("haproxy.cfg:7] for frontend f: protocol tcpv4: cannot bind socket"), "{text}");
    let holder = format!("port {port} is in use by process {} (", std::process::id());
    assert!(text.contains(&holder), "{holder}: {text}");
}

#[test]
fn debug_mode_shows_each_message() {
    let (origin, port, directory) = (Origin::text("hello"), free_port(), scratch("debug-mode"));
    let file = directory.join("haproxy.cfg");
    let sections = format!(
        "{DEFAULTS}frontend web\n  bind 127.0.0.1:{port}\n  default_backend app\nbackend app\n  server a 127.0.0.1:{}\n",
        origin.port()
    );
    std::fs::write(&file, sections).expect("the file is writable");
    let shown = directory.join("shown");
    let output = std::fs::File::create(&shown).expect("the file is writable");
    let mut process = Command::new(weir_tests::program())
        .arg("-d")
        .arg("-f")
        .arg(&file)
        .stderr(Stdio::from(output))
        .spawn()
        .expect("the program runs");
    let text = || std::fs::read_to_string(&shown).unwrap_or_default();
    let answered = eventually(|| weir_tests::client::get_if_open(port, "/first").is_some());
    let response = exchange_with(port, "/second", "x-a: b\r\n");
    let wanted = [
        "web.accept(ffff)=",
        ":ffff]: GET /second HTTP/1.1\n",
        "web.clihdr[",
        ": x-a: b\n",
        "app.srvrep[",
        "]: HTTP/1.1 200 OK\n",
        "app.srvhdr[",
        "app.srvcls[",
        "app.clicls[",
        "app.closed[",
    ];
    let is_complete = eventually(|| wanted.iter().all(|line| text().contains(line)));
    let _ = process.kill();
    let _ = process.wait();
    assert!(answered && response.is_some() && is_complete, "{}", text());
}
