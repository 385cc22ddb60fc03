//! `mailers` sections (manual, section 12.3) and the e-mail alerts of a proxy (`email-alert`).

use std::sync::Arc;

use diag::Diagnostic;
use plan::mail::{EmailAlert, Mailers};
use plan::proxy::Proxy;

use crate::draft::args::Args;
use crate::draft::keyword::{Apply, apply_of};
use crate::draft::mail::MailersDraft;
use crate::draft::{Draft, Section, SectionKind};
use crate::resolve::unique::second;
use crate::resolve::{PendingProxy, ResolveContext};

/// The default of `email-alert level`.
const ALERT: u8 = 1;

/// Builds every section, or returns those of the plan that is being extended.
pub(crate) fn mailers(draft: &Draft, context: &mut ResolveContext<'_>) -> Vec<Arc<Mailers>> {
    if let Some(around) = context.around {
        return around.mailers();
    }
    let mut made: Vec<(&Section, Arc<Mailers>)> = Vec::new();
    for section in draft.sections.iter().filter(|section| section.kind == SectionKind::Mailers) {
        let name = &section.name;
        if let Some((other, _)) = made.iter().find(|(other, _)| *other.name == **name) {
            let haproxy = |name: &str, place: &str| {
                format!(
                    "mailers section '{name}' has the same name as another mailers section declared at {place}."
                )
            };
            let error = second(section, other, haproxy, context);
            context.diagnostics.push(error);
            continue;
        }
        made.push((section, Arc::new(read(section, context))));
    }
    made.into_iter().map(|(_, mailers)| mailers).collect()
}

fn read(section: &Section, context: &mut ResolveContext<'_>) -> Mailers {
    let mut draft = MailersDraft::default();
    for statement in &section.statements {
        if let Apply::Mailers(read) = apply_of(statement) {
            let mut args = Args::new(statement, context.diagnostics, context.environment);
            let outcome = read(&mut draft, &mut args);
            context.note(outcome);
        }
    }
    let MailersDraft { mut mailers, limit } = draft;
    mailers.iter_mut().for_each(|mailer| mailer.limit = limit);
    Mailers { name: section.name.as_str().into(), mailers: mailers.into() }
}

/// Warns about sections that no proxy uses. HAProxy treats them as incomplete, because proxies supply the missing parts.
pub(crate) fn check_use(proxies: &[Arc<Proxy>], context: &mut ResolveContext<'_>) {
    for section in &context.names.mailers {
        let uses = |proxy: &Arc<Proxy>| {
            proxy.email_alert.as_ref().is_some_and(|alert| Arc::ptr_eq(&alert.mailers, section))
        };
        if !proxies.iter().any(uses) {
            let name = &section.name;
            context.diagnostics.push(
                Diagnostic::warning(format!("no proxy uses the mailers section `{name}`"))
                    .haproxy_whole(format!("Removing incomplete section 'mailers {name}'.")),
            );
        }
    }
}

/// The e-mail alerts of a proxy, if its settings are complete.
pub(crate) fn email_alert(proxy: &PendingProxy<'_>, context: &mut ResolveContext<'_>) -> Option<EmailAlert> {
    let draft = proxy.settings.email;
    let configured_at = draft.configured_at?;
    let (Some(mailers), Some(from), Some(to)) = (draft.mailers, draft.from, draft.to) else {
        let missing = [("mailers", draft.mailers), ("from", draft.from), ("to", draft.to)];
        let missing: Vec<_> = missing
            .iter()
            .filter(|(_, word)| word.is_none())
            .map(|(word, _)| format!("`email-alert {word}`"))
            .collect();
        let (kind, name) = (&proxy.section.keyword, proxy.settings.name);
        context.diagnostics.push(
            Diagnostic::warning(format!("e-mail alerts of `{name}` are disabled: {} is missing", missing.join(" and ")))
                .at(configured_at.span())
                .haproxy_whole(format!(
                    "'email-alert' will be ignored for {kind} '{name}' (the presence any of 'email-alert from', \
                     'email-alert level' 'email-alert mailers', 'email-alert myhostname', or 'email-alert to' requires \
                     each of 'email-alert from', 'email-alert mailers' and 'email-alert to' to be present)."
                )),
        );
        return None;
    };
    let Some(section) = context.names.mailers.iter().find(|section| *section.name == **mailers) else {
        let names: Vec<_> = context.names.mailers.iter().map(|section| section.name.clone()).collect();
        let near = diag::suggest(mailers, names.iter().map(|name| &**name));
        let name = proxy.settings.name;
        context.diagnostics.push(
            Diagnostic::alert(format!("there is no mailers section named `{mailers}`"))
                .at(mailers.span())
                .did_you_mean(near)
                .haproxy_whole(format!("Proxy '{name}': unable to find mailers '{mailers}'.")),
        );
        return None;
    };
    Some(EmailAlert {
        mailers: section.clone(),
        from: from.as_str().into(),
        to: to.as_str().into(),
        hello: draft.hello.map(|word| word.as_str().into()),
        level: draft.level.unwrap_or(ALERT),
    })
}
