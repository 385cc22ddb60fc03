//! Files of authorities and of revocation lists: `show`, `new`, `set`, `add`, `commit`, `abort` and
//! `del ssl ca-file` and `crl-file` (management manual, 9.3).

use std::fmt::Write;
use std::sync::Arc;

use sample::keys::Details;
use tls::files::{AuthorityKind, Files, ShownStore};

use crate::commands::certificates::{committed_answer, facts, starred};
use crate::invocation::{Call, CommandReply, Severity, error};
use crate::offload::{CommandAnswer, aside};

fn files(call: &Call<'_>) -> Arc<Files> {
    call.runtime.view().tls.clone()
}

/// The last word of the commands: `ca-file`, `crl-file`.
fn word(kind: AuthorityKind) -> &'static str {
    match kind {
        AuthorityKind::Authorities => "ca-file",
        AuthorityKind::Revocations => "crl-file",
    }
}

pub(crate) fn new_ca(call: &mut Call<'_>) -> CommandReply {
    new(call, AuthorityKind::Authorities)
}

pub(crate) fn new_crl(call: &mut Call<'_>) -> CommandReply {
    new(call, AuthorityKind::Revocations)
}

fn new(call: &Call<'_>, kind: AuthorityKind) -> CommandReply {
    let (name, title) = (call.arg(0), kind.name());
    if name.is_empty() {
        return error(format!("'new ssl {}' expects a filename\n", word(kind)));
    }
    if files(call).create_authority(kind, name) {
        CommandReply::Message(Severity::Notice, format!("New {title} file created '{name}'!\n"))
    } else {
        error(format!("{title} file '{name}' already exists!\n"))
    }
}

pub(crate) fn set_ca(call: &mut Call<'_>) -> CommandReply {
    set(call, AuthorityKind::Authorities, false)
}

pub(crate) fn add_ca(call: &mut Call<'_>) -> CommandReply {
    set(call, AuthorityKind::Authorities, true)
}

pub(crate) fn set_crl(call: &mut Call<'_>) -> CommandReply {
    set(call, AuthorityKind::Revocations, false)
}

fn set(call: &Call<'_>, kind: AuthorityKind, adds: bool) -> CommandReply {
    let (name, title) = (call.arg(0), kind.name());
    let Some(payload) = call.payload.filter(|_| !name.is_empty()) else {
        return error(format!("'set ssl {}' expects a filename and {title}s as a payload\n", word(kind)));
    };
    let (files, name, payload) = (files(call), name.to_owned(), payload.to_owned());
    aside(move || match files.set_authority(kind, &name, &payload, adds) {
        Ok(true) => CommandAnswer::Notice(format!("transaction created for {title} {name}!\n")),
        Ok(false) => CommandAnswer::Notice(format!("transaction updated for {title} {name}!\n")),
        Err(text) => CommandAnswer::Error(format!("{text}Can't update {name}!\n")),
    })
}

pub(crate) fn commit_ca(call: &mut Call<'_>) -> CommandReply {
    commit(call, AuthorityKind::Authorities)
}

pub(crate) fn commit_crl(call: &mut Call<'_>) -> CommandReply {
    commit(call, AuthorityKind::Revocations)
}

fn commit(call: &Call<'_>, kind: AuthorityKind) -> CommandReply {
    let name = call.arg(0).to_owned();
    if name.is_empty() {
        // HAProxy uses this message for both kinds.
        return error("'commit ssl ca-file' expects a filename\n");
    }
    let files = files(call);
    aside(move || committed_answer(&name, files.commit_authority(kind, &name)))
}

pub(crate) fn abort_ca(call: &mut Call<'_>) -> CommandReply {
    abort(call, AuthorityKind::Authorities)
}

pub(crate) fn abort_crl(call: &mut Call<'_>) -> CommandReply {
    abort(call, AuthorityKind::Revocations)
}

fn abort(call: &Call<'_>, kind: AuthorityKind) -> CommandReply {
    let name = call.arg(0);
    if name.is_empty() {
        return error(format!("'abort ssl {}' expects a filename\n", word(kind)));
    }
    match files(call).abort_authority(kind, name) {
        Ok(()) => CommandReply::Message(
            Severity::Notice,
            format!("Transaction aborted for certificate '{name}'!\n"),
        ),
        Err(text) => error(text),
    }
}

pub(crate) fn del_ca(call: &mut Call<'_>) -> CommandReply {
    del(call, AuthorityKind::Authorities)
}

pub(crate) fn del_crl(call: &mut Call<'_>) -> CommandReply {
    del(call, AuthorityKind::Revocations)
}

fn del(call: &Call<'_>, kind: AuthorityKind) -> CommandReply {
    let (name, title) = (call.arg(0), kind.name());
    if name.is_empty() {
        return error(format!("'del ssl {}' expects a {title} file name\n", word(kind)));
    }
    match files(call).delete_authority(kind, name) {
        Ok(()) => CommandReply::Message(Severity::Notice, format!("{title} file '{name}' deleted!\n")),
        Err(text) => error(format!("Can't remove the {title} file: {text}\n")),
    }
}

pub(crate) fn show_ca(call: &mut Call<'_>) -> CommandReply {
    show(call, AuthorityKind::Authorities)
}

pub(crate) fn show_crl(call: &mut Call<'_>) -> CommandReply {
    show(call, AuthorityKind::Revocations)
}

fn show(call: &Call<'_>, kind: AuthorityKind) -> CommandReply {
    let files = files(call);
    let argument = call.arg(0);
    if argument.is_empty() {
        return CommandReply::Text(list(&files, kind));
    }
    let (whole, waits) = starred(argument);
    let (name, index) = match whole.rsplit_once(':') {
        Some((name, index)) if files.show_authority(kind, whole, waits).is_none() => {
            match index.parse::<usize>() {
                Ok(index @ 1..) => (name, Some(index)),
                _ => {
                    let title = kind.name();
                    return error(format!("wrong {title} index after colons in '{argument}'!\n"));
                }
            }
        }
        _ => (whole, None),
    };
    let Some(shown) = files.show_authority(kind, name, waits) else {
        return error(format!("Can't display the {} file : Not found!\n", kind.name()));
    };
    let mark = if waits { "*" } else { "" };
    let status = match shown.ders.is_empty() {
        true => "Empty",
        false if waits => "Uncommitted",
        false if shown.is_used => "Used",
        false => "Unused",
    };
    let head = format!("Filename: {mark}{name}\nStatus: {status}\n");
    CommandReply::Text(details(&head, &shown, kind, index))
}

/// The contents after `head`, or only the entry at `index`, counted from 1.
fn details(head: &str, shown: &ShownStore, kind: AuthorityKind, index: Option<usize>) -> String {
    let mut out = String::new();
    for (number, der) in (1..).zip(&shown.ders) {
        if index.is_some_and(|index| index != number) {
            continue;
        }
        match kind {
            AuthorityKind::Authorities => {
                let _ = write!(out, " \nCertificate #{number}:\n");
                if let Some(parsed) = Details::of(std::slice::from_ref(der)) {
                    facts(&parsed, None, &mut out);
                }
            }
            AuthorityKind::Revocations => {
                let _ = write!(out, " \nCertificate Revocation List #{number}:\n");
                out.push_str(&tls::crl::describe(der).unwrap_or_default());
            }
        }
    }
    // As in HAProxy, the output is empty if the file does not have the requested authority.
    if out.is_empty() && kind == AuthorityKind::Authorities { out } else { format!("{head}{out}") }
}

fn list(files: &Files, kind: AuthorityKind) -> String {
    let line = |mark: &str, (name, count): &(Box<str>, usize)| match kind {
        AuthorityKind::Authorities => format!("{mark}{name} - {count} certificate(s)\n"),
        AuthorityKind::Revocations => format!("{mark}{name}\n"),
    };
    let mut out = String::new();
    if let Some(waiting) = files.waiting_authority(kind) {
        let _ = write!(out, "# transaction\n{}", line("*", &waiting));
    }
    out.push_str("# filename\n");
    for known in files.authorities(kind) {
        out.push_str(&line("", &known));
    }
    out
}
