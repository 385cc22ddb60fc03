//! The lines of `opentelemetry` sections (docs/opentelemetry.md), and `trace-to`. `resolve::telemetry` builds the sections.

use std::time::Duration;

use base::units::DefaultUnit::Milliseconds;
use diag::Diagnostic;
use plan::telemetry::ParentUse;

use crate::draft::args::Args;
use crate::draft::keyword::{self, Apply, Keyword, ReadTelemetry, proxy};
use crate::draft::row::places::DFL;
use crate::draft::row::{Negation, Outcome, Where};
use crate::draft::settings::ProxySettings;
use crate::draft::telemetry::TelemetryDraft;

const fn row(name: &'static str, signature: &'static str, doc: &'static str, read: ReadTelemetry) -> Keyword {
    keyword::row(name, Where::OPENTELEMETRY, signature, doc, Apply::Telemetry(read))
}

/// The largest queue and batch, in bytes. Collectors limit the size of a request to a few MiB by default.
const LARGEST_QUEUE: u64 = 1 << 30;
const LARGEST_BATCH: u64 = 16 << 20;
const SMALLEST_BATCH: u64 = 4 << 10;

/// The rows.
#[rustfmt::skip]
pub static TABLE: &[Keyword] = &[
    row("attribute",        "<name> <format>",   "adds an attribute to the spans of requests",                       |d, a| { d.attributes.push((a.required("a name and a format")?, a.required("a format")?)); a.finish() }),
    row("batch-size",       "<size>",            "maximum size of a request to the collector, before compression",   batch_size),
    row("ca-file",          "<file>",            "CAs that may sign the collector's certificate",                    |d, a| { d.ca_file = Some(a.required("a file")?.into()); a.finish() }),
    row("compression",      "{ none | gzip }",   "compression of requests to the collector",                         |d, a| { d.gzip = a.one_of(&[("none", false), ("gzip", true)])?; a.finish() }),
    row("crt",              "<file>",            "client certificate with its key",                                  |d, a| { d.certificate = Some(a.required("a file")?.into()); a.finish() }),
    row("endpoint",         "<url>",             "URL of the collector: `http://`, `https://`, `grpc://` or `grpcs://`", |d, a| { d.endpoint = Some(a.required("a URL")?); a.finish() }),
    row("header",           "<name> <value>",    "adds a header to requests to the collector",                       |d, a| { d.headers.push((a.required("a name and a value")?, a.required("a value")?)); a.finish() }),
    row("interval",         "<time>",            "longest time that spans and log records wait for their export",    |d, a| { d.interval = time(a)?; Ok(()) }),
    row("keep",             "{ errors | slower-than <time> }", "also exports requests that failed or were slow, if they are not sampled", keep),
    row("metrics-interval", "<time>",            "exports metrics at this interval",                                 |d, a| { d.metrics_interval = Some(time(a)?); Ok(()) }),
    row("parent",           "{ follow | continue | ignore }", "how the trace context of a request is used",         parent),
    row("queue-size",       "<size>",            "memory for spans, and for log records, that wait for their export", |d, a| { d.queue_size = a.size(LARGEST_QUEUE)? as usize; a.finish() }),
    row("resolve-with",     "<section>",         "resolves the host of the endpoint at run time",                    |d, a| { d.resolvers = Some(a.required("a resolvers section")?); a.finish() }),
    row("resource",         "<name> <value>",    "sets an attribute of the resource, such as `service.name`",        |d, a| { d.resource.push((a.required("a name and a value")?, a.required("a value")?)); a.finish() }),
    row("sampling",         "<percent>",         "share of new traces that are sampled",                             sampling),
    row("timeout connect",  "<time>",            "timeout of a connection to the collector",                         |d, a| { d.connect_timeout = time(a)?; Ok(()) }),
    row("timeout server",   "<time>",            "timeout of a request to the collector",                            |d, a| { d.server_timeout = time(a)?; Ok(()) }),
    row("url-query",        "{ on | off }",      "whether spans contain the query of the URL",                       |d, a| { d.has_query = a.on_off()?; a.finish() }),
    row("verify",           "{ none | required }", "whether the collector's certificate is verified",                verify),
    proxy("trace-to", DFL,  "<section>",         "exports a trace of each request to an `opentelemetry` section",    trace_to).negatable(),
];

fn time(args: &mut Args<'_, '_>) -> Result<Duration, Diagnostic> {
    let time = args.duration(Milliseconds)?;
    if time.is_zero() {
        return Err(args.wrong("the time must be at least 1ms").help("use a time such as `5s`"));
    }
    args.finish()?;
    Ok(time)
}

fn batch_size<'a>(draft: &mut TelemetryDraft<'a>, args: &mut Args<'a, '_>) -> Outcome {
    let size = args.size(LARGEST_BATCH)?;
    if size < SMALLEST_BATCH {
        return Err(args
            .wrong(format!("a batch of {size} bytes is too small for a record"))
            .help(format!("use at least {SMALLEST_BATCH} bytes")));
    }
    draft.batch_size = size as usize;
    args.finish()
}

fn sampling<'a>(draft: &mut TelemetryDraft<'a>, args: &mut Args<'a, '_>) -> Outcome {
    let word = args.required("a percentage")?;
    let percent = word.strip_suffix('%').and_then(|number| number.parse::<f64>().ok());
    let percent = percent.filter(|percent| (0.0..=100.0).contains(percent)).ok_or_else(|| {
        args.wrong(format!("`{word}` is not a percentage from 0% to 100%"))
            .help("use a share such as `1%` or `0.5%`")
    })?;
    draft.ratio = percent / 100.0;
    args.finish()
}

fn parent<'a>(draft: &mut TelemetryDraft<'a>, args: &mut Args<'a, '_>) -> Outcome {
    draft.parent = args.one_of(&[
        ("follow", ParentUse::Follow),
        ("continue", ParentUse::Continue),
        ("ignore", ParentUse::Ignore),
    ])?;
    args.finish()
}

fn keep<'a>(draft: &mut TelemetryDraft<'a>, args: &mut Args<'a, '_>) -> Outcome {
    match args.one_of(&[("errors", true), ("slower-than", false)])? {
        true => {
            draft.keeps_errors = true;
            args.finish()
        }
        false => {
            draft.keeps_slower_than = Some(time(args)?);
            Ok(())
        }
    }
}

fn verify<'a>(draft: &mut TelemetryDraft<'a>, args: &mut Args<'a, '_>) -> Outcome {
    let verify = args.one_of(&[("none", false), ("required", true)])?;
    draft.verify = Some((verify, args.last()));
    args.finish()
}

fn trace_to<'a>(settings: &mut ProxySettings<'a>, args: &mut Args<'a, '_>) -> Outcome {
    settings.trace_to = match args.statement.negation {
        Negation::None => Some(args.required("an opentelemetry section")?),
        Negation::No | Negation::Default => None,
    };
    args.finish()
}
