//! Sets challenges up and removes them: tokens in a map, certificates for TLS, and DNS records set by external tools.

use std::future::poll_fn;
use std::net::IpAddr;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use aws_lc_rs::digest::{SHA256, digest};
use base::clock::now_ms;
use plan::acme::{AcmeOrder, Challenge};
use runtime::timer;
use tls::challenges::{Challenges, name_of};
use tokio::task::spawn_blocking;

use crate::context::OrderContext;
use crate::engine::ToMeet;
use crate::jws::{AccountKey, base64url};
use crate::{dns, event};

/// How long to wait for a confirmation on the runtime socket.
const PATIENCE: Duration = Duration::from_secs(24 * 3600);

/// Keeps challenges set up. Dropping it removes them.
#[derive(Default)]
pub(crate) struct ChallengeGuard {
    tokens: Vec<(Arc<sample::pattern::List>, String)>,
    names: Vec<(Arc<Challenges>, String)>,
}

impl Drop for ChallengeGuard {
    fn drop(&mut self) {
        for (map, token) in &self.tokens {
            map.remove(token.as_bytes());
        }
        for (challenges, name) in &self.names {
            challenges.remove(name);
        }
    }
}

/// Sets up the challenges of an order, and waits until they are ready.
///
/// # Errors
/// The challenges cannot be set up.
pub(crate) async fn meet(
    desk: &Rc<OrderContext>,
    order: &AcmeOrder,
    key: &AccountKey,
    account: &str,
    all: &[ToMeet],
) -> Result<ChallengeGuard, String> {
    let mut met = ChallengeGuard::default();
    match order.section.challenge {
        Challenge::Http => {
            for (map, one) in order.section.map.iter().flat_map(|map| all.iter().map(move |one| (map, one))) {
                map.set_or_add(one.token.as_bytes(), key.thumbprint().as_bytes());
                met.tokens.push((map.clone(), one.token.clone()));
            }
        }
        Challenge::TlsAlpn => {
            for one in all {
                let (name, certificate) = certificate(one).await?;
                let challenges = desk.plan.tls.challenges();
                challenges.put(&name, &certificate)?;
                met.names.push((challenges.clone(), name));
            }
        }
        Challenge::Dns | Challenge::DnsPersist => by_dns(desk, order, key, account, all).await?,
    }
    Ok(met)
}

/// The certificate for a TLS challenge, and the name requested by clients.
async fn certificate(one: &ToMeet) -> Result<(String, tls::Certificate), String> {
    let address: Option<IpAddr> = if one.is_address { one.name.parse().ok() } else { None };
    let name = address.map_or_else(|| one.name.clone(), name_of);
    let (own, authorization) = (name.clone(), one.authorization.clone());
    let made = spawn_blocking(move || {
        let sum = digest(&SHA256, authorization.as_bytes());
        tls::keygen::validation(&own, address, sum.as_ref())
    });
    Ok((name, made.await.map_err(|error| error.to_string())??))
}

/// The name and the contents of a challenge's DNS record.
fn record(challenge: Challenge, one: &ToMeet, account: &str) -> (String, String) {
    if challenge == Challenge::Dns {
        let sum = base64url(digest(&SHA256, one.authorization.as_bytes()));
        return (format!("_acme-challenge.{}", one.name), sum);
    }
    let issuer = one.issuers.first().map_or("", String::as_str);
    (format!("_validation-persist.{}", one.name), format!("{issuer}; accounturi={account}"))
}

/// Requests DNS records, and waits for the configured condition.
async fn by_dns(
    desk: &Rc<OrderContext>,
    order: &AcmeOrder,
    key: &AccountKey,
    account: &str,
    all: &[ToMeet],
) -> Result<(), String> {
    let section = &order.section;
    let records: Vec<_> = all.iter().map(|one| record(section.challenge, one, account)).collect();
    let stays = section.challenge == Challenge::DnsPersist;
    // A persistent record may already exist.
    if stays && are_there(desk, &records, stays).await {
        return Ok(());
    }
    let ready = section.ready;
    if ready.cli {
        order.state.wait_for(all.iter().map(|one| Box::from(&*one.name)).collect());
    }
    for (one, (name, text)) in all.iter().zip(&records) {
        desk.write(&event::deploy(order, key.thumbprint(), one, text));
        state::events::ordered(&order.certificate, || {
            Some(event::record(order, key.thumbprint(), one, text))
        });
        let kind = section.challenge.name();
        let how = if ready.cli {
            let (certificate, domain) = (&order.certificate, &one.name);
            format!(
                " and use the \"acme challenge_ready {certificate} domain {domain}\" command over the CLI"
            )
        } else {
            String::new()
        };
        desk.log(order, 5, &format!("{kind} requires to set the \"{name}\" TXT record to \"{text}\"{how}"));
    }
    if ready.cli {
        let reporting = timer::timeout(PATIENCE, poll_fn(|context| order.state.poll_ready(context)));
        reporting.await.map_err(|_| "no command reported the challenges as ready.".to_owned())?;
    }
    if ready.delay {
        timer::sleep(section.dns_delay).await;
    }
    if !ready.dns {
        return Ok(());
    }
    let pause = section.dns_delay.max(Duration::from_secs(1));
    let end = now_ms() + u64::try_from(section.dns_timeout.as_millis()).unwrap_or(u64::MAX / 2);
    while !are_there(desk, &records, stays).await {
        if now_ms() + u64::try_from(pause.as_millis()).unwrap_or(u64::MAX / 2) > end {
            return Err("the TXT records were not found in time (`dns-timeout`).".to_owned());
        }
        timer::sleep(pause).await;
    }
    Ok(())
}

/// Whether DNS serves all challenge records. For persistent records, one match is enough.
async fn are_there(desk: &Rc<OrderContext>, records: &[(String, String)], stays: bool) -> bool {
    let sections = &desk.plan.resolvers;
    let Some(section) = sections.iter().find(|section| *section.state.name == *"default") else {
        return false;
    };
    for (name, text) in records {
        let found = dns::texts(section, name).await;
        if !found.iter().any(|own| stays || own == text.as_bytes()) {
            return false;
        }
    }
    true
}
