//! `crt-store` sections (manual, section 12.7), as far as they serve JSON Web Tokens: certificates
//! and keys by file and by name. What only TLS would take of a certificate is refused.

use crate::draft::settings::Bases;
use diag::Diagnostic;
use sample::keys::Certificate;

use crate::draft::args::Args;
use crate::draft::keyword::Outcome;
use crate::draft::{Draft, Kind, Section, Statement};
use crate::resolve::Context;

/// Reads every store. `bases` are those of the global section.
pub(crate) fn stores<'a>(draft: &'a Draft, bases: &Bases<'a>, context: &mut Context<'_>) {
    for section in draft.sections.iter().filter(|section| section.kind == Kind::CrtStore) {
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
    context: &mut Context<'_>,
) -> Outcome {
    match statement.keyword.name {
        "crt-base" => bases.certificates = Some(directory(statement, context)?),
        "key-base" => bases.keys = Some(directory(statement, context)?),
        _ => load(section, statement, bases, context)?,
    }
    Ok(())
}

fn directory<'a>(statement: &'a Statement, context: &mut Context<'_>) -> Result<&'a str, Diagnostic> {
    let mut args = Args::new(statement, context.diagnostics, context.environment);
    let directory = args.required("a directory")?;
    args.finish()?;
    Ok(directory)
}

fn load(section: &Section, statement: &Statement, bases: &Bases<'_>, context: &mut Context<'_>) -> Outcome {
    let mut args = Args::new(statement, context.diagnostics, context.environment);
    let (mut certificate, mut key, mut alias, mut for_tokens) = (None, None, None, false);
    let mut updates = None;
    while let Some(word) = args.next() {
        match word.as_str() {
            "crt" => certificate = Some(args.value()?),
            "key" => key = Some(args.value()?),
            "alias" => alias = Some(args.value()?),
            "jwt" => for_tokens = args.on_off()?,
            "ocsp-update" if section.name.is_empty() => updates = Some(args.on_off()?),
            "ocsp" | "issuer" | "sctl" | "ocsp-update" | "acme" | "domains" | "ips" | "generate-dummy"
            | "keytype" | "bits" | "curves" => {
                return Err(args.wrong(format!("`{word}` of a certificate is not supported yet")));
            }
            other => {
                let near = diag::suggest(other, ["crt", "key", "alias", "jwt", "ocsp", "issuer"]);
                return Err(args.wrong(format!("`load` does not know `{other}`")).did_you_mean(near));
            }
        }
    }
    let Some(certificate) = certificate else {
        return Err(args.wrong("`load` needs a certificate: `crt <file>`"));
    };
    let path = below(bases.certificates, certificate);
    let text = read(&path, context).map_err(|error| error.at(certificate.span()))?;
    let key_text = match key {
        Some(key) => Some(read(&below(bases.keys, key), context).map_err(|error| error.at(key.span()))?),
        None => None,
    };
    let read = Certificate::from_pem(&text, key_text.as_deref())
        .map_err(|error| Diagnostic::alert(format!("`{path}`: {error}")).at(certificate.span()))?;
    if updates.is_some() {
        // `bind` lines read the same file by this name.
        let noted = context.tls_files.all.note_update_mode(&path, updates, true);
        noted.map_err(|why| Diagnostic::alert(why).at(certificate.span()))?;
    }
    // The alias is its name where there is one, as HAProxy lists it; the others find it too.
    let store = &*section.name;
    let within = |name: &str| {
        let slash = if name.starts_with('/') { "" } else { "/" };
        format!("@{store}{slash}{name}")
    };
    let mut names: Vec<String> = alias.iter().map(|alias| within(alias)).collect();
    if store.is_empty() {
        names.push(path.clone());
    }
    names.extend([within(certificate), within(&path)]);
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    context.names.certificates.insert(&names, read, for_tokens);
    Ok(())
}

fn below(base: Option<&str>, name: &str) -> String {
    match base {
        Some(base) if !name.starts_with('/') => format!("{}/{name}", base.trim_end_matches('/')),
        _ => name.to_owned(),
    }
}

fn read(path: &str, context: &Context<'_>) -> Result<String, Diagnostic> {
    let bytes = context.names.file(path);
    let bytes = bytes.map_err(|error| Diagnostic::alert(format!("cannot read `{path}`: {error}")))?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}
