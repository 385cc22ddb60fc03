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
    "not on lines that OpenSSL serves, in `mode tcp`, or over HTTP/2 before the handshake completes";
const EARLY_SERVER: &str = "not on lines that OpenSSL serves";
const TICKETS: &str = "tickets for clients that OpenSSL serves are sealed with separate keys";
const SIGALGS: &str = "not passed to OpenSSL if it serves the line";
const REUSE: &str = "no session resumption on lines that OpenSSL serves";
const KERNEL: &str = "accepted with a warning: TLS stays in user space";
const NPN: &str = "replaced by `alpn`";
const SUITES: &str =
    "OpenSSL-only suites are skipped if TLS 1.3 is enabled and rustls supports other suites in the list";

/// The options in crt-lists and of `ssl-f-use`, which the runtime socket needs too.
pub use tls::files::LIST_OPTIONS as CRT_LIST;

/// The rows of `bind` lines.
#[rustfmt::skip]
pub static BIND: &[BindKeyword] = &[
    bind("ssl",              "",              "enables TLS",                                      |d, _| { d.tls.enabled = true; Ok(()) }),
    bind("crt",              "<file> | <directory>", "certificates with their private keys",      |d, a| { let word = a.value()?; d.tls.certificates.push(CertificateSource::File(word.into())); Ok(()) }),
    bind("default-crt",      "<file>",        "certificate for clients that match no other certificate", |d, a| { let word = a.value()?; d.tls.certificates.push(CertificateSource::Default(word.into())); Ok(()) }),
    bind("crt-list",         "<file>",        "list of certificates with options and names",      |d, a| { let word = a.value()?; d.tls.certificates.push(CertificateSource::List(word.into())); Ok(()) }),
    bind("generate-certificates", "",         "generates certificates for names without one",    |d, a| { d.tls.generates = Some(a.last().span()); Ok(()) }),
    bind("ca-sign-file",     "<file>",        "CA that signs generated certificates, with its key", |d, a| word(&mut d.tls.sign_file, a)),
    bind("ca-sign-pass",     "<passphrase>",  "passphrase of that CA's key",                      |d, a| word(&mut d.tls.sign_pass, a)),
    bind("strict-sni",       "",              "rejects server names without a matching certificate", |d, _| { d.tls.strict_sni = Some(true); Ok(()) }),
    bind("no-strict-sni",    "",              "serves unmatched server names with the default certificate", |d, _| { d.tls.strict_sni = Some(false); Ok(()) }),
    bind("alpn",             "<protocols>",   "protocols to negotiate with ALPN, preferred first", |d, a| { d.tls.words.no_alpn = false; word(&mut d.tls.words.alpn, a) }),
    bind("no-alpn",          "",              "disables ALPN",                                    |d, _| { d.tls.words.no_alpn = true; Ok(()) }),
    bind("npn",              "<protocols>",   "removed: use `alpn`",                              |_, a| a.value().map(|_| ())).without_effect(NPN),
    bind("ca-file",          "<file>",        "CAs that may sign client certificates",            |d, a| word(&mut d.tls.words.ca_file, a)),
    bind("ca-verify-file",   "<file>",        "additional CAs to verify clients with, not announced to them", |d, a| word(&mut d.tls.words.ca_verify_file, a)),
    bind("crl-file",         "<file>",        "certificate revocation lists",                     |d, a| word(&mut d.tls.words.crl_file, a)),
    bind("crt-ignore-err",   "all | <error>[,...]", "verification errors of client certificates to ignore",       |d, a| word(&mut d.tls.crt_ignore, a)),
    bind("ca-ignore-err",    "all | <error>[,...]", "verification errors of their CA certificates to ignore",     |d, a| word(&mut d.tls.ca_ignore, a)),
    bind("no-ca-names",      "",              "does not announce the accepted CAs to clients",    |d, _| { d.tls.no_ca_names = true; Ok(()) }),
    bind("verify",           "none | optional | required", "whether clients must present a certificate", |d, a| verify(&mut d.tls.words, a, true)),
    bind("ciphers",          "<ciphers>",     "cipher suites up to TLS 1.2, in OpenSSL notation", |d, a| word(&mut d.tls.words.ciphers, a)).partial(SUITES),
    bind("ciphersuites",     "<suites>",      "TLS 1.3 cipher suites",                            |d, a| word(&mut d.tls.words.ciphersuites, a)),
    bind("curves",           "<curves>",      "key exchange groups, preferred first",             |d, a| word(&mut d.tls.words.curves, a)),
    bind("ecdhe",            "<curve>",       "the same, for a single group",                     |d, a| ecdhe(&mut d.tls.words, a)),
    bind("sigalgs",          "<sigalgs>",     "signature algorithms for our own key",             |d, a| word(&mut d.tls.words.sigalgs, a)),
    bind("client-sigalgs",   "<sigalgs>",     "signature algorithms accepted from clients",       |d, a| word(&mut d.tls.words.client_sigalgs, a)).partial(SIGALGS),
    bind("prefer-client-ciphers", "",         "follows the client's order of cipher suites",      |d, _| { d.tls.words.prefer_client = true; Ok(()) }),
    bind("ssl-min-ver",      "<version>",     "minimum TLS version",                              |d, a| { d.tls.words.versions.min = Some(version(a)?); Ok(()) }),
    bind("ssl-max-ver",      "<version>",     "maximum TLS version",                              |d, a| { d.tls.words.versions.max = Some(version(a)?); Ok(()) }),
    bind("force-sslv3",      "",              "allows only SSL 3.0",                              |d, a| force(&mut d.tls.words.versions, a)).partial(SSL3),
    bind("force-tlsv10",     "",              "allows only TLS 1.0",                              |d, a| force(&mut d.tls.words.versions, a)),
    bind("force-tlsv11",     "",              "allows only TLS 1.1",                              |d, a| force(&mut d.tls.words.versions, a)),
    bind("force-tlsv12",     "",              "allows only TLS 1.2",                              |d, a| force(&mut d.tls.words.versions, a)),
    bind("force-tlsv13",     "",              "allows only TLS 1.3",                              |d, a| force(&mut d.tls.words.versions, a)),
    bind("no-sslv3",         "",              "disables SSL 3.0, which is not supported in any case", |d, a| without(&mut d.tls.words.versions, a)),
    bind("no-tlsv10",        "",              "disables TLS 1.0",                                 |d, a| without(&mut d.tls.words.versions, a)),
    bind("no-tlsv11",        "",              "disables TLS 1.1",                                 |d, a| without(&mut d.tls.words.versions, a)),
    bind("no-tlsv12",        "",              "disables TLS 1.2",                                 |d, a| without(&mut d.tls.words.versions, a)),
    bind("no-tlsv13",        "",              "disables TLS 1.3",                                 |d, a| without(&mut d.tls.words.versions, a)),
    bind("tls-ticket-keys",  "<file>",        "session ticket keys shared with other processes",  |d, a| word(&mut d.tls.ticket_keys, a)).partial(TICKETS),
    bind("allow-0rtt",       "",              "accepts early data, which an attacker can replay", |d, a| { d.tls.early = Some(a.last().span()); Ok(()) }).partial(EARLY),
    bind("ktls",             "on | off",      "whether the kernel handles TLS records",           |d, a| { d.tls.kernel = Some(kernel(a)?); Ok(()) }).partial(KERNEL),
    bind("tls-tickets",      "",              "enables session tickets",                          |d, _| { d.tls.words.tickets = Some(true); Ok(()) }),
    bind("no-tls-tickets",   "",              "disables session tickets",                         |d, _| { d.tls.words.tickets = Some(false); Ok(()) }),
];

/// The rows of `server` lines.
#[rustfmt::skip]
pub static SERVER: &[ServerKeyword] = &[
    server("ssl",            "",              "enables TLS",                                      |d, _| { (d.tls.enabled, d.tls.is_set) = (true, true); Ok(()) }),
    server("no-ssl",         "",              "disables TLS",                                     |d, _| { (d.tls.enabled, d.tls.refused) = (false, true); Ok(()) }),
    server("alpn",           "<protocols>",   "protocols to negotiate with ALPN, preferred first", |d, a| { d.tls.words.no_alpn = false; word(&mut d.tls.words.alpn, a) }),
    server("npn",            "<protocols>",   "removed: use `alpn`",                              |_, a| a.value().map(|_| ())).without_effect(NPN),
    server("ca-file",        "<file>",        "CAs that may sign the server's certificate",       |d, a| word(&mut d.tls.words.ca_file, a)),
    server("crl-file",       "<file>",        "certificate revocation lists",                     |d, a| word(&mut d.tls.words.crl_file, a)),
    server("crt",            "<file>",        "client certificate presented to the server",       |d, a| word(&mut d.tls.certificate, a)),
    server("verify",         "none | required", "whether the server's certificate is verified",   |d, a| verify(&mut d.tls.words, a, false)),
    server("verifyhost",     "<host>",        "name to verify in the server's certificate if no SNI is sent", |d, a| word(&mut d.tls.verify_host, a)),
    server("no-verifyhost",  "",              "unsets `verifyhost`",                                             |d, _| { d.tls.verify_host = None; Ok(()) }),
    server("verifysan",      "{ dns | uri }:<name>[,…]", "alternative names of which the server's certificate must have one", |d, a| word(&mut d.tls.verify_names, a)),
    server("sni",            "<expression>",  "server name sent as SNI",                          |d, a| word(&mut d.tls.sni, a)),
    server("sni-auto",       "",              "sends the requested host as SNI",                  |d, _| { d.tls.no_sni_auto = false; Ok(()) }),
    server("no-sni-auto",    "",              "does not send the requested host as SNI",          |d, _| { d.tls.no_sni_auto = true; Ok(()) }),
    server("allow-0rtt",     "",              "sends early data to the server",                   |d, a| { d.tls.early = Some(a.last().span()); Ok(()) }).partial(EARLY_SERVER),
    server("ssl-reuse",      "",              "resumes TLS sessions",                             |d, _| { d.tls.no_reuse = false; Ok(()) }).partial(REUSE),
    server("no-ssl-reuse",   "",              "disables TLS session resumption",                  |d, _| { d.tls.no_reuse = true; Ok(()) }),
    server("check-ssl",      "",              "uses TLS for checks",                              |d, _| { d.tls.check = Some(true); Ok(()) }),
    server("no-check-ssl",   "",              "does not use TLS for checks",                      |d, _| { d.tls.check = Some(false); Ok(()) }),
    server("check-sni-auto", "",              "sends the host requested by a check as SNI",       |d, _| { d.tls.no_check_sni_auto = false; Ok(()) }),
    server("no-check-sni-auto", "",           "does not derive the SNI of checks from the request", |d, _| { d.tls.no_check_sni_auto = true; Ok(()) }),
    server("check-sni",      "<name>",        "SNI of checks",                                    |d, a| word(&mut d.tls.check_sni, a)),
    server("check-alpn",     "<protocols>",   "protocols that checks negotiate with ALPN",        |d, a| word(&mut d.tls.check_alpn, a)),
    server("ciphers",        "<ciphers>",     "cipher suites up to TLS 1.2, in OpenSSL notation", |d, a| word(&mut d.tls.words.ciphers, a)).partial(SUITES),
    server("ciphersuites",   "<suites>",      "TLS 1.3 cipher suites",                            |d, a| word(&mut d.tls.words.ciphersuites, a)),
    server("curves",         "<curves>",      "key exchange groups, preferred first",             |d, a| word(&mut d.tls.words.curves, a)),
    server("sigalgs",        "<sigalgs>",     "signature algorithms accepted from the server",    |d, a| word(&mut d.tls.words.sigalgs, a)),
    server("client-sigalgs", "<sigalgs>",     "signature algorithms for our own key",             |d, a| word(&mut d.tls.words.client_sigalgs, a)).partial(SIGALGS),
    server("ssl-min-ver",    "<version>",     "minimum TLS version",                              |d, a| { d.tls.words.versions.min = Some(version(a)?); Ok(()) }),
    server("ssl-max-ver",    "<version>",     "maximum TLS version",                              |d, a| { d.tls.words.versions.max = Some(version(a)?); Ok(()) }),
    server("force-sslv3",    "",              "allows only SSL 3.0",                              |d, a| force(&mut d.tls.words.versions, a)).partial(SSL3),
    server("force-tlsv10",   "",              "allows only TLS 1.0",                              |d, a| force(&mut d.tls.words.versions, a)),
    server("force-tlsv11",   "",              "allows only TLS 1.1",                              |d, a| force(&mut d.tls.words.versions, a)),
    server("force-tlsv12",   "",              "allows only TLS 1.2",                              |d, a| force(&mut d.tls.words.versions, a)),
    server("force-tlsv13",   "",              "allows only TLS 1.3",                              |d, a| force(&mut d.tls.words.versions, a)),
    server("no-sslv3",       "",              "disables SSL 3.0, which is not supported in any case", |d, a| without(&mut d.tls.words.versions, a)),
    server("no-tlsv10",      "",              "disables TLS 1.0",                                 |d, a| without(&mut d.tls.words.versions, a)),
    server("no-tlsv11",      "",              "disables TLS 1.1",                                 |d, a| without(&mut d.tls.words.versions, a)),
    server("no-tlsv12",      "",              "disables TLS 1.2",                                 |d, a| without(&mut d.tls.words.versions, a)),
    server("no-tlsv13",      "",              "disables TLS 1.3",                                 |d, a| without(&mut d.tls.words.versions, a)),
    server("tls-tickets",    "",              "enables session tickets",                          |d, _| { d.tls.words.tickets = Some(true); Ok(()) }),
    server("no-tls-tickets", "",              "does not request session tickets, up to TLS 1.2",  |d, _| { d.tls.words.tickets = Some(false); Ok(()) }),
    server("renegotiate",    "",              "allows servers to renegotiate, up to TLS 1.2",     |d, _| { d.tls.words.renegotiate = Some(true); Ok(()) }),
    server("no-renegotiate", "",              "forbids servers to renegotiate, the default",      |d, _| { d.tls.words.renegotiate = Some(false); Ok(()) }),
    server("ktls",           "on | off",      "whether the kernel handles TLS records",           |d, a| { d.tls.kernel = Some(kernel(a)?); Ok(()) }).partial(KERNEL),
];

/// Stores a value as a word until files are read and names are resolved.
pub(super) fn word<'a>(value: &mut Option<TlsValue<'a>>, args: &mut Args<'a, '_>) -> Outcome {
    *value = Some(args.value()?.into());
    Ok(())
}

/// `ssl-load-extra-files`: only the named kinds of files are loaded.
pub(super) fn extra_files(extra: &mut ExtraFiles, args: &mut Args<'_, '_>) -> Outcome {
    let replaces_ending = extra.replaces_ending;
    *extra = ExtraFiles { replaces_ending, ..ExtraFiles::NONE };
    args.required("`none`, `all` or file types")?;
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
                return Err(args.wrong(format!("unknown file type `{other}`")).did_you_mean(near));
            }
        }
        if args.next().is_none() {
            return Ok(());
        }
    }
}

/// `ssl-default-bind-options`. Without `strict_sni`, this is `ssl-default-server-options`, where some words have no effect.
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
                    .wrong(format!("unknown option `{option}` for `{keyword}`"))
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
        args.wrong(format!("`ssl-provider`: cannot load `{name}`: {error}"))
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
            .wrong(format!("`ktls` must be `on` or `off`, not `{other}`"))
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
        args.wrong(format!("unknown TLS version `{word}`"))
            .label("use SSLv3, TLSv1.0, TLSv1.1, TLSv1.2 or TLSv1.3")
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
