//! Restrictions on inheriting rules from a defaults section (manual, 4.2 `http-request`, `tcp-request connection` and so on):
//! only proxies on the same side may inherit them, and other defaults sections may not. Checked after all sections were read.

use std::collections::HashMap;

use diag::{Diagnostic, Span};

use crate::draft::settings::ProxySettings;
use crate::draft::{Section, Statement};
use crate::resolve::ResolveContext;

/// The restricted rule sets. ACLs, error messages and checks can always be inherited.
fn is_rule(statement: &Statement) -> bool {
    matches!(
        statement.keyword.name,
        "tcp-request connection"
            | "tcp-request session"
            | "tcp-request content"
            | "tcp-response content"
            | "http-request"
            | "http-response"
            | "http-after-response"
    )
}

/// The rules that `settings` inherits.
fn rules<'s, 'a>(settings: &'s ProxySettings<'a>) -> impl Iterator<Item = &'a Statement> + 's {
    settings.inherited_rules.iter().copied().filter(|statement| is_rule(statement))
}

/// Checks a defaults section that inherits rules.
pub(crate) fn check_defaults(
    section: &Section,
    settings: &ProxySettings<'_>,
    context: &mut ResolveContext<'_>,
) {
    if let Some(rule) = rules(settings).next() {
        refuse(section, rule, "a defaults section cannot inherit rules from another one".to_owned(), context);
    }
}

/// Checks that proxies only inherit rules meant for their side.
pub(crate) fn check_proxies<'a>(
    proxies: &[(&'a Section, Box<ProxySettings<'a>>)],
    context: &mut ResolveContext<'_>,
) {
    // For each defaults section, identified by its first rule: the first proxy that uses it, and whether that is a frontend.
    let mut users: HashMap<Span, (bool, &Section)> = HashMap::new();
    for (section, settings) in proxies {
        let Some(first) = rules(settings).next() else { continue };
        let kind = settings.kind_name();
        let (front, back) = (settings.is_frontend(), settings.is_backend());
        if front && back {
            let why = "a `listen` section cannot inherit rules from a defaults section, because it is both frontend and backend";
            refuse(section, first, why.to_owned(), context);
            continue;
        }
        let wrong = rules(settings).find(|rule| match rule.keyword.name {
            "tcp-request connection" | "tcp-request session" => back,
            "tcp-response content" => front,
            _ => false,
        });
        if let Some(rule) = wrong {
            let why = format!("a {kind} cannot inherit `{}` rules", rule.keyword.name);
            refuse(section, rule, why, context);
            continue;
        }
        let (is_frontend, other) = *users.entry(first.keyword_span()).or_insert((front, section));
        if is_frontend != front {
            let why = format!(
                "frontends and backends cannot inherit rules from the same defaults section, as `{}` and `{}` do",
                &*other.name, &*section.name
            );
            refuse(section, first, why, context);
        }
    }
}

fn refuse(section: &Section, rule: &Statement, why: String, context: &mut ResolveContext<'_>) {
    let haproxy = format!("{}.", why.replace('`', "'"));
    context.diagnostics.push(
        Diagnostic::alert(why)
            .at(section.keyword.span())
            .related(rule.keyword_span(), "the rule")
            .help("move the rules to a separate defaults section, and select it with `from`")
            .haproxy(haproxy),
    );
}
