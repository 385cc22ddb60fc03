//! The frontend that would receive the request, and the address to which the client connects.

use std::net::SocketAddr;

use plan::bind::BindAddress;
use plan::{Bind, Plan};

use crate::question::Question;

/// A frontend and the number of its `bind` line; `None` if it has none.
pub(crate) type Entry = (usize, Option<usize>);

/// Finds the frontend: the one that is named, or the only one that fits the URL. If none has the URL's port, only the use of TLS
/// counts.
///
/// # Errors
/// The frontend does not exist, or more than one fits.
pub(crate) fn find(plan: &Plan, question: &Question) -> Result<Entry, String> {
    let served = |index: &usize| !plan.proxies[*index].disabled && !plan.proxies[*index].is_hidden();
    if let Some(name) = &question.frontend {
        let index = plan.frontends.get(name.as_str()).copied();
        let index = index.ok_or_else(|| format!("There is no frontend `{name}`."))?;
        let bind = plan.proxies[index].binds.iter().position(|bind| fits(bind, question));
        let any = (!plan.proxies[index].binds.is_empty()).then_some(0);
        return Ok((index, bind.or(any)));
    }
    let mut all: Vec<usize> = plan.frontends.values().copied().filter(served).collect();
    all.sort_unstable();
    all.dedup();
    let of = |fits: fn(&Bind, &Question) -> bool| -> Vec<Entry> {
        let first = |index: &usize| {
            let bind = plan.proxies[*index].binds.iter().position(|bind| fits(bind, question))?;
            Some((*index, Some(bind)))
        };
        all.iter().filter_map(first).collect()
    };
    let mut found = of(fits);
    if found.is_empty() {
        // The port may be that of another device in front.
        found = of(is_as_secure);
    }
    match (&found[..], &all[..]) {
        ([only], _) => Ok(*only),
        ([], [only]) => Ok((*only, (!plan.proxies[*only].binds.is_empty()).then_some(0))),
        ([], []) => Err("The configuration has no frontend.".into()),
        (several, all) => {
            let indexes: Vec<usize> = several.iter().map(|(index, _)| *index).collect();
            let indexes = if indexes.is_empty() { all } else { &indexes };
            let names: Vec<&str> = indexes.iter().map(|index| &*plan.proxies[*index].state.name).collect();
            let what =
                if several.is_empty() { "No frontend fits the URL" } else { "Several frontends fit the URL" };
            Err(format!("{what}: begin with `frontend <name>`. Frontends: {}.", names.join(", ")))
        }
    }
}

/// Whether a client with the URL may connect to the address.
fn fits(bind: &Bind, question: &Question) -> bool {
    let port = match bind.address {
        BindAddress::Ip(address) | BindAddress::Quic(address) => Some(address.port()),
        _ => None,
    };
    let Some(is_tls) = question.is_tls else { return true };
    let wanted = question.port.unwrap_or(if is_tls { 443 } else { 80 });
    port == Some(wanted) && uses_tls(bind) == is_tls
}

/// Whether the address uses TLS if the URL does.
fn is_as_secure(bind: &Bind, question: &Question) -> bool {
    question.is_tls.is_none_or(|is_tls| uses_tls(bind) == is_tls)
}

/// Whether clients of the address use TLS.
pub(crate) fn uses_tls(bind: &Bind) -> bool {
    bind.tls.is_some() || bind.quic.is_some()
}

/// The address to which the client connects.
pub(crate) fn destination(bind: &Bind) -> Option<SocketAddr> {
    match bind.address {
        BindAddress::Ip(address) | BindAddress::Quic(address) => Some(address),
        _ => None,
    }
}
