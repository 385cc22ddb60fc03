//! The message to which a rule set applies. Used by the driver and by actions.

use plan::Proxy;

use crate::client::Client;
use crate::exchange::{Exchange, Stop};
use crate::message::inspect;
use crate::server::Upstream;

/// The message to which a rule set applies.
pub(super) enum RuleContext<'a> {
    /// A connection before its first byte.
    Connection,
    /// An HTTP request, for rules of this proxy.
    Request(&'a Proxy),
    /// A server's HTTP response, for rules of this proxy.
    Response(&'a Proxy, &'a mut Upstream),
    /// An HTTP response, for `tcp-response content` rules. They may be evaluated again until this instant.
    ResponseContent { proxy: &'a Proxy, upstream: &'a mut Upstream, until: u64 },
    /// A cached response, for rules of this proxy.
    Cached(&'a Proxy),
    /// The response that is about to be sent to the client. `held` bytes of its body are in the buffer.
    Reply { held: usize },
    /// An HTTP request, for `tcp-request content` rules. They may be evaluated again until this instant.
    Content { proxy: &'a Proxy, until: u64 },
    /// The bytes that the client of a TCP stream has sent so far. The rules may be evaluated again until this instant, or until
    /// no more bytes can arrive.
    Stream { proxy: &'a Proxy, until: u64, complete: bool },
    /// The bytes that the server of a TCP stream has sent so far.
    Answer { proxy: &'a Proxy, upstream: &'a mut Upstream, until: u64, complete: bool },
}

impl RuleContext<'_> {
    /// Whether the message is a response.
    pub(super) fn is_response(&self) -> bool {
        match self {
            Self::Response(..)
            | Self::ResponseContent { .. }
            | Self::Cached(_)
            | Self::Reply { .. }
            | Self::Answer { .. } => true,
            Self::Connection | Self::Request(_) | Self::Content { .. } | Self::Stream { .. } => false,
        }
    }

    /// The proxy to which the rules belong, if that matters.
    pub(super) fn proxy(&self) -> Option<&Proxy> {
        match self {
            Self::Request(proxy)
            | Self::Content { proxy, .. }
            | Self::Response(proxy, _)
            | Self::Cached(proxy)
            | Self::ResponseContent { proxy, .. }
            | Self::Stream { proxy, .. }
            | Self::Answer { proxy, .. } => Some(proxy),
            Self::Connection | Self::Reply { .. } => None,
        }
    }
}

/// Waits until a TCP stream has received more bytes or can receive no more.
///
/// # Errors
/// An operator ended the stream.
pub(super) async fn wait_for_bytes(
    client: &mut Client,
    x: &mut Exchange,
    about: &mut RuleContext<'_>,
) -> Result<(), Stop> {
    match about {
        RuleContext::Stream { until, complete, .. } => {
            *complete = !inspect::more_of_request(client, x, *until).await?;
        }
        RuleContext::Answer { proxy, upstream, until, complete } => {
            *complete = !inspect::more(client, x, proxy, upstream, *until).await?;
        }
        _ => {}
    }
    Ok(())
}

/// Returns the maximum length of the head after rewriting: the buffer minus the held body.
pub(super) fn longest_head(client: &Client, x: &Exchange, about: &RuleContext<'_>) -> usize {
    let held = match about {
        RuleContext::Response(_, upstream) | RuleContext::ResponseContent { upstream, .. } => {
            upstream.received().len()
        }
        RuleContext::Reply { held } => *held,
        _ => client.side.received().len(),
    };
    let tune = &client.worker.shared.plan.global.tune;
    let head = if x.txn.has_response { &x.txn.response } else { &x.txn.request };
    (head.received_len() + tune.maxrewrite).max(tune.bufsize.saturating_sub(held))
}

/// Whether a rule that waits is interrupted when the client leaves, for rules in this context.
pub(super) fn watches(client: &Client, x: &Exchange, about: &RuleContext<'_>) -> bool {
    about.proxy().is_some_and(|proxy| x.aborts_on_close(client, proxy))
}
