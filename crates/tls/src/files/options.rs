//! The options between the brackets of a crt-list line (manual, 5.1 `crt-list`), which override those of the `bind` line. Errors
//! have HAProxy's wording.

use std::sync::Arc;

use base::keyword_support::Support;

use crate::ciphers::{self, Unsupported};
use crate::engine::provider::{has_group, has_suite};
use crate::entry::EntryOptions;
use crate::names;
use crate::settings::{Trust, VerifyMode};

/// The maximum number of early data bytes that a client may send (`allow-0rtt`). As in HAProxy, this is a buffer of the default
/// size.
pub const EARLY_DATA: u32 = 15_360;

/// Returns the name under which the file of an option (`ca-file`, `ca-verify-file`, `crl-file`) is known.
pub type FileOf<'a> = &'a mut dyn FnMut(usize, &str) -> Result<Box<str>, String>;

/// Returns the trust anchors in these files, or the index of an unknown file.
pub type TrustOf<'a> = &'a dyn Fn(&[Option<Box<str>>; 3]) -> Result<Trust, usize>;

/// An option between the brackets.
pub struct ListOption {
    /// The name of the option.
    pub name: &'static str,
    /// The syntax of the value; empty for an option without a value.
    pub signature: &'static str,
    /// A description of the option.
    pub doc: &'static str,
    /// Whether the option is supported.
    pub support: Support,
    apply: OptionFn,
}

/// The effect of an option.
enum OptionFn {
    Bare(fn(&mut OptionChange<'_>)),
    Value(fn(&mut OptionChange<'_>, &str) -> Result<(), String>),
    /// The option applies to the certificate. [`update_mode`] handles it, and `config` for orders and stores.
    OfCertificate,
    /// The option names a file that belongs to the certificate. Such files are read only with the configuration.
    OfFiles,
    Gone(&'static str),
}

/// Options while a line's changes are applied.
struct OptionChange<'a> {
    options: EntryOptions,
    files: [Option<Box<str>>; 3],
    file: FileOf<'a>,
}

const fn row(name: &'static str, signature: &'static str, doc: &'static str, apply: OptionFn) -> ListOption {
    ListOption { name, signature, doc, support: Support::Full, apply }
}

impl ListOption {
    const fn partial(mut self, reason: &'static str) -> Self {
        self.support = Support::Partial(reason);
        self
    }

    /// Whether the option takes a value.
    pub fn has_value(&self) -> bool {
        !self.signature.is_empty()
    }
}

const EARLY: &str =
    "not on lines that OpenSSL serves, in `mode tcp`, or over HTTP/2 before the handshake completes";
const SIGALGS: &str = "not passed to OpenSSL if it serves the line";
const SUITES: &str =
    "OpenSSL-only suites are skipped if TLS 1.3 is enabled and rustls supports other suites in the list";
const KERNEL: &str = "accepted with a warning: TLS stays in user space";

/// The options: those of `bind` lines and, from `crt` on, those of `load` in a `crt-store`.
#[rustfmt::skip]
pub static TABLE: &[ListOption] = &[
    row("allow-0rtt",     "",             "accepts early data",                            OptionFn::Bare(|c| c.options.early_data = EARLY_DATA)).partial(EARLY),
    row("alpn",           "<protocols>",  "protocols to negotiate with ALPN, preferred first", OptionFn::Value(|c, v| { c.options.alpn = protocols(v)?; Ok(()) })),
    row("ca-file",        "<file>",       "CAs that may sign client certificates",         OptionFn::Value(|c, v| c.trust(0, v))),
    row("ca-verify-file", "<file>",       "additional CAs to verify clients with, not announced to them", OptionFn::Value(|c, v| c.trust(1, v))),
    row("ciphers",        "<ciphers>",    "cipher suites up to TLS 1.2, in OpenSSL notation", OptionFn::Value(|c, v| { c.options.parameters.suites12 = OptionList::Ciphers.read(v)?; Ok(()) })).partial(SUITES),
    row("ciphersuites",   "<suites>",     "TLS 1.3 cipher suites",                         OptionFn::Value(|c, v| { c.options.parameters.suites13 = OptionList::Ciphersuites.read(v)?; Ok(()) })),
    row("client-sigalgs", "<sigalgs>",    "signature algorithms accepted from clients",    OptionFn::Value(|c, v| { c.options.parameters.peer_sigalgs = OptionList::Sigalgs.read(v)?; Ok(()) })).partial(SIGALGS),
    row("crl-file",       "<file>",       "certificate revocation lists",                  OptionFn::Value(|c, v| c.trust(2, v))),
    row("curves",         "<curves>",     "key exchange groups, preferred first",          OptionFn::Value(curves)),
    row("ecdhe",          "<curve>",      "the same, for a single group",                  OptionFn::Value(curves)),
    row("ktls",           "on | off",     "whether the kernel handles TLS records",        OptionFn::Value(|_, v| on_off("ktls", v).map(drop))).partial(KERNEL),
    row("no-alpn",        "",             "disables ALPN",                                 OptionFn::Bare(|c| c.options.alpn.clear())),
    row("no-ca-names",    "",             "does not announce the accepted CAs to clients", OptionFn::Bare(|c| c.options.verify.hides_names = true)),
    row("npn",            "<protocols>",  "removed: use `alpn`",                           OptionFn::Gone("'npn' : library does not support TLS NPN extension")),
    row("sigalgs",        "<sigalgs>",    "signature algorithms for our own key",          OptionFn::Value(|c, v| { c.options.parameters.sigalgs = OptionList::Sigalgs.read(v)?; Ok(()) })),
    row("ssl-max-ver",    "<version>",    "maximum TLS version",                           OptionFn::Value(|c, v| { c.options.parameters.max = version(v)?; Ok(()) })),
    row("ssl-min-ver",    "<version>",    "minimum TLS version",                           OptionFn::Value(|c, v| { c.options.parameters.min = version(v)?; Ok(()) })),
    row("verify",         "none | optional | required", "whether clients must present a certificate", OptionFn::Value(|c, v| { c.options.verify.mode = verify(v)?; Ok(()) })),
    row("crt",            "<file>",       "certificate, if the line sets another name for it", OptionFn::OfFiles),
    row("key",            "<file>",       "private key of the certificate",                OptionFn::OfFiles),
    row("ocsp",           "<file>",       "OCSP response for the certificate",             OptionFn::OfFiles),
    row("issuer",         "<file>",       "issuer of the certificate",                     OptionFn::OfFiles),
    row("sctl",           "<file>",       "signed certificate timestamps of the certificate", OptionFn::OfFiles),
    row("ocsp-update",    "on | off",     "whether its OCSP response is updated automatically", OptionFn::OfCertificate),
    row("acme",           "<section>",    "acme section that issues the certificate",      OptionFn::OfCertificate),
    row("domains",        "<names>",      "domains to order the certificate for",          OptionFn::OfCertificate),
    row("ips",            "<addresses>",  "IP addresses to order the certificate for",     OptionFn::OfCertificate),
];

/// Returns the option with this name.
pub fn list_option(word: &str) -> Option<&'static ListOption> {
    TABLE.iter().find(|row| row.name == word)
}

/// Applies `words` to the options of a `bind` line.
///
/// # Errors
/// A word is unknown, or its value is not supported.
pub fn override_options(
    base: &EntryOptions,
    words: &[&str],
    file: FileOf<'_>,
    trust: TrustOf<'_>,
) -> Result<EntryOptions, String> {
    let mut change = OptionChange { options: base.clone(), files: base.verify.trust.files.clone(), file };
    let mut words = words.iter().copied();
    while let Some(word) = words.next() {
        let Some(row) = list_option(word) else { return Err(format!("unknown ssl keyword {word}")) };
        let mut value = || words.next().ok_or_else(|| format!("ssl args out of '[]' for {word}"));
        match row.apply {
            OptionFn::Bare(apply) => apply(&mut change),
            OptionFn::Value(apply) => apply(&mut change, value()?)?,
            OptionFn::OfCertificate => drop(value()?),
            OptionFn::OfFiles => {
                return Err(format!("`{word}` is not a supported crt-list option"));
            }
            OptionFn::Gone(why) => return Err(why.to_owned()),
        }
    }
    let OptionChange { mut options, files, .. } = change;
    let parameters = &mut options.parameters;
    if parameters.sigalgs != base.parameters.sigalgs && parameters.peer_sigalgs == base.parameters.sigalgs {
        // The client's signature algorithms are not set separately.
        parameters.peer_sigalgs.clone_from(&parameters.sigalgs);
    }
    if files != base.verify.trust.files {
        let made = trust(&files).map_err(|place| format!("'{}' : unable to load it", FILES[place]))?;
        options.verify.trust = Arc::new(made);
    }
    if options.verify.has_no_trusted_ca() {
        return Err("verify is enabled but no CA file specified".to_owned());
    }
    Ok(options)
}

impl OptionChange<'_> {
    fn trust(&mut self, place: usize, name: &str) -> Result<(), String> {
        self.files[place] = Some((self.file)(place, name)?);
        Ok(())
    }
}

fn curves(change: &mut OptionChange<'_>, value: &str) -> Result<(), String> {
    change.options.parameters.groups = OptionList::Curves.read(value)?;
    Ok(())
}

fn version(value: &str) -> Result<u16, String> {
    names::version(value).ok_or_else(|| format!("'{value}' : unknown ssl/tls version"))
}

/// Returns the last `ktls` setting among the words.
///
/// # Errors
/// The value is neither `on` nor `off`.
pub fn kernel_mode(words: &[&str]) -> Result<Option<bool>, String> {
    last_of("ktls", words)
}

/// The options for trust anchor files, by index.
pub const FILES: [&str; 3] = ["ca-file", "ca-verify-file", "crl-file"];

/// Returns the last `ocsp-update` setting among the words.
///
/// # Errors
/// The value is neither `on` nor `off`.
pub fn update_mode(words: &[&str]) -> Result<Option<bool>, String> {
    last_of("ocsp-update", words)
}

/// Returns the last setting of `name` among the words.
fn last_of(name: &str, words: &[&str]) -> Result<Option<bool>, String> {
    let mut mode = None;
    for (at, _) in words.iter().enumerate().filter(|(_, word)| **word == name) {
        mode = Some(on_off(name, words.get(at + 1).copied().unwrap_or_default())?);
    }
    Ok(mode)
}

fn on_off(name: &str, value: &str) -> Result<bool, String> {
    match value {
        "on" => Ok(true),
        "off" => Ok(false),
        _ if name == "ktls" => {
            Err(format!("'ktls' expects \"on\" or \"off\" as an argument, got '{value}'."))
        }
        _ => Err(format!("'{name}' : expecting <on|off>")),
    }
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

/// Parses a list of protocols (`alpn`).
///
/// # Errors
/// A name is empty or too long.
pub fn protocols(list: &str) -> Result<Vec<Box<[u8]>>, String> {
    let mut names = list.split(',');
    if names.clone().any(|name| name.is_empty() || name.len() > 255) {
        return Err("'alpn' : one of the protocol names has an invalid length".to_owned());
    }
    Ok(names.by_ref().map(|name| name.as_bytes().into()).collect())
}

#[derive(Clone, Copy)]
enum OptionList {
    Ciphers,
    Ciphersuites,
    Curves,
    Sigalgs,
}

impl OptionList {
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
