//! `log` lines: their targets, resolved once every ring, log backend and profile has a name (manual, 4.2 `log`).

use crate::system::host_address;
use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use base::address::Destination;
use base::raw::{bytes_of, path_of};
use diag::{Diagnostic, Span};
use plan::ProxyIndex;
use plan::log::{LogFormat, LogProto, LogTarget, Logger, Sample};
use plan::ring::{RingPeer, RingServer, RingSettings};
use state::server::ServerAddress;
use state::{Mode, Ring};
use syntax::Word;

use crate::draft::settings::{LogLine, LoggerDraft, ProxySettings, TargetDraft};
use crate::resolve::{ResolveContext, carry_over, telemetry};

/// The names available in `log` lines, and the objects created by such lines.
#[derive(Default)]
pub(crate) struct LogNames {
    /// `ring` sections, and `buf0`.
    pub(crate) rings: HashMap<Box<str>, RingSettings>,
    /// All rings, in configuration order, followed by those created for `tcp@`.
    pub(crate) all_rings: Vec<Arc<Ring>>,
    /// Backends by name.
    pub(crate) backends: HashMap<Box<str>, (ProxyIndex, Mode)>,
    /// The servers to which the rings are sent.
    pub(crate) servers: Vec<RingServer>,
    /// The rings of `log tcp@…` lines, by the line's location: proxies that inherit the line share them.
    implicit: HashMap<Span, Arc<Ring>>,
    /// Lines that were already reported as wrong, because many proxies inherit the lines of defaults.
    refused: HashSet<Span>,
}

impl LogNames {
    /// Creates the implicit ring of a `log` line, and the server it is sent to.
    fn add_implicit(&mut self, ring: &Arc<Ring>, peer: RingPeer, proto: LogProto) {
        self.all_rings.push(ring.clone());
        self.servers.push(RingServer {
            ring: ring.clone(),
            peer,
            proto,
            connect_timeout: None,
            server_timeout: None,
        });
    }
}

/// The loggers of a proxy, with `log global` replaced by those of `global`.
pub(crate) fn loggers(settings: &ProxySettings<'_>, context: &mut ResolveContext<'_>) -> Vec<Logger> {
    let mut loggers = Vec::new();
    let forwards = settings.kind == crate::draft::SectionKind::LogForward;
    for line in settings.loggers.iter() {
        match line {
            LogLine::Global => loggers.extend(context.global.loggers.iter().map(Logger::inherited)),
            LogLine::Own(draft) => loggers.extend(logger(draft, forwards, context)),
        }
    }
    loggers
}

/// Resolves one `log` line. If it is invalid, reports an error and returns `None`.
pub(crate) fn logger(
    draft: &LoggerDraft<'_>,
    forwards: bool,
    context: &mut ResolveContext<'_>,
) -> Option<Logger> {
    if context.log.refused.contains(&draft.span) {
        return None;
    }
    if let TargetDraft::Ring(word, name) = &draft.target
        && forwards
        && !context.log.rings.contains_key(*name)
    {
        let text = format!("there is no ring `{name}`: this line has no effect");
        context.diagnostics.push(Diagnostic::warning(text).at(word.span()));
        context.log.refused.insert(draft.span);
        return None;
    }
    match try_logger(draft, forwards, context) {
        Ok(logger) => Some(logger),
        Err(error) => {
            context.log.refused.insert(draft.span);
            context.diagnostics.push(error);
            None
        }
    }
}

fn try_logger(
    draft: &LoggerDraft<'_>,
    forwards: bool,
    context: &mut ResolveContext<'_>,
) -> Result<Logger, Diagnostic> {
    let unsaid = match &context.global.log_send_hostname {
        _ if forwards => LogFormat::AsReceived,
        // Sending a host name requires a format with a field for it (manual, 4.2 `log`, format `local`).
        Some(_) => LogFormat::Rfc3164,
        None => LogFormat::Local,
    };
    let mut logger = Logger {
        target: LogTarget::Backend(0),
        max_length: draft.max_length,
        format: draft.format.unwrap_or(unsaid),
        facility: draft.facility,
        max_level: draft.max_level,
        min_level: draft.min_level,
        sample: draft.sample.clone().map(|(ranges, size)| Arc::new(Sample::new(ranges, size))),
        profile: None,
    };
    logger.target = match &draft.target {
        TargetDraft::Address(address) => LogTarget::Address(address.clone()),
        TargetDraft::Ring(word, name) => {
            let settings = ring(word, name, context)?;
            logger.format = settings.format;
            logger.max_length = logger.max_length.min(settings.ring.max_length);
            LogTarget::Ring(settings.ring.clone())
        }
        TargetDraft::Backend(word, name) => LogTarget::Backend(backend(word, name, context)?),
        TargetDraft::Collector(word, name) => {
            let span = word.part("otel@".len(), word.len());
            match telemetry::find(name, span, context)? {
                Some(section) => LogTarget::Collector(section.collector.clone()),
                // The error in the section was reported.
                None => LogTarget::Backend(0),
            }
        }
        TargetDraft::Stream(word, place) => LogTarget::Ring(stream(draft, word, place, context)?),
    };
    if let Some(word) = draft.profile {
        let profiles = &context.names.log_profiles;
        let found = profiles.get(word.as_str()).cloned();
        logger.profile = Some(found.ok_or_else(|| {
            Diagnostic::alert(format!("there is no log-profile section `{word}`"))
                .at(word.span())
                .did_you_mean(diag::suggest(word, profiles.keys().map(|name| &**name)))
                .help(format!("define it with a section `log-profile {word}`"))
                .haproxy(format!("'log' : no such log-profile '{word}'."))
        })?);
    }
    Ok(logger)
}

fn ring<'c>(
    word: &Word,
    name: &str,
    context: &'c ResolveContext<'_>,
) -> Result<&'c RingSettings, Diagnostic> {
    let rings = &context.log.rings;
    rings.get(name).ok_or_else(|| {
        Diagnostic::alert(format!("there is no ring `{name}`"))
            .at(word.part("ring@".len(), word.len()))
            .did_you_mean(diag::suggest(name, rings.keys().map(|name| &**name)))
            .help(format!("define it with a section `ring {name}`"))
            .haproxy(format!("'log' : unknown ring named '{name}'."))
    })
}

fn backend(word: &Word, name: &str, context: &ResolveContext<'_>) -> Result<ProxyIndex, Diagnostic> {
    let span = word.part("backend@".len(), word.len());
    match context.log.backends.get(name) {
        Some((index, Mode::Log)) => {
            if let Some(backend) = context.names.backends.get(name) {
                backend.referenced.store(true, Relaxed);
            }
            Ok(*index)
        }
        Some((_, mode)) => Err(Diagnostic::alert(format!(
            "backend `{name}` cannot receive log messages: it is in mode {}",
            mode.name()
        ))
        .at(span)
        .help("use a backend with `mode log` and servers")
        .haproxy(format!("'log' : backend '{name}' is not in 'log' mode."))),
        None => {
            let names = context.log.backends.iter().filter(|(_, (_, mode))| *mode == Mode::Log);
            Err(Diagnostic::alert(format!("there is no backend `{name}`"))
                .at(span)
                .did_you_mean(diag::suggest(name, names.map(|(name, _)| &**name)))
                .help("log to a backend with `mode log`")
                .haproxy(format!("'log' : unable to find backend '{name}'.")))
        }
    }
}

/// A line that names a stream server has an implicit ring in front of that server.
fn stream(
    draft: &LoggerDraft<'_>,
    word: &Word,
    place: &Destination,
    context: &mut ResolveContext<'_>,
) -> Result<Arc<Ring>, Diagnostic> {
    if let Some(ring) = context.log.implicit.get(&draft.span) {
        return Ok(ring.clone());
    }
    let address = stream_address(word, place)?;
    let size = context.global.tune.bufsize.max(2 * draft.max_length);
    let ring = Ring::new(word, &format!("messages for {word}"), size, draft.max_length);
    let ring = carry_over::ring(ring, context.previous);
    context.log.add_implicit(&ring, RingPeer::Address(address), LogProto::Legacy);
    context.log.implicit.insert(draft.span, ring.clone());
    Ok(ring)
}

fn stream_address(word: &Word, place: &Destination) -> Result<ServerAddress, Diagnostic> {
    Ok(match place {
        Destination::Ip { host, ports } => {
            let ip = host_address(word, host)?;
            ServerAddress::Ip((ip, ports.iter().next().unwrap_or(514)).into())
        }
        Destination::Unix(path) => ServerAddress::Unix(path_of(path).into()),
        Destination::Abns(name) => {
            ServerAddress::Abstract { name: bytes_of(name).into_owned(), padded: true }
        }
        Destination::Abnsz(name) => {
            ServerAddress::Abstract { name: bytes_of(name).into_owned(), padded: false }
        }
        Destination::Fd(_) | Destination::SockPair(_) | Destination::ReverseHttp(_) => {
            return Err(Diagnostic::alert(format!("`{word}` is not a valid log target")).at(word.span()));
        }
    })
}
