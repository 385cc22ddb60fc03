//! Handshake data of listeners: names with their certificates, OCSP responses and ticket keys (management manual, 9.3: `show ssl
//! sni`, `show ssl ocsp-response`, `show tls-keys` and so on).

use std::fmt::Write;

use base::clock::{Date, WallTime};
use base::units::{DefaultUnit, parse_duration};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use tls::crl::time_text;
use tls::files::LineNames;

use crate::invocation::{Call, CommandReply, Severity, error};
use crate::offload::{CommandAnswer, aside};

pub(crate) fn sni(call: &mut Call<'_>) -> CommandReply {
    let (mut frontend, mut expired, mut offset) = (None, false, 0);
    let mut words = call.args.iter();
    while let Some(word) = words.next() {
        match word.as_str() {
            "-A" => expired = true,
            "-f" => match words.next() {
                Some(name) => frontend = Some(name.as_str()),
                None => return error("'-f' requires a frontend name!\n"),
            },
            "-t" => {
                let Some(text) = words.next() else {
                    return error("'-t' requires an offset argument!\n");
                };
                match parse_duration(text, DefaultUnit::Seconds) {
                    Ok(duration) => offset = i64::try_from(duration.as_secs()).unwrap_or(i64::MAX),
                    Err(wrong) => return error(format!("'-t {text}' : {wrong}\n")),
                }
            }
            _ => {
                let text = "Invalid parameters, 'show ssl sni' only supports '-f', '-A' or '-t' options!\n";
                return error(text);
            }
        }
    }
    let view = call.runtime.view();
    if frontend.is_some_and(|name| view.frontend(name).is_none()) {
        return error("Couldn't find the specified frontend!\n");
    }
    let until = expired.then(|| WallTime::now().seconds.saturating_add(offset));
    let mut out = "# Frontend/Bind\tSNI\tNegative Filter\tType\tFilename\tNotAfter\tNotBefore\n".to_owned();
    for line in view.tls.names() {
        if frontend.is_none_or(|name| *line.frontend == *name) {
            rows(&line, until, &mut out);
        }
    }
    CommandReply::Text(out)
}

/// Appends a row for each name of a `bind` line. If `until` is set, only for certificates that expire before that time.
fn rows(line: &LineNames, until: Option<i64>, out: &mut String) {
    for one in &line.names {
        let (from, to) = one.validity;
        if until.is_some_and(|until| to >= until) {
            continue;
        }
        let excluded: String = one.excluded.iter().map(|name| format!("{name} ")).collect();
        let excluded = if excluded.is_empty() { "-" } else { &excluded };
        let _ = writeln!(
            out,
            "{}/{}\t{}\t{excluded}\t{}\t{}\t{}\t{}",
            line.frontend,
            line.place,
            one.name,
            one.kind,
            one.certificate,
            time_text(to),
            time_text(from),
        );
    }
}

pub(crate) fn ocsp_response(call: &mut Call<'_>) -> CommandReply {
    let files = call.runtime.view().tls.clone();
    let (first, second) = (call.arg(0), call.arg(1));
    if first.is_empty() {
        let mut out = String::new();
        for one in files.responses() {
            if out.is_empty() {
                out.push_str("# Certificate IDs\n");
            }
            let [name, key, serial] = &one.parts;
            let _ = writeln!(
                out,
                "Certificate ID key : {}\nCertificate path : {}\n Certificate ID:\n   Issuer Name Hash: {name}\n   \
                 Issuer Key Hash: {key}\n   Serial Number: {serial}",
                one.id, one.certificate
            );
        }
        return CommandReply::Text(out);
    }
    let is_format = matches!(first, "text" | "base64");
    let word = if is_format { second } else { first };
    if word.is_empty() {
        return error("'show ssl ocsp-response [text|base64]' expects a valid certid.\n");
    }
    match files.response(word) {
        Some(response) if first == "base64" => {
            CommandReply::Text(format!("{}\n", STANDARD.encode(&response.der)))
        }
        Some(response) => CommandReply::Text(response.text()),
        None if word.bytes().all(|byte| byte.is_ascii_hexdigit()) => {
            error("Certificate ID or path does not match any certificate.\n")
        }
        None => error("'show ssl ocsp-response' expects a valid certid or certificate path.\n"),
    }
}

pub(crate) fn set_ocsp_response(call: &mut Call<'_>) -> CommandReply {
    let text = call.payload.unwrap_or_else(|| call.arg(0));
    let text: String = text.split_whitespace().collect();
    if text.is_empty() {
        return error("'set ssl ocsp-response' expects response in base64 encoding.\n");
    }
    let Ok(der) = STANDARD.decode(text) else {
        return error("'set ssl ocsp-response' received invalid base64 encoded response.\n");
    };
    let files = call.runtime.view().tls.clone();
    aside(move || match files.set_response(&der) {
        Ok(()) => CommandAnswer::Notice("OCSP Response updated!\n".to_owned()),
        Err(why) => CommandAnswer::Error(format!("{}.\n", why.trim_end_matches('.'))),
    })
}

pub(crate) fn ocsp_updates(call: &mut Call<'_>) -> CommandReply {
    let files = call.runtime.view().tls.clone();
    aside(move || {
        let mut out =
            "OCSP Certid | Path | Next Update | Last Update | Successes | Failures | Last Update Status | \
                       Last Update Status (str)\n"
                .to_owned();
        for update in files.updates() {
            let (number, text) = update.outcome.facts();
            let _ = writeln!(
                out,
                "{} | {} | {} | {} | {} | {} | {number} | {text}",
                update.id,
                update.certificate,
                date(update.next),
                update.last.map_or_else(|| "-".to_owned(), date),
                update.successes,
                update.failures
            );
        }
        CommandAnswer::Text(out)
    })
}

/// Formats a date as `24/Nov/2026:10:19:38 +0000`.
fn date(seconds: i64) -> String {
    let mut out = String::new();
    // Writing to a string does not fail.
    let _ = Date::local(seconds).write_clf(&mut out);
    out
}

pub(crate) fn update_ocsp_response(call: &mut Call<'_>) -> CommandReply {
    let name = call.arg(0).to_owned();
    if name.is_empty() {
        return error("'update ssl ocsp-response' expects a filename\n");
    }
    let files = call.runtime.view().tls.clone();
    // The result is written to the logs, as in HAProxy.
    aside(move || match files.update_now(&name) {
        Ok(()) => CommandAnswer::Text(String::new()),
        Err(why) => CommandAnswer::Error(why),
    })
}

pub(crate) fn providers(_: &mut Call<'_>) -> CommandReply {
    CommandReply::Text("Loaded providers : \n\t- aws-lc\n".to_owned())
}

/// The index of the keys named by `#<number>` or a file.
fn keys_of(all: &[(Box<str>, std::sync::Arc<tls::TicketKeys>)], word: &str) -> Option<usize> {
    match word.strip_prefix('#') {
        Some(number) => number.parse().ok().filter(|number| *number < all.len()),
        None => all.iter().position(|(file, _)| **file == *word),
    }
}

pub(crate) fn tls_keys(call: &mut Call<'_>) -> CommandReply {
    let all = call.runtime.view().tls.ticket_keys();
    let word = call.arg(0);
    if word.is_empty() {
        let mut out = "# id (file)\n".to_owned();
        for (number, (file, _)) in all.iter().enumerate() {
            let _ = writeln!(out, "{number} ({file})");
        }
        return CommandReply::Text(out);
    }
    let only = if word == "*" { None } else { Some(keys_of(&all, word)) };
    if only == Some(None) {
        return error("'show tls-keys' unable to locate referenced filename\n");
    }
    let mut out = "# id secret\n".to_owned();
    for (number, (file, keys)) in all.iter().enumerate() {
        if only.is_some_and(|only| only != Some(number)) {
            continue;
        }
        let _ = writeln!(out, "# {number} ({file})");
        for (place, key) in keys.all().iter().enumerate() {
            let _ = writeln!(out, "{number}.{place} {}", STANDARD.encode(key));
        }
    }
    CommandReply::Text(out)
}

pub(crate) fn set_tls_key(call: &mut Call<'_>) -> CommandReply {
    let (word, key) = (call.arg(0), call.arg(1));
    if word.is_empty() || key.is_empty() {
        return error("'set ssl tls-key' expects a filename and the new TLS key in base64 encoding.\n");
    }
    let all = call.runtime.view().tls.ticket_keys();
    let Some((_, keys)) = keys_of(&all, word).and_then(|place| all.get(place)) else {
        return error("'set ssl tls-key' unable to locate referenced filename\n");
    };
    let Ok(key) = STANDARD.decode(key) else {
        return error("'set ssl tls-key' received invalid base64 encoded TLS key.\n");
    };
    if keys.push(&key) {
        CommandReply::Message(Severity::Notice, "TLS ticket key updated!\n".to_owned())
    } else {
        error("'set ssl tls-key' received a key of wrong size.\n")
    }
}
