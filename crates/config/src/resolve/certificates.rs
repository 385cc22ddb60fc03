//! `crt-store` sections (manual, section 12.7): certificates and keys by file and by name, for `bind` and `server` lines and for
//! JSON Web Tokens.

use std::rc::Rc;
use std::sync::Arc;

use base::raw::{path_of, text_of, text_of_path};
use diag::{Diagnostic, Severity};
use syntax::Word;
use tls::keygen::{Curve, NewKey};
use tls::load::ExtraFiles;
use tls::store::Sources;

use crate::draft::acme::{CURVES, OrderWords};
use crate::draft::args::Args;
use crate::draft::row::Outcome;
use crate::draft::settings::Bases;
use crate::draft::tls::{LoadWords, TlsValue};
use crate::draft::{Draft, Section, SectionKind, Statement};
use crate::resolve::ResolveContext;
use crate::resolve::tls_files::{StoredCertificate, loader};
use crate::tables::acme::rsa_bits;

/// Reads every store. `bases` are the directories set in the global section.
pub(crate) fn stores<'a>(draft: &'a Draft, bases: &Bases<'a>, context: &mut ResolveContext<'_>) {
    for section in draft.sections.iter().filter(|section| section.kind == SectionKind::CrtStore) {
        context.enter(section);
        let mut bases = bases.clone();
        for statement in &section.statements {
            let outcome = line(section, statement, &mut bases, context);
            context.note(outcome);
        }
    }
}

fn line<'a>(
    section: &'a Section,
    statement: &'a Statement,
    bases: &mut Bases<'a>,
    context: &mut ResolveContext<'_>,
) -> Outcome {
    match statement.keyword.name {
        "crt-base" => bases.certificates = Some(directory(statement, context)?),
        "key-base" => bases.keys = Some(directory(statement, context)?),
        _ => load(section, statement, bases, context)?,
    }
    Ok(())
}

fn directory<'a>(statement: &'a Statement, context: &mut ResolveContext<'_>) -> Result<&'a str, Diagnostic> {
    let mut args = Args::new(statement, context.diagnostics, context.environment);
    let directory = args.required("a directory")?;
    args.finish()?;
    Ok(directory)
}

fn load(
    section: &Section,
    statement: &Statement,
    bases: &Bases<'_>,
    context: &mut ResolveContext<'_>,
) -> Outcome {
    let mut args = Args::new(statement, context.diagnostics, context.environment);
    let (mut words, mut alias, mut for_tokens) = (LoadWords::default(), None, false);
    let (mut updates, mut order) = (None, OrderWords::default());
    let mut dummy = DummyWords::default();
    while let Some(word) = args.next() {
        if let Some(place) = words.place(word) {
            *place = Some(args.value()?.into());
            continue;
        }
        match word.as_str() {
            "alias" => alias = Some(args.value()?),
            "jwt" => for_tokens = args.on_off()?,
            "ocsp-update" => updates = Some(args.on_off()?),
            name @ ("acme" | "domains" | "ips") => {
                let value = args.value()?;
                order.take(name, value).map_err(|error| args.wrong(error))?;
            }
            "generate-dummy" | "keytype" | "bits" | "curves" => dummy.take(word, &mut args)?,
            other => {
                let near = diag::suggest(
                    other,
                    [
                        "crt",
                        "key",
                        "alias",
                        "jwt",
                        "ocsp",
                        "issuer",
                        "sctl",
                        "acme",
                        "domains",
                        "ips",
                        "generate-dummy",
                        "keytype",
                        "bits",
                        "curves",
                    ],
                );
                return Err(args
                    .wrong(format!("unknown argument `{other}` for `load`"))
                    .did_you_mean(near)
                    .haproxy(format!("'load {other}' in section 'crt-store': unknown keyword '{other}'.")));
            }
        }
    }
    let Some(certificate) = words.certificate else {
        return Err(args
            .wrong("`load` needs a certificate: `crt <file>`")
            .haproxy("'load' in section 'crt-store': mandatory 'crt' parameter not found."));
    };
    let path = below(bases.certificates, &certificate);
    // As in HAProxy, listings show the alias if there is one; the other names also find the certificate.
    let store = &*section.name;
    let within = |name: &str| {
        let slash = if name.starts_with('/') { "" } else { "/" };
        format!("@{store}{slash}{name}")
    };
    let mut names: Vec<String> = alias.iter().map(|alias| within(alias)).collect();
    if store.is_empty() {
        names.push(path.clone());
    }
    names.extend([within(&certificate), within(&path)]);
    let span = certificate.span;
    if let Some(kind) = dummy.kind(&words, &order)? {
        return generated(kind, &names, for_tokens, statement, context);
    }
    if order != OrderWords::default() && order.section.is_empty() {
        context.diagnostics.push(super::acme::without_effect(span));
    } else if order != OrderWords::default() {
        let located = |path: &str| text_of_path(&context.names.path(path)).into_owned();
        let (file, key_file) = (located(&path), words.key.map(|key| located(&below(bases.keys, &key))));
        context.orders.note(order, &names[0], (&file, key_file.as_deref()), certificate.span)?;
        let there = path_of(&file);
        base::seen_files::note(&there);
        if !there.exists() {
            let made = temporary(&file, key_file.as_deref(), context);
            let made = made.map_err(|error| error.at(certificate.span))?;
            return keep(&names, Some(made), statement, context);
        }
    }
    let text = read(&path, context).map_err(|error| error.at(certificate.span))?;
    let key_text = match words.key {
        Some(key) => Some(read(&below(bases.keys, &key), context).map_err(|error| error.at(key.span))?),
        None => None,
    };
    let (text, key_text) = whole_pair((text, key_text), &path, &words, bases, context);
    let for_tls = tls_certificate(&path, &text, &words, bases, context)?;
    let (text, key_text) = opened(text, key_text, for_tls.as_ref());
    let read = sample::keys::Certificate::from_pem(&text, key_text.as_deref())
        .map_err(|error| Diagnostic::alert(format!("`{path}`: {error}")).at(certificate.span))?;
    keep(&names, for_tls, statement, context)?;
    if let (Some(_), Some(name)) = (updates, names.first()) {
        // Lines that use it refer to it by this name.
        let noted = context.tls_files.all.note_update_mode(name, updates, true);
        noted.map_err(|why| Diagnostic::alert(why).at(certificate.span))?;
    }
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    context.names.certificates.insert(&names, read, for_tokens);
    Ok(())
}

/// The parameters of a certificate that is generated when the configuration is read.
#[derive(Default)]
struct DummyWords<'a> {
    is_on: bool,
    is_ecdsa: bool,
    bits: Option<u16>,
    curve: Curve,
    /// The last parameter that only describes a generated certificate.
    about: Option<&'a Word>,
}

impl<'a> DummyWords<'a> {
    fn take(&mut self, word: &'a Word, args: &mut Args<'a, '_>) -> Outcome {
        match word.as_str() {
            "generate-dummy" => {
                self.is_on = args.on_off()?;
                return Ok(());
            }
            "keytype" => self.is_ecdsa = args.one_of(&[("RSA", false), ("ECDSA", true)])?,
            "bits" => self.bits = Some(rsa_bits(args)?),
            _ => self.curve = args.one_of(CURVES)?,
        }
        self.about = Some(word);
        Ok(())
    }

    /// The kind of the key to generate, if `generate-dummy` is on.
    fn kind(&self, words: &LoadWords<'_>, order: &OrderWords) -> Result<Option<NewKey>, Diagnostic> {
        if !self.is_on {
            let Some(word) = self.about else { return Ok(None) };
            return Err(Diagnostic::alert(format!("`{word}` needs `generate-dummy on`"))
                .at(word.span())
                .haproxy("keyword 'keytype', 'bits' and 'curves' require 'generate-dummy' set to 'on'"));
        }
        let files = [words.key, words.ocsp, words.issuer, words.sctl];
        if let Some(file) = files.into_iter().flatten().next() {
            return Err(Diagnostic::alert("a generated certificate has no files")
                .at(file.span)
                .help("remove either this parameter or `generate-dummy on`"));
        }
        if *order != OrderWords::default() {
            let at = words.certificate.map(|word| word.span);
            let text = "a certificate is either generated or ordered by ACME";
            return Err(at
                .into_iter()
                .fold(Diagnostic::alert(text), Diagnostic::at)
                .help("remove either `acme`, `domains` and `ips`, or `generate-dummy on`"));
        }
        Ok(Some(match self.is_ecdsa {
            true => NewKey::Ecdsa(self.curve),
            false => NewKey::Rsa(self.bits.unwrap_or(2048)),
        }))
    }
}

/// Generates a key and its self-signed certificate, which exist in memory alone.
fn generated(
    kind: NewKey,
    names: &[String],
    for_tokens: bool,
    statement: &Statement,
    context: &mut ResolveContext<'_>,
) -> Outcome {
    let name = names.first().map(String::as_str).unwrap_or_default();
    let failed = |error: String| Diagnostic::alert(error).at(statement.keyword_span());
    let made = tls::keygen::self_signed(name, kind).map_err(|error| failed(error.to_string()))?;
    let mut text = tls::pem::block("PRIVATE KEY", made.key.pkcs8());
    made.chain.iter().for_each(|der| text += &tls::pem::block("CERTIFICATE", der));
    let read = sample::keys::Certificate::from_pem(&text, None).map_err(|error| failed(error.to_string()))?;
    keep(names, Some(made), statement, context)?;
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    context.names.certificates.insert(&names, read, for_tokens);
    Ok(())
}

/// The PEM texts of a certificate and its key; recovers a consistent pair if an interrupted update left mismatched files.
fn whole_pair(
    texts: (String, Option<String>),
    path: &str,
    words: &LoadWords<'_>,
    bases: &Bases<'_>,
    context: &ResolveContext<'_>,
) -> (String, Option<String>) {
    let located = |path: &str| text_of_path(&context.names.path(path)).into_owned();
    let left =
        words.key.and_then(|key| tls::pair::left_over(&located(path), &located(&below(bases.keys, &key))));
    left.map_or(texts, |pair| (String::from_utf8_lossy(&pair).into_owned(), None))
}

/// The PEM texts for tokens, which do not support passphrases: the key is decrypted.
fn opened(text: String, key: Option<String>, made: Option<&tls::Certificate>) -> (String, Option<String>) {
    let marks = ["-----BEGIN ENCRYPTED PRIVATE KEY-----", "Proc-Type: 4,ENCRYPTED"];
    let is_encrypted = marks.iter().any(|mark| key.as_ref().unwrap_or(&text).contains(mark));
    let opened = made.filter(|_| is_encrypted).map(|made| tls::pem::block("PRIVATE KEY", made.key.pkcs8()));
    match (opened, key) {
        (Some(opened), Some(_)) => (text, Some(opened)),
        (Some(opened), None) => (opened + &text, None),
        (None, key) => (text, key),
    }
}

/// A temporary certificate that is used until the ordered one arrives.
fn temporary(
    file: &str,
    key_file: Option<&str>,
    context: &mut ResolveContext<'_>,
) -> Result<tls::Certificate, Diagnostic> {
    let mut made = tls::keygen::temporary(file).map_err(|error| Diagnostic::alert(error.to_string()))?;
    made.sources =
        Sources { certificate: Some(file.into()), key: key_file.map(Box::from), ..Sources::default() };
    let text = format!("`{file}` does not exist: a temporary certificate is used until one is issued");
    context.diagnostics.push(Diagnostic::new(Severity::Notice, text).haproxy_whole(format!(
        "No certificate available for '{file}', generating a temporary key pair before getting the ACME certificate"
    )));
    Ok(made)
}

/// Registers a certificate for TLS under the first of its names, so that the other names find it too.
fn keep(
    names: &[String],
    certificate: Option<tls::Certificate>,
    statement: &Statement,
    context: &mut ResolveContext<'_>,
) -> Outcome {
    let files = &mut context.tls_files;
    let name = names.first().map(String::as_str).unwrap_or_default();
    if let Some(first) = files.stores.get(name).filter(|one| *one.name == *name) {
        return Err(Diagnostic::alert(format!("certificate `{name}` is already loaded"))
            .at(statement.keyword_span())
            .related(first.span, "first used here")
            .haproxy(format!("'load' in section 'crt-store': store '{name}' was already defined.")));
    }
    let certificate = certificate.map(|mut one| {
        one.name = name.into();
        files.all.keep(Arc::new(one))
    });
    let stored = Rc::new(StoredCertificate { name: name.into(), span: statement.span, certificate });
    for name in names {
        files.stores.entry(name.clone()).or_insert_with(|| stored.clone());
    }
    Ok(())
}

/// The certificate for listeners and servers, or `None` without a key, which JSON Web Tokens do not need.
fn tls_certificate(
    path: &str,
    text: &str,
    words: &LoadWords<'_>,
    bases: &Bases<'_>,
    context: &ResolveContext<'_>,
) -> Result<Option<tls::Certificate>, Diagnostic> {
    let has_key = tls::pem::blocks(text.as_bytes())
        .is_ok_and(|all| all.iter().any(|block| block.label.ends_with("PRIVATE KEY")));
    if words.key.is_none() && !has_key {
        return Ok(None);
    }
    made_of(path, words, bases, context).map(Some)
}

/// Loads a certificate from a file and the files named by the line's parameters; no other files are searched for.
///
/// # Errors
/// A file cannot be used.
pub(crate) fn made_of(
    path: &str,
    words: &LoadWords<'_>,
    bases: &Bases<'_>,
    context: &ResolveContext<'_>,
) -> Result<tls::Certificate, Diagnostic> {
    let located = |base: Option<&str>, name: &str| context.names.path(&below(base, name));
    let file = |base, word: Option<TlsValue<'_>>| word.map(|name| text_of_path(&located(base, &name)).into());
    let files = tls::load::CertificateFiles {
        key: file(bases.keys, words.key),
        key_is_named: true,
        ocsp: file(bases.certificates, words.ocsp),
        issuer: file(bases.certificates, words.issuer),
        sctl: file(bases.certificates, words.sctl),
    };
    let path = text_of_path(&context.names.path(path)).into_owned();
    let loader = loader(ExtraFiles::NONE, context);
    let refused = |error: tls::LoadError| {
        let text = error.to_string();
        let at = words.certificate.map(|word| word.span);
        let diagnostic = Diagnostic::alert(text.clone()).haproxy(text);
        at.into_iter().fold(diagnostic, Diagnostic::at)
    };
    loader.certificate(&path, &files).map_err(refused)
}

fn below(base: Option<&str>, name: &str) -> String {
    match base {
        Some(base) if !name.starts_with('/') => format!("{}/{name}", base.trim_end_matches('/')),
        _ => name.to_owned(),
    }
}

fn read(path: &str, context: &ResolveContext<'_>) -> Result<String, Diagnostic> {
    let bytes = context.names.file(path);
    let bytes = bytes.map_err(|error| Diagnostic::alert(format!("cannot read `{path}`: {error}")))?;
    Ok(text_of(&bytes).into_owned())
}
