//! The TLS files of a configuration: certificates, authorities and ticket keys, each read once. Used by `resolve::tls`, `crt_list`
//! and `certificates`.

use std::collections::HashMap;
use std::rc::Rc;
use std::sync::Arc;

use base::raw::text_of_path;
use diag::{Diagnostic, Span};
use tls::files::AuthorityKind;
use tls::generated::{self, Authority, Generating};
use tls::load::{self, ExtraFiles, Loader};
use tls::store::Passphrases;
use tls::tickets::{SessionCache, TicketKeys};
use tls::{Certificate, LoadError, Trust};

use crate::draft::Statement;
use crate::draft::tls::{BindTls, TlsDefaults, TlsValue, TlsWords};
use crate::resolve::ResolveContext;

/// Files already read, by path.
#[derive(Default)]
pub(crate) struct ReadFiles {
    /// All TLS files of the process, for the runtime socket.
    pub(crate) all: Arc<tls::files::Files>,
    certificates: HashMap<String, Vec<Arc<Certificate>>>,
    /// Certificates of `crt-store` sections, by all their names.
    pub(crate) stores: HashMap<String, Rc<StoredCertificate>>,
    /// The file parameters of certificates that a crt-list line or `ssl-f-use` has loaded.
    loads: HashMap<String, Vec<(&'static str, String)>>,
    trusts: HashMap<[Option<String>; 3], Arc<Trust>>,
    ticket_keys: HashMap<String, Arc<TicketKeys>>,
    /// The session cache for all clients.
    pub(crate) sessions: Option<Arc<SessionCache>>,
    /// The generated certificates of all listeners.
    generated: Option<Arc<generated::Cache>>,
}

/// A certificate of a `crt-store`.
#[derive(Debug)]
pub(crate) struct StoredCertificate {
    /// The first name of the certificate.
    pub(crate) name: Box<str>,
    /// The location of the certificate's line.
    pub(crate) span: Span,
    /// The certificate, or `None` if it has no key.
    pub(crate) certificate: Option<Arc<Certificate>>,
}

impl ReadFiles {
    /// Starts with the files of a plan in use.
    pub(crate) fn with(all: Arc<tls::files::Files>) -> Self {
        Self { all, ..Self::default() }
    }

    /// Returns the file parameters of the certificate with this name, if a line loaded it with any.
    pub(crate) fn file_parameters(&self, name: &str) -> Option<&Vec<(&'static str, String)>> {
        self.loads.get(name)
    }

    /// Whether a certificate with this name was read.
    pub(crate) fn knows(&self, name: &str) -> bool {
        self.certificates.contains_key(name) || self.stores.contains_key(name)
    }

    /// Stores a certificate built from the files named by its line.
    pub(crate) fn keep_loaded(
        &mut self,
        name: &str,
        certificate: Certificate,
        parameters: Vec<(&'static str, String)>,
    ) {
        let kept = self.all.keep(Arc::new(certificate));
        self.certificates.insert(name.to_owned(), vec![kept]);
        self.loads.insert(name.to_owned(), parameters);
    }
}

/// Parses a list of protocols.
pub(crate) fn protocols(word: Option<TlsValue<'_>>) -> Result<Vec<Box<[u8]>>, Diagnostic> {
    let Some(word) = word else { return Ok(Vec::new()) };
    tls::files::protocols(&word).map_err(|error| {
        Diagnostic::alert("a protocol name must have 1 to 255 characters").at(word.span).haproxy(error)
    })
}

/// Creates the certificate loader; `extra` lists the additional files that it looks for.
pub(crate) fn loader(extra: ExtraFiles, context: &ResolveContext<'_>) -> Loader {
    let passphrases = context.tls.passphrases.clone();
    Loader { extra, passphrases, chains: context.tls_files.all.chains() }
}

/// Reads the chains of `issuers-chain-path`.
///
/// # Errors
/// The directory or a file in it cannot be read.
pub(crate) fn keep_chains(directory: TlsValue<'_>, context: &ResolveContext<'_>) -> Result<(), Diagnostic> {
    let path = text_of_path(&context.names.path(&directory)).into_owned();
    let chains = load::chains(&path).map_err(|error| refused(&error, directory))?;
    context.tls_files.all.keep_chains(chains);
    Ok(())
}

/// The error for a certificate used in two incompatible ways.
pub(crate) fn contradiction(why: &str) -> Diagnostic {
    Diagnostic::alert(format!("the certificate is also used with a {why}"))
        .help("use the same setting in all places, or set `ocsp-update.mode` in the global section")
}

/// Returns the certificates for a name: those of a file with its companion files, or those of a directory.
pub(crate) fn certificates(
    name: TlsValue<'_>,
    defaults: &TlsDefaults<'_>,
    context: &mut ResolveContext<'_>,
) -> Result<Vec<Arc<Certificate>>, Diagnostic> {
    let path = located(defaults.certificates, &name, context);
    let stored = context.tls_files.stores.get(&path).or_else(|| context.tls_files.stores.get(name.text));
    if let Some(stored) = stored {
        return of_store(name, stored).map(|one| vec![one]);
    }
    if let Some(known) = context.tls_files.certificates.get(&path) {
        return Ok(known.clone());
    }
    // A server added at run time uses the certificate in memory, not the one on disk.
    if let Some(known) = context.tls_files.all.certificate(&path) {
        return Ok(vec![known]);
    }
    let loader = loader(defaults.extra, context);
    let loaded = loader.certificates(&path).map_err(|error| refused(&error, name))?;
    let loaded: Vec<_> = loaded.into_iter().map(|one| context.tls_files.all.keep(one)).collect();
    context.tls_files.certificates.insert(path, loaded.clone());
    Ok(loaded)
}

/// A certificate of a `crt-store`, which must precede the lines that use it.
fn of_store(name: TlsValue<'_>, stored: &StoredCertificate) -> Result<Arc<Certificate>, Diagnostic> {
    let place = |span: Span| (span.file, span.start);
    if place(name.span) < place(stored.span) {
        return Err(Diagnostic::alert(format!("`{}` is used before a `crt-store` loads it", name.text))
            .at(name.span)
            .related(stored.span, "loaded here")
            .help("move the `crt-store` section above this one")
            .haproxy(format!(
                "'load' in section 'crt-store': store '{}' was already defined.",
                stored.name
            )));
    }
    stored.certificate.clone().ok_or_else(|| {
        Diagnostic::alert(format!("certificate `{}` has no private key", name.text))
            .at(name.span)
            .related(stored.span, "loaded here")
            .help("use `key <file>` on that line to set it")
            .haproxy(format!(
                "unable to load SSL private key into SSL Context '{}': passed a null parameter.",
                stored.name
            ))
    })
}

/// The settings for generating certificates on a `bind` line.
///
/// # Errors
/// The authority is missing, or its file cannot be used.
pub(crate) fn generating(
    draft: &BindTls<'_>,
    frontend: &str,
    statement: &Statement,
    context: &mut ResolveContext<'_>,
) -> Result<Option<Generating>, Diagnostic> {
    let Some(span) = draft.generates else { return Ok(None) };
    let place = format!("[{}:{}]", context.sources.file(statement.span.file).name(), statement.line);
    let Some(name) = draft.sign_file else {
        return Err(Diagnostic::alert("`generate-certificates` requires a signing CA")
            .at(span)
            .help("use `ca-sign-file <file>` with the CA's certificate and key")
            .haproxy_whole(format!(
                "Proxy '{frontend}': cannot enable certificate generation, no CA certificate File configured at {place}."
            )));
    };
    let defaults = context.tls.clone();
    let path = located(defaults.authorities, &name, context);
    let mut loader = loader(defaults.extra, context);
    if let Some(pass) = draft.sign_pass {
        let pass = pass.text.as_bytes().to_vec();
        loader.passphrases = Some(Arc::new(Passphrases::new(move |_| Some(pass.clone()))));
    }
    let made = loader.authority(&path).map_err(|error| error.to_string());
    let made = made.and_then(|own| Authority::new(&own).map_err(|error| format!("'{path}': {error}.")));
    let authority = made.map_err(|error| {
        Diagnostic::alert(format!("`ca-sign-file`: {error}"))
            .at(name.span)
            .help("the file must contain the CA's certificate and private key in PEM format")
            .haproxy_whole(format!(
                "Proxy '{frontend}': Failed to read CA certificate file '{path}' at {place}. Chain loading failed: {error}"
            ))
    })?;
    let cache = || Arc::new(generated::Cache::new(defaults.generated));
    let cache = context.tls_files.generated.get_or_insert_with(cache).clone();
    Ok(Some(Generating { authority: Arc::new(authority), cache }))
}

/// The certificate presented by a `server` line.
pub(crate) fn certificate(
    name: TlsValue<'_>,
    defaults: &TlsDefaults<'_>,
    context: &mut ResolveContext<'_>,
) -> Result<Arc<Certificate>, Diagnostic> {
    let mut loaded = certificates(name, defaults, context)?.into_iter();
    loaded
        .next()
        .ok_or_else(|| Diagnostic::alert(format!("`{}` contains no certificate", name.text)).at(name.span))
}

/// Reads a file with authorities or revocation lists, unless it is already known.
pub(crate) fn keep_authority(
    path: &str,
    place: usize,
    name: TlsValue<'_>,
    context: &ResolveContext<'_>,
) -> Result<(), Diagnostic> {
    let all = &context.tls_files.all;
    if !all.knows_authority(path) {
        let parts = load::authorities(path).map_err(|error| refused(&error, name))?;
        let kind = if place == 2 { AuthorityKind::Revocations } else { AuthorityKind::Authorities };
        all.keep_authority(path, kind, parts);
    }
    Ok(())
}

/// The ticket keys in a file, shared by the lines that name it.
pub(crate) fn ticket_keys(
    name: TlsValue<'_>,
    lifetime: u32,
    context: &mut ResolveContext<'_>,
) -> Result<Arc<TicketKeys>, Diagnostic> {
    let path = located(None, &name, context);
    if let Some(known) = context.tls_files.ticket_keys.get(&path) {
        return Ok(known.clone());
    }
    let unreadable =
        |error: String| Diagnostic::alert(format!("cannot read `{path}`: {error}")).at(name.span);
    let text = context.names.file(&path).map_err(unreadable)?;
    let keys = TicketKeys::from_text(&path, &String::from_utf8_lossy(&text), lifetime)
        .map_err(|error| refused(&error, name))?;
    let keys = Arc::new(keys);
    context.tls_files.all.keep_ticket_keys(&path, &keys);
    context.tls_files.ticket_keys.insert(path, keys.clone());
    Ok(keys)
}

/// The trusted authorities of a line.
pub(crate) fn trust(
    words: &TlsWords<'_>,
    defaults: &TlsDefaults<'_>,
    context: &mut ResolveContext<'_>,
) -> Result<Arc<Trust>, Diagnostic> {
    let files = [words.ca_file, words.ca_verify_file, words.crl_file];
    let paths = files.map(|name| name.map(|name| located(defaults.authorities, &name, context)));
    if let Some(known) = context.tls_files.trusts.get(&paths) {
        return Ok(known.clone());
    }
    for (place, (name, path)) in files.iter().zip(&paths).enumerate() {
        let (Some(name), Some(path)) = (name, path) else { continue };
        keep_authority(path, place, *name, context)?;
    }
    let known = paths.clone().map(|path| path.map(String::into_boxed_str));
    let trust = context.tls_files.all.trust(&known).unwrap_or_default();
    let trust = Arc::new(trust);
    context.tls_files.trusts.insert(paths, trust.clone());
    Ok(trust)
}

/// Resolves a file name: below its base directory if there is one, otherwise like other relative names.
pub(crate) fn located(base: Option<&str>, name: &str, context: &ResolveContext<'_>) -> String {
    match base {
        _ if name.starts_with(['/', '@']) => name.to_owned(),
        Some(base) => format!("{}/{name}", base.trim_end_matches('/')),
        None => text_of_path(&context.names.path(name)).into_owned(),
    }
}

pub(crate) fn refused(error: &LoadError, name: TlsValue<'_>) -> Diagnostic {
    let text = error.to_string();
    Diagnostic::alert(text.clone()).at(name.span).haproxy(text)
}
