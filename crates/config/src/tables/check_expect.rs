//! `http-check expect` and `tcp-check expect` (manual, section 4.2): the options before a match, and the matches.

use diag::Diagnostic;
use plan::check::{CompareMethod, Spelling};
use sample::regex::Regex;
use syntax::Word;

use super::check_words::{hexadecimal, push, value};
use crate::draft::args::Args;
use crate::draft::check::{ActionDraft, ExpectDraft, MatcherDraft, PatternDraft, RuleDraft, ValueDraft};
use crate::draft::row::Outcome;
use crate::draft::settings::ProxySettings;

/// A match: its name, and its parser.
type Match = (&'static str, for<'a> fn(&mut Args<'a, '_>) -> Result<MatcherDraft<'a>, Diagnostic>);

/// The matches of `tcp-check expect`.
#[rustfmt::skip]
static TCP: &[Match] = &[
    ("string",    |a| Ok(MatcherDraft::Bytes(pattern(a)?.bytes().into(), Spelling::Text))),
    ("rstring",   |a| Ok(MatcherDraft::Regex(regex(a)?))),
    ("string-lf", |a| Ok(MatcherDraft::Format(pattern(a)?.into()))),
    ("binary",    |a| { let word = pattern(a)?; Ok(MatcherDraft::Bytes(hexadecimal(word, a)?, Spelling::Hex)) }),
    ("rbinary",   |a| Ok(MatcherDraft::HexRegex(regex(a)?))),
    ("binary-lf", |a| Ok(MatcherDraft::HexFormat(pattern(a)?.into()))),
];

/// The matches of `http-check expect`.
#[rustfmt::skip]
static HTTP: &[Match] = &[
    ("status",    |a| Ok(MatcherDraft::Status(statuses(a)?))),
    ("rstatus",   |a| Ok(MatcherDraft::StatusRegex(regex(a)?))),
    ("hdr",       |a| header(a, false)),
    ("fhdr",      |a| header(a, true)),
    ("string",    |a| Ok(MatcherDraft::Body(pattern(a)?.bytes().into()))),
    ("rstring",   |a| Ok(MatcherDraft::BodyRegex(regex(a)?))),
    ("string-lf", |a| Ok(MatcherDraft::BodyFormat(pattern(a)?.into()))),
];

/// The options of the line.
const OPTIONS: &[&str] = &[
    "comment",
    "min-recv",
    "ok-status",
    "error-status",
    "tout-status",
    "on-success",
    "on-error",
    "status-code",
];
const OK: &[&str] = &["L7OK", "L7OKC", "L6OK", "L4OK"];
const ERROR: &[&str] = &["L7OKC", "L7RSP", "L7STS", "L6RSP", "L4CON"];
const TIMEOUT: &[&str] = &["L7TOUT", "L6TOUT", "L4TOUT"];

pub(super) fn tcp_expect<'a>(settings: &mut ProxySettings<'a>, args: &mut Args<'a, '_>) -> Outcome {
    expect(settings, args, TCP)
}

pub(super) fn http_expect<'a>(settings: &mut ProxySettings<'a>, args: &mut Args<'a, '_>) -> Outcome {
    expect(settings, args, HTTP)
}

fn expect<'a>(settings: &mut ProxySettings<'a>, args: &mut Args<'a, '_>, known: &[Match]) -> Outcome {
    // Replaced by the match, wherever in the line that is.
    let mut draft = ExpectDraft::new(MatcherDraft::LdapBind);
    let (mut found, mut comment, mut negate) = (false, None, false);
    if args.peek().is_none() {
        args.required("at least a matching pattern")?;
    }
    while let Some(word) = args.next() {
        let mut name = word.as_str();
        if name == "!" {
            negate = !negate;
            continue;
        }
        if let Some(bare) = name.strip_prefix('!') {
            (name, negate) = (bare, !negate);
        }
        if let Some((_, matcher)) = known.iter().find(|(known, _)| *known == name) {
            if std::mem::replace(&mut found, true) {
                return Err(args
                    .wrong("only one pattern can be expected")
                    .haproxy(format!("'{}' : only one pattern expected.", args.keyword())));
            }
            draft.what = matcher(args)?;
            draft.negate = std::mem::take(&mut negate);
            continue;
        }
        if negate {
            return Err(args
                .wrong(format!("`!` cannot precede `{name}`"))
                .haproxy(format!("'{}' : [!] not supported with '{name}'.", args.keyword())));
        }
        match name {
            "comment" => comment = Some(value(args)?.as_str()),
            "min-recv" => draft.min_recv = min_recv(args)?,
            "ok-status" => draft.ok_status = Some(status(args, OK)?),
            "error-status" => draft.error_status = Some(status(args, ERROR)?),
            "tout-status" => draft.timeout_status = Some(status(args, TIMEOUT)?),
            "on-success" => draft.on_success = Some(value(args)?.into()),
            "on-error" => draft.on_error = Some(value(args)?.into()),
            "status-code" => draft.code = Some(value(args)?.into()),
            "custom" => return Err(args.unsupported()),
            other => return Err(unknown(args, other, known)),
        }
    }
    if !found {
        return Err(args
            .wrong(format!("`{}` has no pattern", args.keyword()))
            .haproxy(format!("'{}' : pattern not found.", args.keyword())));
    }
    push(settings, RuleDraft { comment, ..ActionDraft::Expect(Box::new(draft)).into() }, args)
}

fn unknown(args: &Args<'_, '_>, word: &str, known: &[Match]) -> Diagnostic {
    let names = || known.iter().map(|(name, _)| *name);
    let quoted: Vec<String> = names().map(|name| format!("'[!]{name}'")).collect();
    args.wrong(format!("unknown argument `{word}` for `{}`", args.keyword()))
        .did_you_mean(diag::suggest(word, names().chain(OPTIONS.iter().copied())))
        .haproxy(format!(
            "'{}' : only supports min-recv, {} or comment but got '{word}' as argument.",
            args.keyword(),
            quoted.join(", ")
        ))
}

fn pattern<'a>(args: &mut Args<'a, '_>) -> Result<&'a Word, Diagnostic> {
    let name = args.last();
    let keyword = args.keyword();
    args.next().ok_or_else(|| {
        Diagnostic::alert(format!("`{name}` expects a pattern"))
            .at(name.span())
            .haproxy(format!("'{keyword}' : '{name}' expects a <pattern> as argument."))
    })
}

fn regex(args: &mut Args<'_, '_>) -> Result<Regex, Diagnostic> {
    let word = pattern(args)?;
    Regex::new(word, false).map_err(|error| {
        args.wrong(format!("invalid regular expression `{word}`: {error}"))
            .haproxy(format!("'{}' : regex '{word}' is invalid ({error}).", args.keyword()))
    })
}

/// `-1` means no minimum.
fn min_recv(args: &mut Args<'_, '_>) -> Result<Option<usize>, Diagnostic> {
    let word = value(args)?;
    match word.parse::<i32>() {
        Ok(-1) => Ok(None),
        Ok(number) if number >= 0 => Ok(Some(number as usize)),
        _ => Err(args
            .wrong(format!("invalid number of bytes `{word}`"))
            .label("use a whole number, or -1 for no minimum")
            .haproxy(format!(
                "'{}' : 'min-recv' expects -1 or an integer from 0 to INT_MAX.",
                args.keyword()
            ))),
    }
}

fn status(args: &mut Args<'_, '_>, known: &'static [&'static str]) -> Result<&'static str, Diagnostic> {
    let option = args.last();
    let word = value(args)?;
    known.iter().copied().find(|status| status.eq_ignore_ascii_case(word)).ok_or_else(|| {
        let quoted: Vec<String> = known.iter().map(|status| format!("'{status}'")).collect();
        let list = quoted.join(", ");
        args.wrong(format!("unknown status `{word}` for `{option}`"))
            .did_you_mean(diag::suggest(word, known.iter().copied()))
            .help(format!("one of: {}", known.join(", ")))
            .haproxy(format!("'{}' : '{option}' only supports {list} status (got '{word}').", args.keyword()))
    })
}

fn statuses(args: &mut Args<'_, '_>) -> Result<Vec<(u16, u16)>, Diagnostic> {
    let word = pattern(args)?;
    let range = |text: &str| {
        let (low, high) = text.split_once('-').unwrap_or((text, text));
        let (low, high): (u16, u16) = (low.parse().ok()?, high.parse().ok()?);
        (low <= high && high < 1000).then_some((low, high))
    };
    word.split(',').map(range).collect::<Option<Vec<_>>>().ok_or_else(|| {
        args.wrong(format!("invalid list of status codes `{word}`"))
            .label("use codes such as `200`, `200-399` or `200,301-302`")
            .haproxy(format!("'{}' : invalid range of status codes '{word}'.", args.keyword()))
    })
}

/// `{ name | name-lf } [-m <meth>] <name> [{ value | value-lf } [-m <meth>] <value>]`.
fn header<'a>(args: &mut Args<'a, '_>, full: bool) -> Result<MatcherDraft<'a>, Diagnostic> {
    let kind = args.last();
    let name = match args.next().map(|word| word.as_str()) {
        Some(option @ ("name" | "name-lf")) => header_pattern(args, option == "name-lf", true)?,
        _ => {
            return Err(args.wrong(format!("`{kind}` expects `name` or `name-lf` and a pattern")).haproxy(
                format!(
                    "'{}' : '{kind}' expects at the name keyword as first argument followed by a pattern.",
                    args.keyword()
                ),
            ));
        }
    };
    let value = match args.peek().map(|word| word.as_str()) {
        Some(option @ ("value" | "value-lf")) => {
            args.next();
            Some(header_pattern(args, option == "value-lf", false)?)
        }
        _ => None,
    };
    Ok(MatcherDraft::Header { name, value, full })
}

fn header_pattern<'a>(
    args: &mut Args<'a, '_>,
    format: bool,
    ignore_case: bool,
) -> Result<PatternDraft<'a>, Diagnostic> {
    const METHODS: &[(&str, Option<CompareMethod>)] = &[
        ("str", Some(CompareMethod::Exact)),
        ("beg", Some(CompareMethod::Begin)),
        ("end", Some(CompareMethod::End)),
        ("sub", Some(CompareMethod::Inside)),
        ("reg", None),
    ];
    let mut method = Some(CompareMethod::Exact);
    if args.take("-m") {
        let word = value(args)?;
        method = args.choice(word, METHODS)?;
    }
    if method.is_none() && format {
        return Err(args.wrong("a format string cannot be used as a regular expression").haproxy(format!(
            "'{}': log-format string is not supported with a regex matching method.",
            args.keyword()
        )));
    }
    let Some(method) = method else {
        let word = pattern(args)?;
        return Regex::new(word, ignore_case)
            .map(PatternDraft::Regex)
            .map_err(|error| args.wrong(format!("invalid regular expression `{word}`: {error}")));
    };
    let word = pattern(args)?;
    let value = if format { ValueDraft::Format(word.into()) } else { ValueDraft::Fixed(word) };
    Ok(PatternDraft::Text(method, value))
}
