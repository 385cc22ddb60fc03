//! `log` and the keywords for log formats (manual, 4.2 `log` and section 8).

use std::rc::Rc;

use base::address::{Accepts, Destination, PortRule, Transport};
use base::raw::{bytes_of, path_of};
use diag::Diagnostic;
use plan::log::{HostStrategy, LogAddress, LogFormat, LogSteps};
use sample::LogOrigin;
use syntax::Word;

use crate::draft::args::Args;
use crate::draft::keyword::{Keyword, global, proxy};
use crate::draft::row::places::{DFL, DFLB, DFLB_MORE};
use crate::draft::row::{Negation, Outcome, Where, not_supported};
use crate::draft::settings::{
    GlobalSettings, LogDraft, LogFormatChoice, LogLine, LoggerDraft, ProxySettings, TargetDraft,
};
use crate::system::host_address;

const LOG: &str = "<target> [len <length>] [format <format>] [sample <ranges>:<size>] [profile <name>] <facility> [<level> [<minlevel>]]";

const FORWARD: Where = Where::LOG_FORWARD;
const RING: Where = Where::RING;

/// The rows.
#[rustfmt::skip]
pub static TABLE: &[Keyword] = &[
    global("log",               LOG,                            "log target for process messages and for proxies with `log global`", log_global).negatable(),
    global("log-tag",           "<string>",                     "process name in log messages",                             log_tag_global),
    global("log-send-hostname", "[<string>]",                   "adds the machine's host name, or the given one, to log messages", log_send_hostname).lenient_words().once(),
    proxy("log",               DFLB_MORE, "global | <target> …",     "target for log messages",                                  log).negatable().or_udp(),
    proxy("log-tag",           DFLB, "<string>",                "process name in this proxy's log messages",                log_tag).lenient_words().or_udp(),
    proxy("log-format",        DFL,  "<format>",                "format of log messages",                                   log_format).or_udp(),
    proxy("error-log-format",  DFL,  "<format>",                "format of log messages for failed connections",            error_log_format),
    proxy("log-format-sd",     DFL,  "<format>",                "format of the RFC 5424 structured data",                   log_format_sd).or_udp(),
    proxy("log-steps",         DFL,  "all | <step>[,<step>]*",  "steps of a stream at which a message is logged",           log_steps),
    proxy("unique-id-format",  DFLB, "<format>",                "format of the unique ID of each request",                  unique_id_format),
    proxy("unique-id-header",  DFL,  "<name>",                  "header that carries the unique ID",                        unique_id_header),
    proxy("dgram-bind",        FORWARD, "<address>:<port_range> [, ...] [param*]", "address on which to receive log messages as datagrams", |s, a| { own(s).datagram_binds.push(a.statement); a.rest(); Ok(()) }),
    proxy("option assume-rfc6587-ntf", FORWARD, "",             "expects messages in streams to end with a line feed",      |s, a| flag(&mut own(s).only_lines, a)).negatable(),
    proxy("option dont-parse-log", FORWARD, "",                 "passes messages on without parsing them",                  |s, a| flag(&mut own(s).unparsed, a)).negatable(),
    proxy("option host",       FORWARD, "{ replace | fill | keep | append }", "host name in forwarded messages",        option_host),
    proxy("format",            RING, "<format>",                "format of the message header in the ring",                 ring_format),
    proxy("maxlen",            RING, "<length>",                "maximum length of a message in the ring",                  ring_max_length),
    proxy("size",              RING, "<size>",                  "size of the ring in bytes",                                ring_size),
    proxy("backing-file",      RING, "<path>",                  "file that backs the ring",                                 backing_file),
];

/// The log settings of rarer sections.
fn own<'s, 'a>(settings: &'s mut ProxySettings<'a>) -> &'s mut LogDraft<'a> {
    Rc::make_mut(&mut settings.log)
}

fn flag(value: &mut bool, args: &mut Args<'_, '_>) -> Outcome {
    args.finish()?;
    *value = args.statement.negation == Negation::None;
    Ok(())
}

fn log_global<'a>(global: &mut GlobalSettings<'a>, args: &mut Args<'a, '_>) -> Outcome {
    if args.negated() {
        args.finish()?;
        global.loggers.clear();
        return Ok(());
    }
    let logger = logger(args)?;
    global.loggers.push(logger);
    Ok(())
}

fn log<'a>(settings: &mut ProxySettings<'a>, args: &mut Args<'a, '_>) -> Outcome {
    if args.statement.negation != Negation::None {
        args.finish()?;
        settings.loggers = Rc::default();
        return Ok(());
    }
    let line = if args.take("global") {
        args.finish()?;
        if settings.loggers.iter().any(|line| matches!(line, LogLine::Global)) {
            // The defaults often contain this line too.
            return Ok(());
        }
        LogLine::Global
    } else {
        LogLine::Own(logger(args)?)
    };
    Rc::make_mut(&mut settings.loggers).push(line);
    Ok(())
}

const FORMATS: &[(&str, LogFormat)] = &[
    ("local", LogFormat::Local),
    ("rfc3164", LogFormat::Rfc3164),
    ("rfc5424", LogFormat::Rfc5424),
    ("priority", LogFormat::Priority),
    ("short", LogFormat::Short),
    ("timed", LogFormat::Timed),
    ("iso", LogFormat::Iso),
    ("raw", LogFormat::Raw),
];

#[rustfmt::skip]
const FACILITIES: &[&str] = &[
    "kern", "user", "mail", "daemon", "auth", "syslog", "lpr", "news", "uucp", "cron", "auth2", "ftp",
    "ntp", "audit", "alert", "cron2", "local0", "local1", "local2", "local3", "local4", "local5", "local6", "local7",
];

/// The syslog levels, the most severe first.
pub const LEVELS: &[&str] = &["emerg", "alert", "crit", "err", "warning", "notice", "info", "debug"];

/// Parses the words after `log`, except for `log global`.
pub(crate) fn logger<'a>(args: &mut Args<'a, '_>) -> Result<LoggerDraft<'a>, Diagnostic> {
    let target = args.required("<address> and <facility>")?;
    args.warn_of_mptcp(target);
    let mut logger = LoggerDraft {
        span: args.statement.span,
        target: log_target(args, target)?,
        max_length: 1024,
        format: None,
        facility: 0,
        max_level: 7,
        min_level: 0,
        sample: None,
        profile: None,
    };
    loop {
        if args.take("len") {
            logger.max_length = args.integer("a length", 80, 65535)?;
        } else if args.take("format") {
            logger.format = Some(args.one_of(FORMATS)?);
        } else if args.take("sample") {
            let word = args.required("<ranges>:<size>")?;
            logger.sample = Some(sample_ranges(word).ok_or_else(|| {
                args.wrong(format!("invalid log sampling range `{word}`"))
                    .label("use ranges such as `1,3-4:5`")
            })?);
        } else if args.take("profile") {
            logger.profile = Some(args.required("a log-profile name")?);
        } else {
            break;
        }
    }
    let facility = args.required("<facility>")?;
    logger.facility = position(FACILITIES, facility, args, "log facility")?;
    if let Some(level) = args.next() {
        logger.max_level = position(LEVELS, level, args, "optional log level")?;
    }
    if let Some(level) = args.next() {
        logger.min_level = position(LEVELS, level, args, "optional minimum log level")?;
    }
    args.finish()?;
    Ok(logger)
}

fn position(names: &[&str], word: &Word, args: &Args<'_, '_>, what: &str) -> Result<u8, Diagnostic> {
    names.iter().position(|name| word == name).map(|index| index as u8).ok_or_else(|| {
        args.wrong(format!("unknown {what} `{word}`"))
            .did_you_mean(diag::suggest(word, names.iter().copied()))
            .help(format!("one of: {}", names.join(", ")))
            .haproxy(format!("unknown {what} '{word}'"))
    })
}

fn sample_ranges(text: &str) -> Option<(Vec<(u32, u32)>, u32)> {
    let (ranges, size) = text.rsplit_once(':')?;
    let size: u32 = size.parse().ok()?;
    let mut parsed = Vec::new();
    for range in ranges.split(',') {
        let (low, high) = range.split_once('-').unwrap_or((range, range));
        let (low, high): (u32, u32) = (low.parse().ok()?, high.parse().ok()?);
        let overlaps = |&(from, to): &(u32, u32)| low <= to && from <= high;
        if low == 0 || low > high || high > size || parsed.iter().any(overlaps) {
            return None;
        }
        parsed.push((low, high));
    }
    Some((parsed, size))
}

fn log_target<'a>(args: &Args<'_, '_>, word: &'a Word) -> Result<TargetDraft<'a>, Diagnostic> {
    let address = |address| Ok(TargetDraft::Address(address));
    match word.as_str() {
        "stdout" => return address(LogAddress::Descriptor(1)),
        "stderr" => return address(LogAddress::Descriptor(2)),
        text => {
            if let Some(name) = text.strip_prefix("ring@") {
                return Ok(TargetDraft::Ring(word, name));
            }
            if let Some(name) = text.strip_prefix("otel@") {
                return Ok(TargetDraft::Collector(word, name));
            }
            if let Some(name) = text.strip_prefix("backend@") {
                return Ok(TargetDraft::Backend(word, name));
            }
        }
    }
    let parsed = args.address(word, Accepts { port: PortRule::Optional, range: false, offset: false })?;
    match parsed.transport {
        Transport::Stream | Transport::Mptcp => return Ok(TargetDraft::Stream(word, parsed.place)),
        Transport::Quic => {
            return Err(not_supported(&format!("log {word}")).at(word.span()));
        }
        Transport::Default | Transport::Datagram => {}
    }
    address(match &parsed.place {
        Destination::Ip { host, ports } => {
            let port = ports.iter().next().unwrap_or(514);
            LogAddress::Udp((host_address(word, host)?, port).into())
        }
        Destination::Unix(path) => LogAddress::Unix(path_of(path).into()),
        Destination::Abns(name) | Destination::Abnsz(name) => {
            LogAddress::Abstract(bytes_of(name).into_owned())
        }
        Destination::Fd(number) => LogAddress::Descriptor(*number),
        Destination::SockPair(_) | Destination::ReverseHttp(_) => {
            return Err(Diagnostic::alert(format!("`{word}` is not a valid log target")).at(word.span()));
        }
    })
}

fn log_steps<'a>(settings: &mut ProxySettings<'a>, args: &mut Args<'a, '_>) -> Outcome {
    let word = args.required("a list of steps, or 'all'")?;
    let names = || LogSteps::NAMES.iter().map(|(name, _)| *name);
    let mut steps: Vec<LogOrigin> = Vec::new();
    for name in word.split(',') {
        match LogSteps::NAMES.iter().find(|(known, _)| *known == name) {
            Some((_, origin)) => steps.push(*origin),
            None if name == "all" => steps.extend(LogSteps::NAMES.iter().map(|(_, origin)| *origin)),
            None => {
                return Err(args
                    .wrong(format!("unknown step `{name}` for `log-steps`"))
                    .did_you_mean(diag::suggest(name, names().chain(["all"])))
                    .help(format!("use `all`, or some of: {}", names().collect::<Vec<_>>().join(", ")))
                    .haproxy(format!("'log-steps' : unknown step '{name}'.")));
            }
        }
    }
    args.finish()?;
    own(settings).steps = LogSteps::of(steps);
    Ok(())
}

fn option_host<'a>(settings: &mut ProxySettings<'a>, args: &mut Args<'a, '_>) -> Outcome {
    const CHOICES: &[(&str, HostStrategy)] = &[
        ("replace", HostStrategy::Replace),
        ("fill", HostStrategy::Fill),
        ("keep", HostStrategy::Keep),
        ("append", HostStrategy::Append),
    ];
    own(settings).host = args.one_of(CHOICES)?;
    args.finish()
}

fn ring_format<'a>(settings: &mut ProxySettings<'a>, args: &mut Args<'a, '_>) -> Outcome {
    own(settings).ring_format = Some(args.one_of(FORMATS)?);
    args.finish()
}

fn ring_max_length<'a>(settings: &mut ProxySettings<'a>, args: &mut Args<'a, '_>) -> Outcome {
    own(settings).ring_max_length = Some(args.integer("a length", 1, 1 << 30)?);
    args.finish()
}

/// The maximum size of a ring. Positions have 31 bits, and a larger value is certainly a mistake.
const LARGEST_RING: u64 = 1 << 31;

fn ring_size<'a>(settings: &mut ProxySettings<'a>, args: &mut Args<'a, '_>) -> Outcome {
    let size = args.size(LARGEST_RING)?;
    if size == 0 {
        return Err(args
            .wrong("a ring of size zero cannot hold a message")
            .haproxy(format!("invalid size '{}' for new sink buffer.", args.last())));
    }
    own(settings).ring_size = Some(size as usize);
    args.finish()
}

fn backing_file<'a>(settings: &mut ProxySettings<'a>, args: &mut Args<'a, '_>) -> Outcome {
    own(settings).backing_file = Some(args.required("a path")?);
    args.finish()
}

fn log_tag_global<'a>(global: &mut GlobalSettings<'a>, args: &mut Args<'a, '_>) -> Outcome {
    global.plan.log_tag = Some(args.required("a tag")?.bytes().into());
    args.finish()
}

fn log_tag<'a>(settings: &mut ProxySettings<'a>, args: &mut Args<'a, '_>) -> Outcome {
    settings.log_tag = Some(args.required("a tag for use in syslog")?);
    args.finish()
}

fn log_send_hostname<'a>(global: &mut GlobalSettings<'a>, args: &mut Args<'a, '_>) -> Outcome {
    global.plan.log_send_hostname = Some(args.next().map(|word| word.bytes().into()).unwrap_or_default());
    args.finish()
}

fn log_format<'a>(settings: &mut ProxySettings<'a>, args: &mut Args<'a, '_>) -> Outcome {
    one_format(args)?;
    settings.log_format = LogFormatChoice::Custom(args.statement);
    Ok(())
}

fn error_log_format<'a>(settings: &mut ProxySettings<'a>, args: &mut Args<'a, '_>) -> Outcome {
    one_format(args)?;
    settings.error_log_format = Some(args.statement);
    Ok(())
}

fn log_format_sd<'a>(settings: &mut ProxySettings<'a>, args: &mut Args<'a, '_>) -> Outcome {
    one_format(args)?;
    settings.log_format_sd = Some(args.statement);
    Ok(())
}

fn unique_id_format<'a>(settings: &mut ProxySettings<'a>, args: &mut Args<'a, '_>) -> Outcome {
    one_format(args)?;
    settings.unique_id_format = Some(args.statement);
    Ok(())
}

fn unique_id_header<'a>(settings: &mut ProxySettings<'a>, args: &mut Args<'a, '_>) -> Outcome {
    settings.unique_id_header = Some(args.required("a header name")?);
    args.finish()
}

/// Takes a format as a single word. Formats usually contain blanks, so the error for a second word mentions quoting.
fn one_format(args: &mut Args<'_, '_>) -> Outcome {
    args.required("a format")?;
    args.finish()
        .map_err(|error| error.help("put the whole format in quotes, or escape each space with a backslash"))
}
