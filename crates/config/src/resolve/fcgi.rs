//! `fcgi-app` sections (manual, section 10.1.1), and the backends that use them (10.1.2).
//!
//! Sections are read before the proxies, once the names of log targets are known. Their ACLs are local to them.

use std::collections::HashMap;
use std::sync::Arc;

use diag::Diagnostic;
use plan::ServerSettings;
use plan::fcgi::{App, Effect, Rule};
use sample::Acls;
use sample::format::{Format, FormatFor};
use sample::regex::Regex;
use sample::{Condition, Place, Words};
use state::Mode;
use syntax::Word;

use crate::draft::args::Args;
use crate::draft::fcgi::FcgiDraft;
use crate::draft::keyword::{Apply, apply_of};
use crate::draft::settings::FilterKind;
use crate::draft::{Draft, Section, SectionKind, Statement};
use crate::resolve::lines::{arguments, scope};
use crate::resolve::log::logger;
use crate::resolve::unique::second;
use crate::resolve::{PendingProxy, ResolveContext};

/// Applications by name, or `None` if the section of an application has errors.
pub(crate) type FcgiApps = HashMap<Box<str>, Option<Arc<App>>>;

/// Reads every section.
pub(crate) fn apps(draft: &Draft, context: &mut ResolveContext<'_>) -> FcgiApps {
    let mut made: HashMap<Box<str>, (&Section, Option<Arc<App>>)> = HashMap::new();
    for section in draft.sections.iter().filter(|section| section.kind == SectionKind::FcgiApp) {
        let name = &section.name;
        if let Some((other, _)) = made.get(name.as_str()) {
            let haproxy = |name: &str, place: &str| {
                format!("fcgi-app section '{name}' has the same name as another one declared at {place}.")
            };
            let error = second(section, other, haproxy, context);
            context.diagnostics.push(error);
            continue;
        }
        context.enter(section);
        let before = context.diagnostics.error_count();
        let app = read(section, context).filter(|_| context.diagnostics.error_count() == before);
        made.insert(name.as_str().into(), (section, app.map(Arc::new)));
    }
    made.into_iter().map(|(name, (_, app))| (name, app)).collect()
}

fn read(section: &Section, context: &mut ResolveContext<'_>) -> Option<App> {
    let mut draft = FcgiDraft::default();
    let (mut acls, mut rules, mut loggers) = (Acls::new(), Vec::new(), Vec::new());
    for statement in &section.statements {
        let mut args = Args::new(statement, context.diagnostics, context.environment);
        let outcome = match (apply_of(statement), statement.keyword.name) {
            (Apply::Fcgi(read), _) => read(&mut draft, &mut args),
            (_, "log-stderr") if args.take("global") => {
                loggers.extend(context.global.loggers.iter().map(plan::Logger::inherited));
                args.finish()
            }
            (_, "log-stderr") => crate::tables::log::logger(&mut args).map(|own| {
                loggers.extend(logger(&own, false, context));
            }),
            _ => rule(statement, &mut acls, context).map(|made| rules.extend(made)),
        };
        context.note(outcome);
    }
    let path_info = draft.path_info.map(|word| {
        Regex::new(word, false).map_err(|error| {
            Diagnostic::alert(format!("invalid regular expression `{word}`: {error}"))
                .at(word.span())
                .haproxy(format!("'path-info' : {error}."))
        })
    });
    let path_info = path_info.and_then(|compiled| context.diagnostics.take(compiled));
    let name = &section.name;
    let Some(docroot) = draft.docroot else {
        context.diagnostics.push(
            Diagnostic::alert(format!("application `{name}` has no `docroot`"))
                .at(name.span())
                .help("use `docroot <path>` to set the directory of its scripts on the application server")
                .haproxy_whole(format!("fcgi-app '{name}': no docroot configured.")),
        );
        return None;
    };
    Some(App {
        name: name.as_str().into(),
        docroot: docroot.bytes().into(),
        index: draft.index.map(|word| word.bytes().into()),
        path_info,
        loggers,
        keeps: draft.keeps,
        asks: draft.asks,
        multiplexes: draft.multiplexes,
        most: draft.most,
        rules,
    })
}

/// Compiles an `acl`, a `pass-header` or a `set-param`.
fn rule(
    statement: &Statement,
    acls: &mut Acls,
    context: &ResolveContext<'_>,
) -> Result<Option<Rule>, Diagnostic> {
    let list = arguments(statement);
    let mut words = Words::new(&list, statement.end());
    if statement.keyword.name == "acl" {
        let (name, criterion) = sample::acl::compile_declaration(
            &mut words,
            &scope(context, acls, None, Mode::Http, Place::HttpRequest),
        )?;
        acls.add(name, criterion);
        return Ok(None);
    }
    let keyword = statement.keyword.name;
    let missing = |what: &str, expected: &str| {
        Diagnostic::alert(format!("`{keyword}` needs {what}"))
            .at(statement.end())
            .label(format!("usage: {keyword} {}", statement.keyword.signature))
            .haproxy(format!("'{keyword}' expects {expected} as arguments."))
    };
    let scope = scope(context, acls, None, Mode::Http, Place::HttpRequest);
    let sets = keyword == "set-param";
    let expected = if sets { "<name> and <value>" } else { "<name>" };
    let name =
        words.next().filter(|word| !word.text.is_empty()).ok_or_else(|| missing("a name", expected))?;
    let effect = if sets {
        let format = words.next().ok_or_else(|| missing("a value", expected))?;
        Effect::Set(name.bytes().into(), Format::compile(format.text, format.span, &scope, FormatFor::Text)?)
    } else {
        Effect::Pass(name.bytes().into())
    };
    let condition = Condition::compile_optional(&mut words, &scope)?;
    if let Some(extra) = words.peek().filter(|_| condition.is_none()) {
        let text = extra.text;
        return Err(Diagnostic::alert(format!("unexpected argument `{text}` for `{keyword}`"))
            .at(extra.span)
            .label("only `if` or `unless` with a condition may follow")
            .haproxy(format!("'{keyword}' : unexpected argument '{text}'.")));
    }
    Ok(Some(Rule { condition, effect }))
}

/// The application of a backend.
pub(crate) fn of_backend(proxy: &PendingProxy<'_>, context: &mut ResolveContext<'_>) -> Option<Arc<App>> {
    let settings = &proxy.settings;
    let backend = settings.name;
    let Some(word) = settings.fcgi_app else {
        let named = settings.filters.iter().find_map(|filter| match filter.kind {
            FilterKind::Fcgi(name) => Some(name),
            _ => None,
        });
        if let Some(name) = named.filter(|_| settings.mode != Mode::Http) {
            context.diagnostics.push(needs_http(name, backend));
        }
        return None;
    };
    check_filters(proxy, context);
    let Some(app) = context.fcgi_apps.get(word.as_str()) else {
        let known = context.fcgi_apps.keys().map(|name| &**name);
        context.diagnostics.push(
            Diagnostic::alert(format!("there is no fcgi-app section `{word}`"))
                .at(word.span())
                .did_you_mean(diag::suggest(word, known))
                .help(format!("define it with a section `fcgi-app {word}`"))
                .haproxy_whole(format!("proxy '{backend}' : fcgi-app '{word}' not found.")),
        );
        return None;
    };
    let app = app.clone();
    if settings.mode != Mode::Http {
        context.diagnostics.push(needs_http(word, backend));
    }
    app
}

/// The error for an application in a backend with another mode.
fn needs_http(app: &Word, backend: &str) -> Diagnostic {
    Diagnostic::alert("FastCGI applications require HTTP mode")
        .at(app.span())
        .help("add `mode http` to the backend")
        .haproxy_whole(format!("proxy '{backend}': FCGI application cannot be used in non-HTTP mode."))
}

/// Checks that an application has an explicit position among the filters if the backend has filters other than compression and
/// caches.
fn check_filters(proxy: &PendingProxy<'_>, context: &mut ResolveContext<'_>) {
    let settings = &proxy.settings;
    let (mut other, mut has_own) = (None, false);
    for filter in &settings.filters {
        match filter.kind {
            FilterKind::Fcgi(name) => {
                has_own = true;
                if settings.fcgi_app.is_none_or(|app| app.as_str() != name.as_str()) {
                    other = Some(filter);
                }
            }
            FilterKind::Compression(_) | FilterKind::Cache(_) => {}
            FilterKind::Trace(_)
            | FilterKind::Bandwidth(_)
            | FilterKind::Spoe(..)
            | FilterKind::Script(_) => {
                other = other.or(Some(filter));
            }
        }
    }
    if let (Some(other), Some(app), false) = (other, settings.fcgi_app, has_own) {
        let name = settings.name;
        context.diagnostics.push(
            Diagnostic::alert(format!("`{name}` has filters, but none for its application"))
                .at(other.keyword.span())
                .help(format!("use `filter fcgi-app {app}` to define its position among the filters"))
                .haproxy_whole(format!(
                    "config: proxy '{name}': require an explicit filter declaration to use the fcgi-app '{app}'."
                )),
        );
    }
}

/// Checks that FastCGI servers and an application occur together in a backend.
pub(crate) fn check_servers(
    proxy: &PendingProxy<'_>,
    servers: &[Arc<ServerSettings>],
    context: &mut ResolveContext<'_>,
) {
    let settings = &proxy.settings;
    // A backend added at run time gets its servers later.
    let name = settings.name;
    let has_app = context.around.is_some_and(|around| around.runs_app(name));
    if settings.disabled || settings.mode != Mode::Http || has_app {
        return;
    }
    let speaking: Vec<&str> =
        servers.iter().filter(|server| server.speaks_fcgi).map(|server| &*server.state.name).collect();
    match settings.fcgi_app {
        None => {
            for server in speaking {
                context.diagnostics.push(
                    Diagnostic::alert(format!(
                        "server `{server}` uses FastCGI, but `{name}` has no application"
                    ))
                    .at(proxy.section.name.span())
                    .help("use `use-fcgi-app <name>` to select a section `fcgi-app <name>`")
                    .haproxy_whole(format!(
                        "proxy '{name}': FCGI server '{server}' has no FCGI app configured."
                    )),
                );
            }
        }
        Some(app) if speaking.is_empty() && context.around.is_none() => {
            context.diagnostics.push(
                Diagnostic::alert(format!("no server of `{name}` uses FastCGI"))
                    .at(app.span())
                    .help("add `proto fcgi` to a server line")
                    .haproxy_whole(format!("proxy '{name}': FCGI app configured but no FCGI server found.")),
            );
        }
        Some(_) => {}
    }
}
