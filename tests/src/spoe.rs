//! SPOE engines (`filter spoe`) for tests: configurations, and the messages that agents received.

use std::path::Path;
use std::sync::{Arc, Mutex};

use crate::agent::Notified;
use crate::client::Response;
use crate::versions::TIMEOUTS;
use crate::{Origin, Scratch, Weir, free_port};

/// A message of each event.
pub const EVENTS: &str = "
spoe-message client
  args ip=src true=bool(true) no=bool(false) five=int(5) neg=int(-3) abc=str(abc) raw=bin(00ff) v6=ipv6(::1) none=var(txn.nothing) str(bare)
  event on-client-session
spoe-message ftcp
  event on-frontend-tcp-request
spoe-message btcp
  event on-backend-tcp-request
spoe-message fhttp
  args path=path method=method
  event on-frontend-http-request
spoe-message bhttp
  event on-backend-http-request
spoe-message server
  event on-server-session
spoe-message tcpres
  event on-tcp-response
spoe-message httpres
  args status=status
  event on-http-response
";

/// The names of all messages, for an agent.
pub const ALL_EVENTS: &str = "messages client ftcp btcp fhttp bhttp server tcpres httpres";

/// Lines of an agent section that records errors.
pub const LINES: &str = "messages fhttp\n timeout processing 10s\n option set-on-error err";

/// Adds the results to the response.
pub const FRONT: &str = "http-response set-header x-got \"%[var(txn.p.foo)] %[var(txn.p.err)]\"";

/// Creates a file with an engine and these lines for its agent, followed by more sections.
pub fn engine(lines: &str, sections: &str) -> Scratch {
    let text = format!("spoe-agent ag\n use-backend agents\n option var-prefix p\n{lines}\n{sections}\n");
    Scratch::holding("engine.conf", text)
}

/// A configuration with an engine in its frontend and an origin that answers `ok`.
pub struct Setting {
    /// Lines of the frontend.
    pub front: String,
    /// Lines of the backend.
    pub back: String,
    /// The server of the agents' backend, and additional lines.
    pub agents: String,
    /// Lines of the global section.
    pub global: String,
}

impl Setting {
    /// Returns a configuration with the engine in that file, lines of the frontend, and the port of an agent.
    pub fn new(engine: &Path, front: &str, agent: u16) -> Setting {
        Setting {
            front: format!("filter spoe config {}\n {front}", engine.display()),
            back: String::new(),
            agents: format!("server a 127.0.0.1:{agent}"),
            global: String::new(),
        }
    }

    /// Returns the text of the configuration, with its port and that of the origin.
    pub fn text(&self, port: u16, origin: u16) -> String {
        let Setting { front, back, agents, global } = self;
        format!(
            "global\n nbthread 1\n stats socket runtime level admin\n {global}\n{TIMEOUTS}frontend f\n bind 127.0.0.1:{port}\n {front}\n \
             default_backend b\nbackend b\n {back}\n server s 127.0.0.1:{origin}\nbackend agents\n mode spop\n {agents}\n"
        )
    }

    /// Starts the program in front of an origin that answers `ok`.
    pub fn run(&self) -> (Running, u16) {
        self.start(Origin::text("ok"))
    }

    /// Starts the program in front of this origin.
    pub fn start(&self, origin: Origin) -> (Running, u16) {
        let port = free_port();
        // A connection to the port would start a stream, so the runtime socket is used to detect the start.
        let weir = Weir::start(&self.text(port, origin.port()), &[]);
        assert!(!weir.ask("show info").is_empty(), "{}", weir.messages());
        (Running { weir, _origin: origin }, port)
    }
}

/// Starts a program with these lines before the server of the agents' backend and in its global section.
pub fn with_rules(global: &str, rules: &str, agent: &Origin) -> (Running, u16) {
    let file = engine(LINES, EVENTS);
    let mut setting = Setting::new(&file, FRONT, agent.port());
    setting.global = global.to_owned();
    setting.agents.insert_str(0, &format!("{rules}\n "));
    setting.run()
}

/// Returns the value of a process variable, or an empty string.
pub fn variable(weir: &Weir, name: &str) -> String {
    let told = weir.ask(&format!("get var proc.{name}"));
    told.split_once("value=<").and_then(|(_, rest)| rest.rsplit_once('>')).map_or("", |(it, _)| it).to_owned()
}

/// A program and its origin.
pub struct Running {
    weir: Weir,
    _origin: Origin,
}

impl std::ops::Deref for Running {
    type Target = Weir;

    fn deref(&self) -> &Weir {
        &self.weir
    }
}

/// The NOTIFY frames that agents received.
#[derive(Clone, Default)]
pub struct Told(Arc<Mutex<Vec<Notified>>>);

impl Told {
    /// Adds a frame.
    pub fn add(&self, told: &Notified) {
        self.0.lock().expect("no test failed in it").push(told.clone());
    }

    /// Returns the frames since the last call.
    pub fn take(&self) -> Vec<Notified> {
        std::mem::take(&mut self.0.lock().expect("no test failed in it"))
    }

    /// Returns the message names of each frame since the last call.
    pub fn names(&self) -> Vec<String> {
        self.take().iter().map(|told| told.names().join("+")).collect()
    }
}

/// Returns a field of the response, or `-`.
pub fn shown(response: Option<Response>, name: &str) -> String {
    response.expect("a response").header(name).unwrap_or("-").to_owned()
}
