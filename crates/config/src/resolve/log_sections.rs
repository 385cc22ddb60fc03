//! `log-profile` (manual, 8.3.5), `ring` (12.5) and `log-forward` (12.6) sections.

use std::collections::HashMap;
use std::sync::Arc;

use diag::{Diagnostic, Severity};
use plan::log::{DatagramBind, LogFormat, LogForward};
use plan::ring::RingSettings;
use sample::Acls;
use sample::LogStep;
use sample::Place;
use sample::format::{Format, FormatFor};
use sample::log_profile::{LogOverride, LogProfile};
use state::Mode;
use state::ring::{Ring, Stamp};
use syntax::Word;

use crate::draft::args::Args;
use crate::draft::{Draft, Section, SectionKind, Statement};
use crate::resolve::rules::scope;
use crate::resolve::unique::second;
use crate::resolve::{PendingProxy, ResolveContext, carry_over, lines, udp};
use crate::tables::bind;

/// The default of `maxlen`.
const MAX_LENGTH: usize = 1024;

/// Reads every `log-profile` section.
pub(crate) fn profiles(draft: &Draft, context: &mut ResolveContext<'_>) {
    let mut seen: HashMap<&str, &Section> = HashMap::new();
    for section in draft.sections.iter().filter(|section| section.kind == SectionKind::LogProfile) {
        if let Some(other) = seen.insert(&section.name, section) {
            let haproxy = |name: &str, place: &str| {
                format!("log-profile section '{name}' already declared at {place}.")
            };
            let error = second(section, other, haproxy, context);
            context.diagnostics.push(error);
        }
        let mut profile = LogProfile { name: section.name.as_str().into(), ..LogProfile::default() };
        for statement in &section.statements {
            let outcome = match statement.keyword.name {
                "log-tag" => log_tag(&mut profile, statement, context),
                _ => on(&mut profile, statement, context),
            };
            context.note(outcome);
        }
        context.names.log_profiles.insert(section.name.as_str().into(), Arc::new(profile));
    }
}

fn log_tag(
    profile: &mut LogProfile,
    statement: &Statement,
    context: &mut ResolveContext<'_>,
) -> Result<(), Diagnostic> {
    let mut args = Args::new(statement, context.diagnostics, context.environment);
    profile.tag = Some(args.required("a tag for use in syslog")?.bytes().into());
    args.finish()
}

/// `on <step> [drop] [format <fmt>] [sd <fmt>]`.
fn on(
    profile: &mut LogProfile,
    statement: &Statement,
    context: &mut ResolveContext<'_>,
) -> Result<(), Diagnostic> {
    let mut args = Args::new(statement, context.diagnostics, context.environment);
    let word = args.required("<step>")?;
    let step = LogStep::find(word).ok_or_else(|| {
        let names: Vec<&str> = LogStep::names().collect();
        args.wrong(format!("unknown step `{word}` for `on`"))
            .did_you_mean(diag::suggest(word, names.iter().copied()))
            .help(format!("one of: {}", names.join(", ")))
            .haproxy(format!("'on' : unknown logging step '{word}'."))
    })?;
    let (mut drop, mut format, mut structured) = (false, None, None);
    while let Some(option) = args.next() {
        match option.as_str() {
            "drop" => drop = true,
            "format" => format = Some(args.value()?),
            "sd" => structured = Some(args.value()?),
            other => {
                return Err(args
                    .wrong(format!("unexpected argument `{other}` for `on`"))
                    .did_you_mean(diag::suggest(other, ["drop", "format", "sd"]))
                    .help(format!("usage: on {}", statement.keyword.signature))
                    .haproxy(format!("'on' expects 'drop', 'format' or 'sd' (got '{other}').")));
            }
        }
    }
    if !drop && format.is_none() && structured.is_none() {
        return Err(Diagnostic::alert(format!("`on {word}` has no arguments"))
            .at(word.span())
            .help(format!("usage: on {}", statement.keyword.signature))
            .haproxy(format!("'on {word}' expects 'drop', 'format' or 'sd'.")));
    }
    if profile.steps.iter().any(|(known, _)| *known == step) {
        return Err(Diagnostic::alert(format!("step `{word}` is already defined in this profile"))
            .at(word.span())
            .haproxy(format!("'on' : step '{word}' already defined in log-profile '{}'.", profile.name)));
    }
    let own =
        LogOverride { drop, format: compiled(format, context)?, structured: compiled(structured, context)? };
    profile.steps.push((step, own));
    Ok(())
}

/// Compiles a format of a profile. The proxies that use the profile are unknown, so everything available in HTTP mode is allowed.
fn compiled(word: Option<&Word>, context: &ResolveContext<'_>) -> Result<Option<Format>, Diagnostic> {
    let Some(word) = word else { return Ok(None) };
    let acls = Acls::default();
    let scope = scope(context, &acls, None, Mode::Http, Place::Log);
    Format::compile(word, word.span(), &scope, FormatFor::Log).map(Some)
}

/// Creates the rings of all sections, and the built-in rings `buf0` and `dpapi`.
pub(crate) fn rings(pending: &[PendingProxy<'_>], context: &mut ResolveContext<'_>) {
    let size = context.global.tune.bufsize;
    let buffer = Ring::new("buf0", "in-memory ring buffer", size, MAX_LENGTH).stamped(Stamp::LevelAndTime);
    let buffer = carry_over::ring(buffer, context.previous);
    add_ring(RingSettings { ring: buffer, format: LogFormat::Timed, backing_file: None }, context);
    // Events of certificate orders for tools that manage DNS; the longest contains a whole authorization.
    let events = Ring::new(state::acme::EVENTS, "DPAPI ring buffer", 1 << 20, 1 << 17);
    let events = carry_over::ring(events, context.previous);
    add_ring(RingSettings { ring: events, format: LogFormat::Timed, backing_file: None }, context);
    let mut seen: HashMap<&str, &Section> = HashMap::new();
    for proxy in pending.iter().filter(|proxy| proxy.settings.kind == SectionKind::Ring) {
        if let Some(other) = seen.insert(proxy.settings.name, proxy.section) {
            let haproxy = |name: &str, _: &str| format!("sink named '{name}' already exists.");
            let error = second(proxy.section, other, haproxy, context);
            context.diagnostics.push(error);
            continue;
        }
        let settings = ring(proxy, context);
        add_ring(settings, context);
    }
}

fn add_ring(settings: RingSettings, context: &mut ResolveContext<'_>) {
    context.names.rings.insert(settings.ring.name.clone(), settings.ring.clone());
    context.log.all_rings.push(settings.ring.clone());
    context.log.rings.insert(settings.ring.name.clone(), settings);
}

fn ring(proxy: &PendingProxy<'_>, context: &mut ResolveContext<'_>) -> RingSettings {
    let (settings, draft) = (&proxy.settings, &proxy.settings.log);
    let name = settings.name;
    let size = draft.ring_size.unwrap_or(context.global.tune.bufsize);
    let max_length = draft.ring_max_length.unwrap_or(MAX_LENGTH);
    let longest = size.saturating_sub(4);
    if let Some(length) = draft.ring_max_length.filter(|length| *length > longest) {
        // HAProxy subtracts a header of about 200 bytes, and ignores smaller rings silently.
        let severity = if size < 256 { Severity::Diag } else { Severity::Warning };
        context.diagnostics.push(
            Diagnostic::new(
                severity,
                format!("ring `{name}` holds {longest} bytes, too few for a message of {length}"),
            )
            .at(proxy.section.name.span())
            .haproxy(format!(
                "ring '{name}' event max length '{length}' exceeds size, forced to size '{longest}'."
            )),
        );
    }
    let description = settings.description.as_deref().unwrap_or(name);
    context.enter(proxy.section);
    let format = draft.ring_format.unwrap_or(LogFormat::Raw);
    let ring = Ring::new(name, description, size, max_length).stamped(stamp(format));
    RingSettings {
        ring: carry_over::ring(ring, context.previous),
        format,
        backing_file: draft.backing_file.map(|path| context.names.path(path)),
    }
}

/// The prefix of messages that are not logs, which have no facility, host or program.
fn stamp(format: LogFormat) -> Stamp {
    match format {
        LogFormat::Raw | LogFormat::AsReceived => Stamp::None,
        LogFormat::Short | LogFormat::Priority => Stamp::Level,
        LogFormat::Iso => Stamp::Time,
        LogFormat::Timed | LogFormat::Local | LogFormat::Rfc3164 | LogFormat::Rfc5424 => Stamp::LevelAndTime,
    }
}

/// The log forwarder of a proxy, or `None` for any other proxy.
pub(crate) fn log_forward(
    proxy: &PendingProxy<'_>,
    context: &mut ResolveContext<'_>,
) -> Option<Box<LogForward>> {
    let settings = &proxy.settings;
    if settings.kind != SectionKind::LogForward {
        return None;
    }
    let mut datagrams = Vec::new();
    for statement in &settings.log.datagram_binds {
        match datagram_bind(statement, context) {
            Ok(mut made) => datagrams.append(&mut made),
            Err(error) => context.diagnostics.push(error),
        }
    }
    if settings.binds.is_empty() && settings.log.datagram_binds.is_empty() {
        let name = settings.name;
        context.diagnostics.push(
            Diagnostic::warning(format!("log-forward `{name}` has no address to listen on"))
                .at(proxy.section.name.span())
                .help("use `bind` for TCP, or `dgram-bind` for UDP")
                .haproxy_whole(format!("log-forward '{name}' has no 'bind' nor 'dgram-bind' directive.")),
        );
    }
    Some(Box::new(LogForward {
        datagrams,
        only_lines: settings.log.only_lines,
        unparsed: settings.log.unparsed,
        host: settings.log.host,
    }))
}

fn datagram_bind(
    statement: &Statement,
    context: &mut ResolveContext<'_>,
) -> Result<Vec<DatagramBind>, Diagnostic> {
    let mut args = Args::new(statement, context.diagnostics, context.environment);
    let word = args.required("an address and a port")?;
    let mut addresses = Vec::new();
    let mut offset = 0;
    for part in word.split(',') {
        udp::one(word, offset, part, &args, &mut addresses)?;
        offset += part.len() + 1;
    }
    let draft = bind::parse_params(&mut args, &format!("dgram-bind {word}"), "log-forward")?;
    let workers = context.placement.select(&draft.threads);
    if workers.is_empty() {
        return Err(Diagnostic::alert("`thread` selects no existing thread").at(statement.span));
    }
    let place = lines::shown(context, statement.span);
    let made = addresses.into_iter().map(|address| DatagramBind {
        address,
        place: place.as_str().into(),
        interface: draft.interface.map(Into::into),
        namespace: draft.namespace.map(Into::into),
        transparent: draft.transparent,
        workers: workers.clone(),
    });
    Ok(made.collect())
}
