//! E-mails about servers (manual, section 12.3 and 4.2 `email-alert`), delivered to a mail server.

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};

use weir_tests::{Weir, eventually, free_port, scratch};

/// Debian's `python3-aiosmtpd`: prints each e-mail with its envelope.
struct Server {
    child: Child,
    port: u16,
    printed: Arc<Mutex<String>>,
}

const SERVER: &str = "
import asyncio, sys
from aiosmtpd.smtp import SMTP
class Printer:
    async def handle_DATA(self, server, session, envelope):
        text = envelope.content.decode()
        print(session.host_name, envelope.mail_from, envelope.rcpt_tos, text.encode(), flush=True)
        return '250 OK'
async def main():
    server = await asyncio.get_running_loop().create_server(lambda: SMTP(Printer()), '127.0.0.1', 0)
    print(server.sockets[0].getsockname()[1], flush=True)
    await server.serve_forever()
asyncio.run(main())
";

impl Server {
    fn start() -> Self {
        let mut child = Command::new("/usr/bin/python3")
            .args(["-c", SERVER])
            .stdout(Stdio::piped())
            .spawn()
            .expect("python runs: `make tools` installs it");
        let mut lines = BufReader::new(child.stdout.take().expect("it is a pipe"));
        let mut port = String::new();
        lines.read_line(&mut port).expect("it is text");
        let port = port.trim().parse().expect("python3-aiosmtpd: `make tools` installs it");
        let printed = Arc::new(Mutex::new(String::new()));
        let all = printed.clone();
        std::thread::spawn(move || {
            for line in lines.lines().map_while(Result::ok) {
                let mut all = all.lock().expect("nobody panics with it");
                all.push_str(&line);
                all.push('\n');
            }
        });
        Self { child, port, printed }
    }

    fn has(&self, text: &str) -> bool {
        self.printed.lock().expect("nobody panics with it").contains(text)
    }

    /// Returns the subjects of all e-mails so far, each up to the first comma or full stop.
    fn subjects(&self) -> Vec<String> {
        let printed = self.printed.lock().expect("nobody panics with it");
        let subject = |line: &str| {
            let (_, subject) = line.split_once("Subject: [HAProxy Alert] ")?;
            subject.split(['.', ',', '\\']).next().map(str::to_owned)
        };
        printed.lines().filter_map(subject).collect()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Starts backend `b` with server `s`, on a port where nothing listens.
fn start(mailers: &str, alert: &str, server: &str) -> Weir {
    let (port, nobody) = (free_port(), free_port());
    let text = format!(
        "global\n  stats socket runtime level admin\ndefaults\n  mode http\n  timeout client 9s\n  timeout connect 9s\n  \
         timeout server 9s\nmailers m\n{mailers}backend b\n{alert}  email-alert mailers m\n  \
         email-alert from weir@a.test\n  email-alert to root\n  server s 127.0.0.1:{nobody} {server}\n\
         frontend f\n  bind 127.0.0.1:{port}\n  default_backend b\n"
    );
    Weir::start(&text, &[port])
}

#[test]
fn every_mailer_receives_server_alerts() {
    let (one, two) = (Server::start(), Server::start());
    let mailers = format!(
        "  mailer one 127.0.0.1:{}\n  mailer two 127.0.0.1:{}\n  timeout mail 50s\n",
        one.port, two.port
    );
    let weir = start(
        &mailers,
        "  email-alert level notice\n  email-alert myhostname proxy.test\n",
        "check inter 1h",
    );
    for server in [&one, &two] {
        assert!(eventually(|| server.subjects() == ["Server b/s is DOWN"]), "{:?}", server.subjects());
        assert!(server.has("proxy.test weir@a.test ['root'] b'From: weir@a.test\\r\\nTo: root\\r\\nDate: "));
        assert!(server.has(" in queue\\r\\n\\r\\nServer b/s is DOWN, reason: Layer4 connection problem"));
    }
    weir.ask("set server b/s health up");
    weir.ask("set server b/s state drain");
    // Actions of an operator only go to the log.
    weir.ask("set server b/s state maint");
    weir.ask("set server b/s state ready");
    weir.ask("set server b/s health down");
    let told =
        ["Server b/s is DOWN", "Server b/s is UP", "Server b/s enters drain state", "Server b/s is DOWN"];
    for server in [&one, &two] {
        assert!(eventually(|| server.subjects() == told), "{:?}", server.subjects());
    }
}

#[test]
fn level_selects_alerts() {
    let server = Server::start();
    let mailers = format!("  mailer one 127.0.0.1:{}\n", server.port);
    let checks = start(&mailers, "  option log-health-checks\n  email-alert level info\n", "check inter 1h");
    let told = ["Health check for server b/s failed", "Server b/s is DOWN"];
    assert!(eventually(|| server.subjects() == told), "{:?}", server.subjects());
    drop(checks);
    // No message has level emergency, and by default only those with at least level alert are sent.
    let silent = start(&mailers, "  email-alert level emerg\n", "check inter 1h");
    assert!(silent.says("backend 'b' has no server available!"));
    let alerts = start(&mailers, "", "");
    alerts.ask("set server b/s state drain");
    alerts.ask("set server b/s state ready");
    alerts.ask("set server b/s health down");
    let told = [&told[..], &["Server b/s is DOWN"]].concat();
    assert!(eventually(|| server.subjects() == told), "{:?}", server.subjects());
}

#[test]
fn added_backends_send_alerts_too() {
    let server = Server::start();
    let port = free_port();
    let text = format!(
        "global\n  stats socket runtime level admin\nmailers m\n  mailer one 127.0.0.1:{}\n\
         defaults base\n  mode http\n  balance roundrobin\n  timeout client 9s\n  timeout connect 9s\n  timeout server 9s\n  \
         email-alert mailers m\n  email-alert from weir@a.test\n  email-alert to root\n\
         defaults quiet\n  mode http\n  timeout client 9s\nfrontend f from quiet\n  bind 127.0.0.1:{port}\n",
        server.port
    );
    let weir = Weir::start(&text, &[port]);
    for command in [
        "add backend new from base",
        "add server new/s 127.0.0.1:1",
        "enable server new/s",
        "publish backend new",
        "set server new/s health down",
    ] {
        weir.ask(command);
    }
    assert!(
        eventually(|| server.subjects() == ["Server new/s is DOWN"]),
        "{:?} {}",
        server.subjects(),
        weir.messages()
    );
}

#[test]
fn failing_mail_server_is_reported() {
    let nobody = free_port();
    let weir = start(&format!("  mailer one 127.0.0.1:{nobody}\n"), "", "check inter 1h");
    let told = "Can't send email alert to one: Connection refused.";
    assert!(weir.says(told), "{}", weir.messages());
}

#[test]
fn missing_email_settings_are_configuration_errors() {
    let directory = scratch("emails");
    let file = directory.join("weir.cfg");
    let mailers = "mailers m\n  mailer one 127.0.0.1:25\n";
    let ignored = "'email-alert' will be ignored for backend 'b' (the presence any of 'email-alert from', \
                   'email-alert level' 'email-alert mailers', 'email-alert myhostname', or 'email-alert to' requires each of";
    for (mailers, alert, is_taken, told) in [
        (mailers, "email-alert from a", true, ignored),
        (mailers, "email-alert level info", true, ignored),
        (mailers, "email-alert mailers m\n  email-alert from a", true, ignored),
        (
            mailers,
            "email-alert mailers n\n  email-alert from a\n  email-alert to b",
            false,
            "Proxy 'b': unable to find mailers 'n'.",
        ),
        (
            mailers,
            "email-alert level severe",
            false,
            "[weir.cfg:10] : unknown log level 'severe' after 'level'",
        ),
        (mailers, "email-alert to a>b", false, "`a>b` cannot be sent to a mail server"),
        ("mailers m\n  mailer one\n", "", false, "'mailer' expects <name> and <addr>[:<port>] as argument"),
        ("mailers m\n  mailer one 127.0.0.1\n", "", false, "missing port number in '127.0.0.1'"),
        (
            "mailers m\n  mailer one unix@/x\n",
            "",
            false,
            "'mailer one' : TCP not supported for this address family.",
        ),
        ("mailers m\n  timeout mail\n", "", false, "'timeout mail' expects"),
        ("mailers m\n  timeout maul 1s\n", "", false, "'timeout' does not know 'maul'"),
        (
            "mailers m\nmailers m\n",
            "",
            false,
            "mailers section 'm' has the same name as another mailers section declared at",
        ),
    ] {
        let text = format!(
            "{mailers}defaults\n  timeout client 9s\n  timeout connect 9s\n  timeout server 9s\nbackend b\n  mode http\n  \
             server s 127.0.0.1:1\n  {alert}\n"
        );
        std::fs::write(&file, text).expect("the directory takes files");
        let output = Command::new(weir_tests::program())
            .args(["-c", "-f", "weir.cfg"])
            .current_dir(&directory)
            .output()
            .expect("the program runs");
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.success(), is_taken, "{alert}: {said}");
        assert!(said.replace('`', "'").contains(&told.replace('`', "'")), "{mailers}{alert}: {said}");
    }
}
