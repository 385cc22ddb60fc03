//! The SPOE engines of a proxy, built from its `filter spoe` lines and the files they name (HAProxy's doc/SPOE.txt, chapter 2).
//! [`super::spoe_message`] compiles the message sections.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use diag::{Diagnostic, Span};
use plan::ProxyIndex;
use plan::filter::FilterPlaces;
use plan::spoe::{Agent, MessageEvent, Sending, SpoeEngine, SpoeMessage};
use sample::Place;
use sample::vars::Var;
use state::Mode;
use state::proxy::ProxySeed;
use syntax::Word;

use crate::draft::args::Args;
use crate::draft::keyword::{Apply, apply_of};
use crate::draft::row::Negation;
use crate::draft::settings::FilterKind;
use crate::draft::spoe::AgentDraft;
use crate::draft::{EngineFile, Section, SectionKind};
use crate::resolve::lines::warn_ineffective;
use crate::resolve::log::logger;
use crate::resolve::spoe_message::{event, message, push};
use crate::resolve::unique::second;
use crate::resolve::{PendingProxy, ResolveContext};

/// An engine available to rules of the proxy being compiled.
pub(crate) struct KnownEngine {
    name: Box<str>,
    groups: Vec<Box<str>>,
}

/// A rule that sends a group: the engine number, the group number, and the rule's location.
#[derive(Clone, Copy)]
pub(crate) struct GroupRequest {
    engine: usize,
    group: usize,
    place: Place,
    span: Span,
}

/// The sections of one scope by name.
struct ScopeSections<'a> {
    agent: &'a Section,
    messages: HashMap<&'a str, &'a Section>,
    groups: HashMap<&'a str, &'a Section>,
}

/// An engine with the sections of its groups. These are compiled for the rules that send them.
pub(crate) struct CompiledEngine<'a> {
    engine: Arc<SpoeEngine>,
    /// The messages of each group, in order.
    groups: Vec<(Box<str>, Vec<&'a Section>)>,
}

/// Creates the engines of a proxy, and registers them for its rules.
pub(crate) fn engines<'a>(
    proxy: &PendingProxy<'_>,
    places: &[FilterPlaces],
    index: &HashMap<Box<str>, ProxyIndex>,
    pending: &[PendingProxy<'_>],
    context: &mut ResolveContext<'a>,
) -> Vec<CompiledEngine<'a>> {
    let mut all: Vec<CompiledEngine<'a>> = Vec::new();
    for (filter, places) in proxy.settings.filters.iter().zip(places) {
        let FilterKind::Spoe(_, config) = filter.kind else { continue };
        let files: &'a [EngineFile] = context.engine_files;
        // An unreadable file was already reported.
        let Some(file) = files.iter().find(|file| file.lines.contains(&config.span())) else { continue };
        let errors = context.diagnostics.error_count();
        let made = engine(proxy, config, file, index, pending, context);
        let Some(mut made) = made.filter(|_| context.diagnostics.error_count() == errors) else { continue };
        if let Some(engine) = Arc::get_mut(&mut made.engine) {
            for (event, messages) in MessageEvent::ALL.into_iter().zip(&mut engine.events) {
                if places.of(event.is_of_response()).is_none() {
                    messages.clear();
                }
            }
        }
        let name = &made.engine.name;
        if all.iter().any(|other| other.engine.name == *name) {
            let owner = proxy.settings.name;
            context.diagnostics.push(
                Diagnostic::alert(format!("there are two engines named `{name}` in `{owner}`"))
                    .at(config.span())
                    .help(
                        "use `filter spoe engine <name>` to name each engine, with a scope `[<name>]` in the file",
                    )
                    .haproxy_whole(format!("Proxy {owner} : duplicated name for SPOE engine '{name}'.")),
            );
            continue;
        }
        all.push(made);
    }
    let known = |made: &CompiledEngine<'_>| KnownEngine {
        name: made.engine.name.clone(),
        groups: made.groups.iter().map(|(name, _)| name.clone()).collect(),
    };
    context.names.engines.replace(all.iter().map(known).collect());
    context.names.sendings.take();
    all
}

/// Compiles the groups that the proxy's rules send, after all rules were compiled.
pub(crate) fn sendings(
    proxy: &PendingProxy<'_>,
    made: &[CompiledEngine<'_>],
    context: &mut ResolveContext<'_>,
) -> Vec<Sending> {
    let mut all = Vec::new();
    for GroupRequest { engine, group, place, span } in context.names.sendings.take() {
        let Some(made) = made.get(engine) else { continue };
        let Some((group, sections)) = made.groups.get(group) else { continue };
        let mut messages: Vec<SpoeMessage> = Vec::new();
        for section in sections {
            match message(section, proxy, (place, None), context) {
                Ok(compiled) => messages.push(compiled),
                Err(error) => {
                    let error = error.related(span, format!("this rule sends group `{group}`"));
                    push(error, context);
                }
            }
        }
        all.push(Sending { engine: made.engine.clone(), group: group.clone(), messages });
    }
    all
}

impl CompiledEngine<'_> {
    /// The engine.
    pub(crate) fn engine(&self) -> Arc<SpoeEngine> {
        self.engine.clone()
    }
}

/// Returns the number of a group sent by a rule (`send-spoe-group`).
pub(crate) fn wanted(
    known: &[KnownEngine],
    wanted: &mut Vec<GroupRequest>,
    engine: sample::Word<'_>,
    group: sample::Word<'_>,
    place: Place,
) -> Result<usize, Diagnostic> {
    let Some(number) = known.iter().position(|known| *known.name == *engine.text) else {
        let name = engine.text;
        return Err(Diagnostic::alert(format!("there is no engine `{name}` here"))
            .at(engine.span)
            .did_you_mean(diag::suggest(name, known.iter().map(|known| &*known.name)))
            .help(format!("declare it with `filter spoe engine {name} config <file>` in this section")));
    };
    let groups = &known[number].groups;
    let Some(at) = groups.iter().position(|name| **name == *group.text) else {
        return Err(Diagnostic::alert(format!("engine `{}` has no group `{}`", engine.text, group.text))
            .at(group.span)
            .did_you_mean(diag::suggest(group.text, groups.iter().map(|name| &**name)))
            .help("list its groups with `groups` in its `spoe-agent` section"));
    };
    wanted.push(GroupRequest { engine: number, group: at, place, span: engine.span.to(group.span) });
    Ok(wanted.len() - 1)
}

fn engine<'a>(
    proxy: &PendingProxy<'_>,
    config: &Word,
    file: &'a EngineFile,
    index: &HashMap<Box<str>, ProxyIndex>,
    pending: &[PendingProxy<'_>],
    context: &mut ResolveContext<'a>,
) -> Option<CompiledEngine<'a>> {
    let sections = sections(config, file, context)?;
    let section = sections.agent;
    let (draft, loggers) = read(section, context);
    let place = context.place(section);
    let agent = agent(proxy, section, &draft, loggers, index, pending, context)?;
    let mut events: [Vec<SpoeMessage>; MessageEvent::ALL.len()] = Default::default();
    for word in &draft.messages {
        let Some(own) = sections.messages.get(word.as_str()) else {
            push(missing("message", word, sections.messages.keys(), &place, section), context);
            continue;
        };
        match event(own, proxy, context) {
            Ok(Some(when)) => match message(own, proxy, when, context) {
                Ok(compiled) => {
                    if let (_, Some((event, _))) = when {
                        events[event as usize].push(compiled);
                    }
                }
                Err(error) => push(error, context),
            },
            Ok(None) => {}
            Err(error) => push(error, context),
        }
    }
    let mut groups = Vec::new();
    for word in &draft.groups {
        match sections.groups.get(word.as_str()) {
            Some(group) => {
                groups.push((word.as_str().into(), members(group, &sections.messages, context)));
            }
            None => push(missing("group", word, sections.groups.keys(), &place, section), context),
        }
    }
    let name = file.scope.clone().unwrap_or_else(|| agent.name.clone());
    let engine = Arc::new(SpoeEngine { name, agent, events, counts: runtime::Sharded::default() });
    Some(CompiledEngine { engine, groups })
}

/// The error for a name without a section in the scope.
fn missing<'k>(
    what: &str,
    word: &Word,
    known: impl Iterator<Item = &'k &'k str>,
    place: &str,
    agent: &Section,
) -> Diagnostic {
    let name = &agent.name;
    Diagnostic::alert(format!("there is no section `spoe-{what} {word}` in this scope"))
        .at(word.span())
        .did_you_mean(diag::suggest(word, known.copied()))
        .haproxy(format!(
            "'filter' : SPOE agent '{name}' try to use undefined SPOE {what} '{word}' at {place}"
        ))
}

/// The messages of a group.
fn members<'a>(
    group: &'a Section,
    messages: &HashMap<&'a str, &'a Section>,
    context: &mut ResolveContext<'_>,
) -> Vec<&'a Section> {
    let words = group.statements.iter().flat_map(|line| line.arguments());
    let mut all = Vec::new();
    for word in words {
        match messages.get(word.as_str()) {
            Some(section) => all.push(*section),
            None => {
                let (name, place) = (&group.name, context.place(group));
                let error = Diagnostic::alert(format!(
                    "there is no section `spoe-message {word}` in this scope"
                ))
                .at(word.span())
                .did_you_mean(diag::suggest(word, messages.keys().copied()))
                .haproxy(format!(
                    "'filter' : SPOE group '{name}' try to use undefined SPOE message '{word}' at {place}"
                ));
                push(error, context);
            }
        }
    }
    all
}

/// The sections of a scope, which must have exactly one agent and unique names.
fn sections<'a>(
    config: &Word,
    file: &'a EngineFile,
    context: &mut ResolveContext<'_>,
) -> Option<ScopeSections<'a>> {
    let mut agent = None;
    let (mut messages, mut groups) = (HashMap::new(), HashMap::new());
    for section in &file.sections {
        let before: Option<&Section> = match section.kind {
            SectionKind::SpoeAgent => agent.replace(section),
            SectionKind::SpoeMessage => messages.insert(section.name.as_str(), section),
            _ => groups.insert(section.name.as_str(), section),
        };
        if let Some(before) = before {
            let keyword = &section.keyword;
            let error = match section.kind {
                SectionKind::SpoeAgent => Diagnostic::alert("a scope can have only one `spoe-agent` section")
                    .at(section.name.span())
                    .related(before.name.span(), "the first one is here")
                    .haproxy("another spoe-agent section previously defined."),
                _ => {
                    let haproxy = |name: &str, place: &str| {
                        format!(
                            "{keyword} section '{name}' has the same name as another one declared at {place}."
                        )
                    };
                    second(section, before, haproxy, context)
                }
            };
            push(error, context);
        }
    }
    let Some(agent) = agent else {
        let scope = file.scope.as_ref().map_or(String::new(), |scope| format!(" in its scope `[{scope}]`"));
        let error = Diagnostic::alert(format!("`{config}` has no `spoe-agent` section{scope}"))
            .at(config.span())
            .help("without `engine <name>`, only sections outside any scope are read")
            .haproxy(format!("'filter' : No SPOE agent found in file {config}"));
        push(error, context);
        return None;
    };
    Some(ScopeSections { agent, messages, groups })
}

/// Reads the lines of an agent that do not depend on other sections.
fn read<'a>(section: &'a Section, context: &mut ResolveContext<'_>) -> (AgentDraft<'a>, Vec<plan::Logger>) {
    let (mut draft, mut loggers) = (AgentDraft::default(), Vec::new());
    for statement in &section.statements {
        let before = context.diagnostics.len();
        let mut args = Args::new(statement, context.diagnostics, context.environment);
        let outcome = match (apply_of(statement), statement.keyword.name) {
            (Apply::SpoeAgent(read), _) => read(&mut draft, &mut args),
            (Apply::Ineffective(reason), _) => {
                if context.diagnostics.len() == before && statement.negation == Negation::None {
                    warn_ineffective(statement, reason, context.diagnostics);
                }
                Ok(())
            }
            (_, _) if statement.negation != Negation::None => {
                loggers.clear();
                args.finish()
            }
            (_, _) if args.take("global") => {
                loggers.extend(context.global.loggers.iter().map(plan::Logger::inherited));
                args.finish()
            }
            (_, _) => crate::tables::log::logger(&mut args).map(|own| {
                loggers.extend(logger(&own, false, context));
            }),
        };
        if let Err(error) = outcome {
            push(error, context);
        }
    }
    (draft, loggers)
}

/// The maximum frame size, limited to the size of a buffer.
fn frame_size(word: Option<&Word>, context: &ResolveContext<'_>) -> Result<u32, Diagnostic> {
    let most = u32::try_from(context.global.tune.bufsize).unwrap_or(u32::MAX).saturating_sub(4);
    let Some(word) = word else { return Ok(most) };
    let size = word.parse().ok().filter(|size| (spop::LEAST_FRAME..=most).contains(size));
    size.ok_or_else(|| {
        let least = spop::LEAST_FRAME;
        Diagnostic::alert(format!("invalid frame size `{word}`"))
            .at(word.span())
            .label(format!("use {least} to {most}, the maximum that fits into `tune.bufsize`"))
            .haproxy(format!(
                "'max-frame-size' expects a positive integer argument in the range [{least}, {most}]."
            ))
    })
}

fn agent(
    proxy: &PendingProxy<'_>,
    section: &Section,
    draft: &AgentDraft<'_>,
    loggers: Vec<plan::Logger>,
    index: &HashMap<Box<str>, ProxyIndex>,
    pending: &[PendingProxy<'_>],
    context: &mut ResolveContext<'_>,
) -> Option<Agent> {
    let frame_size = frame_size(draft.frame_size, context);
    let frame_size = frame_size.map_err(|error| push(error, context)).ok();
    let backend = backend(proxy, section, draft, index, pending, context);
    let backend = backend.map_err(|error| push(error, context)).ok();
    let prefix = prefix(section, draft);
    let prefix = prefix.map_err(|error| push(error, context)).ok();
    if draft.timeout.is_none_or(|timeout| timeout.is_zero()) {
        let (name, owner, place) = (&section.name, proxy.settings.name, context.place(section));
        let warning = Diagnostic::warning(format!("agent `{name}` has no `timeout processing`"))
            .at(section.name.span())
            .help("without it, streams wait for the agent indefinitely")
            .haproxy_whole(format!(
                "config : Proxy '{owner}': missing 'processing' timeout for SPOE agent '{name}' declare at {place}.\n   | While not properly invalid, you will certainly encounter various problems\n   | with such a configuration. To fix this, please ensure it is set to a non-zero value."
            ));
        push(warning, context);
    }
    let (frame_size, backend, prefix) = (frame_size?, backend?, prefix?);
    let mut variables = context.variables.borrow_mut();
    // Names were validated when their lines were read.
    let mut variable = |name: &str| variables.resolve(&format!("txn.{prefix}.{name}")).ok();
    let of_line = |word: Option<&Word>, variable: &mut dyn FnMut(&str) -> Option<Var>| {
        word.and_then(|word| variable(word.as_str()))
    };
    let on_error = of_line(draft.on_error, &mut variable);
    let process_time = of_line(draft.process_time, &mut variable);
    let total_time = of_line(draft.total_time, &mut variable);
    for word in &draft.variables {
        for scope in ["sess", "txn", "req", "res"] {
            let _ = variables.resolve(&format!("{scope}.{prefix}.{word}"));
        }
    }
    if !loggers.is_empty() {
        variables.want_stream_numbers();
    }
    let engine_id: Box<str> = uuid().into();
    Some(Agent {
        name: section.name.as_str().into(),
        frontend: Arc::new(frontend(section, &engine_id)),
        listener: Arc::new(state::Listener::placeholder()),
        engine_id,
        backend,
        timeout: draft.timeout.filter(|timeout| !timeout.is_zero()),
        frame_size,
        pipelining: draft.pipelining,
        continues: draft.continues,
        forces: draft.forces,
        only_errors: draft.only_errors,
        loggers,
        prefix: prefix.into(),
        on_error,
        process_time,
        total_time,
    })
}

/// The internal frontend of an agent's requests. It has no listener and no statistics.
fn frontend(section: &Section, engine_id: &str) -> state::Proxy {
    let seed = ProxySeed {
        id: u32::MAX,
        name: section.name.as_str().into(),
        mode: Mode::Spop,
        is_frontend: true,
        is_backend: false,
        maxconn: 0,
        session_limit: 0,
        disabled: false,
    };
    let frontend = state::Proxy::new(seed);
    // A new frontend has no engine ID yet.
    let _ = frontend.engine_id.set(engine_id.into());
    frontend
}

fn prefix<'s>(section: &'s Section, draft: &AgentDraft<'s>) -> Result<&'s str, Diagnostic> {
    let Some(prefix) = draft.prefix else {
        let name = &section.name;
        let is_fit = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'_');
        if name.bytes().iter().copied().all(is_fit) {
            return Ok(name.as_str());
        }
        return Err(Diagnostic::alert(format!("variable names cannot start with `{name}`"))
            .at(name.span())
            .help("use `option var-prefix <prefix>` to set another prefix")
            .haproxy(format!(
                "'filter' : Invalid variable prefix '{name}' for SPOE agent '{name}' declared at this line. Use 'option var-prefix' to customize it. Only [a-zA-Z0-9_.] chars are supported."
            )));
    };
    Ok(prefix.as_str())
}

/// The backend with the agent's servers.
fn backend(
    proxy: &PendingProxy<'_>,
    section: &Section,
    draft: &AgentDraft<'_>,
    index: &HashMap<Box<str>, ProxyIndex>,
    pending: &[PendingProxy<'_>],
    context: &ResolveContext<'_>,
) -> Result<ProxyIndex, Diagnostic> {
    let (agent, owner, place) = (&section.name, proxy.settings.name, context.place(section));
    let Some(word) = draft.backend else {
        return Err(Diagnostic::alert(format!("agent `{agent}` has no backend"))
            .at(agent.span())
            .help("use `use-backend <name>` with a backend in `mode spop`")
            .haproxy(format!(
                "'filter' : No backend declared for SPOE agent '{agent}' declared at {place}"
            )));
    };
    let Some(&found) = index.get(word.as_str()) else {
        return Err(Diagnostic::alert(format!("there is no backend `{word}`"))
            .at(word.span())
            .did_you_mean(diag::suggest(word, index.keys().map(|name| &**name)))
            .haproxy_whole(format!(
                "Proxy {owner} : unknown backend '{word}' used by SPOE agent '{agent}' declared at {place}."
            )));
    };
    if !matches!(pending[found].settings.mode, Mode::Spop | Mode::Tcp) {
        return Err(Diagnostic::alert(format!("backend `{word}` is not for agents"))
            .at(word.span())
            .related(pending[found].section.name.span(), "use a backend with `mode spop`")
            .haproxy_whole(format!(
                "Proxy {owner} : backend '{word}' used by SPOE agent '{agent}' declared at {place} must use SPOP mode."
            )));
    }
    pending[found].state.referenced.store(true, Relaxed);
    Ok(found)
}

/// A random UUID (RFC 9562, version 4).
fn uuid() -> String {
    let bytes = (fastrand::u128(..) & !(0xf000 << 64 | 0xc000 << 48)) | 0x4000 << 64 | 0x8000 << 48;
    let hex = format!("{bytes:032x}");
    [&hex[..8], &hex[8..12], &hex[12..16], &hex[16..20], &hex[20..]].join("-")
}

#[cfg(test)]
mod tests {
    #[test]
    fn engine_ids_are_random_uuids() {
        let (one, other) = (super::uuid(), super::uuid());
        assert_ne!(one, other);
        assert_eq!((one.len(), &one[14..15]), (36, "4"), "{one}");
        assert!(matches!(one.as_bytes()[19], b'8' | b'9' | b'a' | b'b'), "{one}");
    }
}
