//! `option checkcache`: rejects a response that sets a cookie and may be cached, because a session could otherwise leak to
//! another user. Called by `serve::http` after the rules have run and before Weir inserts its own cookie.

use http::{Head, KnownName, Method};
use plan::Proxy;

use crate::answers::page;
use crate::client::Client;
use crate::evaluate;
use crate::exchange::cache::cacheability::{self, Cacheability};
use crate::exchange::{Exchange, Stop};
use crate::log::LogLine;

/// If the cookie of the response might be cached, replaces the response with a 502 and logs this.
pub(crate) fn check(client: &Client, x: &mut Exchange, backend: &Proxy) -> Result<(), Stop> {
    if !is_risky(x.txn.request.method_id(), &x.txn.response) {
        return Ok(());
    }
    evaluate::count_denied_response(client, x, backend);
    let server = x.txn.server.as_ref().map_or("<NOSRV>", |server| &server.name);
    let name = &backend.state.name;
    let text = format!("Blocking cacheable cookie in response from instance {name}, server {server}.");
    const ALERT: u8 = 1;
    let line = LogLine::own(ALERT, &backend.log_tag, text.as_bytes());
    let worker = &client.worker;
    worker.outbox.borrow_mut().send_all(&worker.shared, &backend.loggers, &line);
    x.txn.termination.set(sample::Cause::Proxy, sample::Phase::Headers);
    page::error(client, x, 502);
    Err(Stop::Reply)
}

/// Whether the response sets a cookie and a cache may store the response including the cookie.
fn is_risky(method: Method, response: &Head) -> bool {
    let may_keep = || cacheability::of(method, response);
    response.get_known(KnownName::SetCookie).is_some()
        && may_keep() == Cacheability { response: true, cookie: true }
}
