//! `spoe-message` sections (HAProxy's doc/SPOE.txt, 2.3), compiled for the event or the rule that sends them.

use diag::Diagnostic;
use plan::spoe::{MessageEvent, SpoeMessage};
use sample::Acls;
use sample::expression::Expression;
use sample::{Condition, Place, Scope, Words};
use state::Mode;

use crate::draft::{Section, Statement};
use crate::resolve::lines::{arguments, scope};
use crate::resolve::{PendingProxy, ResolveContext};

/// When a message is sent: where its expressions are evaluated, and the event with its line, unless a rule sends the message.
pub(crate) type When<'a> = (Place, Option<(MessageEvent, &'a Statement)>);

/// The maximum number of arguments of a message.
const MOST: usize = 255;

/// Adds an error to the diagnostics unless another engine has already reported it, because several proxies may read the same file.
pub(crate) fn push(error: Diagnostic, context: &mut ResolveContext<'_>) {
    let is_same = |other: &Diagnostic| other.span == error.span && other.message == error.message;
    if !context.diagnostics.iter().any(is_same) {
        context.diagnostics.push(error);
    }
}

/// The event at which a message is sent, from its last `event` line. `None` if it is never sent.
pub(crate) fn event<'a>(
    section: &'a Section,
    proxy: &PendingProxy<'_>,
    context: &mut ResolveContext<'_>,
) -> Result<Option<When<'a>>, Diagnostic> {
    let (name, owner) = (&section.name, proxy.settings.name);
    let last = section.statements.iter().rfind(|statement| statement.keyword.name == "event");
    let Some(line) = last else {
        let place = context.place(section);
        let warning = Diagnostic::warning(format!("message `{name}` has no event, and is never sent"))
            .at(name.span())
            .help("use `event <name>` to set the event that triggers it")
            .haproxy_whole(format!(
                "Proxy '{owner}': Ignore SPOE message '{name}' without event at {place}."
            ));
        push(warning, context);
        return Ok(None);
    };
    let Some(word) = line.arguments().first() else {
        return Err(Diagnostic::alert("`event` needs the name of an event")
            .at(line.end())
            .haproxy("missing event name."));
    };
    let names = MessageEvent::ALL.map(MessageEvent::name);
    let Some(event) = MessageEvent::ALL.into_iter().find(|event| *word == event.name()) else {
        return Err(Diagnostic::alert(format!("unknown event `{word}`"))
            .at(word.span())
            .did_you_mean(diag::suggest(word, names))
            .haproxy(format!("unknown event '{word}'.")));
    };
    let (of_frontend, of_backend) = sides(event);
    let settings = &proxy.settings;
    let never = of_frontend && !settings.is_frontend()
        || of_backend && settings.is_frontend() && settings.is_backend();
    if never {
        let place = context.place(section);
        let what = if of_frontend {
            "frontend event used on a backend proxy"
        } else {
            "backend event used on a listen proxy"
        };
        let why = if of_frontend { "it has no frontend side" } else { "it is a `listen` section" };
        let warning = Diagnostic::warning(format!("message `{name}` is never sent by `{owner}`: {why}"))
            .at(word.span())
            .haproxy_whole(format!("Proxy '{owner}': {what} at {place}."));
        push(warning, context);
        return Ok(None);
    }
    Ok(Some((place(event), Some((event, line)))))
}

/// Whether an event exists only in frontends, or only in backends.
fn sides(event: MessageEvent) -> (bool, bool) {
    match event {
        MessageEvent::ClientSession
        | MessageEvent::FrontendTcpRequest
        | MessageEvent::FrontendHttpRequest => (true, false),
        MessageEvent::BackendTcpRequest | MessageEvent::BackendHttpRequest => (false, true),
        MessageEvent::ServerSession | MessageEvent::TcpResponse | MessageEvent::HttpResponse => {
            (false, false)
        }
    }
}

/// The place of expressions evaluated at an event.
fn place(event: MessageEvent) -> Place {
    match event {
        MessageEvent::ClientSession => Place::TcpConnection,
        MessageEvent::FrontendTcpRequest | MessageEvent::BackendTcpRequest => Place::TcpRequestContent,
        MessageEvent::FrontendHttpRequest | MessageEvent::BackendHttpRequest => Place::HttpRequest,
        MessageEvent::ServerSession => Place::BackendRequest,
        MessageEvent::TcpResponse => Place::TcpResponseContent,
        MessageEvent::HttpResponse => Place::HttpResponse,
    }
}

/// Compiles a message.
pub(crate) fn message(
    section: &Section,
    proxy: &PendingProxy<'_>,
    (place, event): When<'_>,
    context: &mut ResolveContext<'_>,
) -> Result<SpoeMessage, Diagnostic> {
    let mode = match place {
        Place::HttpRequest | Place::HttpResponse => Mode::Http,
        _ => proxy.settings.mode,
    };
    // The engine of a frontend also sees the backend side of its streams.
    let crosses = event.is_some_and(|(event, _)| sides(event).1) && proxy.settings.is_frontend();
    let owner = (!crosses).then_some(&proxy.state);
    let mut acls = Acls::new();
    let mut all = Vec::new();
    for statement in &section.statements {
        let list = arguments(statement);
        match statement.keyword.name {
            "acl" => {
                let mut words = Words::new(&list, statement.end());
                let (name, criterion) =
                    sample::acl::compile_declaration(&mut words, &scope(context, &acls, owner, mode, place))?;
                acls.add(name, criterion);
            }
            "args" => {
                let scope = scope(context, &acls, owner, mode, place);
                all.extend(compile_arguments(statement, &scope)?);
            }
            _ => {}
        }
    }
    if all.len() > MOST {
        let name = &section.name;
        return Err(Diagnostic::alert(format!("message `{name}` has {} values", all.len()))
            .at(name.span())
            .label(format!("the maximum is {MOST}")));
    }
    let condition = match event {
        None => None,
        Some((_, line)) => {
            let list = arguments(line);
            let mut words = Words::new(&list[1..], line.end());
            Condition::compile_optional(&mut words, &scope(context, &acls, owner, mode, place))?
        }
    };
    let warnings = context.names.warnings.take();
    warnings.into_iter().for_each(|warning| push(warning, context));
    Ok(SpoeMessage { name: section.name.as_str().into(), condition, arguments: all })
}

/// `[<name>=]<sample> …`.
fn compile_arguments(
    statement: &Statement,
    scope: &Scope<'_>,
) -> Result<Vec<(Box<str>, Expression)>, Diagnostic> {
    let (words, plain) = (statement.arguments(), arguments(statement));
    if words.is_empty() {
        return Err(Diagnostic::alert("`args` requires the contents of the message")
            .at(statement.end())
            .label("usage: args [<name>=]<sample> ...")
            .haproxy("missing args."));
    }
    let is_fit = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'.' | b'-');
    let mut all = Vec::new();
    let mut at = 0;
    while let Some(word) = words.get(at) {
        let name = word.split_once('=').map(|(name, _)| name).filter(|name| name.bytes().all(is_fit));
        let start = name.map_or(0, |name| name.len() + 1);
        let mut list = plain.clone();
        list.drain(..at);
        list[0] = sample::Word { text: &word[start..], span: word.part(start, word.len()) };
        // Converters may follow as separate words.
        let mut cursor = Words::new(&list, statement.end());
        let expression = Expression::compile(&mut cursor, scope)?;
        at = words.len() - cursor.rest().len();
        all.push((name.unwrap_or_default().into(), expression));
    }
    Ok(all)
}
