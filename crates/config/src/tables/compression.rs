//! `compression …` (manual, section 4.2), compression filters (9.2), and the process-wide limits (3.2).

use base::units;
use compress::Algorithm;
use diag::Diagnostic;

use crate::draft::args::Args;
use crate::draft::keyword::{Keyword, global, proxy};
use crate::draft::row::Outcome;
use crate::draft::row::places::DFLB;
use crate::draft::section::SectionKind;
use crate::draft::settings::{CompressionDraft, GlobalSettings, ProxySettings};

const SIGNATURE: &str = "{ algo <algorithm>* | algo-req <algorithm> | algo-res <algorithm>* | type <mime type>* | type-req <mime type>* | type-res <mime type>* | minsize-req <size> | minsize-res <size> | offload | direction <direction> }";

/// The rows.
#[rustfmt::skip]
pub static TABLE: &[Keyword] = &[
    proxy("compression", DFLB, SIGNATURE, "bodies to compress, and how",                                        compression).lenient_words(),
    global("maxcomprate",         "<number>", "maximum input rate of compression per second, in kilobytes; 0 for no limit", rate).lenient_numbers(),
    global("maxcompcpuusage",     "<number>", "CPU usage above which bodies are not compressed, in percent",    |g, a| { g.plan.compression.cpu = within(a, 0, 100, "'maxcompcpuusage' expects an integer argument between 0 and 100.")?.into(); a.finish() }).lenient_numbers(),
    global("maxzlibmem",          "<number>", "maximum memory for compression, in megabytes",                   |g, a| { g.plan.compression.memory = a.integer("a number of megabytes", 0, usize::MAX >> 20)? << 20; a.finish() }).lenient_numbers(),
    global("tune.comp.maxlevel",  "<number>", "compression level: from 1 (fastest) to 9 (smallest)",            |g, a| { g.plan.compression.level = within(a, 1, 9, "'tune.comp.maxlevel' expects a numeric value between 1 and 9")?; a.finish() }).lenient_numbers(),
    global("tune.zlib.memlevel",  "<number>", "memory used by gzip and deflate, 1 to 9, from level 2 on",        |g, a| { g.plan.compression.memory_level = within(a, 1, 9, "'tune.zlib.memlevel' expects a numeric value between 1 and 9")?; a.finish() }).lenient_numbers(),
    global("tune.zlib.windowsize", "<number>", "window size of gzip and deflate in bits, 8 to 15, from level 2 on", |g, a| { g.plan.compression.window_bits = within(a, 8, 15, "'tune.zlib.windowsize' expects a numeric value between 8 and 15")?; a.finish() }).lenient_numbers(),
];

fn rate(global: &mut GlobalSettings<'_>, args: &mut Args<'_, '_>) -> Outcome {
    let kilobytes: u32 = args.integer("a number of kilobytes a second", 0, u32::MAX / 1024)?;
    global.plan.compression.rate = u64::from(kilobytes) * 1024;
    args.finish()
}

/// Parses a number from `low` to `high`; errors use HAProxy's wording.
fn within(args: &mut Args<'_, '_>, low: u8, high: u8, haproxy: &str) -> Result<u8, Diagnostic> {
    args.integer("a number", low, high).map_err(|error| error.haproxy(haproxy.to_owned()))
}

fn compression<'a>(settings: &mut ProxySettings<'a>, args: &mut Args<'a, '_>) -> Outcome {
    const WORDS: &[&str] = &[
        "algo",
        "algo-req",
        "algo-res",
        "type",
        "type-req",
        "type-res",
        "minsize-req",
        "minsize-res",
        "offload",
        "direction",
    ];
    const EXPECTS: &str =
        "'compression' expects 'algo', 'type', 'direction', 'offload', 'minsize-req' or 'minsize-res'.";
    let Some(word) = args.next() else {
        return Err(Diagnostic::alert("`compression` requires an argument")
            .at(args.statement.end())
            .help(format!("one of {}", WORDS.join(", ")))
            .haproxy(EXPECTS));
    };
    if settings.kind == SectionKind::Defaults && word == "offload" {
        args.warn("'compression' : 'offload' ignored in 'defaults' section.");
        return args.finish();
    }
    let draft = settings.compression.get_or_insert_default();
    match word.as_str() {
        "algo" | "algo-res" => algorithms(&mut draft.response.algorithms, args)?,
        "algo-req" => {
            draft.request.algorithms.clear();
            draft.request.algorithms.push(algorithm(args)?);
        }
        "type" | "type-res" => types(&mut draft.response.types, args)?,
        "type-req" => types(&mut draft.request.types, args)?,
        "minsize-req" => draft.request.min_size = size(args, "minsize-req")?,
        "minsize-res" => draft.response.min_size = size(args, "minsize-res")?,
        "offload" => draft.offload = true,
        "direction" => direction(draft, args)?,
        other => {
            return Err(args
                .wrong(format!("unknown argument `{other}` for `compression`"))
                .did_you_mean(diag::suggest(other, WORDS.iter().copied()))
                .haproxy(EXPECTS));
        }
    }
    args.finish()
}

fn algorithm(args: &mut Args<'_, '_>) -> Result<Algorithm, Diagnostic> {
    let Some(word) = args.next() else {
        return Err(Diagnostic::alert("missing algorithm")
            .at(args.statement.end())
            .help("gzip, deflate, raw-deflate, zstd, br or identity")
            .haproxy("'compression' expects <algorithm>."));
    };
    let found = Algorithm::ALL.iter().find(|(name, _)| word == *name);
    found.map(|(_, algorithm)| *algorithm).ok_or_else(|| {
        args.wrong(format!("unknown algorithm `{word}`"))
            .did_you_mean(diag::suggest(word, Algorithm::ALL.iter().map(|(name, _)| *name)))
            .haproxy(format!("'compression' : '{word}' is not a supported algorithm."))
    })
}

fn algorithms(list: &mut Vec<Algorithm>, args: &mut Args<'_, '_>) -> Outcome {
    loop {
        let algorithm = algorithm(args)?;
        if !list.contains(&algorithm) {
            list.push(algorithm);
        }
        if args.peek().is_none() {
            return Ok(());
        }
    }
}

fn types(list: &mut Vec<Box<[u8]>>, args: &mut Args<'_, '_>) -> Outcome {
    if args.peek().is_none() {
        return Err(Diagnostic::alert("missing content type")
            .at(args.statement.end())
            .help("such as text/html")
            .haproxy("'compression' expects <type>."));
    }
    list.extend(args.rest().iter().map(|word| word.bytes().into()));
    Ok(())
}

fn size(args: &mut Args<'_, '_>, what: &str) -> Result<u64, Diagnostic> {
    let Some(word) = args.next() else {
        return Err(Diagnostic::alert(format!("`{what}` needs a size"))
            .at(args.statement.end())
            .haproxy(format!("'{what}' expects an integer argument.")));
    };
    units::parse_size(word).ok().filter(|size| *size <= u32::MAX.into()).ok_or_else(|| {
        let digits = word.as_str().bytes().take_while(u8::is_ascii_digit).count();
        args.wrong("invalid size")
            .label("use a whole number of bytes, or a suffix such as k or m")
            .haproxy(format!("unexpected '{}' after size passed to '{what}'", &word[digits..]))
    })
}

fn direction(draft: &mut CompressionDraft, args: &mut Args<'_, '_>) -> Outcome {
    let wrong = "'compression' expects 'request', 'response', or 'both'.";
    let chosen = match args.next().map(|word| word.as_str()) {
        Some("request") => (true, false),
        Some("response") => (false, true),
        Some("both") => (true, true),
        Some(other) => {
            return Err(args
                .wrong(format!("unknown direction `{other}`"))
                .did_you_mean(diag::suggest(other, ["request", "response", "both"]))
                .haproxy(wrong));
        }
        None => {
            return Err(Diagnostic::alert("missing direction").at(args.statement.end()).haproxy(wrong));
        }
    };
    draft.directions = chosen;
    Ok(())
}
