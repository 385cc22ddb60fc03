//! The start of a client's connection, before the first message: the NetScaler Client IP header or the PROXY header (or both)
//! from a proxy in front of Weir, and then the TLS handshake. Called by `session` between the connection rules and the session
//! rules.

use std::future::poll_fn;
use std::sync::Arc;
use std::task::{Context, Poll};

use net::{netscaler, proxy_protocol};
use plan::bind::Bind;
use runtime::timer;
use runtime::turns::Turn;
use sample::{ConnectionError, Endpoint, Tlv};
use state::Mode;
use tls::Reason;

use crate::client::{Client, ClientConnection};

/// The headers that rules expect before the first byte of a connection (`expect-proxy`, `expect-netscaler-cip`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Expected {
    pub(crate) proxy: bool,
    pub(crate) netscaler: bool,
}

/// A header to receive.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum HeaderKind {
    Proxy,
    Netscaler { magic: u32 },
}

/// Receives the headers that rules or the `bind` line require, and starts TLS. The addresses in the last header become those of
/// the session. Bytes after the headers stay in the connection's buffer.
///
/// # Errors
/// The reason to log if the connection fails (8.2.5).
pub(crate) async fn receive(
    connection: &mut ClientConnection,
    wanted: Expected,
) -> Result<(), ConnectionError> {
    let (accepts_proxy, magic, acceptor) = bind(connection)
        .map_or((false, None, None), |bind| (bind.accept_proxy, bind.netscaler_magic, bind.tls.clone()));
    let netscaler = (wanted.netscaler || magic.is_some())
        .then_some(HeaderKind::Netscaler { magic: magic.unwrap_or_default() });
    let proxy = (wanted.proxy || accepts_proxy).then_some(HeaderKind::Proxy);
    if netscaler.is_none() && proxy.is_none() && acceptor.is_none() {
        return Ok(());
    }
    let timeouts = &connection.frontend.timeouts;
    let allowed = timeouts.client_handshake.or(timeouts.client);
    connection.timer.set_after(timer::now_ms(), allowed);
    for kind in [netscaler, proxy].into_iter().flatten() {
        receive_one(connection, kind).await?;
    }
    match acceptor {
        Some(acceptor) => secure(connection, &acceptor).await,
        None => Ok(()),
    }
}

/// Performs the TLS handshake. Its details are kept for rules and logs even if it fails.
async fn secure(
    connection: &mut ClientConnection,
    acceptor: &Arc<tls::Acceptor>,
) -> Result<(), ConnectionError> {
    let variables = &connection.worker.shared.plan.variables;
    let keep = tls::Keep {
        session: variables.wants_tls_session(),
        finished: variables.wants_tls_finished(),
        ..tls::Keep::default()
    };
    let place = connection.tls_place.take();
    connection.side.begin_tls(acceptor, keep, place);
    // A flood of handshakes must not delay connections that are already being served.
    let mut turn = Turn::default();
    // Data on a TCP stream may not be safe to repeat, so early data is used only for HTTP.
    let early = connection.frontend.mode == Mode::Http;
    let outcome = poll_fn(|context: &mut Context<'_>| {
        if let Poll::Ready(outcome) =
            turn.poll(context, |context| connection.side.poll_handshake(context, early))
        {
            return Poll::Ready(outcome.map_err(Some));
        }
        connection.timer.poll_expired(context).map(|()| Err(None))
    })
    .await;
    let failure = outcome.err();
    if let Some(session) = connection.side.tls() {
        connection.session.set_tls(session.details().clone());
    }
    match failure {
        None => {
            if connection.session.tls().is_some_and(|details| !details.is_resumed) {
                let counters = connection.worker.shared.process.counters.mine();
                counters.client_key_rate.tick(timer::now_ms());
            }
            Ok(())
        }
        Some(None) => Err(ConnectionError::TLS_TIMEOUT),
        Some(Some(error)) => Err(ConnectionError(error.kind.facts().0)),
    }
}

/// Returns log text that is more specific than HAProxy's text for the kind of failure, if available: the cause as reported by
/// OpenSSL (unless the client detected the failure or left), and how to admit the client.
pub(crate) fn failure_text(details: &tls::Details) -> Option<String> {
    let failure = details.failure.filter(|error| error.kind == tls::FailureKind::Handshake)?;
    let (_, _, kind) = failure.kind.facts();
    let text = match failure.reason {
        Reason::Alert(_) | Reason::UnexpectedEof => kind.to_owned(),
        _ => failure.to_string(),
    };
    Some(match details.lacks {
        Some(lacks) => format!("{text} ({lacks})"),
        None => text,
    })
}

/// Whether the client left without sending anything. `option dontlognull` excludes such connections from the logs.
pub(crate) fn is_silent(why: ConnectionError) -> bool {
    let of_headers = [OF_PROXY, OF_NETSCALER];
    of_headers.iter().any(|failures| why == failures.empty || why == failures.abort)
        || [ConnectionError::TLS_EMPTY, ConnectionError::TLS_ABORT].contains(&why)
}

/// Returns the bind line that accepted the connection.
pub(crate) fn bind(connection: &Client) -> Option<&Bind> {
    let own = &connection.session.listener;
    connection.frontend.binds.iter().find(|bind| std::ptr::eq(&*bind.listener, &**own))
}

async fn receive_one(connection: &mut ClientConnection, kind: HeaderKind) -> Result<(), ConnectionError> {
    let failures = match kind {
        HeaderKind::Proxy => OF_PROXY,
        HeaderKind::Netscaler { .. } => OF_NETSCALER,
    };
    loop {
        if take(connection, kind)? {
            connection.side.release();
            return Ok(());
        }
        let read = poll_fn(|context: &mut Context<'_>| {
            if let Poll::Ready(read) = connection.poll_fill(context) {
                return Poll::Ready(read.map_err(|_| failures.abort));
            }
            connection.timer.poll_expired(context).map(|()| Err(failures.timeout))
        });
        let read = read.await;
        let ended = read == Ok(0) || read == Err(failures.abort);
        if ended && !connection.side.is_drained() {
            return Err(failures.truncated);
        }
        if read? == 0 {
            return Err(failures.empty);
        }
    }
}

/// Removes the header from the received bytes. Returns `false` if it is still incomplete.
fn take(connection: &mut ClientConnection, kind: HeaderKind) -> Result<bool, ConnectionError> {
    let filled = connection.side.received();
    match kind {
        HeaderKind::Proxy => {
            let Some(header) = proxy_protocol::parse(filled).map_err(of_proxy)? else { return Ok(false) };
            connection.side.consume_head(header.length);
            let session = &connection.session;
            session.received_proxy.set(true);
            if let Some((source, destination)) = header.addresses {
                session.set_source(Endpoint::Ip(source));
                session.set_destination(Endpoint::Ip(destination));
            }
            if !header.tlvs.is_empty() {
                session.set_tlvs(header.tlvs.into_iter().map(|(kind, value)| Tlv { kind, value }).collect());
            }
        }
        HeaderKind::Netscaler { magic } => {
            let Some(header) = netscaler::parse(filled, magic).map_err(of_netscaler)? else {
                return Ok(false);
            };
            connection.side.consume_head(header.length);
            connection.session.set_source(Endpoint::Ip(header.source));
            connection.session.set_destination(Endpoint::Ip(header.destination));
        }
    }
    Ok(true)
}

fn of_proxy(why: proxy_protocol::Invalid) -> ConnectionError {
    use proxy_protocol::Invalid;
    match why {
        Invalid::Signature => ConnectionError::PROXY_OTHER,
        Invalid::Family => ConnectionError::PROXY_PROTOCOL,
        Invalid::Line | Invalid::Command | Invalid::Length | Invalid::Checksum => {
            ConnectionError::PROXY_INVALID
        }
    }
}

fn of_netscaler(why: netscaler::Invalid) -> ConnectionError {
    match why {
        netscaler::Invalid::Magic => ConnectionError::NETSCALER_MAGIC,
        netscaler::Invalid::Protocol => ConnectionError::NETSCALER_PROTOCOL,
        netscaler::Invalid::Length => ConnectionError::NETSCALER_TRUNCATED,
    }
}

/// The errors for the ways in which a header can fail.
struct Failures {
    empty: ConnectionError,
    abort: ConnectionError,
    timeout: ConnectionError,
    truncated: ConnectionError,
}

const OF_PROXY: Failures = Failures {
    empty: ConnectionError::PROXY_EMPTY,
    abort: ConnectionError::PROXY_ABORT,
    timeout: ConnectionError::PROXY_TIMEOUT,
    truncated: ConnectionError::PROXY_TRUNCATED,
};

const OF_NETSCALER: Failures = Failures {
    empty: ConnectionError::NETSCALER_EMPTY,
    abort: ConnectionError::NETSCALER_ABORT,
    timeout: ConnectionError::NETSCALER_TIMEOUT,
    truncated: ConnectionError::NETSCALER_TRUNCATED,
};
