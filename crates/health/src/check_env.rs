//! The data visible to expressions and formats of a check: the backend, the server, received data, and variables of the scopes
//! `sess` and `check`, which live as long as one check.

use std::net::SocketAddr;
use std::sync::{Arc, OnceLock};

use base::clock::{WallTime, now_ms, now_us};
use http::Head;
use runtime::Local;
use sample::Slots;
use sample::expression::Expression;
use sample::format::Format;
use sample::value::{Type, Value};
use sample::{Accepted, Endpoint, Ends, Env, Session, Transaction};
use state::proxy::ProxySeed;
use state::{Listener, Mode, Process, Proxy};

use crate::Subject;

/// The facts of one check.
pub(crate) struct CheckEnv {
    process: Arc<Process>,
    session: Session,
    /// Boxed because it is large, and checks are idle most of the time.
    pub(crate) transaction: Box<Transaction>,
    vars: Slots,
    /// The trailers.
    pub(crate) trailers: Head,
    /// The data visible to expressions: raw bytes, or the body received so far.
    pub(crate) received: Vec<u8>,
}

/// Returns a placeholder for the frontend, because a check has none.
fn frontend() -> (Local<Proxy>, Local<Listener>) {
    static FRONTEND: OnceLock<(Arc<Proxy>, Arc<Listener>)> = OnceLock::new();
    let (proxy, listener) = FRONTEND.get_or_init(|| {
        let proxy = Proxy::new(ProxySeed {
            id: 0,
            name: "CHECKS-FE".into(),
            mode: Mode::Tcp,
            is_frontend: true,
            is_backend: false,
            maxconn: 0,
            session_limit: 0,
            disabled: false,
        });
        (Arc::new(proxy), Arc::new(Listener::new(0, "checks".into(), "".into(), 0)))
    });
    (Local::new(proxy.clone()), Local::new(listener.clone()))
}

impl CheckEnv {
    /// Appends to the received data, up to `limit` bytes.
    pub(crate) fn keep(&mut self, payload: &[u8], limit: usize) {
        let room = limit.saturating_sub(self.received.len());
        self.received.extend_from_slice(&payload[..payload.len().min(room)]);
    }

    /// Creates the facts at the start of a check.
    pub(crate) fn new(subject: &Subject, process: &Arc<Process>) -> Self {
        let transaction = Transaction {
            backend: Some(Local::new(subject.backend().state.clone())),
            server: Some(Local::new(subject.server().clone())),
            ..Transaction::default()
        };
        let mut facts = Self::of(process, transaction);
        if let Some(format) = &subject.backend().unique_id_format {
            let id = facts.render(format);
            facts.transaction.unique_id = facts.transaction.keep(&id);
        }
        facts
    }

    /// Creates the facts for the server in `transaction`.
    pub(crate) fn of(process: &Arc<Process>, transaction: Transaction) -> Self {
        let (frontend, listener) = frontend();
        let (now, wall) = (now_us(), WallTime::now());
        let session = Session::new(Accepted {
            ends: Ends::ABSENT,
            wall_us: wall.since_1970_us(),
            us: now,
            frontend,
            listener,
            id: 0,
        });
        Self {
            process: process.clone(),
            session,
            transaction: Box::new(transaction),
            vars: Slots::default(),
            trailers: Head::new(),
            received: Vec::new(),
        }
    }

    /// Records the connection's addresses and TLS details.
    pub(crate) fn connected(
        &mut self,
        ends: Option<(SocketAddr, SocketAddr)>,
        tls: Option<Arc<tls::Details>>,
    ) {
        self.transaction.server_tls = tls;
        self.transaction.server_ends = ends.map(|(own, peer)| (Endpoint::Ip(own), Endpoint::Ip(peer)));
    }

    /// Returns the view for evaluating expressions.
    pub(crate) fn env(&self) -> Env<'_> {
        Env {
            response_bytes: &self.received,
            check_vars: Some(&self.vars),
            ..Env::of(&self.process, &self.session, &self.transaction, now_ms())
        }
    }

    /// Renders a format.
    pub(crate) fn render(&self, format: &Format) -> Vec<u8> {
        let mut out = Vec::new();
        format.render(&self.env(), &mut out);
        out
    }

    /// Returns an expression's number; texts are parsed.
    pub(crate) fn number(&self, expression: &Expression) -> Option<i64> {
        let env = self.env();
        let value = expression.eval(&env)?;
        match value.cast(Type::Str)?.cast(Type::Int)? {
            Value::Int(number) => Some(number),
            _ => None,
        }
    }

    /// Returns an expression's port.
    pub(crate) fn port(&self, expression: &Expression) -> Option<u16> {
        self.number(expression).and_then(|port| u16::try_from(port).ok()).filter(|port| *port > 0)
    }
}
