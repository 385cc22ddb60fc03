//! Health checks: compiles drafts into scripts and makes implied steps explicit.
//!
//! A draft is compiled once for each backend that uses it; if it has no expressions, all backends share the result.

use std::collections::HashMap;
use std::rc::Rc;
use std::sync::Arc;

use base::raw::bytes_of;
use diag::Diagnostic;
use plan::check::{
    CheckAction, CheckKind, CheckRequest, CheckScript, CheckStep, CheckText as Value, Connect, Expect,
    Family, HeaderMatcher, Matcher, Pattern, Port, Send, ValueSource,
};
use sample::expression::Expression;
use sample::format::{Format, FormatFor};
use sample::vars::{SetConditions, Var, VarScope};
use sample::word_cursor::{self, Words};
use sample::{Place, Scope};

use crate::draft::Section;
use crate::draft::check::{
    ActionDraft, CheckDraft, CheckMode, ConnectDraft, ExpectDraft, MatcherDraft, PatternDraft, PlacedText,
    PortDraft, RequestDraft, RuleDraft, ValueDraft,
};
use crate::resolve::rules::scope;
use crate::resolve::{PendingProxy, ResolveContext};

/// The `healthcheck` sections by name.
pub(crate) type Healthchecks<'a> = HashMap<&'a str, (Rc<CheckDraft<'a>>, &'a Section)>;

/// Scripts without expressions, by the draft they were compiled from.
pub(crate) type SharedScripts = HashMap<*const (), Arc<CheckKind>>;

/// Inputs of a check other than the backend's own lines.
pub(crate) struct Sources<'s, 'a> {
    pub(crate) healthchecks: &'s Healthchecks<'a>,
    pub(crate) shared: SharedScripts,
}

/// The kind of check for a backend's servers. Errors are added to the diagnostics.
pub(crate) fn check_kind(
    draft: &Rc<CheckDraft<'_>>,
    proxy: &PendingProxy<'_>,
    acls: &sample::Acls,
    shared: &mut SharedScripts,
    context: &mut ResolveContext<'_>,
) -> Arc<CheckKind> {
    let key = Rc::as_ptr(draft).cast::<()>();
    if let Some(kind) = shared.get(&key) {
        return kind.clone();
    }
    let mut warnings = Vec::new();
    let compiled = {
        let (name, mode) = (proxy.settings.name, proxy.settings.mode);
        let scope = match context.around {
            Some(around) if around.has(name) => around.scope(name, mode, Place::Check),
            _ => scope(context, acls, Some(&proxy.state), mode, Place::Check),
        };
        compile(draft, &scope, context, &mut warnings)
    };
    warnings.into_iter().for_each(|warning| context.diagnostics.push(warning));
    let kind = Arc::new(match compiled {
        Ok(kind) => kind,
        Err(error) => {
            context.diagnostics.push(error);
            CheckKind::Script(script(Family::Connect, Vec::new(), draft))
        }
    });
    if !matches!(&*kind, CheckKind::Script(CheckScript { evaluates: true, .. })) {
        shared.insert(key, kind.clone());
    }
    kind
}

/// Compiles the `healthcheck` sections only to register their variables, because a server added at run time may be the first to use
/// one. Errors in a section are reported where the section is used.
pub(crate) fn note_variables(healthchecks: &Healthchecks<'_>, context: &ResolveContext<'_>) {
    let acls = sample::Acls::new();
    let scope = scope(context, &acls, None, state::Mode::Http, Place::Check);
    for (draft, _) in healthchecks.values() {
        let _ = compile(draft, &scope, context, &mut Vec::new());
    }
}

/// Whether the script contains an expression, so that it is specific to one backend.
fn evaluates(steps: &[CheckStep]) -> bool {
    steps.iter().any(|step| match &step.action {
        CheckAction::Connect(connect) => matches!(connect.port, Some(Port::Expression(_))),
        CheckAction::Send(send) => !matches!(send, Send::Bytes(_)),
        CheckAction::Request(request) => {
            let computed = |text: &Value| matches!(text, Value::Format(_));
            computed(&request.uri) || computed(&request.body) || !request.headers.is_empty()
        }
        CheckAction::Expect(expect) => {
            let plain = matches!(
                expect.what,
                Matcher::Bytes(..)
                    | Matcher::Regex(_)
                    | Matcher::HexRegex(_)
                    | Matcher::Status(_)
                    | Matcher::StatusRegex(_)
                    | Matcher::Body(_)
                    | Matcher::BodyRegex(_)
                    | Matcher::Mysql { .. }
                    | Matcher::LdapBind
                    | Matcher::SpopHello
                    | Matcher::GrpcServing
            );
            !plain || expect.on_error.is_some() || expect.on_success.is_some() || expect.code.is_some()
        }
        CheckAction::SetVar(..) | CheckAction::UnsetVar(_) => true,
    })
}

fn compile(
    draft: &CheckDraft<'_>,
    scope: &Scope<'_>,
    context: &ResolveContext<'_>,
    warnings: &mut Vec<Diagnostic>,
) -> Result<CheckKind, Diagnostic> {
    let (family, rules) = match draft.mode {
        CheckMode::External => {
            check_external(draft, scope, context, warnings)?;
            return Ok(CheckKind::External {
                command: draft.command.unwrap_or_default().into(),
                path: draft.path.map(Into::into),
                preserve_env: context.global.external_check_environment,
            });
        }
        CheckMode::Connect => (Family::Connect, Vec::new()),
        CheckMode::Tcp | CheckMode::Udp => (Family::Tcp, draft.tcp.clone()),
        CheckMode::Http => (Family::Http, http_rules(&draft.http)),
        CheckMode::Protocol => (Family::Protocol, draft.protocol.clone()),
    };
    let mut steps = Vec::with_capacity(rules.len() + 1);
    let mut comments = Comments::default();
    for rule in &rules {
        let Some(comment) = comments.of(rule) else { continue };
        steps.push(CheckStep {
            number: rule.index + 1,
            comment: comment.map(Into::into),
            action: action(&rule.action, scope)?,
        });
    }
    match family {
        Family::Tcp => first_connects("tcp-check", &steps)?,
        Family::Http => first_connects("http-check", &steps)?,
        _ => {}
    }
    let mut script = script(family, steps, draft);
    if draft.mode == CheckMode::Udp {
        for step in &mut script.steps {
            if let CheckAction::Connect(connect) = &mut step.action {
                connect.datagrams = true;
            }
        }
    }
    Ok(CheckKind::Script(script))
}

/// Checks that a script with a `connect` step has one before its first exchange.
fn first_connects(keyword: &str, steps: &[CheckStep]) -> Result<(), Diagnostic> {
    let talks =
        |step: &&CheckStep| !matches!(step.action, CheckAction::SetVar(..) | CheckAction::UnsetVar(_));
    let connects = |step: &CheckStep| matches!(step.action, CheckAction::Connect(_));
    let first = steps.iter().find(talks);
    if first.is_none_or(connects) || !steps.iter().any(connects) {
        return Ok(());
    }
    Err(Diagnostic::alert(format!("`{keyword} connect` follows a step that needs a connection"))
        .help(format!("start with `{keyword} connect`; only `set-var`, `unset-var` and `comment` may precede it"))
        .haproxy(format!(
            "'{keyword} connect' : first step MUST also be a 'connect', optionally preceded by a 'set-var', an \
             'unset-var' or a 'comment', when there is a 'connect' step in the tcp-check ruleset."
        )))
}

/// Checks the requirements of an external check: external programs are allowed, and a command is set.
fn check_external(
    draft: &CheckDraft<'_>,
    scope: &Scope<'_>,
    context: &ResolveContext<'_>,
    warnings: &mut Vec<Diagnostic>,
) -> Result<(), Diagnostic> {
    let name = scope.proxy.map_or("", |proxy| &proxy.name);
    let missing = match (context.global.external_check, draft.command) {
        (false, _) => "global.external-check",
        (true, None) => "external-check command",
        (true, Some(command)) if !command.starts_with('/') && draft.path.is_none() => {
            return Err(Diagnostic::alert(format!("the path of the program `{command}` of backend `{name}` is unknown"))
                .help("use its full path, or set `external-check path`")
                .haproxy(format!(
                    "Proxy '{name}': 'external-check command' does not have a leading '/' and 'external-check path' is not set."
                )));
        }
        (true, Some(_)) => {
            if !context.global.insecure_fork_wanted {
                warnings.push(
                    Diagnostic::warning(format!(
                        "`insecure-fork-wanted` is missing in the global section: checks of backend `{name}` will fail"
                    ))
                    .haproxy_whole(format!("Proxy '{name}' : 'insecure-fork-wanted' not enabled in the global section, 'option external-check' will likely fail.")),
                );
            }
            return Ok(());
        }
    };
    let help = match missing {
        "global.external-check" => {
            "add `external-check` to the global section to allow checks by external programs"
        }
        _ => "use `external-check command <command>` to set the program",
    };
    Err(Diagnostic::alert(format!("backend `{name}` uses external checks, but `{missing}` is missing"))
        .help(help)
        .haproxy_whole(format!(
            "Proxy '{name}' : 'option external-check' unable to find required '{missing}'."
        )))
}

/// Prepends the implied connection.
fn script(family: Family, mut steps: Vec<CheckStep>, draft: &CheckDraft<'_>) -> CheckScript {
    let first =
        steps.iter().find(|step| !matches!(step.action, CheckAction::SetVar(..) | CheckAction::UnsetVar(_)));
    if !first.is_some_and(|step| matches!(step.action, CheckAction::Connect(_))) {
        let connect = Connect { implied: true, default: true, ..Connect::default() };
        steps.insert(0, CheckStep { number: 0, comment: None, action: CheckAction::Connect(connect) });
    }
    let evaluates = evaluates(&steps);
    CheckScript {
        family,
        steps,
        disable_on_404: draft.disable_on_404,
        send_state: draft.send_state,
        evaluates,
    }
}

/// The `http-check` lines in the order of evaluation: the request of `option httpchk` follows the first connection, and an
/// expectation the last request.
fn http_rules<'a>(rules: &[RuleDraft<'a>]) -> Vec<RuleDraft<'a>> {
    let mut rules = rules.to_vec();
    let mut talking = rules.iter().enumerate().filter(|(_, rule)| rule.action.talks());
    if let (Some((request, RuleDraft { action: ActionDraft::Request(own), .. })), Some((connect, next))) =
        (talking.next(), talking.next())
        && own.from_option
        && matches!(next.action, ActionDraft::Connect(_))
    {
        let rule = RuleDraft { index: next.index + 1, ..rules[request].clone() };
        rules.insert(connect + 1, rule);
        rules.remove(request);
    }
    let last = rules.iter().rev().find(|rule| rule.action.talks());
    if let Some(RuleDraft { index, action: ActionDraft::Request(_), .. }) = last {
        let expect = ExpectDraft::new(MatcherDraft::Status(vec![(200, 399)]));
        let (index, action) = (index + 1, ActionDraft::Expect(Box::new(expect)));
        rules.push(RuleDraft { index, comment: None, action });
    }
    rules
}

/// Each `comment` line is a name for the following steps of the same kind.
#[derive(Default)]
struct Comments<'a> {
    pending: Option<&'a str>,
    last: Option<std::mem::Discriminant<ActionDraft<'a>>>,
}

impl<'a> Comments<'a> {
    /// The comment of a rule, or `None` if the rule itself is a comment.
    fn of(&mut self, rule: &RuleDraft<'a>) -> Option<Option<&'a str>> {
        let kind = std::mem::discriminant(&rule.action);
        let another = self.last.is_some_and(|last| last != kind);
        self.last = Some(kind);
        if let ActionDraft::Comment(text) = rule.action {
            (self.pending, self.last) = (Some(text), None);
            return None;
        }
        if another {
            self.pending = None;
        }
        let comment = rule.comment.or(self.pending);
        if !rule.action.talks() {
            self.pending = None;
            return Some(None);
        }
        if matches!(rule.action, ActionDraft::Connect(_)) {
            self.pending = None;
        }
        Some(comment)
    }
}

fn format(text: PlacedText<'_>, scope: &Scope<'_>) -> Result<Format, Diagnostic> {
    Format::compile(text.text, text.span, scope, FormatFor::Text)
}

fn expression(text: PlacedText<'_>, scope: &Scope<'_>) -> Result<Expression, Diagnostic> {
    Expression::compile_str(text.text, text.span, scope)
}

fn value(draft: Option<ValueDraft<'_>>, default: &str, scope: &Scope<'_>) -> Result<Value, Diagnostic> {
    match draft {
        Some(ValueDraft::Format(text)) => format(text, scope).map(Value::Format),
        Some(ValueDraft::Fixed(text)) => Ok(Value::Fixed(bytes_of(text).into())),
        None => Ok(Value::Fixed(default.as_bytes().into())),
    }
}

fn action(draft: &ActionDraft<'_>, scope: &Scope<'_>) -> Result<CheckAction, Diagnostic> {
    Ok(match draft {
        ActionDraft::Connect(draft) => CheckAction::Connect(connect(draft, scope)?),
        ActionDraft::Send(bytes) => CheckAction::Send(Send::Bytes(bytes.clone())),
        ActionDraft::SendFormat(text) => CheckAction::Send(Send::Format(format(*text, scope)?)),
        ActionDraft::SendHex(text) => CheckAction::Send(Send::Hex(format(*text, scope)?)),
        ActionDraft::Request(draft) => CheckAction::Request(request(draft, scope)?),
        ActionDraft::Grpc(service) => CheckAction::Request(grpc(service, scope)?),
        ActionDraft::Expect(draft) => CheckAction::Expect(Box::new(expect(draft, scope)?)),
        ActionDraft::SetVar(name, list) => {
            let (var, conditions) = variable(*name, scope)?;
            let list: Vec<word_cursor::Word<'_>> =
                list.iter().map(|word| word_cursor::Word { text: word, span: word.span() }).collect();
            let mut words = Words::new(&list, name.span);
            let value = Expression::compile(&mut words, scope)?;
            if let Some(extra) = words.peek() {
                return Err(Diagnostic::alert(format!("unexpected argument `{}` for `set-var`", extra.text))
                    .at(extra.span));
            }
            CheckAction::SetVar(var, conditions, ValueSource::Expression(value))
        }
        ActionDraft::SetVarFormat(name, text) => {
            let (var, conditions) = variable(*name, scope)?;
            CheckAction::SetVar(var, conditions, ValueSource::Format(format(*text, scope)?))
        }
        ActionDraft::UnsetVar(name) => CheckAction::UnsetVar(variable(*name, scope)?.0),
        // Comments were removed before this step.
        ActionDraft::Comment(_) => CheckAction::Send(Send::Bytes(Box::default())),
    })
}

/// A variable with its conditions. Checks have variables of the scopes `proc`, `sess` and `check`.
fn variable(text: PlacedText<'_>, scope: &Scope<'_>) -> Result<(Var, SetConditions), Diagnostic> {
    let at = |message: String| Diagnostic::alert(message).at(text.span);
    let mut parts = text.text.split(',');
    let name = parts.next().unwrap_or_default().trim();
    let var = scope.variables.borrow_mut().resolve(name).map_err(at)?;
    let known = matches!(var, Var::Process(_) | Var::Slot(VarScope::Session | VarScope::Check, _));
    if !known {
        return Err(at(format!("`{name}` is not available in health checks"))
            .label("use the scope proc, sess or check"));
    }
    let mut conditions = SetConditions::default();
    for condition in parts {
        conditions.add(condition.trim()).map_err(at)?;
    }
    Ok((var, conditions))
}

fn connect(draft: &ConnectDraft<'_>, scope: &Scope<'_>) -> Result<Connect, Diagnostic> {
    Ok(Connect {
        datagrams: false,
        implied: false,
        default: draft.default,
        port: match draft.port {
            None => None,
            Some(PortDraft::Fixed(port)) => Some(Port::Fixed(port)),
            Some(PortDraft::Expression(text)) => Some(Port::Expression(expression(text, scope)?)),
        },
        address: draft.address,
        send_proxy: draft.send_proxy,
        via_socks4: draft.via_socks4,
        linger: draft.linger,
        protocol: draft.protocol,
        secure: draft.secure,
        name: draft.name.map(Into::into),
        alpn: draft.alpn.clone(),
    })
}

fn request(draft: &RequestDraft<'_>, scope: &Scope<'_>) -> Result<CheckRequest, Diagnostic> {
    let mut headers = Vec::with_capacity(draft.headers.len());
    for (name, text) in &draft.headers {
        headers.push((bytes_of(name).into(), format(*text, scope)?));
    }
    Ok(CheckRequest {
        method: bytes_of(draft.method.unwrap_or("OPTIONS")).into(),
        uri: value(draft.uri, "/", scope)?,
        version: bytes_of(draft.version.unwrap_or("HTTP/1.0")).into(),
        headers,
        body: value(draft.body, "", scope)?,
    })
}

/// A call to `grpc.health.v1.Health/Check` (gRPC health checking protocol): the message has the service's name in
/// field 1 and is preceded by a five-byte header, the compression flag and the length.
fn grpc(service: &str, scope: &Scope<'_>) -> Result<CheckRequest, Diagnostic> {
    let service = bytes_of(service);
    let mut message = Vec::with_capacity(service.len() + 3);
    if !service.is_empty() {
        message.push(0x0a);
        let mut length = service.len();
        while length >= 0x80 {
            message.push(length as u8 | 0x80);
            length >>= 7;
        }
        message.push(length as u8);
        message.extend_from_slice(&service);
    }
    let mut body = vec![0];
    body.extend_from_slice(&(message.len() as u32).to_be_bytes());
    body.append(&mut message);
    let mut headers = Vec::new();
    for (name, value) in [("content-type", "application/grpc"), ("te", "trailers")] {
        headers.push((name.as_bytes().into(), format(value.into(), scope)?));
    }
    Ok(CheckRequest {
        method: b"POST"[..].into(),
        uri: Value::Fixed(Box::from(*b"/grpc.health.v1.Health/Check")),
        version: b"HTTP/2.0"[..].into(),
        headers,
        body: Value::Fixed(body.into()),
    })
}

fn expect(draft: &ExpectDraft<'_>, scope: &Scope<'_>) -> Result<Expect, Diagnostic> {
    let optional = |text: Option<PlacedText<'_>>| text.map(|text| format(text, scope)).transpose();
    Ok(Expect {
        what: matcher(&draft.what, scope)?,
        negate: draft.negate,
        min_recv: draft.min_recv,
        ok_status: draft.ok_status,
        error_status: draft.error_status,
        timeout_status: draft.timeout_status,
        on_success: optional(draft.on_success)?,
        on_error: optional(draft.on_error)?,
        code: draft.code.map(|text| expression(text, scope)).transpose()?,
    })
}

fn matcher(draft: &MatcherDraft<'_>, scope: &Scope<'_>) -> Result<Matcher, Diagnostic> {
    Ok(match draft {
        MatcherDraft::Bytes(bytes, spelling) => Matcher::Bytes(bytes.clone(), *spelling),
        MatcherDraft::Regex(regex) => Matcher::Regex(regex.clone()),
        MatcherDraft::HexRegex(regex) => Matcher::HexRegex(regex.clone()),
        MatcherDraft::Format(text) => Matcher::Format(format(*text, scope)?),
        MatcherDraft::HexFormat(text) => Matcher::HexFormat(format(*text, scope)?),
        MatcherDraft::Status(ranges) => Matcher::Status(ranges.clone()),
        MatcherDraft::StatusRegex(regex) => Matcher::StatusRegex(regex.clone()),
        MatcherDraft::Header { name, value, full } => Matcher::Header(HeaderMatcher {
            name: pattern(name, scope)?,
            value: value.as_ref().map(|value| pattern(value, scope)).transpose()?,
            full: *full,
        }),
        MatcherDraft::Body(bytes) => Matcher::Body(bytes.clone()),
        MatcherDraft::BodyRegex(regex) => Matcher::BodyRegex(regex.clone()),
        MatcherDraft::BodyFormat(text) => Matcher::BodyFormat(format(*text, scope)?),
        MatcherDraft::Mysql { after_greeting } => Matcher::Mysql { after_greeting: *after_greeting },
        MatcherDraft::LdapBind => Matcher::LdapBind,
        MatcherDraft::SpopHello => Matcher::SpopHello,
        MatcherDraft::GrpcServing => Matcher::GrpcServing,
    })
}

fn pattern(draft: &PatternDraft<'_>, scope: &Scope<'_>) -> Result<Pattern, Diagnostic> {
    Ok(match draft {
        PatternDraft::Text(method, text) => Pattern::Text(*method, value(Some(*text), "", scope)?),
        PatternDraft::Regex(regex) => Pattern::Regex(regex.clone()),
    })
}
