//! Lines that depend on names, compiled in order: ACLs, rule sets, backend and server selection, error messages, and the
//! expressions of global variables.

use std::collections::HashMap;
use std::sync::Arc;

use diag::{Diagnostic, Span};
use plan::proxy::{BackendTarget, ServerTarget, UseBackend, UseServer};
use rules::{Reply, RuleSet, Ruleset};
use sample::Acls;
use sample::condition::Condition;
use sample::expression::Expression;
use sample::format::{Format, FormatFor};
use sample::{Place, Scope, Words};
use state::Mode;
use syntax::Word;

use crate::draft::Statement;
use crate::draft::row::Outcome;
use crate::resolve::captures;
use crate::resolve::labels;
pub(crate) use crate::resolve::lines::{arguments, scope, shown};
use crate::resolve::rule_sets::CompiledRules;
use crate::resolve::{PendingProxy, ResolveContext, stick, warnings};

/// Compiles all rules of a proxy, in order.
pub(crate) fn compile(
    proxy: &PendingProxy<'_>,
    index: &HashMap<Box<str>, usize>,
    pending: &[PendingProxy<'_>],
    context: &mut ResolveContext<'_>,
) -> CompiledRules {
    let mut rules = CompiledRules::default();
    context.names.captures.replace(proxy.settings.is_frontend().then(Vec::new));
    let mut declared = proxy.settings.request_captures.iter().peekable();
    warnings::misplaced_rules(&proxy.settings, context);
    let mut broken: Vec<String> = Vec::new();
    for (number, statement) in proxy.settings.all_rules().enumerate() {
        while let Some(capture) = declared.next_if(|capture| capture.rules_before <= number) {
            captures::declare(capture, context);
        }
        context.inherited = number < proxy.settings.inherited_rules.len();
        match one(&mut rules, statement, proxy, index, pending, context) {
            Ok(()) => {
                let warnings = context.names.warnings.take();
                warnings.into_iter().for_each(|warning| context.diagnostics.push(warning));
            }
            // A refused ACL is reported only once.
            Err(error) if broken.contains(&error.message) => {}
            Err(error) => {
                if let ("acl", Some(name)) = (statement.keyword.name, statement.arguments().first()) {
                    broken.push(format!("unknown ACL `{name}`"));
                }
                context.diagnostics.push(error);
            }
        }
    }
    context.inherited = false;
    declared.for_each(|capture| captures::declare(capture, context));
    labels::check(&rules, context);
    let slots = context.names.captures.take();
    captures::check(proxy, &rules, slots.as_deref(), context);
    rules.request_captures = slots.unwrap_or_default();
    rules
}

fn one(
    rules: &mut CompiledRules,
    statement: &Statement,
    proxy: &PendingProxy<'_>,
    index: &HashMap<Box<str>, usize>,
    pending: &[PendingProxy<'_>],
    context: &mut ResolveContext<'_>,
) -> Outcome {
    use Ruleset::*;
    match statement.keyword.name {
        "acl" => acl(rules, statement, proxy, context),
        "http-request" => rule(rules, statement, proxy, context, HttpRequest, |r| &mut r.http_request),
        "http-response" => rule(rules, statement, proxy, context, HttpResponse, |r| &mut r.http_response),
        "http-after-response" => {
            rule(rules, statement, proxy, context, HttpAfterResponse, |r| &mut r.http_after_response)
        }
        "quic-initial" => rule(rules, statement, proxy, context, QuicInitial, |r| &mut r.quic_initial),
        "udp-request" => rule(rules, statement, proxy, context, UdpRequest, |r| &mut r.udp_request),
        "tcp-request connection" => {
            rule(rules, statement, proxy, context, TcpConnection, |r| &mut r.tcp_connection)
        }
        "tcp-request session" => rule(rules, statement, proxy, context, TcpSession, |r| &mut r.tcp_session),
        "tcp-request content" => rule(rules, statement, proxy, context, TcpRequest, |r| &mut r.tcp_request),
        "tcp-response content" => {
            rule(rules, statement, proxy, context, TcpResponse, |r| &mut r.tcp_response)
        }
        "redirect" => redirect(rules, statement, proxy, context),
        "stats http-request" => rule(rules, statement, proxy, context, HttpRequest, |r| &mut r.stats_rules),
        "stats admin" => condition(statement, proxy, rules, context).map(|it| rules.stats_admin.push(it)),
        "monitor fail" => condition(statement, proxy, rules, context).map(|it| rules.monitor_fail.push(it)),
        "force-be-switch" => {
            condition(statement, proxy, rules, context).map(|it| rules.force_be_switch.push(it))
        }
        "force-persist" => condition(statement, proxy, rules, context).map(|it| rules.force_persist.push(it)),
        "ignore-persist" => {
            condition(statement, proxy, rules, context).map(|it| rules.ignore_persist.push(it))
        }
        "use_backend" => use_backend(rules, statement, proxy, index, pending, context),
        "use-server" => use_server(rules, statement, proxy, context),
        "stick match" | "stick on" | "stick store-request" | "stick store-response" => {
            stick::stick(rules, statement, proxy, context)
        }
        _ => error_message(rules, statement, proxy, context),
    }
}

fn acl(
    rules: &mut CompiledRules,
    statement: &Statement,
    proxy: &PendingProxy<'_>,
    context: &ResolveContext<'_>,
) -> Outcome {
    let list = arguments(statement);
    let mut words = Words::new(&list, statement.end());
    let scope = scope(context, &rules.acls, Some(&proxy.state), proxy.settings.mode, Place::HttpRequest);
    let (name, criterion) = sample::acl::compile_declaration(&mut words, &scope).map_err(|error| {
        let name = list.first().map_or("", |word| word.text);
        error.wrap_line(&format!("error detected while parsing ACL '{name}' : "), ".")
    })?;
    rules.acls.add(name, criterion);
    Ok(())
}

fn rule(
    rules: &mut CompiledRules,
    statement: &Statement,
    proxy: &PendingProxy<'_>,
    context: &ResolveContext<'_>,
    kind: Ruleset,
    set: fn(&mut CompiledRules) -> &mut RuleSet,
) -> Outcome {
    let list = arguments(statement);
    let mut words = Words::new(&list, statement.end());
    let compiled = {
        let scope = scope(context, &rules.acls, Some(&proxy.state), proxy.settings.mode, kind.place());
        rules::compile(kind, &mut words, &scope)?
    };
    if let Some(slot) = compiled.capture_slot() {
        rules.captures_used.push(captures::used(slot, &list, statement));
    }
    // Inherited rules are shared with proxies that add none of their own.
    if statement.keyword.name.starts_with("http-") {
        let set = kind as u16;
        if compiled.label().is_some() {
            rules.ended &= !set;
        }
        if rules.ended & set != 0 {
            context.names.warnings.borrow_mut().push(unreachable(statement));
        }
        let ends = compiled.ends_unconditionally() && !context.inherited;
        rules.ended = if ends { rules.ended | set } else { rules.ended & !set };
    }
    labels::note(rules, kind, &compiled, set, statement)?;
    set(rules).push(compiled);
    Ok(())
}

fn unreachable(statement: &Statement) -> Diagnostic {
    let name = statement.keyword.name;
    Diagnostic::warning(format!(
        "this rule is never reached: the preceding `{name}` rule is unconditional and final"
    ))
    .at(statement.span)
    .haproxy(format!(
        "previous '{name}' action is final and has no condition attached, further entries are NOOP."
    ))
}

fn redirect(
    rules: &mut CompiledRules,
    statement: &Statement,
    proxy: &PendingProxy<'_>,
    context: &ResolveContext<'_>,
) -> Outcome {
    let list = arguments(statement);
    let mut words = Words::new(&list, statement.end());
    let compiled = {
        let scope = scope(context, &rules.acls, Some(&proxy.state), proxy.settings.mode, Place::HttpRequest);
        rules::compile_redirect(&mut words, &scope)?
    };
    rules.redirects.push(compiled);
    Ok(())
}

fn condition(
    statement: &Statement,
    proxy: &PendingProxy<'_>,
    rules: &CompiledRules,
    context: &ResolveContext<'_>,
) -> Result<Condition, Diagnostic> {
    let list = arguments(statement);
    let mut words = Words::new(&list, statement.end());
    let scope = scope(context, &rules.acls, Some(&proxy.state), proxy.settings.mode, Place::HttpRequest);
    let name = statement.keyword.name;
    let what = if name == "monitor fail" { "condition" } else { "rule" };
    Condition::compile_optional(&mut words, &scope)
        .map_err(|error| error.wrap_line(&format!("error detected while parsing a '{name}' {what} : "), "."))?
        .ok_or_else(|| no_condition(statement))
}

fn no_condition(statement: &Statement) -> Diagnostic {
    let name = statement.keyword.name;
    Diagnostic::alert(format!("`{name}` needs a condition"))
        .at(statement.end())
        .label(format!("usage: {name} {}", statement.keyword.signature))
        .haproxy(format!("'{name}' requires either 'if' or 'unless' followed by a condition."))
}

/// The name of a target and its condition.
fn target<'w>(
    words: &mut Words<'w>,
    statement: &Statement,
    what: &str,
) -> Result<sample::Word<'w>, Diagnostic> {
    let name = statement.keyword.name;
    words.next().ok_or_else(|| {
        Diagnostic::alert(format!("`{name}` expects the name of a {what}"))
            .at(statement.end())
            .haproxy(format!("'{name}' expects a {what} name."))
    })
}

fn trailing_condition(
    words: &mut Words<'_>,
    statement: &Statement,
    scope: &Scope<'_>,
) -> Result<Option<Condition>, Diagnostic> {
    match words.peek() {
        Some(extra) if !matches!(extra.text, "if" | "unless") => {
            let (name, text) = (statement.keyword.name, extra.text);
            Err(Diagnostic::alert(format!("unexpected argument `{text}` for `{name}`"))
                .at(extra.span)
                .label("only `if` or `unless` may follow")
                .haproxy(format!(
                    "unexpected keyword '{text}' after switching rule, only 'if' and 'unless' are allowed."
                )))
        }
        _ => Condition::compile_optional(words, scope)
            .map_err(|error| error.wrap_line("error detected while parsing switching rule : ", ".")),
    }
}

fn use_backend(
    rules: &mut CompiledRules,
    statement: &Statement,
    proxy: &PendingProxy<'_>,
    index: &HashMap<Box<str>, usize>,
    pending: &[PendingProxy<'_>],
    context: &mut ResolveContext<'_>,
) -> Outcome {
    let list = arguments(statement);
    let mut words = Words::new(&list, statement.end());
    let name = target(&mut words, statement, "backend")?;
    let (condition, target) = {
        let scope = scope(context, &rules.acls, Some(&proxy.state), proxy.settings.mode, Place::HttpRequest);
        let condition = trailing_condition(&mut words, statement, &scope)?;
        let dynamic = name.text.contains("%[") || name.text.contains('%');
        let target = match index.get(name.text) {
            Some(found) => Some(BackendTarget::Fixed(*found)),
            None if dynamic => {
                Some(BackendTarget::Named(Format::compile(name.text, name.span, &scope, FormatFor::Text)?))
            }
            None => None,
        };
        (condition, target)
    };
    // A backend or server named by a disabled proxy may be missing.
    if proxy.settings.disabled {
        return Ok(());
    }
    let Some(target) = target else {
        return Err(no_backend(proxy, name.text, name.span, index, "use_backend"));
    };
    if let BackendTarget::Fixed(found) = &target {
        if std::ptr::eq(&pending[*found], proxy) {
            return Err(loops(proxy, name.text, name.span, "use_backend"));
        }
        check_modes(proxy, &pending[*found], name.span, "in a 'use_backend' rule", context)?;
        pending[*found].state.referenced.store(true, std::sync::atomic::Ordering::Relaxed);
    }
    rules.use_backends.push(UseBackend { target, condition });
    Ok(())
}

/// The error for a backend that does not exist.
pub(crate) fn no_backend(
    proxy: &PendingProxy<'_>,
    name: &str,
    span: Span,
    index: &HashMap<Box<str>, usize>,
    keyword: &str,
) -> Diagnostic {
    let known = index.keys().map(|name| &**name);
    let near = if index.len() > 2_000 { None } else { diag::suggest(name, known) };
    Diagnostic::alert(format!("there is no backend `{name}`")).at(span).did_you_mean(near).haproxy_whole(
        format!("Proxy '{}': unable to find required {keyword}: '{name}'.", proxy.settings.name),
    )
}

/// The error for a proxy that selects itself.
pub(crate) fn loops(proxy: &PendingProxy<'_>, name: &str, span: Span, keyword: &str) -> Diagnostic {
    Diagnostic::alert(format!("`{name}` cannot select itself as a backend"))
        .at(span)
        .haproxy_whole(format!("Proxy '{}': loop detected for {keyword}: '{name}'.", proxy.settings.name))
}

/// Checks that a frontend only uses backends of its mode.
pub(crate) fn check_modes(
    from: &PendingProxy<'_>,
    to: &PendingProxy<'_>,
    span: Span,
    what: &str,
    context: &ResolveContext<'_>,
) -> Outcome {
    let (mode, other) = (from.settings.mode, to.settings.mode);
    // A TCP stream is upgraded to HTTP if its backend has that mode.
    // The servers of a TCP backend get datagrams on the same addresses.
    let fits = mode == other || matches!((mode, other), (Mode::Tcp, Mode::Http) | (Mode::Udp, Mode::Tcp));
    if fits || from.settings.disabled || to.settings.disabled {
        return Ok(());
    }
    let (kind, name, to_name) = (from.settings.kind_name(), from.settings.name, to.settings.name);
    let to_kind = to.settings.kind_name();
    let (place, to_place) = (context.place(from.section), context.place(to.section));
    let message = Diagnostic::alert(format!(
        "{} {kind} `{name}` cannot use {} backend `{to_name}`",
        mode.name(),
        other.name()
    ))
    .haproxy_whole(format!(
        "{} {kind} '{name}' ({place}) tries to use incompatible {} {to_kind} '{to_name}' ({to_place}) {what} \
         (see 'mode').",
        mode.name(),
        other.name()
    ));
    Err(message.at(span).related(to.section.name.span(), format!("its mode is {}", other.name())))
}

fn use_server(
    rules: &mut CompiledRules,
    statement: &Statement,
    proxy: &PendingProxy<'_>,
    context: &ResolveContext<'_>,
) -> Outcome {
    let list = arguments(statement);
    let mut words = Words::new(&list, statement.end());
    let name = target(&mut words, statement, "server")?;
    let scope = scope(context, &rules.acls, Some(&proxy.state), proxy.settings.mode, Place::BackendRequest);
    let condition = trailing_condition(&mut words, statement, &scope)?;
    if condition.is_none() {
        return Err(no_condition(statement));
    }
    if proxy.settings.disabled {
        return Ok(());
    }
    let servers = proxy.state.servers.load();
    let target = match servers.iter().position(|server| *server.name == *name.text) {
        Some(found) => {
            servers[found].referenced.store(true, std::sync::atomic::Ordering::Relaxed);
            ServerTarget::Fixed(found)
        }
        None if name.text.contains('%') => {
            ServerTarget::Named(Format::compile(name.text, name.span, &scope, FormatFor::Text)?)
        }
        None if context.refused.contains(&format!("{}/{}", proxy.settings.name, name.text)) => return Ok(()),
        None => {
            let near = diag::suggest(name.text, servers.iter().map(|server| &*server.name));
            let backend = proxy.settings.name;
            return Err(Diagnostic::alert(format!("backend `{backend}` has no server `{}`", name.text))
                .at(name.span)
                .did_you_mean(near)
                .haproxy_whole(format!(
                    "{} '{backend}' : unable to find server '{}' referenced in a 'use-server' rule.",
                    proxy.settings.kind_name(),
                    name.text
                )));
        }
    };
    rules.use_servers.push(UseServer { target, condition });
    Ok(())
}

/// Reads `errorfile <code> <file>` of a proxy or of `http-errors`: the status and the contents of the file, which must be a valid
/// message.
pub(crate) fn read_message(
    statement: &Statement,
    context: &mut ResolveContext<'_>,
) -> Result<(u16, Arc<[u8]>), Diagnostic> {
    let (status, path) = status_and(statement, "<status_code> and <file>")?;
    let bytes = read_file(path, context)?;
    raw_reply(status, &bytes, path)?;
    Ok((status, bytes))
}

fn read_file(path: &Word, context: &mut ResolveContext<'_>) -> Result<Arc<[u8]>, Diagnostic> {
    context.names.file(path).map_err(|error| {
        let why = base::file::why_no_file(&error);
        Diagnostic::alert(format!("cannot read `{path}`: {error}"))
            .at(path.span())
            .haproxy(format!("errorfile : error opening file '{path}'{why}."))
    })
}

/// The statuses with an HAProxy error message.
const STATUSES: &[u16] = &[
    200, 400, 401, 403, 404, 405, 407, 408, 410, 413, 414, 421, 422, 425, 429, 431, 500, 501, 502, 503, 504,
];

fn status_and<'a>(statement: &'a Statement, what: &str) -> Result<(u16, &'a Word), Diagnostic> {
    let name = statement.keyword.name;
    let [status, path, rest @ ..] = statement.arguments() else {
        return Err(Diagnostic::alert(format!("`{name}` expects {what}"))
            .at(statement.end())
            .haproxy(format!("'{name}' expects {what} as arguments.")));
    };
    if let Some(extra) = rest.first() {
        return Err(Diagnostic::alert(format!("unexpected argument `{extra}` for `{name}`"))
            .at(extra.span())
            .haproxy(format!("'{name}' cannot handle unexpected argument '{extra}'.")));
    }
    let code = parse_status(status).ok_or_else(|| wrong_status(name, status))?;
    Ok((code, path))
}

fn parse_status(word: &Word) -> Option<u16> {
    word.parse().ok().filter(|status| STATUSES.contains(status))
}

fn wrong_status(name: &str, word: &Word) -> Diagnostic {
    let known: Vec<String> = STATUSES.iter().map(u16::to_string).collect();
    Diagnostic::alert(format!("`{name}` does not support status `{word}`"))
        .at(word.span())
        .help(format!("one of: {}", known.join(", ")))
        .haproxy(format!("'{name}' : status code '{word}' not handled"))
}

fn error_message(
    rules: &mut CompiledRules,
    statement: &Statement,
    proxy: &PendingProxy<'_>,
    context: &mut ResolveContext<'_>,
) -> Outcome {
    let mut found: Vec<(u16, Arc<Reply>)> = Vec::new();
    match statement.keyword.name {
        "errorfile" => {
            let (status, path) = status_and(statement, "<status_code> and <file>")?;
            let bytes = read_file(path, context)?;
            found.push((status, Arc::new(raw_reply(status, &bytes, path)?)));
        }
        "errorfiles" => errorfiles(statement, proxy, context, &mut found)?,
        "http-error" => {
            let list = arguments(statement);
            let mut words = Words::new(&list, statement.end());
            let scope =
                scope(context, &rules.acls, Some(&proxy.state), proxy.settings.mode, Place::HttpRequest);
            let reply = Reply::compile_error(&mut words, &scope)
                .map_err(|error| error.wrap_line("http-error : ", ""))?;
            found.push((reply.status, Arc::new(reply)));
        }
        name => {
            let (status, url) = status_and(statement, "<status_code> and <url>")?;
            let code = if name == "errorloc303" { 303 } else { 302 };
            found.push((status, Arc::new(Reply::location(code, &url.bytes()))));
        }
    }
    for (status, reply) in found {
        rules.errors.retain(|(other, _)| *other != status);
        rules.errors.push((status, reply));
    }
    Ok(())
}

fn errorfiles(
    statement: &Statement,
    proxy: &PendingProxy<'_>,
    context: &ResolveContext<'_>,
    found: &mut Vec<(u16, Arc<Reply>)>,
) -> Outcome {
    let [name, wanted @ ..] = statement.arguments() else {
        return Err(Diagnostic::alert("`errorfiles` expects the name of an http-errors section")
            .at(statement.end())
            .haproxy("'errorfiles' expects <name> as argument."));
    };
    let Some(messages) = context.names.http_errors.get(name.as_str()) else {
        let near = diag::suggest(name, context.names.http_errors.keys().map(|name| &**name));
        return Err(Diagnostic::alert(format!("there is no http-errors section `{name}`"))
            .at(name.span())
            .did_you_mean(near)
            .haproxy_whole(format!(
                "proxy '{}': unknown http-errors section '{name}' (at {}).",
                proxy.settings.name,
                shown(context, statement.span)
            )));
    };
    let mut statuses = Vec::new();
    for word in wanted {
        statuses.push(parse_status(word).ok_or_else(|| wrong_status("errorfiles", word))?);
    }
    for (status, bytes) in
        messages.iter().filter(|(status, _)| statuses.is_empty() || statuses.contains(status))
    {
        // The files were read and checked for the section's own lines.
        found.push((*status, Arc::new(raw_reply(*status, bytes, name)?)));
    }
    Ok(())
}

fn raw_reply(status: u16, bytes: &[u8], path: &Word) -> Result<Reply, Diagnostic> {
    Reply::raw(status, bytes, path).map_err(|error| error.at(path.span()).wrap_line("errorfile : ", ""))
}

/// Whether the variable of a `set-var` in `global` already has a value: if the process is already running, that value may be newer.
pub(crate) fn is_set_already(statement: &Statement) -> bool {
    let name = statement.arguments().first().and_then(|word| word.strip_prefix("proc."));
    let variable = name.and_then(sample::vars::find_process_variable);
    variable.is_some_and(|variable| variable.get().is_some())
}

/// `set-var` and `set-var-fmt` of `global`, evaluated immediately.
pub(crate) fn global_variable(statement: &Statement, context: &ResolveContext<'_>) -> Outcome {
    let list = arguments(statement);
    let acls = Acls::new();
    let scope = scope(context, &acls, None, Mode::Tcp, Place::Boot);
    let name = list[0];
    let variable = context
        .variables
        .borrow_mut()
        .resolve(name.text)
        .map_err(|error| Diagnostic::alert(error).at(name.span))?;
    let process = state::Process::default();
    let env = sample::Env::new(&process, base::clock::now_ms());
    if statement.keyword.name == "set-var-fmt" {
        let format = Format::compile(list[1].text, list[1].span, &scope, FormatFor::Text)?;
        let mut text = Vec::new();
        format.render(&env, &mut text);
        let value = sample::value::Value::str(&text);
        variable.set(&env, &value);
        return Ok(());
    }
    let mut words = Words::new(&list[1..], statement.end());
    let expression = Expression::compile(&mut words, &scope)?;
    if let Some(extra) = words.peek() {
        let text = extra.text;
        context.names.warnings.borrow_mut().push(
            Diagnostic::warning(format!("unexpected argument `{text}` for `set-var`"))
                .at(extra.span)
                .haproxy(format!("'set-var' cannot handle unexpected argument '{text}'. It is ignored.")),
        );
    }
    if let Some(value) = expression.eval(&env) {
        variable.set(&env, &value);
    }
    Ok(())
}
