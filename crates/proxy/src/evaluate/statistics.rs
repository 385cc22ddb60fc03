//! `stats uri`: access to the page, and its parameters.

use plan::Proxy;
use sample::{Cause, Phase};

use super::hold::hold_body;
use crate::answers::{page, service};
use crate::client::Client;
use crate::exchange::view::{self, holds};
use crate::exchange::{Exchange, Stop};
use crate::message::wanted::BodyWait;
use crate::shared::ServiceRequest;

/// Serves the page of `stats uri`, after the page's own rules have run.
pub(super) async fn statistics(client: &mut Client, x: &mut Exchange, proxy: &Proxy) -> Result<(), Stop> {
    let Some(settings) = proxy.stats.clone() else { return Ok(()) };
    let method = x.txn.request.method_id();
    if !matches!(method, http::Method::Get | http::Method::Head | http::Method::Post)
        || !x.txn.request.plain_target().starts_with(&settings.uri)
    {
        return Ok(());
    }
    let accepted = super::of_http(client, x, proxy, &settings.rules).await?;
    if !accepted && !settings.users.is_empty() && !is_user(x, &settings.users) {
        page::error(client, x, 401);
        rules::challenge(401, &settings.realm, &mut x.txn.response);
        x.txn.termination.set(Cause::Local, Phase::Request);
        return Err(Stop::Reply);
    }
    if method == http::Method::Post {
        hold_body(client, x, proxy, BodyWait::ALL, None).await?;
    }
    let admin =
        view::with(client, x, |env| settings.admin.iter().any(|condition| holds(Some(condition), env)));
    let is_whole = method != http::Method::Post || !x.has_body() || x.request_body.is_complete;
    let request = ServiceRequest {
        accept: Vec::new(),
        method: x.txn.request.method(),
        target: x.txn.request.plain_target(),
        body: is_whole.then_some(&*x.request_body.seen),
        admin,
    };
    let reply = (client.worker.shared.services.statistics)(proxy, &settings, &request);
    Err(service::answer(x, reply, "<STATS>").await)
}

/// Whether the request carries the name and password of one of `users` (`stats auth`).
fn is_user(x: &Exchange, users: &[sample::auth::NameAndPassword]) -> bool {
    let header = x.txn.request.get_known(http::KnownName::Authorization);
    header.and_then(sample::auth::basic).is_some_and(|(name, password)| {
        users.iter().any(|(user, secret)| **user == *name && **secret == *password)
    })
}
