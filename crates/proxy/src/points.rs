//! Trace points that need no access to clients or requests, for lower-level modules: the end of sessions, server connections,
//! HTTP/2 frames, and queries to agents.
//!
//! A disabled trace point costs one comparison. Called by `client` and `server`; `exchange::trace::events` contains all other
//! trace points.

use std::fmt::Write;
use std::net::SocketAddr;

use runtime::trace::{self, Keys, TraceLevel, TraceSource, Verbosity, fcgi, h1, h2, h3, quic, session, spop};
use sample::Session;

/// Derives an identifying number from an object's address.
pub(crate) fn number<T>(of: &T) -> u64 {
    std::ptr::from_ref(of) as u64
}

pub(crate) fn of_session(session: &Session) -> Keys {
    Keys {
        session: session.id,
        connection: session.id,
        listener: number(&*session.listener),
        frontend: number(&*session.frontend),
        ..Keys::default()
    }
}

pub(crate) fn of_server(server: &state::Server, connection: u64) -> Keys {
    Keys { connection, server: number(server), ..Keys::default() }
}

/// Reports the end of a session, with the totals of its connection.
#[inline]
#[track_caller]
pub(crate) fn session_ends(session: &Session) {
    if trace::any() {
        ends(session);
    }
}

#[cold]
#[track_caller]
fn ends(session: &Session) {
    let detail = |verbosity: Verbosity, out: &mut String| {
        if verbosity.names_owner() {
            let (id, requests) = (session.id, session.requests.get());
            let _ = write!(out, "session={id:06x} frontend={} requests={requests}", session.frontend.name);
        }
    };
    let keys = of_session(session);
    let is_http = session.frontend.mode == state::Mode::Http;
    if is_http && session.http_major.get() == 1 && trace::is_on(TraceSource::H1) {
        trace::report(
            TraceSource::H1,
            h1::CONNECTION_END,
            TraceLevel::State,
            &keys,
            "connection closed",
            &detail,
        );
    }
    if trace::is_on(TraceSource::Session) {
        trace::report(TraceSource::Session, session::END, TraceLevel::State, &keys, "session ended", &detail);
    }
}

/// A connection to a server is over.
#[inline]
#[track_caller]
pub(crate) fn server_connection_over(source: TraceSource, server: &state::Server) {
    if trace::is_on(source) {
        server_connection(source, server);
    }
}

#[cold]
#[track_caller]
fn server_connection(source: TraceSource, server: &state::Server) {
    let events = match source {
        TraceSource::H2 => h2::CONNECTION_END,
        TraceSource::H3 => h3::CONNECTION_END,
        TraceSource::Fcgi => fcgi::CONNECTION_END,
        TraceSource::Spop => spop::CONNECTION_END,
        TraceSource::H1 => h1::CONNECTION_END,
        // Sources that are not server protocols.
        TraceSource::Acme
        | TraceSource::Ssl
        | TraceSource::Quic
        | TraceSource::Qmux
        | TraceSource::Stream
        | TraceSource::Peers
        | TraceSource::Check
        | TraceSource::Rules
        | TraceSource::Session => return,
    };
    let keys = of_server(server, 0);
    trace::report(source, events, TraceLevel::State, &keys, "server connection closed", &|verbosity, out| {
        if verbosity.names_owner() {
            let _ = write!(out, "server={}", server.name);
        }
    });
}

/// Reports an event of a QUIC connection. `detail` appends further words.
#[inline]
#[track_caller]
pub(crate) fn of_quic(
    keys: &Keys,
    (events, level): (u64, TraceLevel),
    message: &str,
    detail: &dyn Fn(Verbosity, &mut String),
) {
    if trace::is_on(TraceSource::Quic) {
        trace::report(TraceSource::Quic, events, level, keys, message, detail);
    }
}

/// Reports an event of a QMux connection. `detail` appends further words.
#[inline]
#[track_caller]
pub(crate) fn of_qmux(
    keys: &Keys,
    (events, level): (u64, TraceLevel),
    message: &str,
    detail: &dyn Fn(Verbosity, &mut String),
) {
    if trace::is_on(TraceSource::Qmux) {
        trace::report(TraceSource::Qmux, events, level, keys, message, detail);
    }
}

/// Reports an event of a QUIC listener.
#[inline]
#[track_caller]
pub(crate) fn of_quic_listener(
    (listener, frontend): (&state::Listener, &state::Proxy),
    events: u64,
    message: &str,
    remote: SocketAddr,
) {
    if trace::is_on(TraceSource::Quic) {
        let keys = Keys { listener: number(listener), frontend: number(frontend), ..Keys::default() };
        let level = if events == quic::RESET { TraceLevel::Proto } else { TraceLevel::User };
        trace::report(TraceSource::Quic, events, level, &keys, message, &|_, out| {
            let _ = write!(out, "frontend={} src={remote}", frontend.name);
        });
    }
}

/// Reports the frames that were received and sent on a connection, as recorded by the connection's owner.
#[cold]
#[track_caller]
pub(crate) fn frames(keys: &Keys, frames: Vec<::h2::WatchedFrame>, owner: &dyn Fn(&mut String)) {
    for frame in frames {
        let way = if frame.is_sent { "made" } else { "received" };
        let message = format!("{way} a {} frame", frame.name());
        let keys = Keys { stream: frame.stream.into(), ..*keys };
        let events = h2::frame(frame.kind, frame.is_sent);
        trace::report(TraceSource::H2, events, TraceLevel::Proto, &keys, &message, &|verbosity, out| {
            let (id, flags, length) = (frame.stream, frame.flags, frame.length);
            let _ = write!(out, "id={id} flags={flags:#x} length={length}");
            if verbosity.names_owner() {
                out.push(' ');
                owner(out);
            }
        });
    }
}

/// Reports an event of an agent's connection, or of a query on it.
#[inline]
#[track_caller]
pub(crate) fn agent(
    server: &state::Server,
    (connection, stream): (u64, u64),
    (events, level): (u64, TraceLevel),
    message: &str,
) {
    if trace::is_on(TraceSource::Spop) {
        of_agent(server, (connection, stream), (events, level), message);
    }
}

#[cold]
#[track_caller]
fn of_agent(
    server: &state::Server,
    (connection, stream): (u64, u64),
    (events, level): (u64, TraceLevel),
    message: &str,
) {
    let keys = Keys { stream, ..of_server(server, connection) };
    trace::report(TraceSource::Spop, events, level, &keys, message, &|verbosity, out| {
        if verbosity.names_owner() {
            let _ = write!(out, "backend={} server={}", server.proxy, server.name);
            if stream > 0 {
                let _ = write!(out, " stream={stream}");
            }
        }
    });
}
