//! The command line: effects of flags.

use std::path::Path;
use std::process::{Command, Output};

use weir_tests::{Weir, ask, eventually, free_port, program, scratch};

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
    assert_eq!(weir.stat("f,FRONTEND", "slim"), "7");
}

#[test]
fn loaded_objects_are_listed() {
    let output = run(&["-dL", "-q", "-c", "-f", "a.cfg"], &configuration(1));
    let text = String::from_utf8_lossy(&output.stdout);
    let mut lines = text.lines();
    assert_eq!((output.status.code(), lines.next()), (Some(0), Some("List of loaded object files:")));
    let own = std::fs::canonicalize(program()).expect("the program's path").display().to_string();
    let all: Vec<&str> = lines.collect();
    assert!(all.contains(&own.as_str()) && all.iter().any(|path| path.contains("libc.so")), "{text}");
}

#[test]
fn loaded_objects_are_written_to_an_archive() {
    let directory = scratch("archive");
    let path = directory.join("objects.tar");
    let flag = format!("-dA{}", path.display());
    let output = run(&[&flag, "-c", "-f", "a.cfg"], &configuration(1));
    assert_eq!(output.status.code(), Some(0));
    let list = Command::new("tar").arg("-tvf").arg(&path).output().expect("tar runs");
    let list = String::from_utf8_lossy(&list.stdout);
    let size = std::fs::metadata(program()).expect("the program's file").len().to_string();
    assert!(list.lines().any(|line| line.ends_with("/weir") && line.contains(&size)), "{list}");
    assert!(list.contains("libc.so"), "{list}");
    let output = run(&["-dA", "-c", "-f", "a.cfg"], &configuration(1));
    assert_eq!(output.status.code(), Some(1));
}

#[test]
fn command_line_traces_go_to_standard_error() {
    let port = free_port();
    let weir = Weir::start_with(&configuration(port), &["-db", "-dth1:user,session"], &[port]);
    let _ = weir_tests::client::get_now(port, "/traced");
    assert!(weir.says("|h1|1|"), "{}", weir.messages());
    for (traces, wanted) in [
        ("bogus", "-dt: unknown trace source 'bogus'."),
        ("h1:bogus", "-dt: No such trace level 'bogus'."),
        ("all:user:minimal", "-dt: trace source must be specified for verbosity other than 'quiet'."),
    ] {
        let output = run(&[&format!("-dt{traces}"), "-c", "-f", "a.cfg"], &configuration(1));
        let text = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.code() == Some(1) && text.contains(wanted), "{text}");
    }
}

#[test]
fn diagnostics_do_not_change_the_exit_code() {
    let text = format!(
        "{}backend b\n  cookie A insert\n  server s1 127.0.0.1:1 cookie x\n  server s2 127.0.0.1:1 cookie x weight 0\n  \
         server s3 127.0.0.1:1 cookie x backup\nglobal\n",
        configuration(1)
    );
    let output = run(&["-dD", "-dW", "-c", "-f", "a.cfg"], &text);
    let messages = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(0), "{messages}");
    for wanted in [
        "[a.cfg:16] : global section detected after a non-global one, the prevalence of their statements is unspecified",
        "[a.cfg:14] : 'server s2' : same cookie value is set for a previous non-backup server in the same backend",
        "[a.cfg:14] : 'server b/s2' : configured with weight of 0 will never be selected by load balancing algorithms",
        "Created 1 threads split into 1 groups",
    ] {
        assert!(
            messages.lines().any(|line| line.starts_with("[DIAG]") && line.contains(wanted)),
            "{messages}"
        );
    }
    assert_eq!(messages.matches("same cookie value").count(), 1, "{messages}");
    let output = run(&["-c", "-f", "a.cfg"], &text);
    assert!(!String::from_utf8_lossy(&output.stderr).contains("[DIAG]"));
}

/// Returns the advice of `-dD` about proxies with these lines.
fn advice(proxies: &str) -> Vec<String> {
    let text = format!(
        "defaults\n mode http\n timeout client 1s\n timeout connect 1s\n timeout server 1s\n{proxies}"
    );
    let output = run(&["-dD", "-c", "-f", "a.cfg"], &text);
    let messages = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{messages}");
    let of_file = messages.lines().filter(|line| line.starts_with("[DIAG]") && line.contains("a.cfg:"));
    of_file.map(|line| line.split_once("] : ").map_or(line, |(_, text)| text).to_owned()).collect()
}

#[test]
fn unused_and_doubled_names_and_addresses_are_advised_against() {
    let found = advice(
        "frontend f\n bind 127.0.0.1:1\n acl used path /a\n acl unused path /b\n acl listed path /c\n \
         http-request deny if used\n http-request set-header x %[acl(listed)]\n default_backend b\n\
         frontend g\n bind 127.0.0.1:1\n bind 127.0.0.1:2\n default_backend empty\n\
         backend b\n server s1 127.0.0.1:7\n server s2 127.0.0.1:7\n server s3 127.0.0.1:7 backup\n\
         backend empty\n balance roundrobin\n\
         backend lost\n server s1 127.0.0.1:8\n",
    );
    for wanted in [
        "acl 'unused' is never used.",
        "'bind 127.0.0.1:1' in frontend 'g' : address is already bound by another line.",
        "'server b/s2' : same address and port as server 's1'",
        "backend 'empty' has no server.",
        "backend 'lost' is never used.",
    ] {
        assert!(found.iter().any(|line| line.contains(wanted)), "{wanted}: {found:#?}");
    }
    assert_eq!(found.len(), 5, "{found:#?}");
}

#[test]
fn names_and_addresses_used_indirectly_need_no_advice() {
    let found = advice(
        "frontend f\n bind 127.0.0.1:1 thread 1/1\n bind 127.0.0.1:1 thread 1/1\n bind 127.0.0.1:3,127.0.0.1:4\n \
         http-request track-sc0 src table counts\n use_backend %[path,map_str(/dev/null)]\n\
         backend counts\n stick-table type ip size 1k store gpc0\n\
         backend page\n stats enable\n\
         backend fixed\n http-request return status 200\n\
         defaults answers\n mode http\n timeout client 1s\n timeout connect 1s\n timeout server 1s\n \
         http-request return status 200\n\
         backend inherits from answers\n balance roundrobin\n\
         backend chosen\n server s1 127.0.0.1:7 sni str(a) ssl verify none\n server s2 127.0.0.1:7 sni str(b) ssl verify none\n",
    );
    assert!(found.is_empty(), "{found:#?}");
}

#[test]
fn backends_without_servers_have_the_outcome_of_their_mode() {
    for (mode, outcome) in
        [("http", "each request fails with status 503"), ("tcp", "each connection is closed")]
    {
        let text = format!(
            "defaults\n mode {mode}\n timeout client 1s\n timeout connect 1s\n timeout server 1s\n\
             frontend f\n bind 127.0.0.1:1\n default_backend empty\nbackend empty\n balance roundrobin\n"
        );
        let output = run(&["-dD", "-c", "--messages", "rich", "-f", "a.cfg"], &text);
        let messages = String::from_utf8_lossy(&output.stderr);
        assert!(messages.contains(&format!("`empty` has no server, so {outcome}")), "{messages}");
    }
}

#[test]
fn environment_has_the_sockets_and_log_formats() {
    let port = free_port();
    let text = configuration(port)
        .replace("frontend f\n", "frontend f\n  log-format \"${HAPROXY_KEYLOG_FC_LOG_FMT}\"\n");
    let weir = Weir::start_with(&text, &["-W", "-S", "./master"], &[port]);
    assert_eq!(weir.ask("show env HAPROXY_CLI"), "HAPROXY_CLI=unix@runtime\n\n");
    let formats = weir.ask("show env HAPROXY_KEYLOG_BC_LOG_FMT");
    let line = "SERVER_TRAFFIC_SECRET_0 %[ssl_bc_client_random,hex] %[ssl_bc_server_traffic_secret_0]\n";
    assert!(formats.contains(line), "{formats}");
    let of_master = ask(&weir.directory().join("master"), "show env HAPROXY_MASTER_CLI");
    assert_eq!(of_master, "HAPROXY_MASTER_CLI=unix@./master\n\n");
    assert_eq!(weir.ask("show env HAPROXY_MASTER_CLI"), "Variable not found\n\n");
}

#[test]
fn unreadable_files_are_reported() {
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

#[test]
fn immediate_flags_ignore_later_arguments() {
    for (arguments, expected) in [
        (&["-vq", "-f"][..], "3.5-dev5-weir-"),
        (&["-vqs"], "3.5\n"),
        (&["-vqb", "--nonsense"], "3.5\n"),
        (&["-v", "--nonsense"], "weir "),
        (&["-vv", "-Z"], "weir "),
    ] {
        let output = run(arguments, "");
        let text = String::from_utf8_lossy(&output.stdout);
        assert!(output.status.success() && text.starts_with(expected), "{arguments:?}: {text}");
    }
    let output = run(&["-dL", "-V", "-c", "-f", "a.cfg"], &configuration(1));
    let text = String::from_utf8_lossy(&output.stdout);
    let own = std::fs::canonicalize(program()).expect("the program's path").display().to_string();
    let line = text.lines().find(|line| line.ends_with(&own)).unwrap_or_default();
    assert!(line.starts_with("0x") && line.contains("-0x") && line.contains(" (0x"), "{text}");
}

#[test]
fn messages_begin_with_version_and_path() {
    let alone = "a master CLI socket was defined, but master-worker mode (-W) is not enabled.\n";
    let cases: &[(&[&str], &str)] = &[
        (
            &["-c", "-C", "nowhere", "-f", "a.cfg"],
            "Could not change to directory nowhere : No such file or directory\n",
        ),
        (&["-c", "-S", "master", "-f", "a.cfg"], alone),
        (&["-x", "nowhere", "-db", "-f", "a.cfg"], "old process at nowhere: No such file or directory\n"),
        (&["-cc", "foo"], "Failed to evaluate condition: "),
    ];
    for (arguments, expected) in cases {
        let output = run(arguments, &configuration(1));
        let text = String::from_utf8_lossy(&output.stderr);
        let mut lines = text.lines().filter(|line| !line.contains(" : Automatically setting global.maxconn"));
        assert!(lines.next().is_some_and(|line| line.contains(" : haproxy version is 3.5-dev5")), "{text}");
        assert!(lines.next().is_some_and(|line| line.contains(" : path to executable is /")), "{text}");
        assert!(!output.status.success() && text.contains(expected), "{arguments:?}: {text}");
    }
}

#[test]
fn repeated_global_line_is_reported_but_passes_zero_warning() {
    let text = "global\n  maxconn 10\n  maxconn 20\n";
    let output = run(&["-c", "-dW", "-f", "a.cfg"], text);
    let told = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{told}");
    assert!(told.contains("[a.cfg:3] : 'maxconn' already specified. Continuing."), "{told}");
    assert!(!run(&["-c", "-dW", "-f", "a.cfg"], &format!("{text}.warning \"careful\"\n")).status.success());
}

#[test]
fn external_checks_may_be_allowed_by_a_flag() {
    let text = "global\n  external-check\ndefaults\n  timeout connect 1s\n  timeout server 1s\n\
                backend b\n  option external-check\n  external-check command /bin/true\n  server s 127.0.0.1:1 check\n";
    let warned = |arguments: &[&str]| {
        let output = run(arguments, text);
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8_lossy(&output.stderr).contains("insecure-fork-wanted")
    };
    assert!(warned(&["-c", "-f", "a.cfg"]));
    assert!(!warned(&["-c", "-dI", "-f", "a.cfg"]));
}

#[test]
fn configuration_dump_with_a_key_hides_private_data() {
    let text = "# a comment\nglobal\n  stats socket /run/x level admin\n  maxconn 10\nuserlist u\n  user joe insecure-password secret\n\
                defaults\n  mode http\n  timeout client 1s\n  timeout connect 1s\n  timeout server 1s\n\
                frontend f\n  bind 10.0.0.1:80 accept-proxy\n  bind :8123\n  acl x hdr(host) example.com\n  default_backend b\n\
                backend b\n  server s1 192.168.1.2:8080 check\n  option httpchk GET /secret\n";
    // The hashes are HAProxy's.
    let hidden = "global\n\tstats socket 97d424 [...]\n\tmaxconn 10\nuserlist ID(1a9b0b)\n\tuser ID(be79ca) [...]\n\
                  defaults\n\tmode http\n\ttimeout client 1s\n\ttimeout connect 1s\n\ttimeout server 1s\n\
                  frontend ID(8cfedc)\n\tbind IPV4(00fdaf):80 [...]\n\tbind :8123\n\tacl ID(a0960a) hdr(host) [...]\n\tdefault_backend ID(fc8ec3)\n\
                  backend ID(fc8ec3)\n\tserver ID(0a7bc4) IPV4(1018f3):8080 [...]\n\toption httpchk GET [...]\n";
    let output = run(&["-c", "-dC123", "-f", "a.cfg"], text);
    assert_eq!(
        String::from_utf8_lossy(&output.stdout),
        hidden,
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    let output = run(&["-c", "-dC", "-f", "a.cfg"], text);
    assert!(String::from_utf8_lossy(&output.stdout).contains("\tuser joe insecure-password secret\n"));
    let output = run(&["-c", "-dCkey", "-f", "a.cfg"], text);
    let message = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success() && message.contains("'-dC' needs a number, not 'key'"), "{message}");
}

/// Starts a daemon, with pipes for its messages: both end once the daemon has closed them.
fn daemon(directory: &Path, arguments: &[&str]) -> Output {
    Command::new(program()).args(arguments).current_dir(directory).output().expect("the program runs")
}

#[test]
fn daemon_returns_once_it_serves_and_reports_failures() {
    for mode in [&[][..], &["-W"]] {
        let directory = scratch("daemon");
        let port = free_port();
        std::fs::write(directory.join("a.cfg"), configuration(port)).expect("the directory takes files");
        let start = |pidfile| daemon(&directory, &[mode, &["-D", "-p", pidfile, "-f", "a.cfg"]].concat());
        let output = start("nowhere/pid");
        let text = String::from_utf8_lossy(&output.stderr);
        let expected = "Cannot create pidfile nowhere/pid: No such file or directory\n";
        assert!(output.status.code() == Some(1) && text.contains(expected), "{mode:?}: {text}");
        let output = start("pid");
        assert!(output.status.success(), "{mode:?}: {output:?}");
        // No wait is needed: it is serving.
        assert!(ask(&directory.join("runtime"), "show version").contains("3.5-dev5"));
        let pid = std::fs::read_to_string(directory.join("pid")).expect("the file of its number");
        let stopped = Command::new("kill").arg(pid.trim()).status();
        assert!(stopped.is_ok_and(|status| status.success()), "{pid}");
        assert!(eventually(|| !Path::new(&format!("/proc/{}", pid.trim())).exists() || is_dead(pid.trim())));
    }
}

/// Returns whether the process has ended, even if its parent has not reaped it.
fn is_dead(pid: &str) -> bool {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    status.lines().any(|line| line.starts_with("State:") && line.contains('Z'))
}

#[test]
fn setenv_takes_one_name_and_one_value() {
    for (line, expected) in [
        ("setenv", "'setenv' expects environment variable name."),
        ("setenv X", "'setenv' expects environment variable value for 'X'."),
        ("setenv X \"\"", "'setenv' expects environment variable value for 'X'."),
        ("presetenv X y z", "'presetenv' cannot handle unexpected argument 'z'."),
        ("setenv X=Y z", "'setenv' failed on variable 'X=Y' : Invalid argument."),
        ("unsetenv", "'unsetenv' expects at least one variable name."),
    ] {
        let output = run(&["-c", "-f", "a.cfg"], &format!("global\n  {line}\n"));
        let text = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.code() == Some(1) && text.contains(expected), "{line}: {text}");
    }
    let output = run(&["-c", "-f", "a.cfg"], "global\n  setenv X ^/a\\$\n  resetenv X\n.notice \"$X\"\n");
    let text = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && text.contains("'^/a\\$'"), "{text}");
}

#[test]
fn local_peer_name_is_exported_and_overridden_by_flag() {
    let text = "global\n  localpeer one\n.alert \"name=$HAPROXY_LOCALPEER\"\n";
    let file = ["-c", "-f", "a.cfg"];
    for (given, expected) in [(&[][..], "name=one"), (&["-L", "two"], "name=two")] {
        let arguments = [&file, given].concat();
        let output = run(&arguments, text);
        let messages = String::from_utf8_lossy(&output.stderr);
        assert!(messages.contains(expected), "{arguments:?}: {messages}");
    }
}

#[test]
fn converters_are_listed_as_haproxy_lists_them() {
    let output = run(&["-dKcnv", "-q", "-c", "-f", "a.cfg"], &configuration(free_port()));
    let text = String::from_utf8_lossy(&output.stdout);
    // The output type precedes the input type.
    for line in [
        "hex: str => bin",
        "hex2i: sint => str",
        "be2dec(string[,integer,integer]): str => bin",
        "jwt_verify(string,string): sint",
        "strcmp(string): sint => str",
        "crc32([integer]): sint => bin",
    ] {
        assert!(text.lines().any(|own| own.starts_with(line)), "{line} is not in\n{text}");
    }
    let names: Vec<&str> = text.lines().skip(1).filter_map(|line| line.split(['(', ':']).next()).collect();
    assert!(names.len() > 100 && names.is_sorted(), "{names:?}");
}

/// Each address is reported with the line that requests it, and the process does not start.
#[test]
fn unbindable_addresses_are_reported_with_their_lines() {
    let taken = std::net::TcpListener::bind("127.0.0.1:0").expect("a free port");
    let address = taken.local_addr().expect("it is bound");
    let text = format!(
        "global\n stats socket /nonexistent/runtime\ndefaults\n timeout client 1s\n timeout connect 1s\n timeout server 1s\n\
         frontend f\n bind {address}\nlisten l\n bind 127.0.0.1:{}\n bind {address}\n",
        free_port()
    );
    let output = run(&["-f", "a.cfg"], &text);
    let messages = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{messages}");
    let mut alerts = messages.lines().filter(|line| line.starts_with("[ALERT]"));
    let expected = [
        "Binding [a.cfg:2] for frontend GLOBAL: protocol unix_stream: cannot bind UNIX socket (No such file or directory) \
         [/nonexistent/runtime]."
            .to_owned(),
        format!(
            "Binding [a.cfg:8] for frontend f: protocol tcpv4: cannot bind socket (Address already in use) for [{address}]."
        ),
        format!(
            "Binding [a.cfg:11] for proxy l: protocol tcpv4: cannot bind socket (Address already in use) for [{address}]."
        ),
        "[haproxy.main()] Some protocols failed to start their listeners! Exiting.".to_owned(),
    ];
    for text in expected {
        assert!(
            alerts.next().is_some_and(|line| line.ends_with(&format!(" : {text}"))),
            "{text}\n{messages}"
        );
    }
    assert!(messages.contains(" : Automatically setting global.maxconn to "), "{messages}");
}

/// `-dW` makes warnings fatal: HAProxy's own tests run with it.
#[test]
fn lines_that_haproxy_accepts_silently_give_no_warnings() {
    let cases = [
        ("global\n profiling.tasks lock\n set-dumpable libs\n tune.buffers.limit 10\n noepoll\n", "", true),
        (
            "",
            "frontend f\n bind 127.0.0.1:1\n tcp-request connection set-var(txn.a) src\n http-request set-nice 5\n",
            true,
        ),
        (
            "",
            "backend b\n option httpchk\n http-check send meth GET\n option tcp-check\n server s 127.0.0.1:1 log-bufsize 1000\n",
            true,
        ),
        ("", "backend b\n mode spop\n filter trace\n server s mptcp@127.0.0.1:1\n", false),
        ("cache c\n total-max-size 4\n max-secondary-entries 5\n", "", true),
        ("ring r\n size 100\n maxlen 1200\n", "", true),
        ("userlist u\n user a password x\n", "", false),
    ];
    for (before, proxies, is_advice) in cases {
        let text = format!(
            "{before}defaults\n mode http\n timeout client 1s\n timeout connect 1s\n timeout server 1s\n{proxies}"
        );
        let output = run(&["-c", "-dW", "-f", "a.cfg"], &text);
        let messages = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{text}\n{messages}");
        assert_eq!(messages.contains("[WARNING]"), !is_advice, "{text}\n{messages}");
        let output = run(&["-c", "-dD", "-f", "a.cfg"], &text);
        let messages = String::from_utf8_lossy(&output.stderr);
        let advice =
            messages.lines().filter(|line| line.starts_with("[DIAG]") && line.contains("a.cfg")).count();
        assert!(!is_advice || advice > 0 || before.is_empty(), "{text}\n{messages}");
    }
    // HAProxy's own warnings remain warnings.
    let output = run(&["-c", "-dW", "-f", "a.cfg"], "frontend f\n bind 127.0.0.1:1\n");
    assert!(!output.status.success());
}

#[test]
fn diagnostic_mode_reports_keywords_without_effect() {
    let directory = scratch("silent");
    let cases = [("global", "tune.idletimer 1s"), ("defaults", "option http-no-delay")];
    for (section, line) in cases {
        let file = directory.join("one.cfg");
        std::fs::write(&file, format!("{section}\n  {line}\n")).expect("a file");
        let verdict = weir_tests::check(&file, &directory);
        assert!(verdict.accepted() && verdict.warnings().is_empty(), "{line}: {}", verdict.messages);
        let shown = Command::new(program()).args(["-c", "-dD", "-f"]).arg(&file).output();
        let shown = shown.expect("the program runs");
        let messages = String::from_utf8_lossy(&shown.stderr);
        assert!(messages.contains("has no effect"), "{line}: {messages}");
    }
}
