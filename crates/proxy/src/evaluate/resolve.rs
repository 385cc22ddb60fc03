//! `do-resolve`: a DNS lookup requested by a rule. Called while a rule set runs.

use std::pin::pin;
use std::sync::Arc;

use base::address::Family;
use runtime::timer;
use sample::value::Value;
use sample::vars::Var;
use state::resolvers::ResolversSection;

use crate::client::{Client, Watch};
use crate::exchange::{Exchange, view};
use crate::fault::Fault;

/// The name to look up, and the variable that receives its address.
pub(super) struct ResolveQuestion {
    pub(super) section: Arc<ResolversSection>,
    pub(super) name: Box<str>,
    pub(super) prefer: Option<Family>,
    pub(super) var: Var,
}

/// Queries the name servers, and stores the result in the variable.
///
/// # Errors
/// The client left (if that matters), or an operator ended the stream.
pub(super) async fn resolve(
    client: &mut Client,
    x: &Exchange,
    question: ResolveQuestion,
    leaving: bool,
) -> Result<(), Fault> {
    let ResolveQuestion { section, name, prefer, var } = question;
    // The `resolvers` section has its own timeouts.
    client.timer.set(timer::NEVER);
    let watch = Watch { leaving, late: Fault::Internal };
    let mut found = pin!((client.worker.shared.services.resolve)(&section, name, prefer));
    let found = client.wait(watch, |_, context| found.as_mut().poll(context)).await?;
    if let Some(address) = found {
        view::with(client, x, |env| var.set(env, &Value::ip(address)));
    }
    Ok(())
}
