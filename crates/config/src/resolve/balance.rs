//! `balance` and its arguments (manual, section 4.2), compiled.

use std::time::Duration;

use balance::{Algorithm, UriPart};
use base::raw::bytes_of;
use base::units::DefaultUnit::Milliseconds;
use diag::Diagnostic;
use sample::Acls;
use sample::expression::Expression;
use sample::{Place, Words};
use syntax::Word;

use crate::draft::Statement;
use crate::draft::args::Args;
use crate::resolve::policies::{Policies, policies};
use crate::resolve::rules::{arguments, scope};
use crate::resolve::{PendingProxy, ResolveContext};

/// The settings of a proxy's backend side.
pub(crate) fn balance(
    proxy: &PendingProxy<'_>,
    acls: &Acls,
    context: &mut ResolveContext<'_>,
) -> balance::BalanceSettings {
    let settings = &proxy.settings;
    let algorithm = match settings.balance {
        // Log backends use round robin by default.
        None if matches!(settings.mode, state::Mode::Log | state::Mode::Udp) => Ok(Algorithm::RoundRobin),
        None => Ok(Algorithm::default()),
        Some(statement) => algorithm(statement, proxy, acls, context),
    };
    let mut algorithm = context.diagnostics.take(algorithm).unwrap_or_default();
    let about_requests =
        matches!(algorithm, Algorithm::Uri(_) | Algorithm::UrlParam { .. } | Algorithm::Header { .. });
    if about_requests && matches!(settings.mode, state::Mode::Tcp | state::Mode::Spop) {
        let name = settings.name;
        context.diagnostics.push(
            Diagnostic::warning(format!("`balance` of backend `{name}` requires `mode http`: falling back to round robin"))
                .at(settings.balance.map_or(proxy.section.name.span(), Statement::keyword_span))
                .haproxy_whole(format!(
                    "Layer 7 hash not possible for backend '{name}' (needs 'mode http'). Falling back to round robin."
                )),
        );
        algorithm = Algorithm::RoundRobin;
    }
    if settings.mode == state::Mode::Udp {
        refuse_for_datagrams(&algorithm, proxy, context);
    }
    let Policies { outliers, budget, hedge } = policies(proxy, context);
    balance::BalanceSettings {
        algorithm,
        hash: settings.hash,
        balance_factor: settings.balance_factor,
        preserve_affinity: settings.preserve_affinity,
        all_backups: settings.options.allbackups,
        outliers,
        budget,
        hedge,
    }
}

/// Refuses algorithms that need a connection or a request.
fn refuse_for_datagrams(algorithm: &Algorithm, proxy: &PendingProxy<'_>, context: &mut ResolveContext<'_>) {
    if matches!(
        algorithm,
        Algorithm::RoundRobin
            | Algorithm::StaticRr
            | Algorithm::LeastConn
            | Algorithm::First
            | Algorithm::Random { .. }
            | Algorithm::Source
            | Algorithm::Hash(_)
    ) {
        return;
    }
    let (name, settings) = (algorithm.name(), &proxy.settings);
    context.diagnostics.push(
        Diagnostic::alert(format!("`balance {name}` cannot be used for datagrams"))
            .at(settings.balance.map_or(proxy.section.name.span(), Statement::keyword_span))
            .help("use one of: roundrobin, static-rr, leastconn, first, random, source, hash, quic-cid"),
    );
}

fn algorithm(
    statement: &Statement,
    proxy: &PendingProxy<'_>,
    acls: &Acls,
    context: &mut ResolveContext<'_>,
) -> Result<Algorithm, Diagnostic> {
    let is_log = proxy.settings.mode == state::Mode::Log;
    if statement.arguments().is_empty() {
        context.diagnostics.push(
            Diagnostic::warning("`balance` has no algorithm: it is ignored")
                .at(statement.keyword_span())
                .haproxy("'balance' expects an algorithm, and is ignored."),
        );
        return Ok(if is_log { Algorithm::RoundRobin } else { Algorithm::default() });
    }
    if statement.arguments().first().is_some_and(|word| *word == "hash") && !is_log {
        let list = arguments(statement);
        let mut words = Words::new(&list[1..list.len().min(2)], statement.end());
        let scope = scope(context, acls, Some(&proxy.state), proxy.settings.mode, Place::BackendRequest);
        let expression = Expression::compile(&mut words, &scope)?;
        if let Some(extra) = list.get(2) {
            return Err(Diagnostic::alert(format!(
                "unexpected argument `{}` after the expression of `balance hash`",
                extra.text
            ))
            .at(extra.span)
            .help("separate converters with commas, without spaces")
            .haproxy(format!("balance hash takes no other argument (got '{}').", extra.text)));
        }
        return Ok(Algorithm::Hash(expression));
    }
    if is_log && statement.arguments().first().is_some_and(|word| *word == "log-hash") {
        return log_hash(statement, proxy, acls, context);
    }
    let mut args = Args::new(statement, context.diagnostics, context.environment);
    let word = args.required("an algorithm")?;
    let (name, inside) = match word.as_str().split_once('(') {
        Some((name, rest)) => match rest.strip_suffix(')') {
            Some(inside) => (name, Some(inside)),
            None => return Err(unclosed(name, word)),
        },
        None => (word.as_str(), None),
    };
    let algorithm = match name {
        "roundrobin" => Algorithm::RoundRobin,
        "static-rr" => Algorithm::StaticRr,
        "leastconn" | "first" | "source" | "uri" | "url_param" | "hdr" | "rdp-cookie" | "hash"
        | "peak-ewma"
            if is_log =>
        {
            return Err(Diagnostic::alert(format!("`balance {name}` cannot be used in `mode log`"))
                .at(word.span())
                .help("use one of: roundrobin, static-rr, random, log-hash, sticky")
                .haproxy(format!("'balance {name}' is not usable in log mode.")));
        }
        "leastconn" => Algorithm::LeastConn,
        "first" => Algorithm::First,
        "source" => Algorithm::Source,
        "random" => Algorithm::Random { draws: draws(inside, &args)? },
        "power-of-two" => Algorithm::Random { draws: 2 },
        "peak-ewma" => peak_ewma(&mut args)?,
        "uri" => uri(&mut args)?,
        "url_param" => {
            let parameter = args.required("a parameter name")?;
            let check_post = args.take("check_post");
            match args.peek() {
                Some(_) if check_post => drop(args.rest()),
                Some(other) => return Err(modifier("url_param", "check_post", other)),
                None => {}
            }
            Algorithm::UrlParam { name: parameter.bytes().into(), check_post }
        }
        "hdr" => {
            let header = inside.filter(|name| !name.is_empty()).ok_or_else(|| {
                args.wrong("`hdr` needs a header name")
                    .label("such as `hdr(host)`")
                    .haproxy("'hdr(name)' requires an http header field name.")
            })?;
            let domain_only = args.take("use_domain_only");
            if let Some(other) = args.peek() {
                return Err(modifier(word, "use_domain_only", other));
            }
            Algorithm::Header { name: http::Name::new(&bytes_of(header)), domain_only }
        }
        "rdp-cookie" if inside == Some("") => {
            return Err(args
                .wrong("`rdp-cookie` has no cookie name in its parentheses")
                .label("omit the parentheses for the default, `mstshash`")
                .haproxy("balance rdp-cookie : missing cookie name."));
        }
        "rdp-cookie" => Algorithm::RdpCookie { name: bytes_of(inside.unwrap_or("mstshash")).into() },
        "sticky" => Algorithm::Sticky,
        "log-hash" => {
            return Err(Diagnostic::alert("`balance log-hash` can only be used in `mode log`")
                .at(word.span())
                .haproxy("'balance log-hash' is only usable in log mode."));
        }
        _ => return Err(unknown_algorithm(name, word)),
    };
    args.finish()?;
    Ok(algorithm)
}

fn modifier(name: &str, only: &'static str, other: &Word) -> Diagnostic {
    Diagnostic::alert(format!("unknown option `{other}` for `balance {name}`"))
        .at(other.span())
        .did_you_mean(Some(only))
        .haproxy(format!("balance {name} only accepts '{only}' modifier (got '{other}')."))
}

/// `log-hash <converters>`.
fn log_hash(
    statement: &Statement,
    proxy: &PendingProxy<'_>,
    acls: &Acls,
    context: &mut ResolveContext<'_>,
) -> Result<Algorithm, Diagnostic> {
    let mut args = Args::new(statement, context.diagnostics, context.environment);
    args.required("log-hash")?;
    let converters = args.required("a list of converters")?;
    args.finish()?;
    let scope = scope(context, acls, Some(&proxy.state), proxy.settings.mode, Place::BackendRequest);
    Ok(Algorithm::LogHash(Expression::of_message(converters, converters.span(), &scope)?))
}

fn unclosed(name: &str, word: &Word) -> Diagnostic {
    Diagnostic::alert(format!("`balance {name}` has no closing parenthesis"))
        .at(word.span())
        .haproxy(format!("balance {name} : missing closing parenthesis."))
}

fn unknown_algorithm(name: &str, word: &Word) -> Diagnostic {
    const KNOWN: &[&str] = &[
        "roundrobin",
        "static-rr",
        "leastconn",
        "first",
        "source",
        "random",
        "power-of-two",
        "peak-ewma",
        "uri",
        "url_param",
        "hdr",
        "rdp-cookie",
        "hash",
    ];
    Diagnostic::alert(format!("unknown algorithm `{word}` for `balance`"))
        .at(word.span())
        .did_you_mean(diag::suggest(name, KNOWN.iter().copied()))
        .help(format!("one of: {}", KNOWN.join(", ")))
        .haproxy("balance only supports 'roundrobin', 'static-rr', 'leastconn', 'source', 'uri', 'url_param', 'hash', 'hdr(name)', 'rdp-cookie(name)', 'log-hash' and 'log-sticky' options.")
}

fn draws(inside: Option<&str>, args: &Args<'_, '_>) -> Result<u32, Diagnostic> {
    let Some(text) = inside else { return Ok(2) };
    text.parse::<u32>().ok().filter(|draws| *draws > 0).ok_or_else(|| {
        args.wrong(format!("`random` requires a number of draws greater than zero, not `{text}`"))
            .haproxy("'random' expects a positive integer argument.")
    })
}

/// `peak-ewma [ decay <time> ]`.
fn peak_ewma(args: &mut Args<'_, '_>) -> Result<Algorithm, Diagnostic> {
    let mut decay = DECAY;
    if args.take("decay") {
        let word = args.value()?;
        decay = args.time(word, Milliseconds)?;
        if decay < LEAST_DECAY || decay > MOST_DECAY {
            return Err(args.wrong(format!("decay `{word}` is not between 10ms and 1h")));
        }
    }
    Ok(Algorithm::PeakEwma { decay })
}

/// The default decay time of `peak-ewma`.
const DECAY: Duration = Duration::from_secs(10);
const LEAST_DECAY: Duration = Duration::from_millis(10);
const MOST_DECAY: Duration = Duration::from_secs(3600);

fn uri(args: &mut Args<'_, '_>) -> Result<Algorithm, Diagnostic> {
    let mut part = UriPart::default();
    while let Some(word) = args.next() {
        match word.as_str() {
            "len" => part.length = Some(args.integer("a length", 1, 65_535)?),
            "depth" => part.depth = Some(args.integer("a depth", 1, 65_535)?),
            "whole" => part.whole = true,
            "path-only" => part.path_only = true,
            other => {
                return Err(args
                    .wrong(format!("unknown option `{other}` for `balance uri`"))
                    .did_you_mean(diag::suggest(other, ["len", "depth", "whole", "path-only"]))
                    .haproxy(format!("balance uri only accepts parameters 'len', 'depth', 'path-only', and 'whole' (got '{other}').")));
            }
        }
    }
    Ok(Algorithm::Uri(part))
}
