//! The certificates of a crt-list (manual, 5.1 `crt-list`), and those that a frontend provides for all of its lines (`ssl-f-use`,
//! which also forms a crt-list).

use std::sync::Arc;

use diag::{Diagnostic, Span};
use tls::ciphers;
use tls::files::{CertificateList, LIST_OPTIONS, ListEntry, kernel_mode, list_option, override_options};
use tls::{Certificate, CertificateEntry, EntryOptions, Legacy};

use crate::draft::Statement;
use crate::draft::acme::OrderWords;
use crate::draft::settings::Bases;
use crate::draft::tls::{LoadWords, TlsDefaults, TlsValue};
use crate::resolve::certificates::made_of;
use crate::resolve::tls_files::{certificates, contradiction, keep_authority, located, refused};
use crate::resolve::{ResolveContext, ktls, legacy};

/// A line of a list, with its files read.
pub(crate) struct Listed<'a> {
    /// The line number; 0 if the list is not a file.
    number: usize,
    /// More than one if the file belongs to a bundle.
    certificates: Vec<Arc<Certificate>>,
    /// Options that override those of the `bind` line.
    options: Vec<&'a str>,
    filters: Vec<&'a str>,
    span: Span,
}

/// Reads a crt-list and appends its certificates with the options of their lines. Returns the list's name.
pub(crate) fn read(
    name: TlsValue<'_>,
    statement: &Statement,
    options: &Arc<EntryOptions>,
    entries: &mut Vec<CertificateEntry>,
    context: &mut ResolveContext<'_>,
) -> Result<String, Diagnostic> {
    let path = located(context.tls.clone().certificates, &name, context);
    let bytes = context
        .names
        .file(&path)
        .map_err(|error| Diagnostic::alert(format!("cannot read `{path}`: {error}")).at(name.span))?;
    let text = base::raw::text_of(&bytes);
    let lines = tls::crt_list::parse(&path, &text).map_err(|error| refused(&error, name))?;
    let mut kept = CertificateList { is_directory: false, entries: Vec::new(), lines: text.lines().count() };
    for line in lines {
        let place = |error: Diagnostic| {
            let text = format!("{path}:{}: {}", line.number, error.message);
            Diagnostic { haproxy: Some(text.clone()), message: text, ..error }
        };
        // A bare `!*` only prevents the line from being the default.
        for filter in line.filters.iter().filter(|filter| filter.starts_with("!*") && filter.len() > 2) {
            context.diagnostics.push(
                Diagnostic::warning(format!(
                    "{path}:{}: a wildcard cannot be excluded: `{filter}`",
                    line.number
                ))
                .at(name.span)
                .haproxy(format!(": crt-list: Unsupported exclusion (!) on a wildcard filter \"{filter}\"")),
            );
        }
        if line.excludes_from_nothing() {
            context.diagnostics.push(
                Diagnostic::advice(format!(
                    "{path}:{}: `!` has no effect without a `*` filter on the same line",
                    line.number
                ))
                .at(name.span),
            );
        }
        let words = line.options.iter().map(|word| TlsValue { text: word, span: name.span });
        let (load, others) = split(words, name.span).map_err(place)?;
        let kernel = kernel_mode(&others).map_err(|error| place(Diagnostic::alert(error).at(name.span)))?;
        ktls::check(kernel.map(|on| (on, name.span)), &format!("{path}:{}: ", line.number), context)?;
        let file = TlsValue { text: line.certificate, span: name.span };
        let title = format!("in crt-list '{path}' line {}", line.number);
        let listed = Listed {
            number: line.number,
            certificates: loaded(file, &load, &title, context).map_err(place)?,
            options: others,
            filters: line.filters,
            span: name.span,
        };
        note_updates(&listed, &title, context).map_err(|error| {
            let message = format!("{path}:{}: {}", line.number, error.message);
            Diagnostic { message, ..error }
        })?;
        note_order(&listed, context).map_err(place)?;
        append(&listed, statement, options, &mut kept, entries, context).map_err(place)?;
    }
    context.tls_files.all.keep_list(&path, kept);
    Ok(path)
}

/// The certificates of a frontend, the last line first as in HAProxy; errors are added to the diagnostics.
pub(crate) fn of_frontend<'a>(
    statements: &[&'a Statement],
    context: &mut ResolveContext<'_>,
) -> Vec<Listed<'a>> {
    let mut all = Vec::new();
    for &statement in statements.iter().rev() {
        match line_of_frontend(statement, context) {
            Ok(listed) => all.push(listed),
            Err(error) => context.diagnostics.push(error),
        }
    }
    all
}

fn line_of_frontend<'a>(
    statement: &'a Statement,
    context: &mut ResolveContext<'_>,
) -> Result<Listed<'a>, Diagnostic> {
    let span = statement.keyword_span();
    let (mut load, options) = split(statement.arguments().iter().map(TlsValue::from), span)?;
    let Some(file) = load.certificate.take() else {
        return Err(Diagnostic::alert("`ssl-f-use` needs a certificate: `crt <file>`")
            .at(span)
            .haproxy("Trying to load a certificate but no 'crt' keyword specified."));
    };
    let kernel = kernel_mode(&options).map_err(|error| Diagnostic::alert(error).at(span))?;
    ktls::check(kernel.map(|on| (on, span)), "", context)?;
    let certificates = loaded(file, &load, "in a line of ssl-f-use", context)?;
    let listed = Listed { number: 0, certificates, options, filters: Vec::new(), span };
    note_updates(&listed, "in a line of ssl-f-use", context)?;
    note_order(&listed, context)?;
    Ok(listed)
}

/// Appends the certificates of a frontend to those of one of its lines. Returns the name of their list.
pub(crate) fn serve(
    all: &[Listed<'_>],
    frontend: &str,
    statement: &Statement,
    options: &Arc<EntryOptions>,
    entries: &mut Vec<CertificateEntry>,
    context: &mut ResolveContext<'_>,
) -> Result<String, Diagnostic> {
    let mut kept = CertificateList::default();
    for listed in all {
        append(listed, statement, options, &mut kept, entries, context)?;
    }
    let name = format!("@{frontend}");
    context.tls_files.all.keep_list(&name, kept);
    Ok(name)
}

/// Appends the certificates of a line.
fn append(
    listed: &Listed<'_>,
    statement: &Statement,
    options: &Arc<EntryOptions>,
    kept: &mut CertificateList,
    entries: &mut Vec<CertificateEntry>,
    context: &mut ResolveContext<'_>,
) -> Result<(), Diagnostic> {
    let name = TlsValue { text: "", span: listed.span };
    let options = match &*listed.options {
        [] => options.clone(),
        words => Arc::new(list_line_options(options, words, name, statement, context)?),
    };
    let boxed = |words: &[&str]| words.iter().map(|word| Box::from(*word)).collect::<Vec<Box<str>>>();
    let filters = boxed(&listed.filters);
    for certificate in &listed.certificates {
        kept.entries.push(ListEntry {
            number: listed.number,
            certificate: certificate.name.clone(),
            options: boxed(&listed.options),
            filters: filters.clone(),
        });
        let (certificate, filters, options) = (certificate.clone(), filters.clone(), options.clone());
        entries.push(CertificateEntry { certificate, filters, is_default: false, options });
    }
    Ok(())
}

/// Separates the words that name files of the certificate from all others.
fn split<'a>(
    words: impl Iterator<Item = TlsValue<'a>>,
    span: Span,
) -> Result<(LoadWords<'a>, Vec<&'a str>), Diagnostic> {
    let (mut load, mut others) = (LoadWords::default(), Vec::new());
    let mut words = words;
    while let Some(word) = words.next() {
        let Some(row) = list_option(&word) else { return Err(unknown(&word, span)) };
        if !row.has_value() {
            others.push(word.text);
            continue;
        }
        let value = words.next();
        match (load.place(&word), value) {
            (Some(place), Some(value)) => *place = Some(value),
            (Some(_), None) => {
                return Err(Diagnostic::alert(format!("`{}` expects a file", word.text))
                    .at(span)
                    .haproxy(format!("ssl args out of '[]' for {}", word.text)));
            }
            (None, value) => others.extend([Some(word), value].into_iter().flatten().map(|word| word.text)),
        }
    }
    Ok((load, others))
}

fn unknown(word: &str, span: Span) -> Diagnostic {
    let near = diag::suggest(word, LIST_OPTIONS.iter().map(|row| row.name));
    let tail = near.map_or(String::new(), |near| format!("; did you mean '{near}' maybe ?"));
    Diagnostic::alert(format!("unknown ssl keyword {word}{tail}")).at(span)
}

/// Loads a file's certificates together with the files that its words name. This is done once per file, so a second line must
/// name the same files.
fn loaded(
    file: TlsValue<'_>,
    words: &LoadWords<'_>,
    title: &str,
    context: &mut ResolveContext<'_>,
) -> Result<Vec<Arc<Certificate>>, Diagnostic> {
    let defaults = context.tls.clone();
    let name = located(defaults.certificates, &file, context);
    let given: Vec<_> =
        words.set_parameters().into_iter().map(|(word, value)| (word, value.to_owned())).collect();
    match context.tls_files.file_parameters(&name) {
        Some(before) if *before == given => {}
        None if given.is_empty() => return certificates(file, &defaults, context),
        None if !context.tls_files.knows(&name) => {
            let path = words.certificate.map_or(&*name, |path| path.text).to_owned();
            let bases = Bases { certificates: defaults.certificates, keys: defaults.keys };
            let words = LoadWords { certificate: Some(file), ..words.clone() };
            let mut made = made_of(&path, &words, &bases, context)?;
            made.name = name.as_str().into();
            context.tls_files.keep_loaded(&name, made, given);
        }
        before => {
            let text =
                format!("`{}` is already loaded with parameters other than {}", file.text, shown(&given));
            let earlier = format!("then: {}", shown(before.map_or(&[], |given| given)));
            return Err(Diagnostic::alert(text).at(file.span).help(earlier).haproxy(format!(
                "'{}' {title}, is already defined with incompatible parameters",
                file.text
            )));
        }
    }
    certificates(file, &defaults, context)
}

/// Records whether OCSP responses for a line's certificates are updated (`ocsp-update`).
fn note_updates(listed: &Listed<'_>, title: &str, context: &ResolveContext<'_>) -> Result<(), Diagnostic> {
    let mode = tls::files::update_mode(&listed.options);
    let mode = mode.map_err(|error| Diagnostic::alert(error).at(listed.span))?;
    for certificate in &listed.certificates {
        context.tls_files.all.note_update_mode(&certificate.name, mode, false).map_err(|why| {
            contradiction(&why).at(listed.span).haproxy(format!(
                "'crt-list' : '{}' {title}, is already defined with incompatible parameters:\n   - {why}",
                certificate.name
            ))
        })?;
    }
    Ok(())
}

/// Records the order for a line's certificates (`acme`).
fn note_order(listed: &Listed<'_>, context: &mut ResolveContext<'_>) -> Result<(), Diagnostic> {
    let mut order = OrderWords::default();
    for pair in listed.options.windows(2) {
        let taken = order.take(pair[0], pair[1]);
        taken.map_err(|error| Diagnostic::alert(error).at(listed.span))?;
    }
    if order == OrderWords::default() {
        return Ok(());
    }
    if order.section.is_empty() {
        context.diagnostics.push(super::acme::without_effect(listed.span));
        return Ok(());
    }
    for certificate in &listed.certificates {
        let sources = &certificate.sources;
        let file = sources.certificate.as_deref().unwrap_or(&certificate.name);
        let key_file = sources.key.as_deref().filter(|key| *key != file);
        context.orders.note(order.clone(), &certificate.name, (file, key_file), listed.span)?;
    }
    Ok(())
}

fn shown(given: &[(&str, String)]) -> String {
    if given.is_empty() {
        return "none".to_owned();
    }
    given.iter().map(|(word, value)| format!("`{word} {value}`")).collect::<Vec<_>>().join(", ")
}

/// Like [`list_options`], with OpenSSL if the line needs it and its `bind` line does not.
fn list_line_options(
    options: &EntryOptions,
    words: &[&str],
    name: TlsValue<'_>,
    statement: &Statement,
    context: &ResolveContext<'_>,
) -> Result<EntryOptions, Diagnostic> {
    let defaults = &context.tls;
    let wrong = |error: String| Diagnostic::alert(error).at(name.span);
    let mut made = list_options(options, words, name, defaults, context).map_err(wrong)?;
    let parameters = &mut made.parameters;
    let given = words.windows(2).rev().find(|pair| pair[0] == "ciphers").map(|pair| pair[1]);
    let suites = given.and_then(|list| ciphers::ciphers(list).ok());
    if let Some(cause) = legacy::cause_of_line(parameters, given, suites.as_deref()) {
        legacy::check(&cause, name.span, statement, defaults)?;
        parameters.legacy.get_or_insert(Legacy {
            alone: defaults.has_provider,
            security_level: given.and_then(ciphers::security_level).or(defaults.security_level),
            dh: None,
            dh_bits: defaults.dh_bits,
            renegotiates: false,
        });
        parameters.suites12 = suites.unwrap_or_else(|| std::mem::take(&mut parameters.suites12));
    }
    Ok(made)
}

/// Overrides a `bind` line's options by those in the brackets of a crt-list line.
fn list_options(
    options: &EntryOptions,
    words: &[&str],
    name: TlsValue<'_>,
    defaults: &TlsDefaults<'_>,
    context: &ResolveContext<'_>,
) -> Result<EntryOptions, String> {
    let all = &context.tls_files.all;
    let mut file = |place: usize, word: &str| {
        let path = located(defaults.authorities, word, context);
        keep_authority(&path, place, TlsValue { text: word, span: name.span }, context)
            .map_err(|error| error.message)?;
        Ok(path.into())
    };
    override_options(options, words, &mut file, &|files| all.trust(files))
}
