//! Resolves the TLS parameters of `bind` lines: reads the files and looks up the names (manual, section 5.1). `tls_server` does
//! this for `server` lines.

use std::sync::Arc;

use diag::{Diagnostic, Span};
use tls::ciphers::{self, Unsupported};
use tls::files::{BindLine, CertificateList, EARLY_DATA, LineCertificates, ListEntry};
use tls::tickets::{SessionCache, TicketKeys};
use tls::{
    Acceptor, Certificate, CertificateEntry, ClientVerify, EntryOptions, Keep, Legacy, Listening, Parameters,
    Resumption, VerifyCode, VerifyCodes, has_group, has_suite, names,
};

use crate::draft::Statement;
use crate::draft::tls::{BindTls, CertificateSource, TlsDefaults, TlsValue};
use crate::resolve::ResolveContext;
use crate::resolve::crt_list::{self, Listed};
use crate::resolve::legacy::{self, LegacyNeeds};
use crate::resolve::tls_files::{
    certificates, contradiction, generating, located, protocols, ticket_keys, trust,
};
use crate::resolve::{ktls, quic};

/// The frontend of a `bind` line.
pub(crate) struct LineOwner<'a> {
    /// The name of the line's frontend.
    pub(crate) frontend: &'a str,
    /// Whether the frontend uses HTTP, which determines the default ALPN.
    pub(crate) is_http: bool,
    /// Whether it is for QUIC.
    pub(crate) is_quic: bool,
    /// The certificates that the frontend provides for all of its lines (`ssl-f-use`).
    pub(crate) certificates: &'a [Listed<'a>],
}

/// Builds the TLS acceptor of a `bind` line, or `None` without `ssl`.
///
/// # Errors
/// A file or a name is invalid.
pub(crate) fn acceptor(
    draft: &BindTls<'_>,
    title: &str,
    owner: &LineOwner<'_>,
    statement: &Statement,
    context: &mut ResolveContext<'_>,
) -> Result<Option<Arc<Acceptor>>, Diagnostic> {
    ktls::check(draft.kernel, "", context)?;
    if !draft.enabled {
        // These certificates are not used, but must be valid.
        let defaults = context.tls.clone();
        for source in &draft.certificates {
            if let CertificateSource::File(name) | CertificateSource::Default(name) = source {
                certificates(*name, &defaults, context)?;
            }
        }
        return Ok(None);
    }
    let defaults = context.tls.clone();
    let options = Arc::new(bind_options(draft, owner, statement, &defaults, context)?);
    let strict_sni = draft.strict_sni.or(defaults.strict_sni).unwrap_or(false);
    let at = BindContext { frontend: owner.frontend, title, statement };
    if options.verify.has_no_trusted_ca() {
        return Err(no_trusted_ca(&at, context));
    }
    let (mut entries, mut served) = (Vec::new(), Vec::new());
    let entry = |certificate: Arc<Certificate>, is_default: bool| {
        let options = options.clone();
        CertificateEntry { certificate, filters: Vec::new(), is_default, options }
    };
    for source in &draft.certificates {
        match source {
            CertificateSource::File(name) => {
                let first = entries.len();
                let all = certificates(*name, &defaults, context)?;
                note_use(&all, title, *name, context)?;
                entries.extend(all.iter().map(|one| entry(one.clone(), false)));
                let path = located(defaults.certificates, name, context);
                base::seen_files::note(&path);
                if std::fs::metadata(base::raw::path_of(&path)).is_ok_and(|found| found.is_dir()) {
                    let names = all
                        .iter()
                        .map(|one| ListEntry { certificate: one.name.clone(), ..ListEntry::default() });
                    let list = CertificateList { is_directory: true, entries: names.collect(), lines: 0 };
                    context.tls_files.all.keep_list(&path, list);
                    served.push(LineCertificates { list: path.into(), places: places(first, entries.len()) });
                }
            }
            CertificateSource::Default(name) => {
                let all = certificates(*name, &defaults, context)?;
                note_use(&all, title, *name, context)?;
                entries.extend(all.into_iter().map(|one| entry(one, true)));
            }
            CertificateSource::List(name) => {
                let first = entries.len();
                let path = crt_list::read(*name, statement, &options, &mut entries, context)?;
                served.push(LineCertificates { list: path.into(), places: places(first, entries.len()) });
            }
        }
    }
    if !owner.certificates.is_empty() {
        let first = entries.len();
        let list =
            crt_list::serve(owner.certificates, owner.frontend, statement, &options, &mut entries, context)?;
        served.push(LineCertificates { list: list.into(), places: places(first, entries.len()) });
    }
    if entries.is_empty() {
        no_certificate(&at, strict_sni, context)?;
    }
    for entry in &entries {
        match owner.is_quic {
            true => quic::check_key(&entry.certificate, statement)?,
            false => check_key(&entry.certificate, statement, &defaults)?,
        }
    }
    let tickets = draft.words.tickets.or(defaults.bind.tickets).unwrap_or(true);
    let failed =
        |error: String| Diagnostic::alert(format!("`{title}`: {error}")).at(statement.keyword_span());
    if let Some(words) = draft.ticket_keys.filter(|_| options.parameters.legacy.is_some()) {
        let text = "`tls-ticket-keys`: tickets for clients that OpenSSL serves are sealed with separate keys";
        // HAProxy does not warn and uses the keys, so the behaviour differs.
        context.diagnostics.push(Diagnostic::warning(text).at(words.span).tolerated());
    }
    let lifetime = u32::try_from(defaults.lifetime.as_secs()).unwrap_or(u32::MAX);
    let ticket_keys = match (tickets, draft.ticket_keys) {
        (false, _) => None,
        (true, Some(name)) => Some(ticket_keys(name, lifetime, context)?),
        (true, None) => Some(Arc::new(TicketKeys::random(lifetime).map_err(failed)?)),
    };
    let cache = (defaults.sessions > 0).then(|| {
        let cache = || Arc::new(SessionCache::new(defaults.sessions, lifetime));
        context.tls_files.sessions.get_or_insert_with(cache).clone()
    });
    let resumption = Resumption { tickets: ticket_keys, sessions: cache };
    let listening = Listening {
        entries,
        strict_sni,
        resumption,
        limits: defaults.limits(),
        keep: Keep { lists: defaults.capture.unwrap_or(0), secrets: defaults.key_log, ..Keep::default() },
        challenges: context.orders.answer_by_tls().then(|| context.tls_files.all.challenges().clone()),
        generating: generating(draft, owner.frontend, statement, context)?,
        is_quic: owner.is_quic,
    };
    if owner.is_quic {
        quic::warn_of_lines(&listening.entries, &options, statement, context);
    }
    let acceptor = Arc::new(Acceptor::new(listening).map_err(failed)?);
    let file = context.sources.file(statement.span.file).name();
    let line = BindLine {
        frontend: owner.frontend.into(),
        place: format!("{file}:{}", statement.line).into(),
        acceptor: acceptor.clone(),
        options,
    };
    context.tls_files.all.add_line(line, &served);
    Ok(Some(acceptor))
}

/// A `bind` line: its frontend, its title and its location.
struct BindContext<'a> {
    frontend: &'a str,
    title: &'a str,
    statement: &'a Statement,
}

impl BindContext<'_> {
    /// The line in HAProxy's notation, as a suffix of messages.
    fn shown(&self, context: &ResolveContext<'_>) -> String {
        let address = self.title.strip_prefix("bind ").unwrap_or(self.title);
        let file = context.sources.file(self.statement.span.file).name();
        format!("for bind '{address}' at [{file}:{}]", self.statement.line)
    }
}

/// Reports a TLS line without any certificate. It cannot serve clients unless a certificate is added at run time, which
/// `strict-sni` permits (manual, 5.1).
fn no_certificate(
    at: &BindContext<'_>,
    strict_sni: bool,
    context: &mut ResolveContext<'_>,
) -> Result<(), Diagnostic> {
    let (frontend, title, place) = (at.frontend, at.title, at.shown(context));
    let text = format!("`{title}` uses TLS but has no certificate");
    let haproxy = format!("Proxy '{frontend}': no SSL certificate specified {place}");
    if strict_sni {
        let warning = Diagnostic::warning(text)
            .label("TLS connections fail until one is added at run time")
            .haproxy_whole(format!("{haproxy}, ssl connections will fail (use 'crt')."));
        context.diagnostics.push(warning.at(at.statement.keyword_span()));
        return Ok(());
    }
    Err(Diagnostic::alert(text)
        .at(at.statement.keyword_span())
        .help("add a file with a certificate and its key: `crt <file>`")
        .haproxy_whole(format!("{haproxy} (use 'crt').")))
}

fn no_trusted_ca(at: &BindContext<'_>, context: &ResolveContext<'_>) -> Diagnostic {
    let (frontend, place) = (at.frontend, at.shown(context));
    Diagnostic::alert(format!("`{}` verifies clients, but no CA is trusted", at.title))
        .at(at.statement.keyword_span())
        .help("use `ca-file <file>` or `ca-file @system-ca` to set the trusted CAs")
        .haproxy_whole(format!("Proxy '{frontend}': verify is enabled but no CA file specified {place}."))
}

/// Records that a `bind` line uses certificates without an explicit OCSP update setting.
fn note_use(
    all: &[Arc<Certificate>],
    title: &str,
    name: TlsValue<'_>,
    context: &ResolveContext<'_>,
) -> Result<(), Diagnostic> {
    for one in all {
        context.tls_files.all.note_update_mode(&one.name, None, false).map_err(|why| {
            let own = &one.name;
            contradiction(&why).at(name.span).haproxy(format!(
                "'{title}' in section 'frontend' : \n  Can't load '{own}', is already defined with incompatible \
                 parameters:\n  - {why}"
            ))
        })?;
    }
    Ok(())
}

/// Checks that a signer for a certificate's key is available.
pub(super) fn check_key(
    certificate: &Certificate,
    statement: &Statement,
    defaults: &TlsDefaults<'_>,
) -> Result<(), Diagnostic> {
    if !certificate.key.needs_openssl() {
        return Ok(());
    }
    let cause = legacy::LegacyCause::Key(certificate.name.clone());
    legacy::check(&cause, statement.keyword_span(), statement, defaults)
}

/// Converts versions, suites, groups and signature algorithms to their numbers.
pub(super) fn parameters(
    wanted: &LegacyNeeds<'_, '_>,
    statement: &Statement,
    context: &mut ResolveContext<'_>,
) -> Result<Parameters, Diagnostic> {
    let LegacyNeeds { own, default, defaults, is_bind, .. } = *wanted;
    let mut parameters = Parameters {
        prefer_client: own.prefer_client || default.prefer_client,
        compresses: defaults.compresses,
        takes_odd_names: tls::HAS_OPENSSL && !defaults.no_legacy,
        ..Parameters::default()
    };
    (parameters.min, parameters.max) = versions(wanted, statement, context)?;
    let ciphers = own.ciphers.or(default.ciphers);
    let suites = match ciphers {
        Some(words) => Some(ciphers::ciphers(&words).map_err(|name| unknown("ciphers", words, &name))?),
        None => None,
    };
    let cause = legacy::cause(wanted, &parameters, suites.as_deref());
    if let Some(cause) = &cause {
        let at = match cause {
            legacy::LegacyCause::Suites | legacy::LegacyCause::Level(_) => {
                own.ciphers.map(|words| words.span)
            }
            _ => None,
        };
        legacy::check(cause, at.unwrap_or_else(|| statement.keyword_span()), statement, defaults)?;
    }
    if cause.is_some() || legacy::is_shared(wanted, &parameters, suites.as_deref()) {
        let dh = match defaults.dh_file.filter(|_| is_bind) {
            Some(name) => Some(dh_parameters(name, context)?),
            None => None,
        };
        parameters.legacy = Some(Legacy {
            alone: defaults.has_provider,
            security_level: wanted.level(),
            dh,
            dh_bits: defaults.dh_bits,
            renegotiates: wanted.renegotiates(&parameters),
        });
    }
    let is_legacy = parameters.legacy.is_some();
    if let Some(words) = own.client_sigalgs.filter(|_| is_legacy) {
        let text = "`client-sigalgs` has no effect if OpenSSL serves the line";
        // HAProxy does not warn and restricts the signatures, so the behaviour differs.
        context.diagnostics.push(Diagnostic::warning(text).at(words.span).tolerated());
    }
    if let Some(all) = suites.or_else(|| is_legacy.then(|| ciphers::ciphers("DEFAULT").unwrap_or_default())) {
        parameters.suites12 = all.into_iter().filter(|suite| is_legacy || has_suite(*suite)).collect();
    }
    for (words, list, what, read) in [
        (
            own.ciphersuites.or(default.ciphersuites),
            &mut parameters.suites13,
            "ciphersuites",
            ciphers::ciphersuites as NameListRead,
        ),
        (own.curves.or(default.curves), &mut parameters.groups, "curves", ciphers::curves),
        (own.sigalgs.or(default.sigalgs), &mut parameters.sigalgs, "sigalgs", ciphers::sigalgs),
        (
            own.client_sigalgs.or(default.client_sigalgs),
            &mut parameters.peer_sigalgs,
            "client-sigalgs",
            ciphers::sigalgs,
        ),
    ] {
        let Some(words) = words else { continue };
        let had = |numbers: Vec<u16>| match what {
            "ciphersuites" => numbers.into_iter().filter(|number| has_suite(*number)).collect(),
            "curves" if !is_legacy => numbers.into_iter().filter(|number| has_group(*number)).collect(),
            _ => numbers,
        };
        let all = || Unsupported(words.text.into());
        let read = read(&words).map(had).and_then(|list| if list.is_empty() { Err(all()) } else { Ok(list) });
        *list = read.map_err(|name| unknown(what, words, &name))?;
    }
    // As in OpenSSL, `client-sigalgs` applies to the client's certificate. `sigalgs` applies to the server's certificate, and is
    // the default for the client's.
    let Parameters { sigalgs, peer_sigalgs: of_client, .. } = &mut parameters;
    if of_client.is_empty() {
        of_client.clone_from(sigalgs);
    }
    if !is_bind {
        std::mem::swap(sigalgs, of_client);
    }
    Ok(parameters)
}

/// The error for an unknown name in a list.
fn unknown(what: &str, words: TlsValue<'_>, Unsupported(name): &Unsupported) -> Diagnostic {
    Diagnostic::alert(format!("`{what}`: `{name}` is not supported"))
        .at(words.span)
        .help(
            "all algorithms of OpenSSL 3 are supported, except those based on passwords and pre-shared keys",
        )
        .haproxy(format!("'{what}' : unable to set it to '{}' ('{name}').", words.text))
}

/// The oldest and the newest version of a line.
fn versions(
    wanted: &LegacyNeeds<'_, '_>,
    statement: &Statement,
    context: &mut ResolveContext<'_>,
) -> Result<(u16, u16), Diagnostic> {
    let (own, default) = (wanted.own.versions, wanted.default.versions);
    let (min, max) = own.range(default);
    let name = statement.keyword.name;
    if min > max || max < tls::TLS10 {
        return Err(Diagnostic::alert(format!("this `{name}` line disables all TLS versions"))
            .at(statement.keyword_span())
            .help("TLS 1.0 to 1.3 are supported; set the range with `ssl-min-ver` and `ssl-max-ver`")
            .haproxy(format!("'{name}' : all SSL/TLS versions are disabled.")));
    }
    if own.is_ambiguous(default) {
        let version = names::version_name(max);
        context.diagnostics.push(
            Diagnostic::warning(format!(
                "`ssl-max-ver` allows only {version}, because no lower minimum is set"
            ))
            .at(statement.keyword_span())
            .help("use `ssl-min-ver` to set the minimum"),
        );
    }
    Ok((min, max))
}

/// The contents of a file with Diffie-Hellman parameters.
fn dh_parameters(name: TlsValue<'_>, context: &mut ResolveContext<'_>) -> Result<Arc<[u8]>, Diagnostic> {
    let path = located(None, &name, context);
    let failed = |what: &str| {
        Diagnostic::alert(format!("`ssl-dh-param-file`: `{path}` {what}"))
            .at(name.span)
            .haproxy(format!("'ssl-dh-param-file' : unable to load DH parameters from file <{path}>."))
    };
    let text = context.names.file(&path).map_err(|error| failed(&format!("cannot be read: {error}")))?;
    let has = tls::pem::blocks(&text).is_ok_and(|all| all.iter().any(|one| one.label == "DH PARAMETERS"));
    if has { Ok(text) } else { Err(failed("has no Diffie-Hellman parameters")) }
}

/// Parses a list of names.
type NameListRead = fn(&str) -> Result<Vec<u16>, Unsupported>;

fn bind_options(
    draft: &BindTls<'_>,
    owner: &LineOwner<'_>,
    statement: &Statement,
    defaults: &TlsDefaults<'_>,
    context: &mut ResolveContext<'_>,
) -> Result<EntryOptions, Diagnostic> {
    let (own, default, is_quic) = (&draft.words, &defaults.bind, owner.is_quic);
    let wanted = LegacyNeeds { own, default, defaults, is_bind: true, is_quic };
    let alpn = match draft.words.alpn {
        _ if draft.words.no_alpn => Vec::new(),
        None if owner.is_http => vec![Box::from(*b"h2"), Box::from(*b"http/1.1")],
        words => protocols(words)?,
    };
    let parameters = parameters(&wanted, statement, context)?;
    warn_of_early(draft.early, &parameters, context);
    Ok(EntryOptions {
        parameters,
        alpn,
        verify: client_verify(draft, defaults, context)?,
        early_data: match draft.early {
            // The limit for QUIC is that of its streams (RFC 9001, 4.6.1).
            Some(_) if is_quic => u32::MAX,
            Some(_) => EARLY_DATA,
            None => 0,
        },
        skips_roots: defaults.skips_roots,
    })
}

/// Warns that connections made by OpenSSL do not support early data, because its separate API for that is not used.
pub(super) fn warn_of_early(early: Option<Span>, parameters: &Parameters, context: &mut ResolveContext<'_>) {
    if let Some(span) = early.filter(|_| parameters.legacy.is_some()) {
        let text = "`allow-0rtt` has no effect on server connections that use OpenSSL";
        // HAProxy does not warn. Clients still connect, but one round trip later.
        context.diagnostics.push(Diagnostic::advice(text).at(span));
    }
}

/// The certificate verification errors in a list.
fn verify_codes(list: TlsValue<'_>) -> Result<VerifyCodes, Diagnostic> {
    if list.text == "all" {
        return Ok(VerifyCodes::ALL);
    }
    let mut codes = VerifyCodes::default();
    for name in list.split(',') {
        codes.insert(VerifyCode::parse(name).ok_or_else(|| {
            Diagnostic::alert(format!("unknown certificate verification error `{name}`")).at(list.span).label(
                "use `all`, or numbers and names such as X509_V_ERR_CERT_HAS_EXPIRED, separated by commas",
            )
        })?);
    }
    Ok(codes)
}

fn client_verify(
    draft: &BindTls<'_>,
    defaults: &TlsDefaults<'_>,
    context: &mut ResolveContext<'_>,
) -> Result<ClientVerify, Diagnostic> {
    let mode = draft.words.verify.unwrap_or_default();
    let ignored = |word: Option<TlsValue<'_>>| match word {
        None => Ok(VerifyCodes::default()),
        Some(word) => verify_codes(word),
    };
    Ok(ClientVerify {
        mode,
        trust: trust(&draft.words, defaults, context)?,
        ca_ignore: ignored(draft.ca_ignore)?,
        crt_ignore: ignored(draft.crt_ignore)?,
        hides_names: draft.no_ca_names,
    })
}

/// The indexes of entries from `first` up to, but not including, `end`.
fn places(first: usize, end: usize) -> Vec<u32> {
    (first..end).filter_map(|place| u32::try_from(place).ok()).collect()
}
