//! The lines of `mailers` sections (manual, section 12.3), and `email-alert` (section 4.2). `resolve::mail` builds the settings.

use base::address::{Accepts, Destination, PortRule, Transport};
use base::units::DefaultUnit::Milliseconds;
use mail::Mailer;
use syntax::Word;

use crate::draft::args::Args;
use crate::draft::keyword::{self, Apply, Keyword, ReadMailers, proxy};
use crate::draft::mail::{EmailDraft, MailersDraft};
use crate::draft::row::places::DFLB;
use crate::draft::row::{Outcome, Where};
use crate::system::resolve_host;
use crate::tables::log::LEVELS;

const fn row(name: &'static str, signature: &'static str, doc: &'static str, read: ReadMailers) -> Keyword {
    keyword::row(name, Where::MAILERS, signature, doc, Apply::Mailers(read))
}

/// The rows.
#[rustfmt::skip]
pub static TABLE: &[Keyword] = &[
    row("mailer",                 "<name> <address>:<port>", "mail server that receives each e-mail",           mailer).lenient_words(),
    row("timeout mail",           "<time>",                  "timeout for sending an e-mail",                   |d, a| { d.limit = a.duration(Milliseconds)?; a.finish() }).lenient_words(),
    proxy("email-alert from",       DFLB, "<emailaddr>",  "sender of e-mails about servers",                    |s, a| word(&mut s.email, a, |email| &mut email.from)).lenient_words().or_udp(),
    proxy("email-alert level",      DFLB, "<level>",      "lowest severity of messages sent by e-mail",         |s, a| level(&mut s.email, a)).lenient_words().or_udp(),
    proxy("email-alert mailers",    DFLB, "<mailersect>", "mailers section to send e-mails through",            |s, a| word(&mut s.email, a, |email| &mut email.mailers)).lenient_words().or_udp(),
    proxy("email-alert myhostname", DFLB, "<hostname>",   "host name in the SMTP greeting",                     |s, a| word(&mut s.email, a, |email| &mut email.hello)).lenient_words().or_udp(),
    proxy("email-alert to",         DFLB, "<emailaddr>",  "recipient of e-mails about servers",                 |s, a| recipients(&mut s.email, a)).lenient_words().or_udp(),
];

/// Takes a word that is copied into an SMTP line. It must not contain a line end or anything that would end the address.
fn word<'a>(
    email: &mut EmailDraft<'a>,
    args: &mut Args<'a, '_>,
    place: for<'e> fn(&'e mut EmailDraft<'a>) -> &'e mut Option<&'a Word>,
) -> Outcome {
    let word = args.value()?;
    let ends = |byte: &u8| byte.is_ascii_control() || matches!(byte, b'<' | b'>' | b' ');
    if word.bytes().iter().any(ends) {
        return Err(args.wrong(format!("`{}` cannot be sent to a mail server", word.as_str().escape_debug())));
    }
    *place(email) = Some(word);
    email.configured_at = Some(word);
    args.finish()
}

/// Comma-separated addresses, as in a header.
fn recipients<'a>(email: &mut EmailDraft<'a>, args: &mut Args<'a, '_>) -> Outcome {
    let word = args.value()?;
    let is_bad = |address: &str| {
        let ends = |byte: u8| byte.is_ascii_control() || matches!(byte, b'<' | b'>' | b' ');
        address.is_empty() || address.bytes().any(ends)
    };
    if word.split(',').any(|address| is_bad(address.trim_matches(' '))) {
        return Err(args.wrong(format!("`{}` cannot be sent to a mail server", word.as_str().escape_debug())));
    }
    email.to = Some(word);
    email.configured_at = Some(word);
    args.finish()
}

fn level<'a>(email: &mut EmailDraft<'a>, args: &mut Args<'a, '_>) -> Outcome {
    let word = args.value()?;
    let found = LEVELS.iter().position(|name| word == *name);
    let level = found.and_then(|level| u8::try_from(level).ok()).ok_or_else(|| {
        args.wrong(format!("unknown log level `{word}`"))
            .did_you_mean(diag::suggest(word, LEVELS.iter().copied()))
            .help(format!("one of: {}", LEVELS.join(", ")))
            .haproxy(format!("unknown log level '{word}' after 'level'"))
    })?;
    email.level = Some(level);
    email.configured_at = Some(word);
    args.finish()
}

fn mailer<'a>(draft: &mut MailersDraft, args: &mut Args<'a, '_>) -> Outcome {
    let usage = "<name> and <addr>[:<port>]";
    let name = args.required(usage)?;
    let word = args.required(usage)?;
    let accepts = Accepts { port: PortRule::Required, range: false, offset: false };
    let address = args.address(word, accepts)?;
    let unusable = || {
        args.wrong(format!("mail server `{word}` requires a TCP address"))
            .haproxy(format!("'mailer {name}' : TCP not supported for this address family."))
    };
    let Destination::Ip { host, ports } = &address.place else { return Err(unusable()) };
    if !matches!(address.transport, Transport::Default | Transport::Stream) {
        return Err(unusable());
    }
    let ip = resolve_host(host).map_err(|error| {
        args.wrong(format!("cannot resolve the address of the mail server `{word}`: {error}"))
            .haproxy(format!("'mailer {name}' : could not resolve address '{word}'."))
    })?;
    let port = ports.iter().next().filter(|port| *port > 0).ok_or_else(unusable)?;
    draft.mailers.push(Mailer { name: name.as_str().into(), address: (ip, port).into(), limit: draft.limit });
    args.finish()
}
