//! Cipher strings in OpenSSL's syntax (ciphers(1)), and lists of suites, curves and signatures, resolved to TLS numbers in order.
//!
//! They are evaluated as in OpenSSL, over all suites up to TLS 1.2 that OpenSSL supports. Whether the engine supports a suite is
//! checked separately ([`crate::has_suite`]).

use crate::names;
use crate::suites::{Au, Enc, Kx, Mac, Suite, TABLE};

/// A string that resolves to an empty list, or contains an unknown name. Holds that name, or the whole string.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unsupported(pub Box<str>);

/// The effect of a word on the suites that match it.
#[derive(Clone, Copy, PartialEq, Eq)]
enum CipherAction {
    /// Suites that are missing are appended to the list.
    Add,
    /// Suites in the list move to its end (`+`).
    Order,
    /// Suites are removed, and may be added again (`-`).
    Remove,
    /// Suites are removed permanently (`!`).
    Ban,
}

/// A list under construction: `(suite, whether it is in the list)`, in order.
struct CipherList(Vec<(&'static Suite, bool)>);

/// Evaluates `ciphers`.
///
/// # Errors
/// The result is empty, or a word is invalid.
pub fn ciphers(text: &str) -> Result<Vec<u16>, Unsupported> {
    let mut list = CipherList(TABLE.iter().map(|suite| (suite, false)).collect());
    let separators = |c: char| matches!(c, ':' | ',' | ' ' | ';');
    // `@` begins a new word, even without a separator: `DEFAULT@SECLEVEL=0`.
    let spaced = text.replace('@', ":@");
    for (place, word) in spaced.split(separators).filter(|word| !word.is_empty()).enumerate() {
        if place == 0 && word == "DEFAULT" {
            list.add_default();
            continue;
        }
        if !list.take(word) {
            return Err(Unsupported(word.into()));
        }
    }
    let found: Vec<u16> = list.0.iter().filter(|(_, is_in)| *is_in).map(|(suite, _)| suite.number).collect();
    if found.is_empty() { Err(Unsupported(text.into())) } else { Ok(found) }
}

/// Returns the security level in a cipher string (`@SECLEVEL=1`). If there are several, the last one applies.
pub fn security_level(text: &str) -> Option<u8> {
    text.split('@').skip(1).filter_map(level).last()
}

/// Parses the level of a command without its `@`. OpenSSL supports levels 0 to 5.
fn level(command: &str) -> Option<u8> {
    let digits = command.strip_prefix("SECLEVEL=")?;
    let end = digits.find(|c: char| !c.is_ascii_digit()).unwrap_or(digits.len());
    digits[..end].parse().ok().filter(|level| *level <= 5)
}

impl CipherList {
    /// Applies one word. Returns `false` if it is malformed.
    fn take(&mut self, word: &str) -> bool {
        if let Some(command) = word.strip_prefix('@') {
            match command {
                "STRENGTH" => self.0.sort_by_key(|(suite, is_in)| (*is_in, std::cmp::Reverse(suite.bits))),
                _ => return level(command).is_some(),
            }
            return true;
        }
        let (action, word) = match word.split_at_checked(1) {
            Some(("!", rest)) => (CipherAction::Ban, rest),
            Some(("-", rest)) => (CipherAction::Remove, rest),
            Some(("+", rest)) => (CipherAction::Order, rest),
            _ => (CipherAction::Add, word),
        };
        if word == "DEFAULT" {
            // Except at the beginning, the word matches no suite.
            return true;
        }
        // A word with several parts matches the suites that match all parts. An unknown part matches none.
        self.apply(action, |suite| word.split('+').all(|part| is_named(suite, part)));
        true
    }

    fn add_default(&mut self) {
        self.apply(CipherAction::Add, |suite| suite.enc != Enc::Null && !is_outside_default(suite));
    }

    fn apply(&mut self, action: CipherAction, names: impl Fn(&Suite) -> bool) {
        let old = std::mem::take(&mut self.0);
        let wanted = |(suite, is_in): &(&'static Suite, bool)| {
            names(suite)
                && match action {
                    CipherAction::Add => !is_in,
                    CipherAction::Order | CipherAction::Remove => *is_in,
                    CipherAction::Ban => true,
                }
        };
        let (moved, stays): (Vec<_>, Vec<_>) = old.into_iter().partition(wanted);
        let moved = moved.into_iter().map(|(suite, _)| (suite, action != CipherAction::Remove));
        self.0 = match action {
            CipherAction::Add | CipherAction::Order => stays.into_iter().chain(moved).collect(),
            CipherAction::Remove => moved.chain(stays).collect(),
            CipherAction::Ban => stays,
        };
    }
}

fn is_outside_default(suite: &Suite) -> bool {
    suite.au == Au::Dss
        || suite.au == Au::Anonymous
        || matches!(suite.enc, Enc::AesCcm | Enc::AesCcm8 | Enc::AriaGcm | Enc::Camellia)
}

/// Whether a word matches the suite: its OpenSSL or standard name, or the name of a group of suites.
fn is_named(suite: &Suite, word: &str) -> bool {
    let aes = matches!(suite.enc, Enc::Aes | Enc::AesGcm | Enc::AesCcm | Enc::AesCcm8);
    let ephemeral = |kx| suite.kx == kx && suite.au != Au::Anonymous;
    match word {
        "ALL" => suite.enc != Enc::Null,
        "COMPLEMENTOFALL" | "eNULL" | "NULL" => suite.enc == Enc::Null,
        "COMPLEMENTOFDEFAULT" => suite.enc != Enc::Null && is_outside_default(suite),
        "HIGH" => suite.enc != Enc::Null,
        "kRSA" | "RSA" => suite.kx == Kx::Rsa,
        "kDHE" | "kEDH" | "DH" => suite.kx == Kx::Dhe,
        "kECDHE" | "kEECDH" | "ECDH" => suite.kx == Kx::Ecdhe,
        "DHE" | "EDH" => ephemeral(Kx::Dhe),
        "ECDHE" | "EECDH" => ephemeral(Kx::Ecdhe),
        "aRSA" => suite.au == Au::Rsa,
        "aECDSA" | "ECDSA" => suite.au == Au::Ecdsa,
        "aDSS" | "DSS" => suite.au == Au::Dss,
        "aNULL" => suite.au == Au::Anonymous,
        "ADH" => suite.au == Au::Anonymous && suite.kx == Kx::Dhe,
        "AECDH" => suite.au == Au::Anonymous && suite.kx == Kx::Ecdhe,
        "AES" => aes,
        "AES128" => aes && suite.bits == 128,
        "AES256" => aes && suite.bits == 256,
        "AESGCM" => suite.enc == Enc::AesGcm,
        "AESCCM" => matches!(suite.enc, Enc::AesCcm | Enc::AesCcm8),
        "AESCCM8" => suite.enc == Enc::AesCcm8,
        "CHACHA20" => suite.enc == Enc::Chacha20,
        "ARIA" | "ARIAGCM" => suite.enc == Enc::AriaGcm,
        "ARIA128" => suite.enc == Enc::AriaGcm && suite.bits == 128,
        "ARIA256" => suite.enc == Enc::AriaGcm && suite.bits == 256,
        "CAMELLIA" => suite.enc == Enc::Camellia,
        "CAMELLIA128" => suite.enc == Enc::Camellia && suite.bits == 128,
        "CAMELLIA256" => suite.enc == Enc::Camellia && suite.bits == 256,
        "CBC" => matches!(suite.enc, Enc::Aes | Enc::Camellia),
        "MD5" => suite.mac == Mac::Md5,
        "SHA1" | "SHA" => suite.mac == Mac::Sha1,
        "SHA256" => suite.mac == Mac::Sha256,
        "SHA384" => suite.mac == Mac::Sha384,
        "TLSv1.2" => suite.version == 0x0303,
        "TLSv1" | "TLSv1.0" => suite.version == 0x0301,
        "SSLv3" => suite.version == 0x0300,
        name => suite.name == name || names::suite(name) == Some(suite.number),
    }
}

/// Evaluates `ciphersuites`: TLS 1.3 names, separated by colons.
///
/// # Errors
/// A name is unknown.
pub fn ciphersuites(text: &str) -> Result<Vec<u16>, Unsupported> {
    let mut found = Vec::new();
    for name in text.split(':').map(str::trim).filter(|name| !name.is_empty()) {
        match names::suite(name).filter(|number| number >> 8 == 0x13) {
            Some(number) => found.push(number),
            // OpenSSL supports these suites, but does not offer them by default.
            None if matches!(name, "TLS_AES_128_CCM_SHA256" | "TLS_AES_128_CCM_8_SHA256") => {}
            None => return Err(Unsupported(name.into())),
        }
    }
    Ok(found)
}

/// Evaluates `curves`: groups, separated by colons.
///
/// # Errors
/// A name is unknown.
pub fn curves(text: &str) -> Result<Vec<u16>, Unsupported> {
    text.split(':').map(|name| names::group(name).ok_or_else(|| Unsupported(name.into()))).collect()
}

/// Evaluates `sigalgs` and `client-sigalgs`: signatures, separated by colons, such as `RSA+SHA256` or `rsa_pss_rsae_sha256`.
///
/// # Errors
/// A name is unknown.
pub fn sigalgs(text: &str) -> Result<Vec<u16>, Unsupported> {
    text.split(':').map(|name| names::signature(name).ok_or_else(|| Unsupported(name.into()))).collect()
}
