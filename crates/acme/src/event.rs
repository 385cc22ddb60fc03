//! Events on the ring `dpapi`, in the format read by tools that set DNS records.

use std::fmt::Write;

use base::clock::{Date, WallTime};
use plan::acme::{AcmeOrder, Challenge};
use state::events::Record;

use crate::engine::ToMeet;

/// Formats an event as a line of a timed ring.
fn event(text: &str) -> String {
    let now = WallTime::now();
    let mut out = "<0>".to_owned();
    // Writing to a string does not fail.
    let _ = Date::local(now.seconds).write_iso(Some(now.micros()), &mut out);
    let _ = writeln!(out, " acme {text}");
    out
}

/// A request to set a DNS record: its description, then the authorization as received from the authority.
pub(crate) fn deploy(order: &AcmeOrder, thumbprint: &str, meet: &ToMeet, record: &str) -> String {
    let section = &order.section;
    let mut text = format!("deploy {} thumbprint {thumbprint}\n", order.certificate);
    for (name, value) in [("provider-name", &section.provider), ("acme-vars", &section.vars)] {
        if let Some(value) = value {
            let _ = writeln!(text, "{name} {}", quoted(value));
        }
    }
    let kind = if section.challenge == Challenge::Dns { "dns-01" } else { "dns-persist-01" };
    let _ = write!(text, "{kind}-record {}\n{}", quoted(record), String::from_utf8_lossy(&meet.body));
    event(&text)
}

/// The record to set, for subscribers.
pub(crate) fn record(order: &AcmeOrder, thumbprint: &str, meet: &ToMeet, record: &str) -> Record {
    let section = &order.section;
    Record {
        domain: (*meet.name).into(),
        thumbprint: thumbprint.into(),
        text: record.into(),
        provider: section.provider.clone(),
        vars: section.vars.clone(),
    }
}

/// Announces a new certificate.
pub(crate) fn new_certificate(order: &AcmeOrder) -> String {
    event(&format!("newcert {}", order.certificate))
}

fn quoted(text: &str) -> String {
    let mut out = "\"".to_owned();
    for one in text.chars() {
        if matches!(one, '"' | '\\') {
            out.push('\\');
        }
        out.push(one);
    }
    out.push('"');
    out
}
