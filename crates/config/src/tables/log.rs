//! `log` and what its lines look like (manual, 4.2 `log` and section 8).

use std::rc::Rc;

use base::address::{Accepts, Address, Place, PortRule, Transport};
use diag::Diagnostic;
use syntax::Word;

use crate::args::Args;
use crate::keyword::places::{DFL, DFLB};
use crate::keyword::{Keyword, Negation, Outcome, global, not_supported, proxy};
use crate::plan::log::{LogFormat, LogTarget, Logger};
use crate::resolve::names::resolve_host;
use crate::settings::{GlobalSettings, LogFormatChoice, LogLine, Settings};

const LOG: &str =
    "<target> [len <length>] [format <format>] [sample <ranges>:<size>] <facility> [<level> [<minlevel>]]";

/// The rows.
#[rustfmt::skip]
pub static TABLE: &[Keyword] = &[
    global("log",               LOG,                            "sends the lines of proxies with `log global`, and of the process, there", log_global).negatable(),
    global("log-tag",           "<string>",                     "the name of the process in log lines",                     log_tag_global),
    global("log-send-hostname", "[<string>]",                   "puts the machine's name, or this one, into log lines",     log_send_hostname),
    proxy("log",               DFLB, "global | <target> …",     "where log lines go",                                       log).negatable(),
    proxy("log-tag",           DFLB, "<string>",                "the name of the process in this proxy's log lines",        log_tag),
    proxy("log-format",        DFL,  "<format>",                "what a log line says",                                     log_format),
    proxy("error-log-format",  DFL,  "<format>",                "what the log line of a failed connection says",            error_log_format),
    proxy("log-format-sd",     DFL,  "<format>",                "the structured data of RFC 5424",                          log_format_sd),
    proxy("unique-id-format",  DFLB, "<format>",                "makes an identifier for each request",                     unique_id_format),
    proxy("unique-id-header",  DFL,  "<name>",                  "the header that carries the identifier",                   unique_id_header),
];

fn log_global<'a>(global: &mut GlobalSettings<'a>, args: &mut Args<'a, '_>) -> Outcome {
    if args.negated() {
        args.finish()?;
        global.plan.loggers.clear();
        return Ok(());
    }
    let logger = logger(args)?;
    global.plan.loggers.push(logger);
    Ok(())
}

fn log<'a>(settings: &mut Settings<'a>, args: &mut Args<'a, '_>) -> Outcome {
    if args.statement.negation != Negation::None {
        args.finish()?;
        settings.loggers = Rc::default();
        return Ok(());
    }
    let line = if args.take("global") {
        args.finish()?;
        if settings.loggers.iter().any(|line| matches!(line, LogLine::Global)) {
            // The defaults often say it too.
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

/// The levels of syslog, the most important first.
pub const LEVELS: &[&str] = &["emerg", "alert", "crit", "err", "warning", "notice", "info", "debug"];

fn logger(args: &mut Args<'_, '_>) -> Result<Logger, Diagnostic> {
    let target = args.required("<address> and <facility>")?;
    let mut logger = Logger {
        target: log_target(args, target)?,
        max_length: 1024,
        format: LogFormat::Local,
        facility: 0,
        max_level: 7,
        min_level: 0,
        sample: None,
    };
    loop {
        if args.take("len") {
            logger.max_length = args.integer("a length", 80, 65535)?;
        } else if args.take("format") {
            logger.format = args.one_of(FORMATS)?;
        } else if args.take("sample") {
            let word = args.required("<ranges>:<size>")?;
            logger.sample = Some(sample_ranges(word).ok_or_else(|| {
                args.wrong(format!("`{word}` is no sample of log lines")).label("such as `1,3-4:5`")
            })?);
        } else if args.take("profile") {
            args.required("the name of a log-profile")?;
            return Err(not_supported("log … profile").at(args.last().span()));
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
        if low == 0 || low > high || high > size {
            return None;
        }
        parsed.push((low, high));
    }
    Some((parsed, size))
}

fn log_target(args: &Args<'_, '_>, word: &Word) -> Result<LogTarget, Diagnostic> {
    match word.as_str() {
        "stdout" => return Ok(LogTarget::Descriptor(1)),
        "stderr" => return Ok(LogTarget::Descriptor(2)),
        text if text.starts_with("ring@") || text.starts_with("backend@") => {
            return Err(not_supported(&format!("log {text}")).at(word.span()));
        }
        _ => {}
    }
    let address = args.address(word, Accepts { port: PortRule::Optional, range: false, offset: false })?;
    if matches!(address.transport, Transport::Stream | Transport::Quic | Transport::Mptcp) {
        return Err(not_supported("log over TCP").at(word.span()));
    }
    target_of(&address, word)
}

fn target_of(address: &Address, word: &Word) -> Result<LogTarget, Diagnostic> {
    match &address.place {
        Place::Ip { host, ports } => {
            let port = ports.iter().next().unwrap_or(514);
            let ip = resolve_host(host).map_err(|error| {
                Diagnostic::alert(format!("cannot resolve the address of the log `{word}`: {error}"))
                    .at(word.span())
                    .haproxy(format!("'log' : could not resolve address '{word}'"))
            })?;
            Ok(LogTarget::Udp((ip, port).into()))
        }
        Place::Unix(path) => Ok(LogTarget::Unix(path.into())),
        Place::Abns(name) | Place::Abnsz(name) => Ok(LogTarget::Abstract(name.as_bytes().to_vec())),
        Place::Fd(number) => Ok(LogTarget::Descriptor(*number)),
        Place::SockPair(_) | Place::ReverseHttp(_) => {
            Err(Diagnostic::alert(format!("`{word}` is no place for log lines")).at(word.span()))
        }
    }
}

fn log_tag_global<'a>(global: &mut GlobalSettings<'a>, args: &mut Args<'a, '_>) -> Outcome {
    global.plan.log_tag = Some(args.required("a tag")?.as_str().into());
    args.finish()
}

fn log_tag<'a>(settings: &mut Settings<'a>, args: &mut Args<'a, '_>) -> Outcome {
    settings.log_tag = Some(args.required("a tag for use in syslog")?);
    args.finish()
}

fn log_send_hostname<'a>(global: &mut GlobalSettings<'a>, args: &mut Args<'a, '_>) -> Outcome {
    global.plan.log_send_hostname = Some(args.next().map_or("", |word| word.as_str()).into());
    args.finish()
}

fn log_format<'a>(settings: &mut Settings<'a>, args: &mut Args<'a, '_>) -> Outcome {
    one_format(args)?;
    settings.log_format = LogFormatChoice::Custom(args.statement);
    Ok(())
}

fn error_log_format<'a>(settings: &mut Settings<'a>, args: &mut Args<'a, '_>) -> Outcome {
    one_format(args)?;
    settings.error_log_format = Some(args.statement);
    Ok(())
}

fn log_format_sd<'a>(settings: &mut Settings<'a>, args: &mut Args<'a, '_>) -> Outcome {
    one_format(args)?;
    settings.log_format_sd = Some(args.statement);
    Ok(())
}

fn unique_id_format<'a>(settings: &mut Settings<'a>, args: &mut Args<'a, '_>) -> Outcome {
    one_format(args)?;
    settings.unique_id_format = Some(args.statement);
    Ok(())
}

fn unique_id_header<'a>(settings: &mut Settings<'a>, args: &mut Args<'a, '_>) -> Outcome {
    settings.unique_id_header = Some(args.required("the name of a header")?);
    args.finish()
}

/// Formats hold blanks more often than not: the error for a second word says so.
fn one_format(args: &mut Args<'_, '_>) -> Outcome {
    args.required("a format")?;
    args.finish()
        .map_err(|error| error.help("put the whole format between quotes, or a backslash before each blank"))
}
