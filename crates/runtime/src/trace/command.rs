//! The command `trace` (management manual, 9.3). The command is parsed into a [`TraceCommand`] first, so that a configuration can
//! be checked before tracing starts.

use std::fmt::Write;
use std::sync::Arc;

use super::filter::{RequestFilter, request_filter, set_request_filter};
use super::sources::ABSENT;
use super::state::{self, Lock, TraceAction, TraceRun};
use super::{TraceOutput, TraceSource};

/// The available trace sinks.
pub trait Outputs {
    /// The names and descriptions of all sinks.
    fn list(&self) -> Vec<(String, String)>;
    /// Looks up a sink by name.
    fn find(&self, name: &str) -> Option<Arc<dyn TraceOutput>>;
}

/// The target of a command.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum TraceTarget {
    One(TraceSource),
    All,
}

impl TraceTarget {
    fn name(self) -> &'static str {
        match self {
            Self::One(source) => source.name(),
            Self::All => "all",
        }
    }

    fn sources(self) -> Vec<TraceSource> {
        match self {
            Self::One(source) => vec![source],
            Self::All => TraceSource::ALL.to_vec(),
        }
    }
}

/// A change requested by a command.
#[derive(Debug, Clone, PartialEq, Eq)]
enum TraceChange {
    /// Adds or removes events of an action.
    Events {
        action: TraceAction,
        bits: u64,
        on: bool,
    },
    /// Performs the action immediately.
    Now(TraceAction),
    Level(u8),
    Verbosity(u8),
    Lock(Lock),
    Follow(Option<TraceSource>),
    /// The requests to report. Only for `rules`.
    Only(Option<RequestFilter>),
    Sink(Option<Box<str>>),
}

/// The choices that a command can list.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Choices {
    Sources,
    Words,
    Events(TraceAction),
    Levels,
    Verbosities,
    Locks,
    Follow,
    Filters,
    Sinks,
}

/// A parsed `trace` line.
#[derive(Debug, Clone)]
pub struct TraceCommand {
    /// The source. `None` stands for all sources, which can only be stopped.
    target: Option<TraceTarget>,
    changes: Vec<TraceChange>,
    list: Option<Choices>,
}

const SIGNS: &str = "(.=stopped, w=waiting, R=running)";
const LEVELS: [(&str, &str); 6] = [
    ("error", "errors only"),
    ("user", "also events relevant to users"),
    ("proto", "also protocol units"),
    ("state", "also state changes"),
    ("data", "also data transfers"),
    ("developer", "everything"),
];
const VERBOSITIES: [(&str, &str); 6] = [
    ("quiet", "only the message"),
    ("clean", "also request lines and status codes"),
    ("minimal", "the message and its context"),
    ("simple", "both"),
    ("advanced", "also header fields"),
    ("complete", "everything"),
];
const SESSION_VERBOSITIES: [(&str, &str); 2] = [("quiet", "only the message"), ("default", "everything")];
const LOCKS: [(Lock, &str, &str); 8] = [
    (Lock::Backend, "backend", "the backend"),
    (Lock::Connection, "connection", "the connection"),
    (Lock::Frontend, "frontend", "the frontend"),
    (Lock::Listener, "listener", "the listener"),
    (Lock::Nothing, "nothing", "nothing"),
    (Lock::Server, "server", "the server"),
    (Lock::Session, "session", "the session"),
    (Lock::Thread, "thread", "the thread"),
];
const WORDS: [(&str, &str); 10] = [
    ("event", "events to report"),
    ("level", "most verbose level to report"),
    ("lock", "criterion that the trace locks on when it starts"),
    ("follow", "another source to follow"),
    ("only", "requests to report (source rules)"),
    ("pause", "events that pause the trace until the next start event"),
    ("sink", "where to send output"),
    ("start", "events that start the trace, or `now`"),
    ("stop", "events that stop the trace, or `now`"),
    ("verbosity", "level of detail"),
];

fn verbosities(target: TraceTarget) -> &'static [(&'static str, &'static str)] {
    match target {
        TraceTarget::One(TraceSource::Session) => &SESSION_VERBOSITIES,
        TraceTarget::One(_) | TraceTarget::All => &VERBOSITIES,
    }
}

/// The additional lock criteria of a source, with their names.
fn own_locks(source: TraceSource) -> &'static [(Lock, &'static str, &'static str)] {
    match source {
        TraceSource::H1 => &[(Lock::Stream, "h1s", "the HTTP/1 request")],
        TraceSource::H2 => &[(Lock::Stream, "h2s", "the HTTP/2 stream")],
        TraceSource::H3 => &[(Lock::Stream, "h3s", "the HTTP/3 stream")],
        TraceSource::Fcgi => &[(Lock::Stream, "fstrm", "the FastCGI request")],
        TraceSource::Spop => &[(Lock::Stream, "spop_strm", "the SPOP request")],
        TraceSource::Stream => &[(Lock::Stream, "stream", "the stream")],
        TraceSource::Peers => &[(Lock::Own, "peer", "the peer"), (Lock::Group, "peers", "the section")],
        TraceSource::Quic => &[(Lock::Connection, "qconn", "the QUIC connection")],
        TraceSource::Acme => &[(Lock::Own, "acme_ctx", "the ACME order")],
        TraceSource::Qmux | TraceSource::Ssl | TraceSource::Check | TraceSource::Session => &[],
        TraceSource::Rules => &[(Lock::Stream, "stream", "the stream")],
    }
}

fn locks(target: TraceTarget) -> Vec<(Lock, &'static str, &'static str)> {
    let own = match target {
        TraceTarget::One(source) => own_locks(source),
        TraceTarget::All => &[],
    };
    LOCKS.iter().chain(own).copied().collect()
}

fn action(word: &str) -> Option<TraceAction> {
    Some(match word {
        "event" => TraceAction::Report,
        "start" => TraceAction::Start,
        "stop" => TraceAction::Stop,
        "pause" => TraceAction::Pause,
        _ => return None,
    })
}

/// Looks up a source by name.
///
/// # Errors
/// The source does not exist, with the reason.
fn source(name: &str) -> Result<TraceSource, String> {
    TraceSource::ALL.into_iter().find(|source| source.name() == name).ok_or_else(|| {
        let why = ABSENT.iter().find(|(absent, _)| *absent == name);
        let why = why.map(|(_, why)| format!(": {why}")).unwrap_or_default();
        format!("No such trace source '{name}'{why}\n")
    })
}

impl TraceCommand {
    /// Parses the words after `trace`; `has_sink` tests whether a sink exists.
    ///
    /// # Errors
    /// The syntax error, in HAProxy's wording if HAProxy has such a message.
    pub fn read<'w>(
        words: impl IntoIterator<Item = &'w str>,
        has_sink: impl Fn(&str) -> bool,
    ) -> Result<Self, String> {
        let mut words = words.into_iter();
        let mut command = Self { target: None, changes: Vec::new(), list: None };
        match words.next() {
            None | Some("") => {
                command.list = Some(Choices::Sources);
                return Ok(command);
            }
            Some("0") => return Ok(command),
            Some("all") => command.target = Some(TraceTarget::All),
            Some(name) => command.target = Some(TraceTarget::One(source(name)?)),
        }
        let Some(target) = command.target else { return Ok(command) };
        command.list = Some(Choices::Words);
        while let Some(word) = words.next() {
            if target == TraceTarget::All && !matches!(word, "sink" | "level" | "follow") {
                return Err(match WORDS.iter().any(|(known, _)| *known == word) {
                    true => format!("'{word}' not applicable to meta-source 'all'\n"),
                    false => format!("Unknown trace keyword '{word}'\n"),
                });
            }
            let value = words.next().unwrap_or_default();
            command.list = (value.is_empty()).then_some(list(word)?);
            if !value.is_empty() {
                command.changes.push(change(target, word, value, &has_sink)?);
            }
        }
        Ok(command)
    }

    /// Executes the command and returns its output.
    ///
    /// # Errors
    /// A sink does not exist any more.
    pub fn apply(&self, outputs: &dyn Outputs) -> Result<String, String> {
        let Some(target) = self.target else {
            if self.list.is_none() {
                state::stop_all();
                return Ok("All traces now stopped\n".to_owned());
            }
            return Ok(sources());
        };
        for change in &self.changes {
            for source in target.sources() {
                make(source, change, outputs)?;
            }
        }
        Ok(self.list.map(|list| show_list(target, list, outputs)).unwrap_or_default())
    }

    /// Whether the command only lists choices and changes nothing.
    pub fn only_lists(&self) -> bool {
        self.list.is_some()
    }
}

fn list(word: &str) -> Result<Choices, String> {
    Ok(match word {
        "level" => Choices::Levels,
        "lock" => Choices::Locks,
        "follow" => Choices::Follow,
        "only" => Choices::Filters,
        "sink" => Choices::Sinks,
        "verbosity" => Choices::Verbosities,
        _ => Choices::Events(action(word).ok_or_else(|| format!("Unknown trace keyword '{word}'\n"))?),
    })
}

/// The change requested by a word and its value.
fn change(
    target: TraceTarget,
    word: &str,
    value: &str,
    has_sink: &impl Fn(&str) -> bool,
) -> Result<TraceChange, String> {
    let number = |all: &[(&str, &str)]| all.iter().position(|(name, _)| *name == value).map(|at| at as u8);
    Ok(match word {
        "level" => TraceChange::Level(number(&LEVELS).ok_or_else(|| {
            format!("No such trace level '{value}'. {}", show_list(target, Choices::Levels, &NoSinks))
        })?),
        "verbosity" => TraceChange::Verbosity(number(verbosities(target)).ok_or_else(|| {
            format!(
                "No such verbosity level '{value}'. {}",
                show_list(target, Choices::Verbosities, &NoSinks)
            )
        })?),
        "lock" => {
            let found = locks(target).into_iter().find(|(_, name, _)| *name == value);
            TraceChange::Lock(found.ok_or_else(|| format!("Unsupported lock-on criterion '{value}'\n"))?.0)
        }
        "follow" => TraceChange::Follow(if value == "none" { None } else { Some(source(value)?) }),
        "only" if target != TraceTarget::One(TraceSource::Rules) => {
            return Err("'only' requires the source 'rules'\n".to_owned());
        }
        "only" if value == "none" => TraceChange::Only(None),
        "only" => TraceChange::Only(Some(RequestFilter::parse(value)?)),
        "sink" if value == "none" => TraceChange::Sink(None),
        "sink" if has_sink(value) => TraceChange::Sink(Some(value.into())),
        "sink" => return Err(format!("No such trace sink '{value}'\n")),
        _ => {
            let Some(action) = action(word) else {
                return Err(format!("Unknown trace keyword '{word}'\n"));
            };
            events(target, action, value)?
        }
    })
}

/// Parses the events to add to or remove from an action.
fn events(target: TraceTarget, action: TraceAction, value: &str) -> Result<TraceChange, String> {
    if value == "now" && action != TraceAction::Report {
        return Ok(TraceChange::Now(action));
    }
    let (name, on) = match value.strip_prefix(['-', '!']) {
        Some(name) => (name, false),
        None => (value.strip_prefix('+').unwrap_or(value), true),
    };
    let bits = match name {
        "any" => return Ok(TraceChange::Events { action, bits: u64::MAX, on }),
        "none" => return Ok(TraceChange::Events { action, bits: u64::MAX, on: false }),
        name => {
            let all = target.sources();
            let found = all.iter().flat_map(|one| one.events()).find(|event| event.name == name);
            found.map(|event| event.bit).ok_or_else(|| format!("No such trace event '{name}'\n"))?
        }
    };
    Ok(TraceChange::Events { action, bits, on })
}

fn make(source: TraceSource, change: &TraceChange, outputs: &dyn Outputs) -> Result<(), String> {
    let state = state::of(source);
    match change {
        TraceChange::Events { action, bits, on } => {
            let before = state.events(*action);
            state.set_events(*action, if *on { before | bits } else { before & !bits });
            if *action == TraceAction::Start && *on && state.run() == TraceRun::Stopped {
                state.set_run(TraceRun::Waiting);
            }
        }
        TraceChange::Now(TraceAction::Stop) => state.set_run(TraceRun::Stopped),
        TraceChange::Now(TraceAction::Pause) => state.set_run(TraceRun::Waiting),
        TraceChange::Now(_) => state.set_run(TraceRun::Running),
        TraceChange::Level(level) => state.set_level(*level),
        TraceChange::Verbosity(verbosity) => state.set_verbosity(*verbosity),
        TraceChange::Lock(lock) => state.set_lock(*lock),
        TraceChange::Follow(other) => state.set_followed(*other),
        TraceChange::Only(filter) => set_request_filter(filter.clone()),
        TraceChange::Sink(None) => state.set_output(None),
        TraceChange::Sink(Some(name)) => {
            let output = outputs.find(name).ok_or_else(|| format!("No such trace sink '{name}'\n"))?;
            state.set_output(Some(output));
        }
    }
    Ok(())
}

/// No sinks, for sources that list none.
struct NoSinks;

impl Outputs for NoSinks {
    fn list(&self) -> Vec<(String, String)> {
        Vec::new()
    }

    fn find(&self, _: &str) -> Option<Arc<dyn TraceOutput>> {
        None
    }
}

fn star(is_current: bool) -> char {
    if is_current { '*' } else { ' ' }
}

/// Lists all sources with their states.
fn sources() -> String {
    let mut out = format!("Supported trace sources and states {SIGNS} :\n");
    let _ = writeln!(out, " [.] {:<10} : no source: stop all traces", "0");
    let _ = writeln!(out, " [.] {:<10} : all sources, for 'sink', 'level' and 'follow'", "all");
    source_lines(&mut out);
    out
}

fn source_lines(out: &mut String) {
    for source in TraceSource::ALL {
        let sign = state::of(source).run().sign();
        let _ = writeln!(out, " [{sign}] {:<10} : {}", source.name(), source.doc());
    }
}

/// Lists the available choices, with the current ones marked.
fn show_list(target: TraceTarget, list: Choices, outputs: &dyn Outputs) -> String {
    let name = target.name();
    let state = match target {
        TraceTarget::One(source) => Some(state::of(source)),
        TraceTarget::All => None,
    };
    let mut out = String::new();
    let mut numbered = |title: String, all: &[(&str, &str)], current: Option<u8>| {
        let _ = writeln!(out, "{title}");
        for (at, (name, doc)) in all.iter().enumerate() {
            let _ = writeln!(out, "  {} {name:<10} : {doc}", star(current == Some(at as u8)));
        }
    };
    match list {
        Choices::Sources => return sources(),
        Choices::Words => {
            out.push_str("Supported commands:\n");
            for (word, doc) in WORDS {
                let _ = writeln!(out, "  {word:<9} : {doc}");
            }
        }
        Choices::Levels => numbered(
            format!("Supported trace levels for source {name}:"),
            &LEVELS,
            state.map(|state| state.level()),
        ),
        Choices::Verbosities => numbered(
            format!("Supported trace verbosities for source {name}:"),
            verbosities(target),
            state.map(|state| state.verbosity()),
        ),
        Choices::Locks => {
            let _ = writeln!(out, "Supported lock-on criteria for source {name}:");
            for (lock, name, doc) in locks(target) {
                let sign = star(state.is_some_and(|state| state.lock() == lock));
                let doc = if lock == Lock::Nothing { "not locked" } else { doc };
                let _ = writeln!(out, "  {sign} {name:<10} : {doc}");
            }
        }
        Choices::Follow => {
            if let Some(state) = state {
                match state.followed() {
                    Some(other) => out.push_str(&format!("Currently following source '{}'.\n", other.name())),
                    None => out.push_str("Not following any other source.\n"),
                }
            }
            out.push_str("Sources that can be followed:\n");
            let _ = writeln!(out, " [.] {:<10} : no other source", "none");
            source_lines(&mut out);
        }
        Choices::Filters => match request_filter() {
            Some(filter) => out.push_str(&format!("Currently only reporting '{filter}'.\n")),
            None => out.push_str("Reporting all requests.\n"),
        },
        Choices::Sinks => {
            let current = state.and_then(|state| state.output());
            let current = current.as_ref().map_or("none", |output| output.name());
            let _ = writeln!(out, "Supported sinks for source {name} (*=current):");
            let none = ("none".to_owned(), "no sink".to_owned());
            for (name, doc) in std::iter::once(none).chain(outputs.list()) {
                let sign = star(state.is_some() && name == current);
                let _ = writeln!(out, "  {sign} {name:<10} : {doc}");
            }
        }
        Choices::Events(action) => {
            let TraceTarget::One(source) = target else { return out };
            let bits = state::of(source).events(action);
            let _ = writeln!(out, "Supported events for source {name} (+=enabled, -=disabled):");
            if action != TraceAction::Report {
                let _ = writeln!(out, "  - {:<12} : immediately, without an event", "now");
            }
            let _ = writeln!(out, "  - {:<12} : no event", "none");
            let _ = writeln!(out, "  - {:<12} : every event", "any");
            for event in source.events() {
                let sign = plus(bits & event.bit != 0);
                let _ = writeln!(out, "  {sign} {:<12} : {}", event.name, event.doc);
            }
        }
    }
    out
}

fn plus(on: bool) -> char {
    if on { '+' } else { '-' }
}

/// `show trace`: lists all sources with their sinks, or the events of one source.
///
/// # Errors
/// The source does not exist.
pub fn show(name: &str) -> Result<String, String> {
    if name.is_empty() {
        let mut out = format!("Supported trace sources and states {SIGNS} :\n");
        for source in TraceSource::ALL {
            let state = state::of(source);
            let (sink, dropped) = sink(source);
            let (sign, name, doc) = (state.run().sign(), source.name(), source.doc());
            let _ = writeln!(out, " [{sign}] {name:<10} -> {sink} [drp {dropped}]  [{doc}]");
        }
        return Ok(out);
    }
    let source = source(name).map_err(|_| "No such trace source\n".to_owned())?;
    let state = state::of(source);
    let (sink, dropped) = sink(source);
    let mut out = format!("Trace status for {name}:\n  - sink: {sink} [{dropped} dropped]\n");
    out.push_str("  - event name   :     report    start    stop    pause\n");
    for event in source.events() {
        let has = |action| plus(state.events(action) & event.bit != 0);
        let _ = writeln!(
            out,
            "    {:<12} :        {}        {}        {}       {}",
            event.name,
            has(TraceAction::Report),
            has(TraceAction::Start),
            has(TraceAction::Stop),
            has(TraceAction::Pause)
        );
    }
    Ok(out)
}

fn sink(source: TraceSource) -> (String, u64) {
    let output = state::of(source).output();
    output.map_or_else(|| ("none".to_owned(), 0), |output| (output.name().to_owned(), output.dropped()))
}
