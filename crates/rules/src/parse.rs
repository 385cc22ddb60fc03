//! Parses the arguments of actions. Each function belongs to a row of the table.

use std::sync::Arc;

use base::units::parse_size;
use diag::{Diagnostic, Span, suggest};
use sample::format::FormatFor;
use sample::transaction::{CaptureSlot, TimeoutSlot};
use sample::vars::{SetConditions, Var, VarScope};
use sample::{LogOrigin, Word};

use crate::action::{Action, ConnectionEnd, ListChange, Normalizer};
use crate::context::{Context, Parsed, Ruleset};
use crate::redirect::Redirect;
use crate::reply::Reply;
use crate::stage::Service;
use crate::stage::Spoken;

mod attach;
mod cache;
mod mirror;
mod network;
mod rewrite;
pub(crate) mod script;
pub(crate) mod table;

pub(crate) use self::cache::{cache_purge, cache_store, cache_use};
pub(crate) use attach::attach_srv;
pub(crate) use mirror::mirror;
pub(crate) use network::{do_resolve, send_spoe_group, set_bandwidth_limit};
pub(crate) use rewrite::{del_header, header_format, replace_header, replace_uri_part, set_part, set_status};

pub(crate) fn wrong(word: Word<'_>, what: &str, choices: &[&str]) -> Diagnostic {
    Diagnostic::alert(format!("`{}` is not a valid {what}", word.text))
        .at(word.span)
        .did_you_mean(suggest(word.text, choices.iter().copied()))
        .help(format!("use one of: {}", choices.join(", ")))
}

pub(crate) fn accept(_: &mut Context<'_, '_, '_>) -> Parsed {
    Ok(Action::Accept)
}

pub(crate) fn reject(_: &mut Context<'_, '_, '_>) -> Parsed {
    Ok(Action::Reject)
}

pub(crate) fn send_retry(_: &mut Context<'_, '_, '_>) -> Parsed {
    Ok(Action::SendRetry)
}

pub(crate) fn close(_: &mut Context<'_, '_, '_>) -> Parsed {
    Ok(Action::CloseServer)
}

pub(crate) fn deny(context: &mut Context<'_, '_, '_>) -> Parsed {
    let default = match (context.row.name, context.set) {
        ("tarpit", _) => 500,
        (_, Ruleset::HttpResponse) => 502,
        _ => 403,
    };
    let reply = Arc::new(Reply::compile(context.words, context.scope, default, true)?);
    Ok(if context.row.name == "tarpit" { Action::Tarpit(reply) } else { Action::Deny(reply) })
}

pub(crate) fn return_(context: &mut Context<'_, '_, '_>) -> Parsed {
    Reply::compile(context.words, context.scope, 200, false).map(|reply| Action::Return(Arc::new(reply)))
}

pub(crate) fn redirect(context: &mut Context<'_, '_, '_>) -> Parsed {
    let start = context.words.span();
    let redirect = Redirect::compile(context.words, context.scope, true)?;
    if context.set == Ruleset::HttpResponse && !redirect.is_location() {
        // The other types are derived from the request.
        return Err(Diagnostic::alert("a redirect in a response supports only `location`")
            .at(start)
            .haproxy("response only supports redirect type 'location'."));
    }
    Ok(Action::Redirect(Arc::new(redirect)))
}

pub(crate) fn auth(context: &mut Context<'_, '_, '_>) -> Parsed {
    if context.words.take("realm") {
        let realm = context.need("a realm")?;
        return Ok(Action::Auth(realm.text.into()));
    }
    let name = context.scope.proxy.map_or("", |proxy| &proxy.name);
    Ok(Action::Auth(name.into()))
}

pub(crate) fn jump(context: &mut Context<'_, '_, '_>) -> Parsed {
    Ok(Action::Jump(context.format("a label", FormatFor::Text)?))
}

pub(crate) fn label(context: &mut Context<'_, '_, '_>) -> Parsed {
    let name = context.need("a name")?.bytes().into();
    if let Some(word) = context.words.peek() {
        // With a condition, the label would still be the target of jumps.
        return Err(Diagnostic::alert("a label has no condition").at(word.span).help(context.usage_line()));
    }
    Ok(Action::Label(name))
}

pub(crate) fn silent_drop(context: &mut Context<'_, '_, '_>) -> Parsed {
    let mut rst_ttl = None;
    if context.set != Ruleset::QuicInitial && context.words.take("rst-ttl") {
        let word = context.need("a TTL")?;
        let ttl = word.text.parse::<u8>().ok().filter(|ttl| *ttl > 0);
        rst_ttl = Some(ttl.ok_or_else(|| {
            Diagnostic::alert(format!("`{}` is not a TTL between 1 and 255", word.text)).at(word.span)
        })?);
    }
    Ok(Action::SilentDrop { rst_ttl })
}

/// Refuses a variable of a parent stream, which cannot be changed. Warns about a request variable that is used before there is a
/// request: HAProxy accepts such rules (as in the example at `concat` in its manual), but they have no effect.
fn check_scope(context: &Context<'_, '_, '_>, var: &Var, name: &str, span: Span) -> Result<(), Diagnostic> {
    match var {
        Var::Parent => {
            let message = format!("`{name}` belongs to the parent stream and cannot be changed");
            Err(Diagnostic::alert(message).at(span))
        }
        Var::Slot(scope, _)
            if *scope != VarScope::Session
                && matches!(context.set, Ruleset::TcpConnection | Ruleset::TcpSession) =>
        {
            let message = format!("`{name}` cannot be set in `{}` rules", context.set.name());
            let warning = Diagnostic::advice(message).at(span).label("no request has been received yet");
            context.scope.names.warn(warning.help("use a variable with scope sess or proc"));
            Ok(())
        }
        Var::Slot(scope, _) if *scope != VarScope::Session && context.set == Ruleset::UdpRequest => {
            Err(Diagnostic::alert(format!("`{name}` cannot be set in `udp-request` rules"))
                .at(span)
                .help("use a variable with scope sess or proc: there is no transaction"))
        }
        Var::Slot(..) | Var::Process(_) => Ok(()),
    }
}

pub(crate) fn set_var(context: &mut Context<'_, '_, '_>) -> Parsed {
    let (inner, span) = context.parenthesised()?;
    let mut parts = inner.split(',');
    let name = parts.next().unwrap_or_default().trim();
    let at = |message: String| Diagnostic::alert(message).at(span);
    let var = context.scope.variables.borrow_mut().resolve(name).map_err(at)?;
    check_scope(context, &var, name, span)?;
    let mut conditions = SetConditions::default();
    for condition in parts {
        conditions.add(condition.trim()).map_err(at)?;
    }
    if context.row.name == "set-var-fmt" {
        let value = context.format("a format", FormatFor::Text)?;
        return Ok(Action::SetVarFormat { var, conditions, value });
    }
    Ok(Action::SetVar { var, conditions, value: context.expression()? })
}

pub(crate) fn unset_var(context: &mut Context<'_, '_, '_>) -> Parsed {
    let (inner, span) = context.parenthesised()?;
    let var = context.scope.variables.borrow_mut().resolve(inner.trim());
    let var = var.map_err(|message| Diagnostic::alert(message).at(span))?;
    check_scope(context, &var, inner, span)?;
    Ok(Action::UnsetVar(var))
}

pub(crate) fn set_address(context: &mut Context<'_, '_, '_>) -> Parsed {
    let end = match context.row.name {
        "set-src" => ConnectionEnd::Source,
        "set-src-port" => ConnectionEnd::SourcePort,
        "set-dst" => ConnectionEnd::Destination,
        _ => ConnectionEnd::DestinationPort,
    };
    Ok(Action::SetAddress { end, value: context.expression()? })
}

const LEVELS: [&str; 9] = ["emerg", "alert", "crit", "err", "warning", "notice", "info", "debug", "silent"];

pub(crate) fn set_log_level(context: &mut Context<'_, '_, '_>) -> Parsed {
    let word = context.need("a level")?;
    match LEVELS.iter().position(|level| *level == word.text) {
        Some(8) => Ok(Action::SetLogLevel(None)),
        Some(level) => Ok(Action::SetLogLevel(Some(level as u8))),
        None => Err(wrong(word, "log level", &LEVELS)),
    }
}

pub(crate) fn set_priority(context: &mut Context<'_, '_, '_>) -> Parsed {
    let value = context.expression()?;
    Ok(if context.row.name == "set-priority-class" {
        Action::SetPriorityClass(value)
    } else {
        Action::SetPriorityOffset(value)
    })
}

const TIMEOUTS: [(&str, TimeoutSlot); 6] = [
    ("client", TimeoutSlot::Client),
    ("connect", TimeoutSlot::Connect),
    ("queue", TimeoutSlot::Queue),
    ("server", TimeoutSlot::Server),
    ("tarpit", TimeoutSlot::Tarpit),
    ("tunnel", TimeoutSlot::Tunnel),
];

pub(crate) fn set_timeout(context: &mut Context<'_, '_, '_>) -> Parsed {
    let word = context.need("a timeout name")?;
    if word.text == "request" && context.set == Ruleset::HttpRequest {
        return Ok(Action::SetDeadline(context.positive_time_or_expression("set-timeout request")?));
    }
    let Some((_, slot)) = TIMEOUTS.iter().find(|(name, _)| *name == word.text) else {
        return Err(wrong(word, "timeout", &TIMEOUTS.map(|(name, _)| name)));
    };
    let of_backend = !matches!(slot, TimeoutSlot::Client | TimeoutSlot::Tarpit);
    let misplaced = context.scope.proxy.is_some_and(|proxy| match slot {
        TimeoutSlot::Client => !proxy.is_frontend,
        _ => of_backend && !proxy.is_backend,
    });
    if misplaced {
        let side = if of_backend { "backend" } else { "frontend" };
        return Err(Diagnostic::alert(format!("the timeout `{}` can only be set in a {side}", word.text))
            .at(word.span));
    }
    Ok(Action::SetTimeout {
        slot: *slot,
        value: context.positive_time_or_expression(&format!("set-timeout {}", word.text))?,
    })
}

pub(crate) fn set_retries(context: &mut Context<'_, '_, '_>) -> Parsed {
    if context.scope.proxy.is_some_and(|proxy| !proxy.is_backend) {
        return Err(Diagnostic::alert("`set-retries` can only be used in a backend").at(context.word.span));
    }
    Ok(Action::SetRetries(context.number_or_expression(0, 100)?))
}

pub(crate) fn set_tos(context: &mut Context<'_, '_, '_>) -> Parsed {
    Ok(Action::SetTos(context.number_or_expression(0, 255)?))
}

pub(crate) fn set_mark(context: &mut Context<'_, '_, '_>) -> Parsed {
    Ok(Action::SetMark(context.number_or_expression(0, u32::MAX.into())?))
}

pub(crate) fn set_server_tos(context: &mut Context<'_, '_, '_>) -> Parsed {
    Ok(Action::SetServerTos(context.number_or_expression(0, 255)?))
}

pub(crate) fn set_server_mark(context: &mut Context<'_, '_, '_>) -> Parsed {
    Ok(Action::SetServerMark(context.number_or_expression(0, u32::MAX.into())?))
}

pub(crate) fn switch_mode(context: &mut Context<'_, '_, '_>) -> Parsed {
    let mode = context.need("the mode `http`")?;
    if mode.text != "http" {
        return Err(wrong(mode, "mode", &["http"]));
    }
    let mut spoken = Spoken::Found;
    if context.words.take("proto") {
        let protocol = context.need("a protocol")?;
        spoken = match protocol.text {
            "h1" => Spoken::Http1,
            "h2" => Spoken::Http2,
            _ => return Err(wrong(protocol, "HTTP protocol", &["h1", "h2"])),
        };
    }
    if context.scope.proxy.is_some_and(|proxy| !proxy.is_frontend) {
        return Err(Diagnostic::alert("`switch-mode` can only be used in a frontend").at(context.word.span));
    }
    Ok(Action::SwitchMode(spoken))
}

pub(crate) fn set_nice(context: &mut Context<'_, '_, '_>) -> Parsed {
    // The tasks of a worker run in turn, in an order that this action could not change. HAProxy itself only promises an effect
    // "against the other requests being processed at the same time".
    context.number_or_expression(-1024, 1024)?;
    Ok(Action::Nothing)
}

pub(crate) fn strict_mode(context: &mut Context<'_, '_, '_>) -> Parsed {
    let word = context.need("`on` or `off`")?;
    match word.text {
        "on" => Ok(Action::StrictMode(true)),
        "off" => Ok(Action::StrictMode(false)),
        _ => Err(wrong(word, "mode", &["on", "off"])),
    }
}

pub(crate) fn capture(context: &mut Context<'_, '_, '_>) -> Parsed {
    let value = context.expression()?;
    let word = context.need("`len` or `id`")?;
    let number = context.need("a number")?;
    let parsed: usize = number
        .text
        .parse()
        .map_err(|_| Diagnostic::alert(format!("invalid number `{}`", number.text)).at(number.span))?;
    let request = matches!(context.set, Ruleset::TcpRequest | Ruleset::HttpRequest);
    let in_backend = context.scope.proxy.is_some_and(|proxy| !proxy.is_frontend);
    if in_backend && context.set == Ruleset::TcpRequest {
        let name = context.scope.proxy.map_or("", |proxy| &proxy.name);
        return Err(Diagnostic::alert("`tcp-request content capture` requires a frontend")
            .at(context.word.span)
            .haproxy(format!("'tcp-request content capture' : proxy '{name}' has no frontend capability")));
    }
    match word.text {
        "len" if request && parsed == 0 => Err(Diagnostic::alert("a capture of length 0 captures nothing")
            .at(number.span)
            .haproxy("a capture's length must be > 0")),
        "len" if request => {
            let slot = context.scope.names.capture_slot(parsed).ok_or_else(|| {
                Diagnostic::alert("`len` requires a frontend").at(word.span).help(
                    "declare a slot in the frontend with `declare capture request len` and use its `id`",
                )
            })?;
            Ok(Action::Capture { value, slot: CaptureSlot::Request(slot) })
        }
        "id" => {
            let slot = if request { CaptureSlot::Request(parsed) } else { CaptureSlot::Response(parsed) };
            Ok(Action::Capture { value, slot })
        }
        _ if request => Err(wrong(word, "option of `capture`", &["len", "id"])),
        _ => Err(wrong(word, "option of `capture` here", &["id"])),
    }
}

pub(crate) fn pattern_change(context: &mut Context<'_, '_, '_>) -> Parsed {
    let (file, span) = context.parenthesised()?;
    let is_map = context.row.name.ends_with("map");
    let change = match context.row.name {
        "set-map" => ListChange::Set,
        "add-acl" => ListChange::Add,
        _ => ListChange::Remove,
    };
    let list = context
        .scope
        .patterns
        .borrow_mut()
        .changed(file, is_map, |path| context.scope.names.read_patterns(path))
        .map_err(|message| Diagnostic::alert(message).at(span))?;
    let key = context.format("a key", FormatFor::Text)?;
    let value = match change {
        ListChange::Set => Some(context.format("a value", FormatFor::Text)?),
        _ => None,
    };
    Ok(Action::ChangeList { list, change, key, value })
}

const NORMALIZERS: [&str; 8] = [
    "fragment-encode",
    "fragment-strip",
    "path-merge-slashes",
    "path-strip-dot",
    "path-strip-dotdot",
    "percent-decode-unreserved",
    "percent-to-uppercase",
    "query-sort-by-name",
];

pub(crate) fn normalize_uri(context: &mut Context<'_, '_, '_>) -> Parsed {
    if !context.scope.names.experimental() {
        return Err(Diagnostic::alert("`normalize-uri` is experimental")
            .at(context.word.span)
            .help("allow it with `expose-experimental-directives` in the global section")
            .haproxy(
                "'normalize-uri' action is experimental, must be allowed via a global 'expose-experimental-directives'",
            ));
    }
    let word = context.need("a normalizer")?;
    let mut option = |name: &str| context.words.take(name);
    Ok(Action::Normalize(match word.text {
        "fragment-encode" => Normalizer::FragmentEncode,
        "fragment-strip" => Normalizer::FragmentStrip,
        "path-merge-slashes" => Normalizer::PathMergeSlashes,
        "path-strip-dot" => Normalizer::PathStripDot,
        "path-strip-dotdot" => Normalizer::PathStripDotDot { full: option("full") },
        "percent-decode-unreserved" => Normalizer::PercentDecodeUnreserved { strict: option("strict") },
        "percent-to-uppercase" => Normalizer::PercentToUppercase { strict: option("strict") },
        "query-sort-by-name" => Normalizer::QuerySortByName,
        _ => return Err(wrong(word, "normalizer", &NORMALIZERS)),
    }))
}

pub(crate) fn wait_for_body(context: &mut Context<'_, '_, '_>) -> Parsed {
    let (mut timeout, mut at_least, mut in_large) = (None, 0, false);
    loop {
        if context.words.take("time") {
            let word = context.need("a time")?;
            timeout = Some(context.duration(word)?);
        } else if context.words.take("at-least") {
            let word = context.need("a size")?;
            at_least = parse_size(word.text)
                .map_err(|error| Diagnostic::alert(format!("`{}`: {error}", word.text)).at(word.span))?
                as usize;
        } else if context.words.take("use-large-buffer") {
            in_large = true;
        } else {
            break;
        }
    }
    let timeout_ms = timeout.ok_or_else(|| context.usage("`time <time>`"))?;
    Ok(Action::WaitForBody { at_least, timeout_ms, in_large })
}

pub(crate) fn wait_for_handshake(_: &mut Context<'_, '_, '_>) -> Parsed {
    Ok(Action::WaitForHandshake)
}

pub(crate) fn use_service(context: &mut Context<'_, '_, '_>) -> Parsed {
    let word = context.need("the name of a service")?;
    match (word.text, context.set) {
        ("prometheus-exporter", Ruleset::HttpRequest) => Ok(Action::UseService(Service::PrometheusExporter)),
        ("prometheus-exporter", _) => {
            Err(Diagnostic::alert("`prometheus-exporter` is only for `http-request` rules").at(word.span))
        }
        (name, _) if name.starts_with("lua.") => script::service(context, word),
        _ => Err(wrong(word, "service", &["prometheus-exporter"])),
    }
}

pub(crate) fn pause(context: &mut Context<'_, '_, '_>) -> Parsed {
    Ok(Action::Pause(context.positive_time_or_expression("pause")?))
}

pub(crate) fn early_hint(context: &mut Context<'_, '_, '_>) -> Parsed {
    let name = rewrite::header_name(context)?;
    let value = context.format("a value", FormatFor::Header)?;
    if ["content-length", "transfer-encoding"].iter().any(|known| name.text.eq_ignore_ascii_case(known)) {
        // HAProxy sends it without a warning, although RFC 9110 (15.2) forbids it, so the behaviour differs.
        let warning =
            Diagnostic::warning(format!("`{}` cannot be sent in a 103 response", name.text)).tolerated();
        context.scope.names.warn(warning.at(name.span).label("such a response has no body"));
        return Ok(Action::Nothing);
    }
    Ok(Action::EarlyHint { name: name.bytes().into(), value })
}

pub(crate) fn expect_proxy(context: &mut Context<'_, '_, '_>) -> Parsed {
    layer4(context).map(|()| Action::ExpectProxy)
}

pub(crate) fn expect_netscaler(context: &mut Context<'_, '_, '_>) -> Parsed {
    layer4(context).map(|()| Action::ExpectNetscaler)
}

/// The only layer at which PROXY headers are expected.
fn layer4(context: &mut Context<'_, '_, '_>) -> Result<(), Diagnostic> {
    let word = context.need("`layer4`")?;
    if word.text == "layer4" { Ok(()) } else { Err(wrong(word, "layer", &["layer4"])) }
}

pub(crate) fn do_log(context: &mut Context<'_, '_, '_>) -> Parsed {
    let mut profile = None;
    if context.words.take("profile") {
        let word = context.need("a log-profile name")?;
        let names = context.scope.names;
        profile = Some(sample::log_profile::find(names, word.text).ok_or_else(|| {
            let known = names.log_profile_names();
            let names = known.iter().map(|name| &**name);
            Diagnostic::alert(format!("there is no log-profile section `{}`", word.text))
                .at(word.span)
                .did_you_mean(suggest(word.text, names))
                .haproxy(format!("'do-log' : no such log-profile '{}'.", word.text))
        })?);
    }
    let origin = match context.set {
        Ruleset::TcpConnection => LogOrigin::TcpRequestConnection,
        Ruleset::TcpSession => LogOrigin::TcpRequestSession,
        Ruleset::TcpRequest => LogOrigin::TcpRequestContent,
        Ruleset::TcpResponse => LogOrigin::TcpResponseContent,
        Ruleset::HttpRequest => LogOrigin::HttpRequest,
        Ruleset::HttpResponse => LogOrigin::HttpResponse,
        Ruleset::HttpAfterResponse => LogOrigin::HttpAfterResponse,
        Ruleset::QuicInitial => LogOrigin::QuicInit,
        Ruleset::UdpRequest => LogOrigin::UdpRequest,
    };
    Ok(Action::DoLog { origin, profile })
}

pub(crate) fn disable_retry(_: &mut Context<'_, '_, '_>) -> Parsed {
    Ok(Action::DisableRetry)
}
