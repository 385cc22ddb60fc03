//! `acme` sections and the certificates ordered through them (manual, section 12.8).
//!
//! Sections are read before certificates, which record their orders. Orders are built at the end, when maps are known. This
//! module writes no files; the startup code writes newly generated account keys.

use std::collections::HashMap;
use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use diag::{Diagnostic, Span};
use plan::acme::{AccountKey, AcmeOrder, AcmeSection, Challenge, Eab, ReadyWhen};
use tls::KeyKind;
use tls::keygen::{self, NewKey};
use tls::store::PemParts;

use crate::draft::acme::{AcmeDraft, OrderWords};
use crate::draft::args::Args;
use crate::draft::keyword::{Apply, apply_of};
use crate::draft::tls::TlsValue;
use crate::draft::{Draft, Section as Written, SectionKind};
use crate::resolve::ResolveContext;
use crate::resolve::unique::second;

/// The sections read, and the orders of certificate lines.
#[derive(Default)]
pub(crate) struct Orders<'a> {
    sections: HashMap<&'a str, (&'a Written, AcmeDraft<'a>)>,
    noted: Vec<Noted>,
}

/// A certificate ordered by a line.
struct Noted {
    words: OrderWords,
    certificate: Box<str>,
    file: Box<str>,
    key_file: Option<Box<str>>,
    span: Span,
}

impl Orders<'_> {
    /// Whether any certificate is ordered.
    pub(crate) fn are_any(&self) -> bool {
        !self.noted.is_empty()
    }

    /// Whether any section uses the TLS-ALPN challenge.
    pub(crate) fn answer_by_tls(&self) -> bool {
        self.sections.values().any(|(_, draft)| draft.challenge == Challenge::TlsAlpn)
    }

    /// Records a line's order.
    ///
    /// # Errors
    /// Another line orders the same certificate differently, or the line is incomplete.
    pub(crate) fn note(
        &mut self,
        words: OrderWords,
        certificate: &str,
        files: (&str, Option<&str>),
        span: Span,
    ) -> Result<(), Diagnostic> {
        if words.domains.is_empty() && words.addresses.is_empty() {
            return Err(Diagnostic::alert(format!(
                "certificate `{certificate}` has no domain or address to order it for"
            ))
            .at(span)
            .help("use `domains <name>,<name>` to list its domains"));
        }
        if let Some(other) = self.noted.iter().find(|other| *other.certificate == *certificate) {
            if other.words == words {
                return Ok(());
            }
            return Err(Diagnostic::alert(format!(
                "certificate `{certificate}` is ordered twice with different settings"
            ))
            .at(span)
            .related(other.span, "the other order")
            .help("use the same settings in all places, or set them once in a `crt-store`"));
        }
        let (file, key_file) = (files.0.into(), files.1.map(Box::from));
        self.noted.push(Noted { words, certificate: certificate.into(), file, key_file, span });
        Ok(())
    }
}

/// Reads every section.
pub(crate) fn read<'a>(draft: &'a Draft, context: &mut ResolveContext<'a>) {
    for section in draft.sections.iter().filter(|section| section.kind == SectionKind::Acme) {
        // The feature is experimental in HAProxy, so the directive that allows it counts as used.
        context.names.experiments.set(true);
        if let Some((other, _)) = context.orders.sections.get(section.name.as_str()) {
            let haproxy = |name: &str, place: &str| {
                format!("acme '{name}' has same name as another acme (declared at {place}).")
            };
            let error = second(section, other, haproxy, context);
            context.diagnostics.push(error);
            continue;
        }
        let mut own = AcmeDraft::default();
        for statement in &section.statements {
            if let Apply::Acme(read) = apply_of(statement) {
                let mut args = Args::new(statement, context.diagnostics, context.environment);
                let outcome = read(&mut own, &mut args);
                context.note(outcome);
            }
        }
        context.orders.sections.insert(&section.name, (section, own));
    }
}

/// Builds all orders.
pub(crate) fn orders(context: &mut ResolveContext<'_>) -> Vec<Arc<AcmeOrder>> {
    let all = std::mem::take(&mut context.orders);
    let mut sections = HashMap::new();
    for (name, (section, draft)) in &all.sections {
        let is_used = all.noted.iter().any(|noted| *noted.words.section == **name);
        context.enter(section);
        match make(section, draft, is_used, context) {
            Ok(made) => drop(sections.insert(*name, made.map(Arc::new))),
            Err(error) => {
                context.diagnostics.push(error);
                sections.insert(name, None);
            }
        }
    }
    let mut orders = Vec::new();
    for noted in all.noted {
        match order(noted, &sections) {
            Ok(made) => orders.extend(made.map(Arc::new)),
            Err(error) => context.diagnostics.push(error),
        }
    }
    orders
}

/// Builds an order, or `None` if its section has errors.
fn order(
    noted: Noted,
    sections: &HashMap<&str, Option<Arc<AcmeSection>>>,
) -> Result<Option<AcmeOrder>, Diagnostic> {
    let Noted { words, certificate, file, key_file, span } = noted;
    let name = &*words.section;
    let Some(section) = sections.get(name) else {
        return Err(Diagnostic::alert(format!("there is no acme section `{name}`"))
            .at(span)
            .did_you_mean(diag::suggest(name, sections.keys().copied()))
            .haproxy_whole(format!(
                "acme '{name}' was used on a crt line, but no '{name}' section exists!"
            )));
    };
    let Some(section) = section else { return Ok(None) };
    let by_dns = matches!(section.challenge, Challenge::Dns | Challenge::DnsPersist);
    if let Some(wild) = words.domains.iter().find(|name| name.starts_with("*.")).filter(|_| !by_dns) {
        return Err(Diagnostic::alert(format!(
            "`{wild}` requires a DNS challenge, but section `{name}` sets `challenge {}`",
            section.challenge.name()
        ))
        .at(span)
        .help("use `challenge dns-01` in the section, or a certificate without `*`"));
    }
    if let (Some(address), true) = (words.addresses.first(), by_dns) {
        return Err(Diagnostic::alert(format!(
            "address {address} cannot be validated by a DNS challenge, but section `{name}` sets `challenge {}`",
            section.challenge.name()
        ))
        .at(span)
        .help("use `challenge http-01` or `challenge tls-alpn-01` in the section"));
    }
    let state = Arc::new(state::acme::Order::new(&certificate, name));
    let (domains, addresses) = (words.domains, words.addresses);
    Ok(Some(AcmeOrder { section: section.clone(), certificate, file, key_file, domains, addresses, state }))
}

/// Builds the settings of a section, or `None` if no order uses it.
fn make(
    section: &Written,
    draft: &AcmeDraft<'_>,
    is_used: bool,
    context: &mut ResolveContext<'_>,
) -> Result<Option<AcmeSection>, Diagnostic> {
    let name = &section.name;
    let Some(directory) = draft.directory else {
        return Err(Diagnostic::alert(format!("acme section `{name}` has no `directory`"))
            .at(section.keyword.span().to(name.span()))
            .help("use `directory https://…` with the URL published by the CA")
            .haproxy_whole(format!("acme: No directory defined in ACME section '{name}'.")));
    };
    if !(directory.starts_with("https://") || directory.starts_with("http://")) {
        return Err(Diagnostic::alert(format!("invalid URL `{}`", directory.text))
            .at(directory.span)
            .help("use a URL such as https://acme-v02.api.letsencrypt.org/directory"));
    }
    let map = match draft.map {
        None => None,
        Some(word) => Some(context.patterns.borrow().find(word.text).ok_or_else(|| no_map(name, word))?),
    };
    let ready = ready(draft)?;
    let eab = eab(draft, context)?;
    if !is_used {
        return Ok(None);
    }
    Ok(Some(AcmeSection {
        name: name.as_str().into(),
        directory: directory.text.into(),
        contact: draft.contact.map(Box::from),
        account_key: account_key(name, draft, context)?,
        challenge: draft.challenge,
        ready,
        dns_delay: draft.dns_delay,
        dns_timeout: draft.dns_timeout,
        key: new_key(draft),
        reuses_key: draft.reuses_key,
        map,
        profile: draft.profile.map(Box::from),
        provider: draft.provider.map(Box::from),
        vars: draft.vars.map(Box::from),
        eab,
    }))
}

fn new_key(draft: &AcmeDraft<'_>) -> NewKey {
    if draft.rsa { NewKey::Rsa(draft.bits) } else { NewKey::Ecdsa(draft.curve) }
}

fn no_map(section: &str, word: TlsValue<'_>) -> Diagnostic {
    let map = word.text;
    Diagnostic::alert(format!("no rule uses the map `{map}`, so its tokens would never be served"))
        .at(word.span)
        .help(format!(
            "answer the challenges in a frontend on port 80: http-request return status 200 content-type \
             text/plain lf-string \"%[path,field(-1,/)].%[path,field(-1,/),map({map})]\\n\" if {{ path_beg \
             '/.well-known/acme-challenge/' }}"
        ))
        .haproxy_whole(format!(
            "acme section '{section}' has the map '{map}' configured, but this map doesn't exist"
        ))
}

/// The condition for readiness; by default the one that suits the challenge.
fn ready(draft: &AcmeDraft<'_>) -> Result<ReadyWhen, Diagnostic> {
    match (draft.challenge, &draft.ready) {
        (Challenge::Dns, None) => Ok(ReadyWhen { cli: true, ..ReadyWhen::default() }),
        (Challenge::DnsPersist, None) => Ok(ReadyWhen { dns: true, delay: true, cli: false }),
        (_, None) => Ok(ReadyWhen::default()),
        (Challenge::Dns | Challenge::DnsPersist, Some((ready, _))) => Ok(*ready),
        (other, Some((_, word))) => {
            let name = other.name();
            Err(Diagnostic::alert(format!(
                "`challenge-ready` applies to DNS records, but the challenge is {name}"
            ))
            .at(word.span())
            .help("use `challenge dns-01`, or remove this line")
            .haproxy(format!(
                "keyword 'challenge-ready' in 'acme' section, \"{name}\" is not compatible with the \
                     \"challenge-ready\" option"
            )))
        }
    }
}

/// The account key: read from its file, or generated.
fn account_key(
    section: &str,
    draft: &AcmeDraft<'_>,
    context: &mut ResolveContext<'_>,
) -> Result<AccountKey, Diagnostic> {
    let named = draft.account_key;
    let file = named.map_or_else(|| format!("{section}.account.key"), |word| word.text.to_owned());
    let file = context.names.path(&file);
    let shown = base::raw::text_of_path(&file).into_owned();
    let failed = |what: String| {
        let error = Diagnostic::alert(format!("the account key `{shown}` {what}"));
        let error = error.help(
            "create one with `openssl genrsa -out <file> 2048`, or remove the file to let Weir create one",
        );
        named.map_or_else(|| error.clone(), |word| error.clone().at(word.span))
    };
    // Another section may have generated a key for the same file.
    if let Some(known) = context.account_keys.get(&file) {
        return Ok(known.clone());
    }
    let made = match base::file::read(&file) {
        Ok(text) => {
            let parts =
                PemParts::read(&shown, &text).map_err(|error| failed(format!("cannot be read: {error}")))?;
            let key = parts.key.ok_or_else(|| failed("has no private key".to_owned()))?;
            if key.needs_openssl() || !matches!(key.kind(), KeyKind::Rsa | KeyKind::Ecdsa) {
                return Err(failed("is neither RSA nor ECDSA over P-256, P-384 or P-521".to_owned()));
            }
            AccountKey { file: file.clone(), pkcs8: key.pkcs8().into(), is_new: false }
        }
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            let key =
                keygen::key(new_key(draft)).map_err(|error| failed(format!("cannot be created: {error}")))?;
            AccountKey { file: file.clone(), pkcs8: key.pkcs8().into(), is_new: true }
        }
        Err(error) => return Err(failed(format!("cannot be read: {error}"))),
    };
    context.account_keys.insert(file, made.clone());
    Ok(made)
}

/// The external account binding. Empty files do not count.
fn eab(draft: &AcmeDraft<'_>, context: &ResolveContext<'_>) -> Result<Option<Eab>, Diagnostic> {
    let (Some(id), Some(key)) = (draft.eab_key_id, draft.eab_mac_key) else {
        let Some(one) = draft.eab_key_id.or(draft.eab_mac_key) else { return Ok(None) };
        return Err(Diagnostic::alert("external account binding requires a key identifier and a key")
            .at(one.span)
            .help("use `eab-key-id <file>` and `eab-mac-key <file>` together"));
    };
    let read = |word: TlsValue<'_>| {
        let failed = |error| Diagnostic::alert(format!("cannot read `{}`: {error}", word.text)).at(word.span);
        let bytes = context.names.file(word.text).map_err(failed)?;
        let text = String::from_utf8_lossy(&bytes).into_owned();
        Ok::<_, Diagnostic>(text.strip_suffix('\n').map_or_else(|| text.clone(), str::to_owned))
    };
    let (key_id, coded) = (read(id)?, read(key)?);
    if key_id.is_empty() || coded.is_empty() {
        return Ok(None);
    }
    let wrong =
        |what: &str, word: TlsValue<'_>| Diagnostic::alert(format!("`{}` {what}", word.text)).at(word.span);
    if !key_id.bytes().all(|byte| byte.is_ascii_graphic() || byte == b' ') {
        return Err(wrong("is not one line of ASCII", id));
    }
    let mac_key = URL_SAFE_NO_PAD.decode(coded.trim_end_matches('='));
    let mac_key = mac_key.map_err(|_| wrong("is not base64url", key))?.into();
    Ok(Some(Eab { key_id: key_id.into(), mac_key, algorithm: draft.eab_algorithm }))
}

/// The warning about names on a line that orders no certificate.
pub(crate) fn without_effect(span: Span) -> Diagnostic {
    Diagnostic::advice("`domains` and `ips` have no effect without `acme`").at(span)
}
