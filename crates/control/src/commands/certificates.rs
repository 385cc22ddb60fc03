//! Certificates of JSON Web Tokens at run time: `new`, `set`, `commit`, `abort`, `del`, `dump` and
//! `show ssl cert`; `add`, `del` and `show ssl jwt` (management manual, 9.3). What only TLS would
//! take is refused.

use std::fmt::Write;
use std::sync::Arc;

use sample::keys::{Certificate, Certificates, Details};

use crate::call::{Call, Reply, Severity, error};

/// What a file that belongs to a certificate ends with where it can only serve TLS.
const FOR_TLS: &[&str] = &[".ocsp", ".issuer", ".sctl"];

fn all(call: &Call<'_>) -> Arc<Certificates> {
    call.runtime.view().certificates.clone()
}

fn done(text: String) -> Reply {
    Reply::Message(Severity::Notice, text)
}

pub(crate) fn new(call: &mut Call<'_>) -> Reply {
    let name = call.arg(0);
    if name.is_empty() {
        return error("'new ssl cert' expects a filename\n");
    }
    if all(call).create(name) {
        done(format!("New empty certificate store '{name}'!\n"))
    } else {
        error(format!("Certificate '{name}' already exists!\n"))
    }
}

pub(crate) fn set(call: &mut Call<'_>) -> Reply {
    let (name, all) = (call.arg(0), all(call));
    let Some(payload) = call.payload.filter(|_| !name.is_empty()) else {
        return error("'set ssl cert' expects a filename and a certificate as a payload\n");
    };
    if let Some(end) = FOR_TLS.iter().find(|end| name.ends_with(**end)) {
        return error(format!("A file '{end}' of a certificate is not supported yet.\n"));
    }
    // Whatever ends so is the key of a certificate, as in HAProxy.
    let changed = match name.strip_suffix(".key") {
        Some(name) => all.change(name, payload, true),
        None => all.change(name, payload, false),
    };
    match changed {
        Ok((name, true)) => done(format!("Transaction created for certificate {name}!\n")),
        Ok((name, false)) => done(format!("Transaction updated for certificate {name}!\n")),
        Err(text) => error(format!("{text}Can't update {name}!\n")),
    }
}

pub(crate) fn commit(call: &mut Call<'_>) -> Reply {
    let name = call.arg(0);
    if name.is_empty() {
        return error("'commit ssl cert' expects a filename\n");
    }
    match all(call).commit(name) {
        Ok(()) => Reply::Text(format!("Committing {name}\nSuccess!\n")),
        Err(text) => error(format!("{text}Can't commit {name}!\n")),
    }
}

pub(crate) fn abort(call: &mut Call<'_>) -> Reply {
    let name = call.arg(0);
    if name.is_empty() {
        return error("'abort ssl cert' expects a filename\n");
    }
    match all(call).abort(name) {
        Ok(()) => done(format!("Transaction aborted for certificate '{name}'!\n")),
        Err(text) => error(text),
    }
}

pub(crate) fn del(call: &mut Call<'_>) -> Reply {
    let name = call.arg(0);
    if name.is_empty() {
        return error("'del ssl cert' expects a certificate name\n");
    }
    match all(call).delete(name) {
        Ok(()) => done(format!("Certificate '{name}' deleted!\n")),
        Err(text) => error(format!("Can't remove the certificate: {text}\n")),
    }
}

const NOT_FOUND: &str = "Can't display the certificate: Not found or the certificate is a bundle!\n";

/// What a name means: with `*` the certificate that waits, with `\*` one whose name begins so. With
/// whether it waits.
fn named(all: &Certificates, name: &str) -> Option<Shown> {
    if let Some(name) = name.strip_prefix('*') {
        let (own, certificate) = all.uncommitted().filter(|(own, _)| **own == *name)?;
        let for_tokens = all.find(name).is_some_and(|stored| stored.for_tokens());
        return Some(Shown { name: own, certificate: Some(certificate), for_tokens, waits: true });
    }
    let stored = all.find(name.strip_prefix('\\').unwrap_or(name))?;
    Some(Shown {
        name: stored.name.clone(),
        certificate: stored.certificate(),
        for_tokens: stored.for_tokens(),
        waits: false,
    })
}

struct Shown {
    name: Box<str>,
    certificate: Option<Arc<Certificate>>,
    for_tokens: bool,
    waits: bool,
}

pub(crate) fn show(call: &mut Call<'_>) -> Reply {
    let all = all(call);
    if call.arg(0).is_empty() {
        return Reply::Text(list(&all));
    }
    match named(&all, call.arg(0)) {
        Some(shown) => Reply::Text(describe(&shown)),
        None => error(NOT_FOUND),
    }
}

fn list(all: &Certificates) -> String {
    let mut out = String::new();
    if let Some((name, _)) = all.uncommitted() {
        let _ = writeln!(out, "# transaction\n*{name}");
    }
    out.push_str("# filename\n");
    for stored in all.all() {
        let _ = writeln!(out, "{}", stored.name);
    }
    out
}

fn describe(shown: &Shown) -> String {
    let Shown { name, certificate, for_tokens, waits } = shown;
    let mark = if *waits { "*" } else { "" };
    let jwt = if *for_tokens { "on" } else { "off" };
    let status = match certificate {
        None => "Empty",
        Some(_) if *waits => "Uncommitted",
        Some(_) if *for_tokens => "Used for JWT verification",
        Some(_) => "Unused",
    };
    let mut out =
        format!("Filename: {mark}{name}\nOption: ocsp-update off\nOption: jwt {jwt}\nStatus: {status}\n");
    if let Some(details) = certificate.as_ref().and_then(|certificate| certificate.details()) {
        facts(&details, &mut out);
    }
    out
}

fn facts(details: &Details, out: &mut String) {
    let lines = [
        ("Serial", &details.serial),
        ("notBefore", &details.not_before),
        ("notAfter", &details.not_after),
        ("Subject Alternative Name", &details.alternatives),
        ("Algorithm", &details.algorithm),
        ("SHA1 FingerPrint", &details.fingerprint),
        ("Subject", &details.subject),
        ("Issuer", &details.issuer),
    ];
    for (title, value) in lines {
        let _ = writeln!(out, "{title}: {value}");
    }
    for (subject, issuer) in &details.chain {
        let _ = writeln!(out, "Chain Subject: {subject}\nChain Issuer: {issuer}");
    }
}

pub(crate) fn dump(call: &mut Call<'_>) -> Reply {
    match named(&all(call), call.arg(0)).filter(|_| !call.arg(0).is_empty()) {
        Some(shown) => {
            Reply::Text(shown.certificate.map_or_else(String::new, |certificate| certificate.to_pem()))
        }
        None => error(NOT_FOUND),
    }
}

pub(crate) fn add_jwt(call: &mut Call<'_>) -> Reply {
    set_jwt(call, "add", true)
}

pub(crate) fn del_jwt(call: &mut Call<'_>) -> Reply {
    set_jwt(call, "del", false)
}

fn set_jwt(call: &mut Call<'_>, word: &str, on: bool) -> Reply {
    if call.arg(0).is_empty() {
        return error(format!("'{word} ssl cert' expects a filename\n"));
    }
    match all(call).find(call.arg(0)) {
        Some(stored) => {
            stored.set_for_tokens(on);
            Reply::Done
        }
        None => error(NOT_FOUND),
    }
}

pub(crate) fn show_jwt(call: &mut Call<'_>) -> Reply {
    let mut out = "# filename\n".to_owned();
    for stored in all(call).all().iter().filter(|stored| stored.for_tokens()) {
        let _ = writeln!(out, "{}", stored.name);
    }
    Reply::Text(out)
}
