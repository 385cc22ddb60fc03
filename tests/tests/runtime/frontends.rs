//! Frontends that are paused, resumed and shut down, and state dumps on signals: display, messages and logs.

use std::net::{Ipv4Addr, TcpStream, UdpSocket};

use weir_tests::client::Client;
use weir_tests::{Weir, eventually, free_port};

struct Run {
    weir: Weir,
    port: u16,
    log: UdpSocket,
}

fn start() -> Run {
    let (port, other) = (free_port(), free_port());
    let log = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port");
    log.set_read_timeout(Some(weir_tests::PATIENCE)).expect("a socket takes a timeout");
    let text = format!(
        "global\n  stats socket runtime level admin\n  log 127.0.0.1:{} local0\n\
         defaults\n  mode tcp\n  log global\n  option dontlognull\n  timeout client 20s\n  timeout connect 10s\n  timeout server 20s\n\
         frontend fe\n  bind 127.0.0.1:{port}\n  default_backend be\nlisten li\n  bind 127.0.0.1:{other}\n  server s 127.0.0.1:1\n\
         backend be\n  server s 127.0.0.1:1 disabled\n",
        log.local_addr().expect("an address").port()
    );
    let weir = Weir::start(&text, &[other]);
    Run { weir, port, log }
}

impl Run {
    fn status(&self, proxy: &str) -> String {
        self.weir.stat(&format!("{proxy},FRONTEND"), "status")
    }

    /// Returns the lines logged up to one that contains `end`.
    fn logged(&self, end: &str) -> Vec<String> {
        let mut lines = Vec::new();
        let mut buffer = [0; 2000];
        loop {
            let length =
                self.log.recv(&mut buffer).unwrap_or_else(|error| panic!("{end}: {error}: {lines:#?}"));
            let line = String::from_utf8_lossy(&buffer[..length]).trim_end().to_owned();
            let (level, text) = (line.split('>').next().unwrap_or_default(), line.split("]: ").nth(1));
            lines.push(format!("{level}> {}", text.unwrap_or_default()));
            if line.contains(end) {
                return lines;
            }
        }
    }

    fn listens(&self) -> bool {
        TcpStream::connect((Ipv4Addr::LOCALHOST, self.port)).is_ok()
    }
}

#[test]
fn frontend_state_changes_are_shown_and_logged() {
    let run = start();
    assert!(eventually(|| run.listens()));
    for (command, status, said) in [
        ("disable frontend fe", "PAUSED", "Paused frontend fe."),
        ("enable frontend fe", "OPEN", "Resumed frontend fe."),
        ("shutdown frontend fe", "STOP", "Proxy fe stopped (cumulated conns: FE: "),
    ] {
        assert_eq!(run.weir.ask(command).trim(), "", "{command}");
        assert_eq!(run.status("fe"), status, "{command}");
        assert!(run.weir.says(said), "{command}: {}", run.weir.messages());
    }
    run.logged("Paused frontend fe.");
    assert_eq!(
        run.logged("Resumed frontend fe.").last().map(String::as_str),
        Some("<132> Resumed frontend fe.")
    );
    let last = run.logged("Proxy fe stopped").pop().unwrap_or_default();
    assert!(last.starts_with("<132> Proxy fe stopped (cumulated conns: FE: "), "{last}");
    assert!(eventually(|| !run.listens()));
    assert_eq!(run.weir.ask("shutdown frontend fe").trim(), "Frontend was already shut down.");
    // A reported stop is not reported again when the process stops.
    run.weir.signal("USR1");
    run.logged("Proxy be stopped (cumulated conns: FE: 0, BE: ");
    let all = run.weir.messages();
    assert_eq!(all.matches("Proxy fe stopped").count(), 1, "{all}");
    assert_eq!(all.matches("Proxy li stopped").count(), 1, "{all}");
}

#[test]
fn shut_down_frontend_closes_with_the_next_response() {
    let (port, other) = (free_port(), free_port());
    let text = format!(
        "global\n  stats socket runtime level admin\n\
         defaults\n  mode http\n  timeout client 20s\n  timeout connect 10s\n  timeout server 20s\n\
         frontend fe\n  bind 127.0.0.1:{port}\n  http-request return status 200\nfrontend g\n  bind 127.0.0.1:{other}\n"
    );
    let weir = Weir::start(&text, &[port, other]);
    let mut client = Client::connect(port);
    let mut get = || client.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n").response().expect("an answer");
    assert_eq!(get().header("connection"), None);
    weir.ask("shutdown frontend fe");
    assert_eq!(get().header("connection"), Some("close"));
    assert_eq!(client.read_to_end(), b"");
}

#[test]
fn effects_of_signals_on_frontends_are_logged() {
    let run = start();
    run.weir.signal("TTOU");
    run.logged("Paused frontend li.");
    assert!(eventually(|| run.status("li") == "PAUSED"));
    run.weir.signal("TTIN");
    run.logged("Resumed frontend li.");
    assert!(eventually(|| run.status("li") == "OPEN"));
}

#[test]
fn state_dumps_reach_the_logs_of_each_proxy() {
    let run = start();
    run.weir.signal("HUP");
    let tail = "Conn: act(FE+BE): 0+0, 0 pend (0 unass), tot(FE+BE): ";
    let all = run.logged(&format!("Proxy be has no server available ! {tail}0+0."));
    for wanted in [
        "<133> SIGHUP received, dumping servers states for proxy fe.",
        "<133> SIGHUP received, dumping servers states for proxy li.",
        // Waiting for the port to open makes a connection to it, and may be retrying.
        "<133> SIGHUP: Server li/s is UP. Conn: ",
        "<133> SIGHUP: Server be/s is DOWN. Conn: 0 act, 0 pend, 0 tot.",
    ] {
        assert!(all.iter().any(|line| line.starts_with(wanted)), "{wanted}: {all:#?}");
    }
    assert!(run.weir.says("SIGHUP received, dumping servers states."));
}
