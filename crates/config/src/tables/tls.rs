//! The TLS parameters of `bind` and `server` lines (manual, sections 5.1 and 5.2), and the defaults of the global section.

use diag::Diagnostic;
use tls::load::ExtraFiles;
use tls::{VerifyMode, names};

use crate::draft::args::Args;
use crate::draft::row::Outcome;
use crate::draft::tls::{CertificateSource, KernelWord, TlsDefaults, TlsValue, TlsWords, Versions};
use crate::tables::bind_row::{BindKeyword, row as bind};
use crate::tables::server_row::{ServerKeyword, row as server};

const SSL3: &str = "SSL 3.0 is never spoken";
const EARLY: &str =
    "not where OpenSSL serves the line; nor in `mode tcp` or over HTTP/2 before the handshake is over";
const EARLY_SERVER: &str = "not where OpenSSL serves the line";
const TICKETS: &str = "tickets of clients that OpenSSL serves are sealed with keys of its own";
const SIGALGS: &str = "OpenSSL is not told, where it serves the line";
const REUSE: &str = "sessions are not resumed where OpenSSL serves the line";
const KERNEL: &str = "TLS is done in user space, which a warning tells";
const NPN: &str = "`alpn` took its place";
const SUITES: &str =
    "suites that only OpenSSL has are left out where TLS 1.3 is spoken and rustls has others of the list";

/// The options in crt-lists and of `ssl-f-use`, which the runtime socket needs too.
pub use tls::files::LIST_OPTIONS as CRT_LIST;

/// The rows of `bind` lines.
#[rustfmt::skip]
pub static BIND: &[BindKeyword] = &[
    bind("ssl",              "",              "speaks TLS",                                       |d, _| { d.tls.enabled = true; Ok(()) }),
    bind("crt",              "<file> | <directory>", "certificates with their keys",              |d, a| { let word = a.value()?; d.tls.certificates.push(CertificateSource::File(word.into())); Ok(()) }),
    bind("default-crt",      "<file>",        "the certificate for clients that name no other's", |d, a| { let word = a.value()?; d.tls.certificates.push(CertificateSource::Default(word.into())); Ok(()) }),
    bind("crt-list",         "<file>",        "certificates with options and names",              |d, a| { let word = a.value()?; d.tls.certificates.push(CertificateSource::List(word.into())); Ok(()) }),
    bind("generate-certificates", "",         "makes certificates for names that none is for",   |d, a| { d.tls.generates = Some(a.last().span()); Ok(()) }),
    bind("ca-sign-file",     "<file>",        "the authority that signs them, with its key",      |d, a| word(&mut d.tls.sign_file, a)),
    bind("ca-sign-pass",     "<passphrase>",  "what its key is encrypted with",                   |d, a| word(&mut d.tls.sign_pass, a)),
    bind("strict-sni",       "",              "refuses names without a certificate of theirs",    |d, _| { d.tls.strict_sni = Some(true); Ok(()) }),
    bind("no-strict-sni",    "",              "serves them with the default certificate",         |d, _| { d.tls.strict_sni = Some(false); Ok(()) }),
    bind("alpn",             "<protocols>",   "the protocols offered, preferred first",           |d, a| { d.tls.words.no_alpn = false; word(&mut d.tls.words.alpn, a) }),
    bind("no-alpn",          "",              "offers no protocol",                               |d, _| { d.tls.words.no_alpn = true; Ok(()) }),
    bind("npn",              "<protocols>",   "gone: `alpn` took its place",                      |_, a| a.value().map(|_| ())).without_effect(NPN),
    bind("ca-file",          "<file>",        "who may sign certificates of clients",             |d, a| word(&mut d.tls.words.ca_file, a)),
    bind("ca-verify-file",   "<file>",        "more of them, whose names clients are not told",   |d, a| word(&mut d.tls.words.ca_verify_file, a)),
    bind("crl-file",         "<file>",        "certificates that were revoked",                   |d, a| word(&mut d.tls.words.crl_file, a)),
    bind("crt-ignore-err",   "all | <error>[,...]", "faults of a client's certificate that are let pass",         |d, a| word(&mut d.tls.crt_ignore, a)),
    bind("ca-ignore-err",    "all | <error>[,...]", "faults of the certificates above it that are let pass",      |d, a| word(&mut d.tls.ca_ignore, a)),
    bind("no-ca-names",      "",              "clients are not told whom to have a certificate of", |d, _| { d.tls.no_ca_names = true; Ok(()) }),
    bind("verify",           "none | optional | required", "whether clients need a certificate",  |d, a| verify(&mut d.tls.words, a, true)),
    bind("ciphers",          "<ciphers>",     "suites up to TLS 1.2, in OpenSSL's notation",      |d, a| word(&mut d.tls.words.ciphers, a)).partial(SUITES),
    bind("ciphersuites",     "<suites>",      "suites of TLS 1.3",                                |d, a| word(&mut d.tls.words.ciphersuites, a)),
    bind("curves",           "<curves>",      "groups for the exchange of keys, preferred first", |d, a| word(&mut d.tls.words.curves, a)),
    bind("ecdhe",            "<curve>",       "the same, for one",                                |d, a| ecdhe(&mut d.tls.words, a)),
    bind("sigalgs",          "<sigalgs>",     "what our key signs with",                          |d, a| word(&mut d.tls.words.sigalgs, a)),
    bind("client-sigalgs",   "<sigalgs>",     "what keys of clients may sign with",               |d, a| word(&mut d.tls.words.client_sigalgs, a)).partial(SIGALGS),
    bind("prefer-client-ciphers", "",         "the client's order of suites counts",              |d, _| { d.tls.words.prefer_client = true; Ok(()) }),
    bind("ssl-min-ver",      "<version>",     "the oldest version",                               |d, a| { d.tls.words.versions.min = Some(version(a)?); Ok(()) }),
    bind("ssl-max-ver",      "<version>",     "the newest version",                               |d, a| { d.tls.words.versions.max = Some(version(a)?); Ok(()) }),
    bind("force-sslv3",      "",              "SSL 3.0 alone",                                    |d, a| force(&mut d.tls.words.versions, a)).partial(SSL3),
    bind("force-tlsv10",     "",              "TLS 1.0 alone",                                    |d, a| force(&mut d.tls.words.versions, a)),
    bind("force-tlsv11",     "",              "TLS 1.1 alone",                                    |d, a| force(&mut d.tls.words.versions, a)),
    bind("force-tlsv12",     "",              "TLS 1.2 alone",                                    |d, a| force(&mut d.tls.words.versions, a)),
    bind("force-tlsv13",     "",              "TLS 1.3 alone",                                    |d, a| force(&mut d.tls.words.versions, a)),
    bind("no-sslv3",         "",              "no SSL 3.0, which is never spoken",                |d, a| without(&mut d.tls.words.versions, a)),
    bind("no-tlsv10",        "",              "no TLS 1.0",                                       |d, a| without(&mut d.tls.words.versions, a)),
    bind("no-tlsv11",        "",              "no TLS 1.1",                                       |d, a| without(&mut d.tls.words.versions, a)),
    bind("no-tlsv12",        "",              "no TLS 1.2",                                       |d, a| without(&mut d.tls.words.versions, a)),
    bind("no-tlsv13",        "",              "no TLS 1.3",                                       |d, a| without(&mut d.tls.words.versions, a)),
    bind("tls-ticket-keys",  "<file>",        "the keys of tickets, shared with other processes", |d, a| word(&mut d.tls.ticket_keys, a)).partial(TICKETS),
    bind("allow-0rtt",       "",              "takes early data: requests that somebody else may send once more", |d, a| { d.tls.early = Some(a.last().span()); Ok(()) }).partial(EARLY),
    bind("ktls",             "on | off",      "whether the kernel does TLS",                      |d, a| { d.tls.kernel = Some(kernel(a)?); Ok(()) }).partial(KERNEL),
    bind("tls-tickets",      "",              "sessions are resumed with tickets",                |d, _| { d.tls.words.tickets = Some(true); Ok(()) }),
    bind("no-tls-tickets",   "",              "no tickets are given",                             |d, _| { d.tls.words.tickets = Some(false); Ok(()) }),
];

/// The rows of `server` lines.
#[rustfmt::skip]
pub static SERVER: &[ServerKeyword] = &[
    server("ssl",            "",              "speaks TLS",                                       |d, _| { (d.tls.enabled, d.tls.said) = (true, true); Ok(()) }),
    server("no-ssl",         "",              "speaks plain text",                                |d, _| { (d.tls.enabled, d.tls.refused) = (false, true); Ok(()) }),
    server("alpn",           "<protocols>",   "the protocols offered, preferred first",           |d, a| { d.tls.words.no_alpn = false; word(&mut d.tls.words.alpn, a) }),
    server("npn",            "<protocols>",   "gone: `alpn` took its place",                      |_, a| a.value().map(|_| ())).without_effect(NPN),
    server("ca-file",        "<file>",        "who may sign its certificate",                     |d, a| word(&mut d.tls.words.ca_file, a)),
    server("crl-file",       "<file>",        "certificates that were revoked",                   |d, a| word(&mut d.tls.words.crl_file, a)),
    server("crt",            "<file>",        "the certificate shown to it",                      |d, a| word(&mut d.tls.certificate, a)),
    server("verify",         "none | required", "whether its certificate is verified",            |d, a| verify(&mut d.tls.words, a, false)),
    server("verifyhost",     "<host>",        "the name that its certificate must have where none is sent to it", |d, a| word(&mut d.tls.verify_host, a)),
    server("no-verifyhost",  "",              "none",                                             |d, _| { d.tls.verify_host = None; Ok(()) }),
    server("sni",            "<expression>",  "the name sent to it",                              |d, a| word(&mut d.tls.sni, a)),
    server("sni-auto",       "",              "the host that the client asked for is sent to it", |d, _| { d.tls.no_sni_auto = false; Ok(()) }),
    server("no-sni-auto",    "",              "it is not",                                        |d, _| { d.tls.no_sni_auto = true; Ok(()) }),
    server("allow-0rtt",     "",              "is sent early data",                               |d, a| { d.tls.early = Some(a.last().span()); Ok(()) }).partial(EARLY_SERVER),
    server("ssl-reuse",      "",              "sessions are resumed",                             |d, _| { d.tls.no_reuse = false; Ok(()) }).partial(REUSE),
    server("no-ssl-reuse",   "",              "each connection makes its own session",            |d, _| { d.tls.no_reuse = true; Ok(()) }),
    server("check-ssl",      "",              "checks speak TLS",                                 |d, _| { d.tls.check = Some(true); Ok(()) }),
    server("no-check-ssl",   "",              "checks speak plain text",                          |d, _| { d.tls.check = Some(false); Ok(()) }),
    server("check-sni-auto", "",              "checks send the host that they ask for",           |d, _| { d.tls.no_check_sni_auto = false; Ok(()) }),
    server("no-check-sni-auto", "",           "checks send no name by themselves",                |d, _| { d.tls.no_check_sni_auto = true; Ok(()) }),
    server("check-sni",      "<name>",        "the name that checks send",                        |d, a| word(&mut d.tls.check_sni, a)),
    server("check-alpn",     "<protocols>",   "the protocols that checks offer",                  |d, a| word(&mut d.tls.check_alpn, a)),
    server("ciphers",        "<ciphers>",     "suites up to TLS 1.2, in OpenSSL's notation",      |d, a| word(&mut d.tls.words.ciphers, a)).partial(SUITES),
    server("ciphersuites",   "<suites>",      "suites of TLS 1.3",                                |d, a| word(&mut d.tls.words.ciphersuites, a)),
    server("curves",         "<curves>",      "groups for the exchange of keys, preferred first", |d, a| word(&mut d.tls.words.curves, a)),
    server("sigalgs",        "<sigalgs>",     "what its key may sign with",                       |d, a| word(&mut d.tls.words.sigalgs, a)),
    server("client-sigalgs", "<sigalgs>",     "what our key signs with",                          |d, a| word(&mut d.tls.words.client_sigalgs, a)).partial(SIGALGS),
    server("ssl-min-ver",    "<version>",     "the oldest version",                               |d, a| { d.tls.words.versions.min = Some(version(a)?); Ok(()) }),
    server("ssl-max-ver",    "<version>",     "the newest version",                               |d, a| { d.tls.words.versions.max = Some(version(a)?); Ok(()) }),
    server("force-sslv3",    "",              "SSL 3.0 alone",                                    |d, a| force(&mut d.tls.words.versions, a)).partial(SSL3),
    server("force-tlsv10",   "",              "TLS 1.0 alone",                                    |d, a| force(&mut d.tls.words.versions, a)),
    server("force-tlsv11",   "",              "TLS 1.1 alone",                                    |d, a| force(&mut d.tls.words.versions, a)),
    server("force-tlsv12",   "",              "TLS 1.2 alone",                                    |d, a| force(&mut d.tls.words.versions, a)),
    server("force-tlsv13",   "",              "TLS 1.3 alone",                                    |d, a| force(&mut d.tls.words.versions, a)),
    server("no-sslv3",       "",              "no SSL 3.0, which is never spoken",                |d, a| without(&mut d.tls.words.versions, a)),
    server("no-tlsv10",      "",              "no TLS 1.0",                                       |d, a| without(&mut d.tls.words.versions, a)),
    server("no-tlsv11",      "",              "no TLS 1.1",                                       |d, a| without(&mut d.tls.words.versions, a)),
    server("no-tlsv12",      "",              "no TLS 1.2",                                       |d, a| without(&mut d.tls.words.versions, a)),
    server("no-tlsv13",      "",              "no TLS 1.3",                                       |d, a| without(&mut d.tls.words.versions, a)),
    server("tls-tickets",    "",              "sessions may be resumed with tickets",             |d, _| { d.tls.words.tickets = Some(true); Ok(()) }),
    server("no-tls-tickets", "",              "none are asked for, up to TLS 1.2",                |d, _| { d.tls.words.tickets = Some(false); Ok(()) }),
    server("renegotiate",    "",              "servers may renegotiate, up to TLS 1.2",           |d, _| { d.tls.words.renegotiate = Some(true); Ok(()) }),
    server("no-renegotiate", "",              "servers may not, as without a word",               |d, _| { d.tls.words.renegotiate = Some(false); Ok(()) }),
    server("ktls",           "on | off",      "whether the kernel does TLS",                      |d, a| { d.tls.kernel = Some(kernel(a)?); Ok(()) }).partial(KERNEL),
];

/// Stores a value as a word until files are read and names resolved.
pub(super) fn word<'a>(value: &mut Option<TlsValue<'a>>, args: &mut Args<'a, '_>) -> Outcome {
    *value = Some(args.value()?.into());
    Ok(())
}

/// `ssl-load-extra-files`: only the named kinds of files are loaded.
pub(super) fn extra_files(extra: &mut ExtraFiles, args: &mut Args<'_, '_>) -> Outcome {
    let replaces_ending = extra.replaces_ending;
    *extra = ExtraFiles { replaces_ending, ..ExtraFiles::NONE };
    args.required("`none`, `all` or kinds of files")?;
    loop {
        match args.last().as_str() {
            "none" => *extra = ExtraFiles { replaces_ending, ..ExtraFiles::NONE },
            "all" => *extra = ExtraFiles { replaces_ending, ..ExtraFiles::ALL },
            "bundle" => extra.bundle = true,
            "sctl" => extra.sctl = true,
            "ocsp" => extra.ocsp = true,
            "issuer" => extra.issuer = true,
            "key" => extra.key = true,
            other => {
                let near = diag::suggest(other, ["none", "all", "bundle", "sctl", "ocsp", "issuer", "key"]);
                return Err(args.wrong(format!("`{other}` is no kind of file")).did_you_mean(near));
            }
        }
        if args.next().is_none() {
            return Ok(());
        }
    }
}

/// `ssl-default-bind-options`, and without `strict_sni` `ssl-default-server-options`, where some words have no effect.
pub(super) fn options<'a>(
    words: &mut TlsWords<'a>,
    mut strict_sni: Option<&mut Option<bool>>,
    args: &mut Args<'a, '_>,
) -> Outcome {
    args.required("`ssl-min-ver TLSv1.2` and others")?;
    loop {
        let option = args.last().as_str();
        match option {
            "prefer-client-ciphers" | "strict-sni" if strict_sni.is_none() => {
                let keyword = args.keyword();
                args.warn(format!("'{keyword}': '{option}' has no effect on connections to servers"));
            }
            "ssl-min-ver" => words.versions.min = Some(version(args)?),
            "ssl-max-ver" => words.versions.max = Some(version(args)?),
            "no-tls-tickets" => words.tickets = Some(false),
            "tls-tickets" => words.tickets = Some(true),
            "renegotiate" | "no-renegotiate" if strict_sni.is_none() => {
                words.renegotiate = Some(option == "renegotiate");
            }
            "prefer-client-ciphers" => words.prefer_client = true,
            "strict-sni" => {
                if let Some(strict) = &mut strict_sni {
                    **strict = Some(true);
                }
            }
            _ if option.starts_with("force-") && number(option).is_some() => {
                force(&mut words.versions, args)?;
            }
            _ if option.starts_with("no-") && number(option).is_some() => {
                without(&mut words.versions, args)?;
            }
            _ => {
                let keyword = args.keyword();
                return Err(args
                    .wrong(format!("`{keyword}` does not know `{option}`"))
                    .haproxy(format!("unknown option '{option}' on global statement '{keyword}'.")));
            }
        }
        if args.next().is_none() {
            return Ok(());
        }
    }
}

/// `ssl-provider`: providers are loaded immediately, in order of appearance.
pub(super) fn provider(defaults: &mut TlsDefaults<'_>, args: &mut Args<'_, '_>) -> Outcome {
    let name = args.required("a provider")?.as_str();
    tls::load_provider(defaults.provider_path, name).map_err(|error| {
        args.wrong(format!("`ssl-provider`: `{name}` cannot be loaded: {error}"))
            .haproxy(format!("ssl-provider '{name}' : unknown provider."))
    })?;
    defaults.has_provider = true;
    args.finish()
}

/// Parses `on` or `off`, with its location.
fn kernel(args: &mut Args<'_, '_>) -> Result<KernelWord, Diagnostic> {
    let span = args.last().span();
    let Some(word) = args.next() else {
        return Err(args
            .wrong("`ktls` needs `on` or `off`")
            .haproxy("'ktls' expects \"on\" or \"off\" as an argument."));
    };
    match word.as_str() {
        "on" => Ok((true, span)),
        "off" => Ok((false, span)),
        other => Err(args
            .wrong(format!("`ktls` is `on` or `off`, not `{other}`"))
            .haproxy(format!("'ktls' expects \"on\" or \"off\" as an argument, got '{other}'."))),
    }
}

fn verify(words: &mut TlsWords<'_>, args: &mut Args<'_, '_>, of_clients: bool) -> Outcome {
    let word = args.value()?;
    let choices =
        [("none", VerifyMode::None), ("required", VerifyMode::Required), ("optional", VerifyMode::Optional)];
    let allowed = if of_clients { &choices[..] } else { &choices[..2] };
    words.verify = Some(args.choice(word, allowed)?);
    Ok(())
}

/// Parses a version name such as `TLSv1.2`.
fn version(args: &mut Args<'_, '_>) -> Result<u16, Diagnostic> {
    let name = args.last().as_str();
    let word = args.value()?;
    names::version(word).ok_or_else(|| {
        args.wrong(format!("`{word}` is no version of TLS"))
            .label("SSLv3, TLSv1.0, TLSv1.1, TLSv1.2 or TLSv1.3")
            .did_you_mean(diag::suggest(word, ["TLSv1.0", "TLSv1.1", "TLSv1.2", "TLSv1.3"]))
            .haproxy(format!("'{name}' : unknown ssl/tls version"))
    })
}

/// The version at the end of `force-…` and `no-…`.
pub(crate) fn number(option: &str) -> Option<u16> {
    match option.rsplit('-').next()? {
        "sslv3" => Some(0x0300),
        "tlsv10" => Some(0x0301),
        "tlsv11" => Some(0x0302),
        "tlsv12" => Some(tls::TLS12),
        "tlsv13" => Some(tls::TLS13),
        _ => None,
    }
}

fn force(versions: &mut Versions, args: &mut Args<'_, '_>) -> Outcome {
    versions.only = number(args.last());
    Ok(())
}

fn without(versions: &mut Versions, args: &mut Args<'_, '_>) -> Outcome {
    versions.without |= number(args.last()).map_or(0, |version| 1 << (version & 7));
    Ok(())
}

fn ecdhe<'a>(words: &mut TlsWords<'a>, args: &mut Args<'a, '_>) -> Outcome {
    let curve = args.value()?;
    words.curves.get_or_insert(curve.into());
    Ok(())
}
