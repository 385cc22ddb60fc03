//! The lines of `acme` sections (manual, section 12.8). `resolve::acme` builds the sections.

use base::units::DefaultUnit::Milliseconds;
use diag::Diagnostic;
use plan::acme::{Challenge, MacAlgorithm, ReadyWhen};
use tls::keygen::makes_rsa;

use crate::draft::acme::{AcmeDraft, CURVES};
use crate::draft::args::Args;
use crate::draft::keyword::{self, Apply, Keyword, ReadAcme};
use crate::draft::row::{Outcome, Where};

const fn row(name: &'static str, signature: &'static str, doc: &'static str, read: ReadAcme) -> Keyword {
    keyword::row(name, Where::ACME, signature, doc, Apply::Acme(read))
}

/// The rows.
#[rustfmt::skip]
pub static TABLE: &[Keyword] = &[
    row("account-key",     "<file>",        "file with the account key; created if missing",            |d, a| { d.account_key = Some(a.required("a file")?.into()); a.finish() }),
    row("acme-vars",       "<string>",      "variables passed to the DNS tool on the `dpapi` ring",     |d, a| { d.vars = Some(a.required("a text")?); a.finish() }),
    row("bits",            "<number>",      "size of RSA keys: 2048, 3072 or 4096 bits",                bits).partial("only 2048, 3072 and 4096"),
    row("challenge",       "{ http-01 | dns-01 | dns-persist-01 | tls-alpn-01 }", "challenge type that proves control of a domain", challenge),
    row("challenge-ready", "<value>[,<value>]*", "condition that must hold before the CA is asked to validate", ready),
    row("contact",         "<address>",     "contact address of the account",                           |d, a| { d.contact = Some(a.required("an e-mail address")?); a.finish() }),
    row("curves",          "<curve>",       "curve of ECDSA keys: P-256, P-384 or P-521",               curves),
    row("directory",       "<url>",         "URL of the CA's directory",                                |d, a| { d.directory = Some(a.required("a URL")?.into()); a.finish() }),
    row("dns-delay",       "<time>",        "delay for DNS records to propagate",                       |d, a| { d.dns_delay = a.duration(Milliseconds)?; a.finish() }),
    row("dns-timeout",     "<time>",        "timeout for a DNS record to appear",                       |d, a| { d.dns_timeout = a.duration(Milliseconds)?; a.finish() }),
    row("eab-key-id",      "<file>",        "key identifier for external account binding",              |d, a| { d.eab_key_id = Some(a.required("a file")?.into()); a.finish() }),
    row("eab-mac-alg",     "{ HS256 | HS384 | HS512 }", "MAC algorithm for external account binding",   |d, a| { d.eab_algorithm = a.one_of(&[("HS256", MacAlgorithm::Hs256), ("HS384", MacAlgorithm::Hs384), ("HS512", MacAlgorithm::Hs512)])?; a.finish() }),
    row("eab-mac-key",     "<file>",        "MAC key for external account binding, in base64url",       |d, a| { d.eab_mac_key = Some(a.required("a file")?.into()); a.finish() }),
    row("keytype",         "{ RSA | ECDSA }", "type of certificate keys",                               |d, a| { d.rsa = a.one_of(&[("RSA", true), ("ECDSA", false)])?; a.finish() }),
    row("map",             "<map>",         "map that holds the tokens of pending challenges",          |d, a| { d.map = Some(a.required("a map")?.into()); a.finish() }),
    row("profile",         "<name>",        "certificate profile, as named by the CA",                  |d, a| { d.profile = Some(a.required("a profile")?); a.finish() }),
    row("provider-name",   "<name>",        "provider name passed to the DNS tool on the `dpapi` ring", |d, a| { d.provider = Some(a.required("a provider")?); a.finish() }),
    row("reuse-key",       "{ on | off }",  "keeps a certificate's key when it is renewed",             |d, a| { d.reuses_key = a.on_off()?; a.finish() }),
];

fn bits<'a>(draft: &mut AcmeDraft<'a>, args: &mut Args<'a, '_>) -> Outcome {
    draft.bits = rsa_bits(args)?;
    args.finish()
}

/// Takes the size of an RSA key.
pub(crate) fn rsa_bits(args: &mut Args<'_, '_>) -> Result<u16, Diagnostic> {
    let bits = args.integer("a number of bits", 0, u16::MAX)?;
    if makes_rsa(bits) {
        return Ok(bits);
    }
    Err(args
        .wrong(format!("RSA keys of {bits} bits are not supported"))
        .help("use 2048, 3072 or 4096 bits, or `keytype ECDSA` for shorter and faster keys"))
}

fn challenge<'a>(draft: &mut AcmeDraft<'a>, args: &mut Args<'a, '_>) -> Outcome {
    let all = [Challenge::Http, Challenge::Dns, Challenge::DnsPersist, Challenge::TlsAlpn];
    let same = |one: &Challenge, word: &str| one.name().eq_ignore_ascii_case(word);
    draft.challenge = match args.peek().and_then(|word| all.iter().find(|one| same(one, word))) {
        Some(found) => {
            args.next();
            *found
        }
        None => args.one_of(&all.map(|one| (one.name(), one)))?,
    };
    args.finish()
}

fn curves<'a>(draft: &mut AcmeDraft<'a>, args: &mut Args<'a, '_>) -> Outcome {
    draft.curve = args.one_of(CURVES)?;
    args.finish()
}

fn ready<'a>(draft: &mut AcmeDraft<'a>, args: &mut Args<'a, '_>) -> Outcome {
    let word = args.required("`cli`, `dns`, `delay` or `none`")?;
    let mut ready = ReadyWhen::default();
    let mut none = false;
    for value in word.split(',') {
        match value {
            "cli" => ready.cli = true,
            "dns" => ready.dns = true,
            "delay" => ready.delay = true,
            "none" => none = true,
            other => {
                return Err(args
                    .wrong(format!("unknown condition `{other}` for `challenge-ready`"))
                    .did_you_mean(diag::suggest(other, ["cli", "dns", "delay", "none"]))
                    .haproxy(
                        "keyword 'challenge-ready' in 'acme' section requires parameter separated by commas: \
                         'cli', 'dns' or 'none'",
                    ));
            }
        }
    }
    if none && ready != ReadyWhen::default() {
        return Err(args
            .wrong("`none` cannot be combined with other conditions")
            .haproxy("keyword 'challenge-ready' in 'acme' can't combine 'none' with other keywords."));
    }
    draft.ready = Some((ready, word));
    args.finish()
}
