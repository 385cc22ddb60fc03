//! Access levels of runtime socket commands: every command at every level.

use std::path::Path;

use weir_tests::{Weir, ask, free_port};

const LEVELS: [&str; 3] = ["user", "operator", "admin"];

/// The lowest level for a command, and how it is invoked.
const COMMANDS: &[(&str, &[&str])] = &[
    (
        "user",
        &[
            "debug dev hash x",
            "dump stats-file",
            "echo x",
            "get weight b/s",
            "help",
            "prompt n",
            "quit",
            "set anon off",
            "set anon on 5",
            "set severity-output none",
            "set timeout cli 5",
            "show anon",
            "show backend",
            "show cache disk",
            "show cli level",
            "show cli sockets",
            "show default-server",
            "show defaults",
            "show dev",
            "show discovery",
            "show events",
            "show hedge",
            "show info",
            "show mirror",
            "show opentelemetry",
            "show outliers",
            "show peers",
            "show pools",
            "show resolvers",
            "show retry-budget",
            "show schema json",
            "show servers conn",
            "show servers state",
            "show ssl providers",
            "show ssl sni",
            "show stat",
            "show table",
            "show tasks",
            "show threads",
            "show trace",
            "show version",
            "user",
        ],
    ),
    (
        "operator",
        &[
            "clear counters",
            "clear table b",
            "explain frontend f GET /",
            "debug counters all",
            "get var proc.x",
            "operator",
            "refresh discovery",
            "set table b key k",
            "show activity",
            "show env",
            "show errors",
            "show events stderr",
            "show fd",
            "show libs",
            "show sess",
            "show sess all",
            "show ssl ca-file",
            "show ssl cert",
            "show ssl crl-file",
            "show ssl jwt",
            "show startup-logs",
            "show trace x",
            "trace",
            "trace 0",
        ],
    ),
    (
        "admin",
        &[
            "abort ssl ca-file x",
            "abort ssl cert x",
            "abort ssl crl-file x",
            "acme challenge_ready x domain y",
            "acme renew x",
            "acme status",
            "add acl /nowhere y",
            "add backend x",
            "add map /nowhere k v",
            "add server b/s x",
            "add ssl ca-file x",
            "add ssl crt-list x y",
            "add ssl jwt x",
            "clear acl /nowhere",
            "clear cache x",
            "clear counters all",
            "clear counters server b/s",
            "clear map /nowhere",
            "commit acl @1 /nowhere",
            "commit map @1 /nowhere",
            "commit ssl ca-file x",
            "commit ssl cert x",
            "commit ssl crl-file x",
            "del acl /nowhere x",
            "del backend x",
            "del map /nowhere x",
            "del server b/s",
            "del ssl ca-file x",
            "del ssl cert x",
            "del ssl crl-file x",
            "del ssl crt-list x y",
            "del ssl jwt x",
            "disable agent b/s",
            "disable dynamic-cookie backend b",
            "disable frontend f",
            "disable health b/s",
            "disable server b/s",
            "dump ssl cert x",
            "enable agent b/s",
            "enable dynamic-cookie backend b",
            "enable frontend f",
            "enable health b/s",
            "enable server b/s",
            "experimental-mode",
            "expert-mode",
            "get acl /nowhere x",
            "get map /nowhere x",
            "new ssl ca-file x",
            "new ssl cert x",
            "new ssl crl-file x",
            "prepare acl /nowhere",
            "prepare map /nowhere",
            "publish backend b",
            "reload dry-run",
            "save config /nowhere/at/all",
            "set anon global-key 1",
            "set dynamic-cookie-key backend b k",
            "set map /nowhere x y",
            "set maxconn frontend f 10",
            "set maxconn global 10",
            "set maxconn server b/s 10",
            "set profiling tasks off",
            "set rate-limit connections global 0",
            "set server b/s weight 1",
            "set ssl ca-file x y",
            "set ssl cert x y",
            "set ssl crl-file x y",
            "set ssl ocsp-response x",
            "set ssl tls-key x y",
            "set weight b/s 1",
            "show acl",
            "show acl /nowhere",
            "show cache",
            "show config",
            "show map",
            "show map /nowhere",
            "show profiling",
            "show ssl crt-list",
            "show ssl ocsp-response",
            "show ssl ocsp-updates",
            "show tls-keys",
            "shutdown frontend g",
            "shutdown session 0x1",
            "shutdown sessions server b/s",
            "unpublish backend b",
            "update ssl ocsp-response x",
            "wait 1",
        ],
    ),
];

/// Commands of builds that the reference lacks here.
const OTHERS: [&str; 1] = ["show quic"];

fn start() -> Weir {
    let (port, second) = (free_port(), free_port());
    let sockets: String =
        LEVELS.iter().map(|level| format!("  stats socket {level} level {level}\n")).collect();
    let text = format!(
        "global\n{sockets}defaults\n  mode http\n  timeout client 20s\n  timeout connect 10s\n  timeout server 20s\n\
         frontend f\n  bind 127.0.0.1:{port}\n  default_backend b\nfrontend g\n  bind 127.0.0.1:{second}\n\
         backend b\n  server s 127.0.0.1:1\n",
    );
    Weir::start(&text, &[port, second])
}

fn denied(directory: &Path, level: &str, command: &str) -> bool {
    ask(&directory.join(level), command).contains("Permission denied")
}

#[test]
fn commands_are_refused_below_their_level() {
    let weir = start();
    let mut wrong = Vec::new();
    for (lowest, commands) in COMMANDS {
        let lowest = LEVELS.iter().position(|level| level == lowest);
        for command in *commands {
            for (rank, level) in LEVELS.iter().enumerate() {
                if denied(weir.directory(), level, command) != (Some(rank) < lowest) {
                    wrong.push(format!("{level}: {command}"));
                }
            }
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

#[test]
fn help_lists_known_commands_at_every_level() {
    let weir = start();
    let lists = LEVELS.map(|level| ask(&weir.directory().join(level), "help"));
    assert!(lists.iter().all(|list| *list == lists[0]));
    let rows: Vec<&str> = COMMANDS.iter().flat_map(|(_, commands)| commands.iter().copied()).collect();
    for line in lists[0].lines().skip(1).filter(|line| !line.is_empty()) {
        let call = line.split(" : ").next().unwrap_or_default().split(": ").next().unwrap_or_default();
        let words: Vec<&str> =
            call.split_whitespace().take_while(|word| !word.starts_with(['<', '[', '@', '{', '('])).collect();
        let words = words.join(" ");
        let known = rows.iter().any(|row| *row == words || row.starts_with(&format!("{words} ")));
        assert!(known || OTHERS.contains(&words.as_str()), "{words}");
    }
}

#[test]
fn missing_arguments_are_reported_in_order() {
    let weir = start();
    let say = |level: &str, command: &str| ask(&weir.directory().join(level), command);
    for level in LEVELS {
        for (command, wanted) in [
            ("set var proc.x str(a)", "This command is restricted to experimental mode only."),
            ("debug dev delay 1", "This command is restricted to expert mode only."),
        ] {
            assert_eq!(say(level, command).trim(), wanted, "{level}");
        }
    }
    let lowered = say("admin", "experimental-mode on; expert-mode on; operator; debug dev delay 1; show map");
    assert!(
        lowered.contains("restricted to expert mode") && lowered.contains("Permission denied"),
        "{lowered}"
    );
}
