//! `do-resolve`: the address of a name, asked for by a rule. Called by whoever runs a rule set.

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

/// Whose address is wanted, and where it goes.
pub(super) struct ResolveQuestion {
    pub(super) section: Arc<ResolversSection>,
    pub(super) name: Box<str>,
    pub(super) prefer: Option<Family>,
    pub(super) var: Var,
}

/// Asks the name servers, and puts what they say into the variable.
///
/// # Errors
/// The client left where that matters, or an operator ended the stream.
pub(super) async fn resolve(
    client: &mut Client,
    x: &Exchange,
    question: ResolveQuestion,
    leaving: bool,
) -> Result<(), Fault> {
    let ResolveQuestion { section, name, prefer, var } = question;
    // How long name servers are asked is their section's matter.
    client.timer.set(timer::NEVER);
    let watch = Watch { leaving, late: Fault::Internal };
    let mut found = pin!((client.worker.shared.services.resolve)(&section, name, prefer));
    let found = client.wait(watch, |_, context| found.as_mut().poll(context)).await?;
    if let Some(address) = found {
        view::with(client, x, |env| var.set(env, &Value::ip(address)));
    }
    Ok(())
}
