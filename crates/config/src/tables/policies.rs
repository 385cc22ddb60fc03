//! Policies that HAProxy does not have, which protect servers and requests from each other's failures: `outlier-ejection`,
//! `retry-budget`, `hedge` (docs/beyond-haproxy.md).

use balance::hedge::After;
use balance::outliers::Latency;
use balance::{Budget, Hedge, Outliers};
use base::units::DefaultUnit::Milliseconds;
use diag::Diagnostic;
use syntax::Word;

use crate::draft::args::Args;
use crate::draft::keyword::{Keyword, proxy};
use crate::draft::row::Outcome;
use crate::draft::row::places::DLB;
use crate::draft::settings::ProxySettings;

const OUTLIERS: &str = "[ errors <number> ] [ error-rate <percent>% ] [ latency <factor> [ quantile p<quantile> ] [ over <time> ] ] [ min-requests <number> ] [ interval <time> ] [ ejection-time <time> ] [ max-ejection-time <time> ] [ max-ejected <percent>% ] [ recover <time> ]";

/// The rows.
#[rustfmt::skip]
pub static TABLE: &[Keyword] = &[
    proxy("outlier-ejection", DLB, OUTLIERS,                                      "temporarily ejects servers that perform much worse than their peers; Weir extension", outlier_ejection).negatable(),
    proxy("retry-budget",     DLB, "<percent>% [ min <number> ]",                 "maximum share of requests that may be retried; Weir extension",                     retry_budget).negatable(),
    proxy("hedge",            DLB, "after { p<quantile> | <time> } [ max <percent>% ]", "sends a second request to another server if the first is slow; Weir extension",     hedge).negatable(),
];

/// The default of `min`: the number of retries that are allowed whatever their share.
const MIN: u32 = 10;

/// The default of `max`: the maximum share of hedged requests.
const MAX_HEDGES: u32 = 10;

fn retry_budget<'a>(settings: &mut ProxySettings<'a>, args: &mut Args<'a, '_>) -> Outcome {
    if args.negated() {
        settings.policies.budget = None;
        return args.finish();
    }
    let share = percent(args, 0, 100)?;
    let mut min = MIN;
    if args.take("min") {
        min = args.integer("a number of retries", 0, 1_000_000)?;
    }
    args.finish()?;
    settings.policies.budget = Some((Budget { share, min }, args.statement));
    Ok(())
}

fn hedge<'a>(settings: &mut ProxySettings<'a>, args: &mut Args<'a, '_>) -> Outcome {
    if args.negated() {
        settings.policies.hedge = None;
        return args.finish();
    }
    let after = args.required("'after' and a quantile or a time")?;
    args.choice(after, &[("after", ())])?;
    let word = args.required("a quantile such as p95 or a time such as 20ms")?;
    let after = match word.strip_prefix('p') {
        Some(_) => After::Quantile(quantile(word)?),
        None => After::Time(milliseconds(args, word, 1)? as u32),
    };
    let mut share = MAX_HEDGES;
    if args.take("max") {
        share = percent(args, 1, 100)?;
    }
    args.finish()?;
    settings.policies.hedge = Some((Hedge { after, share }, args.statement));
    Ok(())
}

/// The parameters of `outlier-ejection`.
const WORDS: &[(&str, ())] = &[
    ("errors", ()),
    ("error-rate", ()),
    ("latency", ()),
    ("min-requests", ()),
    ("interval", ()),
    ("ejection-time", ()),
    ("max-ejection-time", ()),
    ("max-ejected", ()),
    ("recover", ()),
];

fn outlier_ejection<'a>(settings: &mut ProxySettings<'a>, args: &mut Args<'a, '_>) -> Outcome {
    if args.negated() {
        settings.policies.outliers = None;
        return args.finish();
    }
    let mut own = Outliers::default();
    let mut longest = None;
    while let Some(word) = args.next() {
        match word.as_str() {
            "errors" => own.errors = Some(args.integer("a number of consecutive failures", 1, 1_000_000)?),
            "error-rate" => own.error_rate = Some(percent(args, 1, 100)?),
            "latency" => own.latency = Some(latency(args)?),
            "min-requests" => own.min_requests = args.integer("a number of requests", 1, 1_000_000)?,
            "interval" => own.interval = time(args, 100)?,
            "ejection-time" => own.ejection_time = time(args, 100)?,
            "max-ejection-time" => longest = Some((time(args, 100)?, args.last())),
            "max-ejected" => own.max_ejected = percent(args, 1, 99)?,
            "recover" => own.recover = time(args, 0)?,
            _ => args.choice(word, WORDS)?,
        }
    }
    if own.errors.is_none() && own.error_rate.is_none() && own.latency.is_none() {
        return Err(Diagnostic::alert("`outlier-ejection` has no criterion")
            .at(args.statement.keyword_span())
            .help("add at least one of `errors`, `error-rate` and `latency`"));
    }
    match longest {
        Some((time, word)) if time < own.ejection_time => {
            return Err(Diagnostic::alert(format!(
                "`max-ejection-time` is {time}ms, but the first ejection already takes {}ms",
                own.ejection_time
            ))
            .at(word.span())
            .help("use at least the value of `ejection-time`"));
        }
        Some((time, _)) => own.max_ejection_time = time,
        // Ten times the first ejection, if that is longer than the default.
        None => own.max_ejection_time = own.max_ejection_time.max(own.ejection_time.saturating_mul(10)),
    }
    settings.policies.outliers = Some((Box::new(own), args.statement));
    Ok(())
}

fn latency(args: &mut Args<'_, '_>) -> Result<Latency, Diagnostic> {
    let word = args.required("a factor such as 3")?;
    let factor = word.parse::<f64>().ok().filter(|factor| *factor > 1.0 && *factor <= 1000.0);
    let factor = factor.ok_or_else(|| {
        args.wrong(format!("invalid factor `{word}`")).label(
            "use a multiple of the median latency of the other servers, greater than 1 and at most 1000",
        )
    })?;
    let mut latency = Latency { factor, quantile: 0.5, over_us: 10_000 };
    loop {
        if args.take("quantile") {
            let word = args.required("a quantile such as p90")?;
            latency.quantile = quantile(word)?;
        } else if args.take("over") {
            let word = args.required("a time")?;
            latency.over_us = milliseconds(args, word, 0)? * 1000;
        } else {
            return Ok(latency);
        }
    }
}

/// Parses a percentage.
fn percent(args: &mut Args<'_, '_>, low: u32, high: u32) -> Result<u32, Diagnostic> {
    let word = args.required("a percentage such as 20%")?;
    let number = word.strip_suffix('%').and_then(|number| number.parse::<u32>().ok());
    number.filter(|number| (low..=high).contains(number)).ok_or_else(|| {
        args.wrong(format!("invalid percentage `{word}`"))
            .label(format!("use a whole number from {low}% to {high}%"))
    })
}

/// Parses `p95` or `p99.9` into a fraction.
fn quantile(word: &Word) -> Result<f64, Diagnostic> {
    let number = word.strip_prefix('p').and_then(|number| number.parse::<f64>().ok());
    let number = number.filter(|number| (1.0..=99.99).contains(number));
    number.map(|number| number / 100.0).ok_or_else(|| {
        Diagnostic::alert(format!("invalid quantile `{word}`"))
            .at(word.span())
            .label("use a quantile from p1 to p99.99, such as `p95`")
    })
}

fn time(args: &mut Args<'_, '_>, least: u64) -> Result<u64, Diagnostic> {
    let word = args.required("a time")?;
    milliseconds(args, word, least)
}

/// Parses a time of at least `least` ms.
fn milliseconds(args: &mut Args<'_, '_>, word: &Word, least: u64) -> Result<u64, Diagnostic> {
    let time = args.time(word, Milliseconds)?.as_millis() as u64;
    if time < least {
        return Err(Diagnostic::alert(format!("time `{word}` is too short"))
            .at(word.span())
            .label(format!("use at least {least}ms")));
    }
    Ok(time)
}
