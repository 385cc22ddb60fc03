//! Certificates ordered from an authority: `acme status`, `acme renew` and `acme challenge_ready` (management manual, 9.3).

use std::fmt::Write;
use std::sync::Arc;

use base::clock::{Date, WallTime};
use state::acme::Order;
use tls::x509::CertificateFields;

use crate::invocation::{Call, CommandReply, error};

fn find(call: &Call<'_>, certificate: &str) -> Option<Arc<Order>> {
    let view = call.runtime.view();
    view.orders.iter().find(|order| *order.certificate == *certificate).cloned()
}

pub(crate) fn status(call: &mut Call<'_>) -> CommandReply {
    let view = call.runtime.view();
    let now = WallTime::now().seconds;
    let mut out = "# certificate\tsection\tstate\texpiration date (UTC)\texpires in\tscheduled date \
                   (UTC)\tscheduled in\n"
        .to_owned();
    for order in &view.orders {
        let shown = order.show();
        let until = view.tls.certificate(&order.certificate).and_then(|certificate| {
            Some(CertificateFields::parse(certificate.chain.first()?).ok()?.validity().1)
        });
        let state = match shown.scheduled {
            _ if shown.runs => "Running",
            Some(_) => "Scheduled",
            None => "Stopped",
        };
        let (name, section) = (&order.certificate, &order.section);
        let _ = write!(out, "{name}\t{section}\t{state}");
        for time in [until, shown.scheduled] {
            let _ = match time {
                Some(time) => write!(out, "\t{}\t{}", date(time), left(time - now)),
                None => write!(out, "\t-\t-"),
            };
        }
        out.push('\n');
    }
    CommandReply::Text(out)
}

/// Formats a date as `2026-11-23T10:22:12Z`.
fn date(seconds: i64) -> String {
    let Date { year, month, day, hour, minute, second, .. } = Date::utc(seconds);
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}Z")
}

/// Formats the time that is left as `89d 23h01m13s`; zeros for a time in the past.
fn left(seconds: i64) -> String {
    let seconds = seconds.max(0);
    let (days, hours, minutes) = (seconds / 86_400, seconds / 3600 % 24, seconds / 60 % 60);
    format!("{days}d {hours}h{minutes:02}m{:02}s", seconds % 60)
}

pub(crate) fn renew(call: &mut Call<'_>) -> CommandReply {
    let name = call.arg(0);
    if name.is_empty() {
        return error(": not enough parameters\n");
    }
    match find(call, name) {
        Some(order) if order.renew() => CommandReply::Done,
        Some(_) => {
            error(format!("Task already exists for '{name}' certificate.\nCan't start the ACME client.\n"))
        }
        None if call.runtime.view().tls.knows(name) => {
            error(format!("No ACME configuration found for file '{name}'.\nCan't start the ACME client.\n"))
        }
        None => error(format!("Can't find the certificate '{name}'.\n")),
    }
}

pub(crate) fn challenge_ready(call: &mut Call<'_>) -> CommandReply {
    let (name, domain) = (call.arg(0), call.arg(2));
    if name.is_empty() || call.arg(1) != "domain" || domain.is_empty() {
        return error("Not enough parameters: \"acme challenge_ready <certfile> domain <domain>\"\n");
    }
    match find(call, name).and_then(|order| order.challenge_ready(&domain.to_ascii_lowercase())) {
        Some(0) => CommandReply::Text(format!(
            "'{name}' challenges ready! All challenges ready, starting challenges validation!\n"
        )),
        Some(left) => CommandReply::Text(format!(
            "'{name}' challenge(s) ready! Remaining challenges to deploy: {left}\n"
        )),
        None => error(format!(
            "Couldn't find an ACME task using crt \"{name}\" and dns \"{domain}\" to set as ready!\n"
        )),
    }
}
