//! The lines of `acme` sections (manual, section 12.8). `resolve::acme` builds the sections.

use base::units::DefaultUnit::Milliseconds;
use plan::acme::{Challenge, MacAlgorithm, ReadyWhen};
use tls::keygen::{Curve, makes_rsa};

use crate::draft::acme::AcmeDraft;
use crate::draft::args::Args;
use crate::draft::keyword::{self, Apply, Keyword, ReadAcme};
use crate::draft::row::{Outcome, Where};

const fn row(name: &'static str, signature: &'static str, doc: &'static str, read: ReadAcme) -> Keyword {
    keyword::row(name, Where::ACME, signature, doc, Apply::Acme(read))
}

/// The rows.
#[rustfmt::skip]
pub static TABLE: &[Keyword] = &[
    row("account-key",     "<file>",        "the account's key, made where there is none",              |d, a| { d.account_key = Some(a.required("a file")?.into()); a.finish() }),
    row("acme-vars",       "<string>",      "what a tool for DNS is told on the ring `dpapi`",          |d, a| { d.vars = Some(a.required("a text")?); a.finish() }),
    row("bits",            "<number>",      "the length of RSA keys: 2048, 3072 or 4096",               bits).partial("2048, 3072 and 4096 alone"),
    row("challenge",       "{ http-01 | dns-01 | dns-persist-01 | tls-alpn-01 }", "how the authority sees that a name is ours", challenge),
    row("challenge-ready", "<value>[,<value>]*", "what is waited for before the authority is told to look", ready),
    row("contact",         "<address>",     "who is told of the account's certificates",                |d, a| { d.contact = Some(a.required("an address of electronic mail")?); a.finish() }),
    row("curves",          "<curve>",       "the curve of ECDSA keys: P-256, P-384 or P-521",           curves),
    row("directory",       "<url>",         "where the authority is",                                   |d, a| { d.directory = Some(a.required("a URL")?.into()); a.finish() }),
    row("dns-delay",       "<time>",        "how long records of DNS are given to spread",              |d, a| { d.dns_delay = a.duration(Milliseconds)?; a.finish() }),
    row("dns-timeout",     "<time>",        "how long name servers are asked for a record",             |d, a| { d.dns_timeout = a.duration(Milliseconds)?; a.finish() }),
    row("eab-key-id",      "<file>",        "the name of the key of an account elsewhere",              |d, a| { d.eab_key_id = Some(a.required("a file")?.into()); a.finish() }),
    row("eab-mac-alg",     "{ HS256 | HS384 | HS512 }", "what that key signs with",                     |d, a| { d.eab_algorithm = a.one_of(&[("HS256", MacAlgorithm::Hs256), ("HS384", MacAlgorithm::Hs384), ("HS512", MacAlgorithm::Hs512)])?; a.finish() }),
    row("eab-mac-key",     "<file>",        "that key, in base64url",                                   |d, a| { d.eab_mac_key = Some(a.required("a file")?.into()); a.finish() }),
    row("keytype",         "{ RSA | ECDSA }", "the kind of keys of certificates",                       |d, a| { d.rsa = a.one_of(&[("RSA", true), ("ECDSA", false)])?; a.finish() }),
    row("map",             "<map>",         "the map that tokens are kept in while they count",         |d, a| { d.map = Some(a.required("a map")?.into()); a.finish() }),
    row("profile",         "<name>",        "the kind of certificate, by the authority's name for it",  |d, a| { d.profile = Some(a.required("a profile")?); a.finish() }),
    row("provider-name",   "<name>",        "the provider that a tool for DNS is told on the ring `dpapi`", |d, a| { d.provider = Some(a.required("a provider")?); a.finish() }),
    row("reuse-key",       "{ on | off }",  "whether a certificate's key is kept when it is renewed",   |d, a| { d.reuses_key = a.on_off()?; a.finish() }),
];

fn bits<'a>(draft: &mut AcmeDraft<'a>, args: &mut Args<'a, '_>) -> Outcome {
    draft.bits = args.integer("a number of bits", 0, u16::MAX)?;
    if !makes_rsa(draft.bits) {
        return Err(args
            .wrong(format!("RSA keys of {} bits are not made", draft.bits))
            .help("2048, 3072 and 4096 bits are; `keytype ECDSA` makes keys that are faster and shorter"));
    }
    args.finish()
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
    draft.curve = args.one_of(&[
        ("P-256", Curve::P256),
        ("P-384", Curve::P384),
        ("P-521", Curve::P521),
        ("prime256v1", Curve::P256),
        ("secp384r1", Curve::P384),
        ("secp521r1", Curve::P521),
    ])?;
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
                    .wrong(format!("`{other}` is nothing to wait for"))
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
            .wrong("`none` says that nothing is waited for: it stands alone")
            .haproxy("keyword 'challenge-ready' in 'acme' can't combine 'none' with other keywords."));
    }
    draft.ready = Some((ready, word));
    args.finish()
}
