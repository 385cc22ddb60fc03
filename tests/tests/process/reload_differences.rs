//! In-place reload, reports and permissions: differences, errors, dry runs, access levels, and the configuration of a modified
//! process.

use std::path::Path;
use std::process::Command;

use weir_tests::client::{exchange_with, get, get_if_open};
use weir_tests::fastcgi::{self, application};
use weir_tests::reloading::{configuration, descriptors, reload, write};
use weir_tests::{Origin, Weir, ask, eventually, free_port, program};

#[test]
fn errors_change_nothing_and_are_shown_with_their_location() {
    let origin = Origin::text("here");
    let port = free_port();
    let good = configuration(&format!(
        "listen l\n  bind 127.0.0.1:{port}\n  server s 127.0.0.1:{}\n",
        origin.port()
    ));
    let weir = Weir::start(&good, &[port]);
    let before = (weir.ask("show stat"), descriptors(&weir));
    for (wrong, shown) in [
        (good.replace("server s", "sever s"), "unknown keyword `sever`"),
        (good.replace("listen l", "listen l\n  default_backend nowhere"), "nowhere"),
        (
            good.replace("nbthread 2", "nbthread 3"),
            "A running process cannot change: `nbthread`. Start a new process",
        ),
        (good.replace("nbthread 2", "nbthread 2\n  user nobody"), "A running process cannot change: `user`."),
        // The address is in use.
        (format!("{good}listen m\n  bind 127.0.0.1:{}\n", origin.port()), "cannot bind socket"),
    ] {
        let said = reload(&weir, &wrong);
        assert!(said.contains(shown), "{said}");
        assert!(!said.contains('\x1b'), "no colours unless they are asked for: {said}");
        assert_eq!(get(port, "/").map(|answer| answer.text()), Some("here".to_owned()));
    }
    write(&weir, &good.replace("server s", "sever s"));
    assert!(weir.ask("reload colour").contains("\x1b["), "colours where they are asked for");
    assert_eq!(weir.ask("show stat").lines().count(), before.0.lines().count());
    assert!(eventually(|| descriptors(&weir) <= before.1));
    write(&weir, &good);
    assert_eq!(weir.ask("reload").trim(), "nothing has changed");
}

#[test]
fn dry_run_reports_differences_and_changes_nothing() {
    let origin = Origin::echo();
    let port = free_port();
    let text = |timeout: &str, rule: &str, more: &str| {
        configuration(&format!(
            "frontend web\n  bind 127.0.0.1:{port}\n  http-request set-header x {rule}\n  http-request set-header y {rule}\n  default_backend app\n\
             backend app\n  timeout server {timeout}\n  server s1 127.0.0.1:{}\n{more}",
            origin.port()
        ))
    };
    let weir = Weir::start(&text("30s", "a", ""), &[port]);
    let new = text("60s", "b", "  server s3 127.0.0.1:3\n");
    let expected =
        "frontend web: 2 rules changed; backend app: timeout server 30s → 60s, server s3 added; nothing else";
    write(&weir, &new);
    assert_eq!(weir.ask("reload dry-run").trim(), expected);
    assert!(weir.ask("reload dry-run colour").contains("\x1b[32mserver s3 added\x1b[0m"));
    let json = weir.ask("reload dry-run json");
    assert!(
        json.contains("{\"change\":\"changed\",\"what\":\"timeout server\",\"from\":\"30s\",\"to\":\"60s\"}"),
        "{json}"
    );
    assert!(get(port, "/").expect("an answer").text().contains("x: a"), "nothing was changed");
    assert!(weir.ask("reload dry-run x").contains("Expected"));
    // From outside, with a file that the process does not use.
    write(&weir, &text("30s", "a", ""));
    let file = weir.directory().join("new.cfg");
    let diff = |text: &str, more: &[&str]| {
        std::fs::write(&file, text).expect("the directory takes files");
        let socket = weir.directory().join("runtime");
        let mut command = Command::new(program());
        command.arg("diff").arg("-f").arg(&file).arg("--socket").arg(&socket).args(more);
        let output = command.output().expect("the program runs");
        let both = [output.stdout, output.stderr].concat();
        (output.status.code(), String::from_utf8_lossy(&both).trim().to_owned())
    };
    assert_eq!(diff(&new, &[]), (Some(1), expected.to_owned()));
    assert!(diff(&new, &["--json"]).1.starts_with("[{\"section\":\"frontend web\""));
    assert_eq!(diff(&text("30s", "a", ""), &[]), (Some(0), "nothing has changed".to_owned()));
    let (code, said) = diff("frontend f\n  bnd :1\n", &[]);
    assert!(code == Some(2) && said.contains("unknown keyword `bnd`"), "{said}");
    assert!(said.contains(&format!("{}:2:3", file.display())), "{said}");
}

/// Lines that do not concern rules, servers or sockets take effect with the next request.
#[test]
fn policies_and_services_change_by_reload() {
    let busy = Origin::start(|_, _| b"HTTP/1.1 503 Busy\r\nContent-Length: 0\r\n\r\n".to_vec());
    let plain = Origin::start(|_, _| {
        b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nCache-Control: max-age=60\r\n\
          Content-Length: 10\r\n\r\nsome words"
            .to_vec()
    });
    let app = application(|asked| {
        let text = format!("Status: 200\r\n\r\n{}", asked.get("SCRIPT_FILENAME"));
        fastcgi::response(asked.id, text.as_bytes())
    });
    let ports @ [tried, kept, packed, asked] = [(); 4].map(|()| free_port());
    let text = |[policy, cache, compression, app_line]: [&str; 4]| {
        configuration(&format!(
            "listen tried\n  bind 127.0.0.1:{tried}\n  retries 2\n  retry-on 503\n  {policy}\n  server s 127.0.0.1:{}\n\
             cache c\n  total-max-size 4\n  {cache}\n\
             listen kept\n  bind 127.0.0.1:{kept}\n  http-request cache-use c\n  http-response cache-store c\n  server s 127.0.0.1:{port}\n\
             listen packed\n  bind 127.0.0.1:{packed}\n  compression algo gzip\n  {compression}\n  server s 127.0.0.1:{port}\n\
             listen asked\n  bind 127.0.0.1:{asked}\n  use-fcgi-app a\n  server s 127.0.0.1:{} proto fcgi\n\
             fcgi-app a\n  {app_line}\n",
            busy.port(),
            app.port(),
            port = plain.port()
        ))
    };
    let requests = |origin: &Origin, port: u16| {
        let before = origin.requests();
        (0..2).for_each(|_| assert!(get(port, "/").is_some()));
        (origin.requests() - before).to_string()
    };
    let seen = || {
        let coded = exchange_with(packed, "/", "Accept-Encoding: gzip\r\n").expect("an answer");
        [
            requests(&busy, tried),
            requests(&plain, kept),
            coded.header("content-encoding").unwrap_or("none").to_owned(),
            get(asked, "/x.php").expect("an answer").text(),
        ]
    };
    let mut lines = ["", "max-age 60", "compression type text/html", "docroot /one"];
    let weir = Weir::start(&text(lines), &ports);
    let mut expected = ["6", "1", "none", "/one/x.php"];
    assert_eq!(seen(), expected);
    // The second of the two requests sees the state left by the first, even from before the reload.
    expected[1] = "0";
    let changes = [
        (0, "retry-budget 0% min 0", "2", "listen tried: retry-budget 0% min 0 added"),
        (1, "max-object-size 5", "2", "cache c: max-object-size 5 added, max-age removed"),
        (
            2,
            "compression type text/plain",
            "gzip",
            "listen packed: compression algo gzip, type text/html → algo gzip, type text/plain",
        ),
        (3, "docroot /two", "/two/x.php", "fcgi-app a: docroot /one → /two"),
    ];
    for (at, line, now, told) in changes {
        assert_eq!(seen(), expected, "before {line}");
        (lines[at], expected[at]) = (line, now);
        let told = format!("{told}; nothing else");
        write(&weir, &text(lines));
        assert_eq!(weir.ask("reload dry-run").trim(), told);
        assert_eq!(weir.ask("reload").trim(), told);
        assert_eq!(seen(), expected, "after {line}");
    }
    // Each policy exists once its line does.
    for (line, command) in [("outlier-ejection errors 3", "show outliers"), ("hedge after 1m", "show hedge")]
    {
        assert_eq!(weir.ask(command).trim().lines().count(), 1, "{command}");
        lines[0] = line;
        assert!(reload(&weir, &text(lines)).contains("listen tried: "));
        assert_eq!(get(tried, "/").map(|answer| answer.status), Some(503));
        assert_eq!(weir.ask(command).trim().lines().count(), 2, "{command}");
    }
}

#[test]
fn list_files_are_read_again() {
    let port = free_port();
    let directory = weir_tests::scratch("lists");
    let map = directory.join("hosts.map");
    std::fs::write(&map, "a one\nb two\n").expect("the directory takes files");
    let text = configuration(&format!(
        "frontend f\n  bind 127.0.0.1:{port}\n  http-request return status 200 content-type text/plain lf-string %[path,field(2,/),map({},none)]\n",
        map.display()
    ));
    let weir = Weir::start(&text, &[port]);
    let value = |path: &str| get(port, path).map(|answer| answer.text()).unwrap_or_default();
    weir.ask(&format!("set map {} a changed", map.display()));
    assert_eq!((value("/a").as_str(), value("/c").as_str()), ("changed", "none"));
    std::fs::write(&map, "a one\nb two\nc three\n").expect("the directory takes files");
    let said = weir.ask("reload dry-run");
    assert_eq!(
        said.trim(),
        format!("map {}: 2 entries added, 1 entry removed; nothing else", map.display()),
        "what was set at run time goes"
    );
    assert_eq!(weir.ask("reload"), said);
    assert_eq!((value("/a").as_str(), value("/c").as_str()), ("one", "three"));
    weir.ask(&format!("add map {} d four", map.display()));
    assert_eq!(value("/d"), "four");
}

#[test]
fn signal_reloads_if_configured() {
    let origin = Origin::echo();
    let port = free_port();
    let text = |global: &str, value: &str| {
        configuration(&format!(
            "listen l\n  bind 127.0.0.1:{port}\n  http-request set-header x {value}\n  server s 127.0.0.1:{}\n",
            origin.port()
        ))
        .replace("nbthread 2", &format!("nbthread 2\n  {global}"))
    };
    let weir = Weir::start(&text("reload in-place", "1"), &[port]);
    write(&weir, &text("reload in-place", "2"));
    weir.signal("USR2");
    assert!(eventually(|| get(port, "/").is_some_and(|answer| answer.text().contains("x: 2"))));
    assert!(weir.says("reloaded: listen l: 1 rule changed; nothing else"));
    write(&weir, "nonsense\n");
    weir.signal("USR2");
    assert!(weir.says("not reloaded: error"));
    assert!(get(port, "/").is_some());
}

#[test]
fn runtime_changes_are_saved_as_a_configuration() {
    let origin = Origin::echo();
    let port = free_port();
    let directory = weir_tests::scratch("saved");
    let map = directory.join("values.map");
    std::fs::write(&map, "a one\n").expect("the directory takes files");
    let text = configuration(&format!(
        "global\n  localpeer own\n  setenv GREETING hello\n\
         frontend f\n  bind 127.0.0.1:{port}\n  http-request set-header x %[path,field(2,/),map({},none)]\n  default_backend b\n\
         backend b\n  balance roundrobin\n  server s1 127.0.0.1:{} weight 10\n  server s2 127.0.0.1:2 weight 10\n  server-template t 2 127.0.0.1:3 disabled\n",
        map.display(),
        origin.port()
    ));
    let weir = Weir::start(&text, &[port]);
    let said = weir.ask("show config");
    assert!(
        said.contains("server s1 ") && said.contains("server-template t 2 127.0.0.1:3 disabled"),
        "{said}"
    );
    assert!(said.contains("localpeer own\n") && said.contains("setenv GREETING hello\n"), "{said}");
    weir.ask("set weight b/s1 7");
    weir.ask("set server b/s2 state maint");
    weir.ask("set server b/t1 addr 127.0.0.1 port 4");
    let added = weir.ask(&format!("add server b/s3 127.0.0.1:{} weight 5", origin.port()));
    assert!(added.contains("New server registered"), "{added}");
    weir.ask("enable server b/s3");
    weir.ask("set maxconn frontend f 77");
    weir.ask(&format!("set map {} a changed", map.display()));
    let said = weir.ask("show config");
    for line in [
        &format!("server s1 127.0.0.1:{} weight 7\n", origin.port()),
        "server s2 127.0.0.1:2 weight 10 disabled\n",
        "server t1 127.0.0.1:4 disabled\n",
        "server t2 127.0.0.1:3 disabled\n",
        "maxconn 77\n",
    ] {
        assert!(said.contains(line), "{line} in {said}");
    }
    let file = directory.join("saved.cfg");
    assert_eq!(weir.ask(&format!("save config {}", file.display())).trim(), "");
    let state = |ask: &dyn Fn(&str) -> String| {
        let state = ask("show servers state");
        let mut rows: Vec<String> = state
            .lines()
            .skip(2)
            .filter(|row| !row.is_empty())
            .map(|row| {
                let words: Vec<&str> = row.split(' ').collect();
                // Name, address, state except the origin of maintenance, weight, port.
                let admin = words[6].parse::<u32>().unwrap_or(0) & !4;
                format!("{} {} {} {admin} {} {}", words[3], words[4], words[5], words[7], words[18])
            })
            .collect();
        rows.sort();
        rows
    };
    let before = state(&|command| weir.ask(command));
    assert_eq!(before.len(), 5, "{before:?}");
    drop(weir);
    let saved = std::fs::read_to_string(&file).expect("the configuration that was saved");
    let weir = Weir::start(&saved, &[port]);
    assert_eq!(state(&|command| weir.ask(command)), before);
    assert!(get(port, "/a").expect("an answer").text().contains("x: changed"), "lists too");
    assert_eq!(weir.stat("f,FRONTEND", "slim"), "77");
}

#[test]
fn reload_needs_admin_level() {
    let port = free_port();
    let text = configuration(&format!("listen l\n  bind 127.0.0.1:{port}\n  server s 127.0.0.1:1\n"))
        .replace(
            "stats socket runtime level admin",
            "stats socket weak level operator\n  stats socket runtime level admin",
        );
    let weir = Weir::start(&text, &[port]);
    let weak = weir.directory().join("weak");
    for command in ["reload", "reload dry-run", "show config", "save config /nowhere/at/all"] {
        assert!(ask(Path::new(&weak), command).contains("Permission denied"), "{command}");
    }
    assert!(weir.ask("save config /nowhere/at/all").contains("Cannot write '/nowhere/at/all'"));
    // Runtime sockets are added and removed too, and the connection that requested it stays open.
    let said = reload(&weir, &text.replace("stats socket weak", "stats socket other"));
    assert!(said.contains("global: stats socket other added, stats socket weak removed"), "{said}");
    assert!(ask(&weir.directory().join("other"), "show info").contains("Pid: "));
    assert!(get_if_open(port, "/").is_some());
}
