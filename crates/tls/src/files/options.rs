//! The words between the brackets of a line in a crt-list (manual, 5.1 `crt-list`): what a
//! certificate has otherwise than its `bind` line says. Errors are in HAProxy's words.

use std::sync::Arc;

use crate::ciphers::{self, Unsupported};
use crate::engine::provider::{has_group, has_suite};
use crate::entry::Options;
use crate::names;
use crate::settings::{Trust, VerifyMode};

/// What HAProxy takes there beside and Weir does not.
const LATER: &[&str] = &["crt", "ecdhe-auto", "issuer", "jwt", "key", "ktls", "npn", "ocsp", "sctl"];

/// How many bytes of early data a client may send (`allow-0rtt`): what fits into a buffer of the
/// usual size, as in HAProxy.
pub const EARLY_DATA: u32 = 15_360;

/// Gives the name by which the file of a place (`ca-file`, `ca-verify-file`, `crl-file`) is known.
pub type FileOf<'a> = &'a mut dyn FnMut(usize, &str) -> Result<Box<str>, String>;

/// Whom to trust by these files; the place of one that is not known.
pub type TrustOf<'a> = &'a dyn Fn(&[Option<Box<str>>; 3]) -> Result<Trust, usize>;

/// What `words` make of the options of a `bind` line.
///
/// # Errors
/// A word is not known, or what it says cannot be had.
pub fn override_options(
    base: &Options,
    words: &[&str],
    file: FileOf<'_>,
    trust: TrustOf<'_>,
) -> Result<Options, String> {
    let mut options = base.clone();
    let mut files = base.verify.trust.files.clone();
    let mut words = words.iter().copied();
    while let Some(word) = words.next() {
        if word == "no-alpn" {
            options.alpn.clear();
            continue;
        }
        if word == "no-ca-names" {
            options.verify.hides_names = true;
            continue;
        }
        if matches!(word, "ocsp-update" | "acme" | "domains" | "ips") {
            // Of the certificate, not of the line: see [`update_mode`], and `config` of orders.
            words.next();
            continue;
        }
        if word == "allow-0rtt" {
            options.early_data = EARLY_DATA;
            continue;
        }
        if LATER.contains(&word) {
            return Err(format!("`{word}` is no option of a crt-list that is supported yet"));
        }
        let parameters = &mut options.parameters;
        let list = match word {
            "ciphers" => Some((&mut parameters.suites12, List::Ciphers)),
            "ciphersuites" => Some((&mut parameters.suites13, List::Ciphersuites)),
            "curves" | "ecdhe" => Some((&mut parameters.groups, List::Curves)),
            "sigalgs" => Some((&mut parameters.sigalgs, List::Sigalgs)),
            "client-sigalgs" => Some((&mut parameters.peer_sigalgs, List::Sigalgs)),
            "alpn" | "ca-file" | "ca-verify-file" | "crl-file" | "ssl-min-ver" | "ssl-max-ver" | "verify" => {
                None
            }
            other => return Err(format!("unknown ssl keyword {other}")),
        };
        let value = words.next().ok_or_else(|| format!("ssl args out of '[]' for {word}"))?;
        if let Some((list, kind)) = list {
            *list = kind.read(value)?;
            continue;
        }
        let version = || names::version(value).ok_or_else(|| format!("'{value}' : unknown ssl/tls version"));
        match word {
            "alpn" => options.alpn = protocols(value)?.0,
            "ca-file" => files[0] = Some(file(0, value)?),
            "ca-verify-file" => files[1] = Some(file(1, value)?),
            "crl-file" => files[2] = Some(file(2, value)?),
            "ssl-min-ver" => options.parameters.min = version()?,
            "ssl-max-ver" => options.parameters.max = version()?,
            _ => options.verify.mode = verify(value)?,
        }
    }
    let parameters = &mut options.parameters;
    if parameters.sigalgs != base.parameters.sigalgs && parameters.peer_sigalgs == base.parameters.sigalgs {
        // Nobody said what clients sign with.
        parameters.peer_sigalgs.clone_from(&parameters.sigalgs);
    }
    if files != base.verify.trust.files {
        let made = trust(&files).map_err(|place| format!("'{}' : unable to load it", FILES[place]))?;
        options.verify.trust = Arc::new(made);
    }
    Ok(options)
}

/// The keywords of the files that say whom to trust, by their places.
pub const FILES: [&str; 3] = ["ca-file", "ca-verify-file", "crl-file"];

/// What `ocsp-update` among the words says: the last one counts.
///
/// # Errors
/// Neither `on` nor `off` stands behind it.
pub fn update_mode(words: &[&str]) -> Result<Option<bool>, String> {
    let mut mode = None;
    for (at, _) in words.iter().enumerate().filter(|(_, word)| **word == "ocsp-update") {
        mode = match words.get(at + 1).copied() {
            Some("on") => Some(true),
            Some("off") => Some(false),
            _ => return Err("'ocsp-update' : expecting <on|off>".to_owned()),
        };
    }
    Ok(mode)
}

fn verify(value: &str) -> Result<VerifyMode, String> {
    Ok(match value {
        "none" => VerifyMode::None,
        "optional" => VerifyMode::Optional,
        "required" => VerifyMode::Required,
        other => {
            return Err(format!(
                "'verify' : unknown verify method '{other}', only 'none', 'optional', and 'required' are \
                 supported"
            ));
        }
    })
}

/// Protocols by their names, and whether others were left out.
pub type Protocols = (Vec<Box<[u8]>>, bool);

/// The protocols of a list (`alpn`), of those that are spoken here, and whether one is missing.
///
/// # Errors
/// A name is empty or too long.
pub fn protocols(list: &str) -> Result<Protocols, String> {
    let names = list.split(',');
    if names.clone().any(|name| name.is_empty() || name.len() > 255) {
        return Err("'alpn' : one of the protocol names has an invalid length".to_owned());
    }
    let spoken: Vec<Box<[u8]>> =
        names.clone().filter(|name| *name != "h2").map(|name| name.as_bytes().into()).collect();
    let misses = spoken.len() < names.count();
    Ok((spoken, misses))
}

#[derive(Clone, Copy)]
enum List {
    Ciphers,
    Ciphersuites,
    Curves,
    Sigalgs,
}

impl List {
    fn read(self, words: &str) -> Result<Vec<u16>, String> {
        let read = match self {
            Self::Ciphers => ciphers::ciphers(words),
            Self::Ciphersuites => ciphers::ciphersuites(words),
            Self::Curves => ciphers::curves(words),
            Self::Sigalgs => ciphers::sigalgs(words),
        };
        let what = match self {
            Self::Ciphers => "cipher list",
            Self::Ciphersuites => "cipher suites",
            Self::Curves => "curves list",
            Self::Sigalgs => "Signature Algorithm list",
        };
        let refused = |Unsupported(name)| format!("unable to set SSL {what} to '{words}' ('{name}').");
        let mut numbers = read.map_err(refused)?;
        numbers.retain(|number| match self {
            Self::Ciphers | Self::Ciphersuites => has_suite(*number),
            Self::Curves => has_group(*number),
            Self::Sigalgs => true,
        });
        if numbers.is_empty() {
            return Err(refused(Unsupported(words.into())));
        }
        Ok(numbers)
    }
}
