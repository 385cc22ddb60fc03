//! Certificates at run time: `new`, `set`, `commit`, `abort`, `del`, `dump` and `show ssl cert`; `add`, `del` and `show ssl jwt`
//! (management manual, 9.3).
//!
//! Certificates of listeners and servers are in `tls::files`, those of JSON Web Tokens in `sample::keys`. A certificate created at
//! run time is in both, because either may use it later.

use std::collections::BTreeSet;
use std::fmt::Write;
use std::sync::Arc;

use sample::keys::{Certificate, Certificates, Details};
use state::{EventTopic, journal};
use tls::files::{CertificateSummary, CommitFailed, Files};

use crate::invocation::{Call, CommandReply, Severity, error};
use crate::offload::{CommandAnswer, aside};

/// Suffixes of companion files that are only useful for TLS.
const FOR_TLS: &[&str] = &[".ocsp", ".issuer", ".sctl"];

fn all(call: &Call<'_>) -> Arc<Certificates> {
    call.runtime.view().certificates.clone()
}

fn files(call: &Call<'_>) -> Arc<Files> {
    call.runtime.view().tls.clone()
}

fn done(text: String) -> CommandReply {
    CommandReply::Message(Severity::Notice, text)
}

pub(crate) fn new(call: &mut Call<'_>) -> CommandReply {
    let name = call.arg(0);
    if name.is_empty() {
        return error("'new ssl cert' expects a filename\n");
    }
    if all(call).find(name).is_some() || !files(call).create(name) {
        return error(format!("Certificate '{name}' already exists!\n"));
    }
    all(call).create(name);
    done(format!("New empty certificate store '{name}'!\n"))
}

pub(crate) fn set(call: &mut Call<'_>) -> CommandReply {
    let name = call.arg(0);
    let Some(payload) = call.payload.filter(|_| !name.is_empty()) else {
        return error("'set ssl cert' expects a filename and a certificate as a payload\n");
    };
    let (all, files) = (all(call), files(call));
    let (name, payload) = (name.to_owned(), payload.to_owned());
    aside(move || match change(&all, &files, &name, &payload) {
        Ok((name, true)) => CommandAnswer::Notice(format!("Transaction created for certificate {name}!\n")),
        Ok((name, false)) => CommandAnswer::Notice(format!("Transaction updated for certificate {name}!\n")),
        Err(text) => CommandAnswer::Error(format!("{text}Can't update {name}!\n")),
    })
}

fn change(all: &Certificates, files: &Files, name: &str, payload: &str) -> Result<(Box<str>, bool), String> {
    let serves_tls = files.knows(name);
    let other = if serves_tls { all.uncommitted().map(|(name, _)| name) } else { files.uncommitted() };
    if let Some(other) = other {
        return Err(format!(
            "The ongoing transaction is about '{other}' but you are trying to set '{name}'\n"
        ));
    }
    if serves_tls || all.find(name.strip_suffix(".key").unwrap_or(name)).is_none() {
        return files.set(name, payload);
    }
    if let Some(end) = FOR_TLS.iter().find(|end| name.ends_with(**end)) {
        return Err(format!("A JWT certificate has no file '{end}'.\n"));
    }
    // As in HAProxy, any such name denotes a certificate's key.
    match name.strip_suffix(".key") {
        Some(name) => all.change(name, payload, true),
        None => all.change(name, payload, false),
    }
}

pub(crate) fn commit(call: &mut Call<'_>) -> CommandReply {
    let name = call.arg(0).to_owned();
    if name.is_empty() {
        return error("'commit ssl cert' expects a filename\n");
    }
    let (all, files) = (all(call), files(call));
    aside(move || {
        if all.uncommitted().is_some() {
            return match all.commit(&name) {
                Ok(()) => CommandAnswer::Text(format!("Committing {name}\nSuccess!\n")),
                Err(text) => CommandAnswer::Error(format!("{text}Can't commit {name}!\n")),
            };
        }
        let committed = files.commit(&name);
        if committed.is_ok()
            && let Some(shown) = files.show(&name, false)
            && let Ok(certificate) = Certificate::from_pem(&shown.contents.to_pem(), None)
        {
            all.put(&name, certificate);
        }
        match committed {
            Ok((count, Some(warning))) => {
                journal::record(EventTopic::Certificates, &name, "Replaced by a command.");
                let dots = ".".repeat(count);
                CommandAnswer::Text(format!("Committing {name}{dots}\nLoading: {warning}\nSuccess!\n"))
            }
            other => committed_answer(&name, other.map(|(count, _)| count)),
        }
    })
}

/// The response to a commit: a dot for each entry and server that changed.
pub(super) fn committed_answer(name: &str, committed: Result<usize, CommitFailed>) -> CommandAnswer {
    let text = match &committed {
        Ok(_) => "Replaced by a command.".to_owned(),
        Err(CommitFailed::Refused(text) | CommitFailed::Unusable(text)) => format!("Not replaced: {text}"),
    };
    journal::record(EventTopic::Certificates, name, &text);
    match committed {
        Ok(count) => CommandAnswer::Text(format!("Committing {name}{}\nSuccess!\n", ".".repeat(count))),
        Err(CommitFailed::Refused(text)) => CommandAnswer::Error(format!("{text}Can't commit {name}!\n")),
        Err(CommitFailed::Unusable(text)) => {
            CommandAnswer::Text(format!("Committing {name}\n{text}Failed!\n"))
        }
    }
}

pub(crate) fn abort(call: &mut Call<'_>) -> CommandReply {
    let name = call.arg(0);
    if name.is_empty() {
        return error("'abort ssl cert' expects a filename\n");
    }
    let all = all(call);
    let aborted = if all.uncommitted().is_some() { all.abort(name) } else { files(call).abort(name) };
    match aborted {
        Ok(()) => done(format!("Transaction aborted for certificate '{name}'!\n")),
        Err(text) => error(text),
    }
}

pub(crate) fn del(call: &mut Call<'_>) -> CommandReply {
    let name = call.arg(0);
    if name.is_empty() {
        return error("'del ssl cert' expects a certificate name\n");
    }
    let (all, files) = (all(call), files(call));
    let for_tokens = all.find(name).is_some_and(|stored| stored.for_tokens());
    let deleted = if files.knows(name) && !for_tokens {
        // Token keys contain it only if it was created at run time or tokens use it too.
        files.delete(name).inspect(|()| drop(all.delete(name)))
    } else {
        all.delete(name)
    };
    match deleted {
        Ok(()) => done(format!("Certificate '{name}' deleted!\n")),
        Err(text) => error(format!("Can't remove the certificate: {text}\n")),
    }
}

const NOT_FOUND: &str = "Can't display the certificate: Not found or the certificate is a bundle!\n";

/// Parses a name: a leading `*` refers to the uncommitted replacement, `\*` to a name that begins with `*`.
pub(super) fn starred(name: &str) -> (&str, bool) {
    match name.strip_prefix('*') {
        Some(name) => (name, true),
        None => (name.strip_prefix('\\').unwrap_or(name), false),
    }
}

pub(crate) fn show(call: &mut Call<'_>) -> CommandReply {
    let all = all(call);
    let files = files(call);
    if call.arg(0).is_empty() {
        return CommandReply::Text(list(&all, &files));
    }
    let (name, waits) = starred(call.arg(0));
    if let Some(certificate) = name.strip_suffix(".ocsp")
        && files.show(certificate, waits).is_some()
    {
        let response = files.response_of(certificate, waits);
        return CommandReply::Text(response.map_or_else(String::new, |response| response.text()));
    }
    let for_tokens = all.find(name).is_some_and(|stored| stored.for_tokens());
    if let Some(shown) = files.show(name, waits) {
        return CommandReply::Text(describe(&shown, for_tokens));
    }
    match of_tokens(&all, name, waits) {
        Some(certificate) => {
            CommandReply::Text(describe_token(name, certificate.as_deref(), for_tokens, waits))
        }
        None => error(NOT_FOUND),
    }
}

/// A certificate used only by tokens; `Some(None)` while it is empty.
fn of_tokens(all: &Certificates, name: &str, waits: bool) -> Option<Option<Arc<Certificate>>> {
    if waits {
        let (_, certificate) = all.uncommitted().filter(|(own, _)| **own == *name)?;
        return Some(Some(certificate));
    }
    Some(all.find(name)?.certificate())
}

fn list(all: &Certificates, files: &Files) -> String {
    let mut out = String::new();
    let waiting = all.uncommitted().map(|(name, _)| name).or_else(|| files.uncommitted());
    if let Some(name) = waiting {
        let _ = writeln!(out, "# transaction\n*{name}");
    }
    out.push_str("# filename\n");
    let of_tokens = all.all().into_iter().map(|stored| stored.name.clone());
    let names: BTreeSet<Box<str>> = files.certificates().into_iter().chain(of_tokens).collect();
    for name in names {
        let _ = writeln!(out, "{name}");
    }
    out
}

fn describe(shown: &CertificateSummary, for_tokens: bool) -> String {
    let CertificateSummary { name, contents, sources, is_used, is_updated, waits } = shown;
    let mark = if *waits { "*" } else { "" };
    let mut out = format!("Filename: {mark}{name}\n");
    for (title, file) in [
        ("Crt", &sources.certificate),
        ("Key", &sources.key),
        ("OCSP", &sources.ocsp),
        ("OCSP Issuer", &sources.issuer),
        ("SCTL", &sources.sctl),
    ] {
        if let Some(file) = file {
            let _ = writeln!(out, "{title} filename: {file}");
        }
    }
    let jwt = if for_tokens { "on" } else { "off" };
    let status = match contents.chain.is_empty() {
        true => "Empty",
        false if *waits => "Uncommitted",
        false if *is_used => "Used",
        false if for_tokens => "Used for JWT verification",
        false => "Unused",
    };
    let updates = if *is_updated { "on" } else { "off" };
    let _ = writeln!(out, "Option: ocsp-update {updates}\nOption: jwt {jwt}\nStatus: {status}");
    if let Some(details) = Details::of(&contents.chain) {
        facts(&details, sources.chain.as_deref(), &mut out);
    }
    let _ =
        writeln!(out, "OCSP Response Key: {}", contents.ocsp_id(*is_updated && *is_used).unwrap_or_default());
    out
}

fn describe_token(name: &str, certificate: Option<&Certificate>, for_tokens: bool, waits: bool) -> String {
    let mark = if waits { "*" } else { "" };
    let jwt = if for_tokens { "on" } else { "off" };
    let status = match certificate {
        None => "Empty",
        Some(_) if waits => "Uncommitted",
        Some(_) if for_tokens => "Used for JWT verification",
        Some(_) => "Unused",
    };
    let mut out =
        format!("Filename: {mark}{name}\nOption: ocsp-update off\nOption: jwt {jwt}\nStatus: {status}\n");
    if let Some(details) = certificate.and_then(Certificate::details) {
        facts(&details, None, &mut out);
    }
    out
}

/// Appends information about a certificate and its chain, which may come from another file.
pub(super) fn facts(details: &Details, chain: Option<&str>, out: &mut String) {
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
    if let Some(file) = chain {
        let _ = writeln!(out, "Chain Filename: {file}");
    }
    for (subject, issuer) in &details.chain {
        let _ = writeln!(out, "Chain Subject: {subject}\nChain Issuer: {issuer}");
    }
}

pub(crate) fn dump(call: &mut Call<'_>) -> CommandReply {
    let (name, waits) = starred(call.arg(0));
    if let Some(shown) = files(call).show(name, waits) {
        return CommandReply::Text(shown.contents.to_pem());
    }
    match of_tokens(&all(call), name, waits).filter(|_| !name.is_empty()) {
        Some(certificate) => {
            CommandReply::Text(certificate.map_or_else(String::new, |certificate| certificate.to_pem()))
        }
        None => error(NOT_FOUND),
    }
}

pub(crate) fn add_jwt(call: &mut Call<'_>) -> CommandReply {
    set_jwt(call, "add", true)
}

pub(crate) fn del_jwt(call: &mut Call<'_>) -> CommandReply {
    set_jwt(call, "del", false)
}

fn set_jwt(call: &mut Call<'_>, word: &str, on: bool) -> CommandReply {
    if call.arg(0).is_empty() {
        return error(format!("'{word} ssl cert' expects a filename\n"));
    }
    let (name, all) = (call.arg(0), all(call));
    if let Some(stored) = all.find(name) {
        stored.set_for_tokens(on);
        return CommandReply::Done;
    }
    // A certificate of a listener or server, which no expression has used yet.
    let shown = files(call).show(name, false).filter(|_| on);
    match shown.and_then(|shown| Certificate::from_pem(&shown.contents.to_pem(), None).ok()) {
        Some(certificate) => {
            all.insert(&[name], certificate, true);
            CommandReply::Done
        }
        None => error(NOT_FOUND),
    }
}

pub(crate) fn show_jwt(call: &mut Call<'_>) -> CommandReply {
    let mut out = "# filename\n".to_owned();
    for stored in all(call).all().iter().filter(|stored| stored.for_tokens()) {
        let _ = writeln!(out, "{}", stored.name);
    }
    CommandReply::Text(out)
}
