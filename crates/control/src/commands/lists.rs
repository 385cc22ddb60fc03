//! crt-lists and directories of certificates: `show`, `add` and `del ssl crt-list` (management
//! manual, 9.3).

use std::fmt::Write;

use tls::files::{CertificateList, NotAdded};

use crate::invocation::{Call, CommandReply, Severity, error};
use crate::offload::{CommandAnswer, aside};

pub(crate) fn show(call: &mut Call<'_>) -> CommandReply {
    let files = &call.runtime.view().tls;
    let numbers = call.arg(0) == "-n";
    let name = call.arg(usize::from(numbers));
    if name.is_empty() {
        if numbers {
            return error("'show ssl crt-list -n' expects a filename or a directory\n");
        }
        let names: String = files.lists().iter().map(|name| format!("{name}\n")).collect();
        return CommandReply::Text(names);
    }
    match files.list(name) {
        Some((name, list)) => CommandReply::Text(dump(&name, &list, numbers)),
        None => error("didn't find the specified filename\n"),
    }
}

fn dump(name: &str, list: &CertificateList, numbers: bool) -> String {
    let mut out = format!("# {name}\n");
    for entry in &list.entries {
        out.push_str(&entry.certificate);
        if numbers {
            let _ = write!(out, ":{}", entry.number);
        }
        if !entry.options.is_empty() {
            let _ = write!(out, " [{}]", entry.options.join(" "));
        }
        for filter in &entry.filters {
            let _ = write!(out, " {filter}");
        }
        out.push('\n');
    }
    out
}

pub(crate) fn add(call: &mut Call<'_>) -> CommandReply {
    let (name, word) = (call.arg(0), call.arg(1));
    let payload = call.payload.filter(|payload| !payload.trim().is_empty());
    if name.is_empty() || (word.is_empty() && payload.is_none()) {
        return error("'add ssl crtlist' expects a filename and a certificate name\n");
    }
    let files = call.runtime.view().tls.clone();
    let (name, text, is_line) = (name.to_owned(), payload.unwrap_or(word).to_owned(), payload.is_some());
    aside(move || {
        let inserting = |certificate: &str, list: &str, dots: usize| {
            format!("Inserting certificate '{certificate}' in crt-list '{list}'{}\n", ".".repeat(dots))
        };
        match files.add_to_list(&name, &text, is_line) {
            Ok((certificate, list, count)) => {
                CommandAnswer::Text(format!("{}Success!\n", inserting(&certificate, &list, count)))
            }
            Err(NotAdded::Refused(text)) => CommandAnswer::Error(format!("Can't edit the crt-list: {text}")),
            Err(NotAdded::Unusable(certificate, list, text)) => {
                CommandAnswer::Text(format!("{}{text}Failed!\n", inserting(&certificate, &list, 1)))
            }
        }
    })
}

pub(crate) fn del(call: &mut Call<'_>) -> CommandReply {
    let (name, word) = (call.arg(0), call.arg(1));
    if name.is_empty() || word.is_empty() {
        return error("'del ssl crtlist' expects a filename and a certificate name\n");
    }
    let (certificate, number) = match word.rsplit_once(':') {
        None => (word, None),
        Some((certificate, number)) => match number.parse::<usize>() {
            Ok(number) => (certificate, Some(number).filter(|number| *number > 0)),
            Err(_) => {
                return error(format!(
                    "Can't delete the entry: wrong line number after colons in '{word}'!\n"
                ));
            }
        },
    };
    match call.runtime.view().tls.remove_from_list(name, certificate, number) {
        Ok(list) => CommandReply::Message(
            Severity::Notice,
            format!("Entry '{certificate}' deleted in crtlist '{list}'!\n"),
        ),
        Err(text) => error(format!("Can't delete the entry: {text}")),
    }
}
