//! Executes actions.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;

use http::{Head, uri};
use sample::pattern::List;
use sample::regex::Regex;
use sample::{Endpoint, Env, Scratch, Transaction, Value};

use crate::action::{Action, ConnectionEnd, ListChange, NameMatch, Number, PurgeBy, RequestLinePart};
use crate::authority;
use crate::binary;
use crate::reply::{Content, Reply};
use crate::stage::{Final, Hold, Stage};
use crate::tables::{self, Tracking};

/// The result of an action.
pub(crate) enum Applied {
    /// Done; continue with the next rule.
    Next,
    /// A rewrite failed.
    Failed,
    /// `strict-mode`.
    Strict(bool),
    /// Continue at this label.
    Jump(Scratch),
    /// The action's expression needs more bytes.
    Wait,
    Accept,
    Hold(Hold),
    Final(Final),
}

/// Executes the action if it only changes a variable. Returns whether it did. Such actions need no exclusive access to the stage,
/// so a sequence of them shares one view.
#[inline]
pub(crate) fn apply_to_variable(action: &Action, env: &Env<'_>) -> bool {
    match action {
        Action::SetVar { var, conditions, value } => {
            // The value is used in place, because moving it costs more than setting the variable.
            match &value.eval(env) {
                Some(value) if conditions.allow(env, var, value) => {
                    var.set(env, value);
                }
                // As in HAProxy, this does not wait for bytes that may still arrive. Another rule can do that.
                Some(_) | None => {}
            }
        }
        Action::SetVarFormat { var, conditions, value } => {
            let mut text = Scratch::new();
            value.render(env, &mut text);
            let value = Value::made(text);
            if conditions.allow(env, var, &value) {
                var.set(env, &value);
            }
        }
        Action::UnsetVar(var) => var.unset(env),
        _ => return false,
    }
    true
}

/// Executes any other action.
pub(crate) fn apply(action: &Action, stage: &mut Stage<'_>) -> Applied {
    match action {
        Action::Accept => return Applied::Accept,
        Action::Deny(reply) => return Applied::Final(Final::Deny(reply.clone())),
        Action::Tarpit(reply) => return Applied::Final(Final::Tarpit(reply.clone())),
        Action::Return(reply) => return Applied::Final(Final::Reply(reply.clone())),
        Action::Redirect(redirect) => {
            if redirect.is_void(&stage.env()) {
                return Applied::Next;
            }
            let reply = Reply { status: 302, content: Content::Redirect(redirect.clone()) };
            return Applied::Final(Final::Reply(Arc::new(reply)));
        }
        Action::Auth(realm) => return Applied::Final(Final::Reply(Arc::new(ask(stage, realm)))),
        Action::UseService(service) => return Applied::Final(Final::Service(service.clone())),
        Action::Script(call) => return Applied::Hold(Hold::Script(call.clone())),
        Action::Mirror { backend, percent } => {
            return Applied::Hold(Hold::Mirror { backend: backend.clone(), percent: *percent });
        }
        Action::SendSpoeGroup(number) => return Applied::Hold(Hold::SendSpoeGroup(*number)),
        Action::UseCache { store, hints } => {
            return Applied::Hold(Hold::UseCache { store: store.clone(), hints: *hints });
        }
        Action::StoreInCache(store) => return Applied::Hold(Hold::StoreInCache(store.clone())),
        Action::PurgeCache { store, by, what } => {
            let mut text = Scratch::new();
            what.render(&stage.env(), &mut text);
            // An empty name selects nothing, rather than everything.
            if !text.is_empty() {
                store.purge(&match by {
                    PurgeBy::Key => cache::Purge::Key(&text),
                    PurgeBy::Prefix => cache::Purge::Prefix(&text),
                    PurgeBy::Tag => cache::Purge::Tag(&text),
                });
            }
        }
        Action::Reject => return Applied::Final(Final::Reject),
        Action::SendRetry => return Applied::Final(Final::SendRetry),
        Action::CloseServer => return Applied::Final(Final::CloseServer),
        Action::SilentDrop { rst_ttl } => return Applied::Final(Final::SilentDrop { rst_ttl: *rst_ttl }),
        Action::StrictMode(on) => return Applied::Strict(*on),
        Action::Jump(label) => {
            let mut name = Scratch::new();
            label.render(&stage.env(), &mut name);
            return Applied::Jump(name);
        }
        Action::WaitForBody { at_least, timeout_ms, in_large } => {
            let (at_least, timeout_ms, in_large) = (*at_least, *timeout_ms, *in_large);
            return Applied::Hold(Hold::Body { at_least, timeout_ms, in_large });
        }
        Action::WaitForHandshake => {
            let pending = stage.session.tls().is_some_and(|details| details.early.is_pending());
            return if pending { Applied::Hold(Hold::Handshake) } else { Applied::Next };
        }
        Action::Pause(time) => {
            let ms = number(time, stage).filter(|ms| *ms > 0);
            return ms.map_or(Applied::Next, |ms| Applied::Hold(Hold::Pause(ms as u64)));
        }
        Action::SetTos(value) => {
            return number(value, stage).map_or(Applied::Next, |tos| Applied::Hold(Hold::Tos(tos as u32)));
        }
        Action::SetMark(value) => {
            return number(value, stage).map_or(Applied::Next, |mark| Applied::Hold(Hold::Mark(mark as u32)));
        }
        Action::Resolve { section, prefer, var, name } => {
            let mut host = Vec::new();
            let found = {
                let env = stage.env();
                let found = name.eval_into(&env, &mut host);
                if !found && env.may_change.get() && !env.complete {
                    return Applied::Wait;
                }
                found
            };
            let host = String::from_utf8(host).ok().filter(|host| found && !host.is_empty());
            return host.map_or(Applied::Next, |host| {
                let (section, var) = (section.clone(), var.clone());
                Applied::Hold(Hold::Resolve { section, name: host.into(), prefer: *prefer, var })
            });
        }
        Action::Track { counter, key, table } => {
            return match tables::track(stage, *counter, key, table) {
                Tracking::Done => Applied::Next,
                Tracking::Early => Applied::Wait,
            };
        }
        Action::ChangeEntry { change, counted, value } => {
            if let Some(value) = number(value, stage) {
                tables::change(stage, *change, *counted, value);
            }
        }
        Action::SwitchMode(spoken) => return Applied::Final(Final::SwitchMode(*spoken)),
        Action::ExpectProxy => return Applied::Hold(Hold::ExpectProxy),
        Action::ExpectNetscaler => return Applied::Hold(Hold::ExpectNetscaler),
        Action::AttachServer { server, name } => {
            let mut bytes = Vec::new();
            if let Some(name) = name {
                name.eval_into(&stage.env(), &mut bytes);
            }
            return Applied::Hold(Hold::Attach { server: server.clone(), name: bytes.into() });
        }
        Action::DoLog { origin, profile } => {
            return Applied::Hold(Hold::Log { origin: *origin, profile: profile.clone() });
        }
        Action::EarlyHint { name, value } => {
            let mut bytes = b"HTTP/1.1 103 Early Hints\r\n".to_vec();
            bytes.extend_from_slice(name);
            bytes.extend_from_slice(b": ");
            value.render(&stage.env(), &mut bytes);
            bytes.extend_from_slice(b"\r\n\r\n");
            return Applied::Hold(Hold::EarlyHint(bytes.into()));
        }
        Action::Nothing
        | Action::Label(_)
        | Action::SetVar { .. }
        | Action::SetVarFormat { .. }
        | Action::UnsetVar(_) => {}
        Action::LimitBandwidth { filter, limit, period, shared } => {
            let limit = limit.as_ref().and_then(|limit| number(limit, stage));
            let period = period.as_ref().and_then(|period| number(period, stage));
            let mut entry = None;
            if let Some(shared) = shared {
                entry = tables::shared_entry(stage, &shared.0, &shared.1);
                if entry.is_none() {
                    // If the rule yields no key, or the table has no room for it, the limit is not shared.
                    return Applied::Next;
                }
            }
            let own = sample::bandwidth::asked(filter, limit, period, entry);
            return with(stage, |transaction| sample::bandwidth::enable(&mut transaction.bandwidth, own));
        }
        Action::SetAddress { end, value } => set_address(stage, *end, value),
        Action::ChangeList { list, change, key, value } => {
            change_list(stage, list, *change, key, value.as_ref());
        }
        Action::SetLogLevel(level) => match &mut stage.transaction {
            Some(transaction) => transaction.log_level = Some(*level),
            None => stage.session.log_level.set(Some(*level)),
        },
        _ => return apply_to_transaction(action, stage),
    }
    Applied::Next
}

/// Actions that change the request or response.
fn apply_to_transaction(action: &Action, stage: &mut Stage<'_>) -> Applied {
    let made = match action {
        Action::AddHeader { value, .. }
        | Action::SetHeader { value, .. }
        | Action::SetPart { value, .. }
        | Action::ReplaceHeader { with: value, .. }
        | Action::ReplaceUri { with: value, .. } => {
            let mut made = Scratch::new();
            value.render(&stage.env(), &mut made);
            Some(made)
        }
        Action::BinaryHeaders { value, .. } => {
            // A missing value changes nothing.
            match value.eval(&stage.env()).and_then(Value::into_bin) {
                Some(bytes) => Some(bytes.into_scratch()),
                None => return Applied::Next,
            }
        }
        _ => None,
    };
    let bytes: &[u8] = made.as_deref().map_or(&[], |made| made);
    match action {
        Action::SetPriorityClass(value) => {
            let class = int(value, stage).map_or(0, |class| class.clamp(-2047, 2047));
            return with(stage, |transaction| transaction.priority.0 = class as i32);
        }
        Action::SetPriorityOffset(value) => {
            let offset = int(value, stage).map_or(0, |offset| offset.clamp(-524_287, 524_287));
            return with(stage, |transaction| transaction.priority.1 = offset as i32);
        }
        Action::SetTimeout { slot, value } => {
            let ms = number(value, stage).and_then(|ms| u32::try_from(ms).ok());
            return with(stage, |transaction| {
                if ms.is_some() {
                    transaction.timeouts[*slot as usize] = ms;
                }
            });
        }
        Action::SetDeadline(value) => {
            let ms = number(value, stage).and_then(|ms| u64::try_from(ms).ok());
            let until = ms.map_or(0, |ms| stage.now_ms.saturating_add(ms));
            return with(stage, |transaction| transaction.times.deadline_ms = until);
        }
        Action::SetRetries(value) => {
            let retries = number(value, stage).filter(|retries| (0..=100).contains(retries));
            return with(stage, |transaction| {
                if let Some(retries) = retries {
                    transaction.max_retries = Some(retries as u32);
                }
            });
        }
        Action::SetServerTos(value) => {
            let tos = number(value, stage).map(|tos| tos as u32 & 0xff);
            return with(stage, |transaction| transaction.server_tos = tos.or(transaction.server_tos));
        }
        Action::SetServerMark(value) => {
            let mark = number(value, stage).map(|mark| mark as u32);
            return with(stage, |transaction| transaction.server_mark = mark.or(transaction.server_mark));
        }
        Action::DisableRetry => return with(stage, |transaction| transaction.no_replay = true),
        Action::Capture { value, slot } => {
            let mut text = Scratch::new();
            let found = {
                let env = stage.env();
                let found = value.eval_into(&env, &mut text);
                if !found && env.may_change.get() && !env.complete {
                    return Applied::Wait;
                }
                found
            };
            if found && let Some(transaction) = &mut stage.transaction {
                transaction.capture(&stage.session.frontend, *slot, &text);
            }
            return Applied::Next;
        }
        _ => {}
    }
    let limit = stage.longest_head;
    let Some(transaction) = &mut stage.transaction else { return Applied::Next };
    let head = if transaction.has_response { &mut transaction.response } else { &mut transaction.request };
    let done = match action {
        Action::AddHeader { name, .. } => {
            head.fits(limit, name.len() + bytes.len() + 4, |_| 0) && head.append(name, bytes)
        }
        Action::SetHeader { name, shown, .. } => {
            head.fits(limit, shown.len() + bytes.len() + 4, |head| head.lines_len(name)) && {
                head.remove_all(name);
                head.append(shown, bytes)
            }
        }
        Action::BinaryHeaders { change, .. } => binary::apply(change, head, bytes, limit),
        Action::DelHeader(names) => {
            delete(head, names);
            true
        }
        Action::ReplaceHeader { name, regex, each_value, .. } => {
            replace_header(head, name, regex, bytes, limit, *each_value)
        }
        Action::SetStatus { status, reason } => {
            let added = reason.as_deref().map_or(32, <[u8]>::len);
            let fits = head.fits(limit, added, |head| head.reason().len());
            if fits {
                head.set_status(*status, reason.as_deref());
            }
            fits
        }
        Action::SetPart { part, .. } => set_part(&mut transaction.request, *part, bytes, limit),
        Action::ReplaceUri { part, regex, .. } => {
            // As in HAProxy, a rule for the path does not apply to a target without a path, such as `*`.
            let Some(old) = part_of(&transaction.request, *part).map(<[u8]>::to_vec) else {
                return Applied::Next;
            };
            let mut new = Vec::new();
            if regex.expand(&old, bytes, &mut new) {
                set_part(&mut transaction.request, *part, &new, limit)
            } else {
                true
            }
        }
        Action::Normalize(normalizer) => {
            match crate::normalize::normalize(transaction.request.target(), *normalizer) {
                Ok(Some(target)) => match uri::split(&target).pathq() {
                    Some(pathq) => transaction.request.set_pathq(pathq),
                    None => transaction.request.set_target(&target),
                },
                Ok(None) => true,
                // An unintelligible target is the client's fault.
                Err(()) => return Applied::Final(Final::Deny(Arc::new(Reply::page(400)))),
            }
        }
        _ => true,
    };
    if done && !transaction.has_response {
        keep_host(&mut transaction.request, action, bytes);
    }
    if done { Applied::Next } else { Applied::Failed }
}

/// Keeps the request's authority and `Host` in sync after a rule has changed either of them.
fn keep_host(request: &mut Head, action: &Action, bytes: &[u8]) {
    match action {
        Action::AddHeader { name, .. } => authority::target_follows(request, name, bytes),
        Action::SetHeader { shown, .. } => authority::target_follows(request, shown, bytes),
        Action::ReplaceHeader { name, .. } => {
            if let Some(value) = request.get(name).map(<[u8]>::to_vec) {
                authority::target_follows(request, name.lower(), &value);
            }
        }
        Action::SetPart { part: RequestLinePart::Uri, .. }
        | Action::ReplaceUri { part: RequestLinePart::Uri, .. } => {
            authority::host_follows(request);
        }
        _ => {}
    }
}

fn with(stage: &mut Stage<'_>, change: impl FnOnce(&mut Transaction)) -> Applied {
    if let Some(transaction) = &mut stage.transaction {
        change(transaction);
    }
    Applied::Next
}

fn int(value: &sample::expression::Expression, stage: &Stage<'_>) -> Option<i64> {
    value.eval(&stage.env())?.to_int()
}

fn number(value: &Number, stage: &Stage<'_>) -> Option<i64> {
    match value {
        Number::Fixed(value) => Some(*value),
        Number::Made(expression) => int(expression, stage),
    }
}

/// 401, or 407 for requests to a forward proxy.
fn ask(stage: &Stage<'_>, realm: &str) -> Reply {
    let to_proxy = stage.transaction.as_deref().is_some_and(|transaction| transaction.to_proxy);
    Reply { status: if to_proxy { 407 } else { 401 }, content: Content::Challenge(realm.into()) }
}

fn set_address(stage: &mut Stage<'_>, end: ConnectionEnd, value: &sample::expression::Expression) {
    let (ip, number) = {
        let env = stage.env();
        let Some(value) = value.eval(&env) else { return };
        match end {
            ConnectionEnd::Source | ConnectionEnd::Destination => (value.to_addr(), None),
            ConnectionEnd::SourcePort | ConnectionEnd::DestinationPort => (None, value.to_int()),
        }
    };
    let is_source = matches!(end, ConnectionEnd::Source | ConnectionEnd::SourcePort);
    let session = stage.session;
    let current = match (&stage.transaction, is_source) {
        (Some(transaction), true) => transaction.source.unwrap_or(session.source()),
        (Some(transaction), false) => transaction.destination.unwrap_or(session.destination()),
        (None, true) => session.source(),
        (None, false) => session.destination(),
    };
    let changed = match (ip, number) {
        (Some(ip), _) => Endpoint::Ip(SocketAddr::new(ip, current.port().unwrap_or(0))),
        (_, Some(port)) => {
            let ip = current.ip().unwrap_or(IpAddr::V4(Ipv4Addr::UNSPECIFIED));
            Endpoint::Ip(SocketAddr::new(ip, port as u16))
        }
        _ => return,
    };
    match (&mut stage.transaction, is_source) {
        (Some(transaction), true) => transaction.source = Some(changed),
        (Some(transaction), false) => transaction.destination = Some(changed),
        (None, true) => session.set_source(changed),
        (None, false) => session.set_destination(changed),
    }
}

fn change_list(
    stage: &Stage<'_>,
    list: &List,
    change: ListChange,
    key: &sample::format::Format,
    value: Option<&sample::format::Format>,
) {
    let env = stage.env();
    let text = |format: &sample::format::Format| {
        let mut text = Vec::new();
        format.render(&env, &mut text);
        text
    };
    let key = text(key);
    match change {
        ListChange::Add => list.add_once(&key),
        ListChange::Remove => {
            list.remove(&key);
        }
        ListChange::Set => list.set_or_add(&key, &value.map(text).unwrap_or_default()),
    }
}

fn delete(head: &mut Head, names: &NameMatch) {
    let lower = |name: &[u8]| name.to_ascii_lowercase();
    match names {
        NameMatch::Exact(name) => head.remove_all(name),
        NameMatch::Begin(text) => head.remove_if(|name, _| lower(name).starts_with(text)),
        NameMatch::End(text) => head.remove_if(|name, _| lower(name).ends_with(text)),
        NameMatch::Within(text) => {
            head.remove_if(|name, _| lower(name).windows(text.len().max(1)).any(|part| part == &**text))
        }
        // HAProxy's expressions match the name in lower case.
        NameMatch::Regex(regex) => head.remove_if(|name, _| regex.is_match(&lower(name))),
    };
}

pub(crate) fn replace_header(
    head: &mut Head,
    name: &http::Name,
    regex: &Regex,
    template: &[u8],
    limit: usize,
    each_value: bool,
) -> bool {
    let indices: Vec<usize> = head.indices(name).collect();
    let mut done = true;
    for index in indices {
        let Some(line) = head.value_at(index) else { continue };
        let mut new = Vec::new();
        let changed = if each_value {
            replace_values(line, regex, template, &mut new)
        } else {
            regex.expand(line, template, &mut new)
        };
        if changed {
            let old = line.len();
            done &= head.fits(limit, new.len(), |_| old) && head.replace_value_at(index, &new);
        }
    }
    done
}

/// Replaces the matching values of a comma-separated line. Returns whether a value matched.
fn replace_values(line: &[u8], regex: &Regex, template: &[u8], out: &mut Vec<u8>) -> bool {
    let mut changed = false;
    let base = line.as_ptr() as usize;
    let mut copied = 0;
    for value in http::list_values(line) {
        let start = value.as_ptr() as usize - base;
        let before = &line[copied..start];
        copied = start + value.len();
        let length = out.len();
        out.extend_from_slice(before.trim_ascii_end());
        if regex.expand(value, template, out) {
            changed = true;
            // Blanks around a value belong to it.
            copied += line[copied..].len() - line[copied..].trim_ascii_start().len();
        } else {
            out.truncate(length);
            out.extend_from_slice(before);
            out.extend_from_slice(value);
        }
    }
    out.extend_from_slice(&line[copied..]);
    changed
}

/// A part of the request line, or `None` if the target has no such part.
fn part_of(head: &Head, part: RequestLinePart) -> Option<&[u8]> {
    let parts = uri::split(head.target());
    match part {
        RequestLinePart::Method => Some(head.method()),
        RequestLinePart::Path => parts.path(),
        RequestLinePart::Pathq => parts.pathq(),
        RequestLinePart::Query => parts.query(),
        RequestLinePart::Uri => Some(head.target()),
    }
}

pub(crate) fn set_part(head: &mut Head, part: RequestLinePart, value: &[u8], limit: usize) -> bool {
    if !head.fits(limit, value.len() + 1, |head| part_of(head, part).map_or(0, <[u8]>::len)) {
        return false;
    }
    match part {
        RequestLinePart::Method => head.set_method(value),
        RequestLinePart::Path => head.set_path(value),
        RequestLinePart::Pathq => head.set_pathq(value),
        RequestLinePart::Query => head.set_query(value),
        RequestLinePart::Uri => head.set_target(value),
    }
}
