//! The lines of `cache` sections (manual, section 6.2.1). `resolve::cache` builds the stores.

use base::units::DefaultUnit::Milliseconds;
use cache::Hints;

use crate::draft::args::Args;
use crate::draft::cache::CacheDraft;
use crate::draft::keyword::{self, Apply, Keyword, ReadCache};
use crate::draft::row::{Outcome, Where};

const fn row(name: &'static str, signature: &'static str, doc: &'static str, read: ReadCache) -> Keyword {
    keyword::row(name, Where::CACHE, signature, doc, Apply::Cache(read))
}

/// The rows.
#[rustfmt::skip]
pub static TABLE: &[Keyword] = &[
    row("collapsed-forwarding",  "<time>",       "maximum time that a request waits for another request to fetch the same response", |d, a| { d.wait_ms = a.duration(Milliseconds)?.as_millis() as u64; a.finish() }),
    row("disk",                  "<directory> size <size>", "directory for responses evicted from memory",           disk),
    row("early-hints",           "{ on | off | only } [ratio <integer>]", "sends the links of a stale response as early hints while a new one is fetched", early_hints),
    row("max-age",               "<seconds>",    "maximum time that a response is served, in seconds",               |d, a| { d.max_age = Some(a.integer("a number of seconds", 0, i32::MAX as u32)?); a.finish() }),
    row("max-object-size",       "<bytes>",      "maximum size of a cached response",                                max_object),
    row("max-secondary-entries", "<number>",     "maximum number of variants per resource",                          max_variants),
    row("process-range",         "{ on | off }", "answers range requests from complete cached responses",            |d, a| { d.ranges = a.on_off()?; a.finish() }),
    row("process-vary",          "{ on | off }", "caches responses that vary on accept-encoding, referer or origin", |d, a| { d.vary = Some(a.on_off()?); a.finish() }),
    row("purge-tags",            "<header>",     "response header with the tags to purge by",                purge_tags),
    row("revalidation",          "{ on | off }", "revalidates stale responses with the server by ETag or date",      |d, a| { d.revalidation = a.on_off()?; a.finish() }),
    row("stale-if-error",        "<seconds>",    "time for which a stale response is served if a new one cannot be fetched", |d, a| { d.stale_if_error = a.integer("a number of seconds", 0, i32::MAX as u32)?; a.finish() }),
    row("stale-while-revalidate", "<seconds>",   "time for which a stale response is served while a new one is fetched", |d, a| { d.stale_while_revalidate = a.integer("a number of seconds", 0, i32::MAX as u32)?; a.finish() }),
    row("total-max-size",        "<megabytes>",  "memory size of the cache, in megabytes",                           |d, a| { d.megabytes = Some(a.integer("a number of megabytes", 1, 4095)?); a.finish() }),
];

fn max_object<'a>(draft: &mut CacheDraft<'a>, args: &mut Args<'a, '_>) -> Outcome {
    let size = args.integer("a number of bytes", 1, u64::from(u32::MAX))?;
    draft.max_object = Some((size, args.last()));
    args.finish()
}

fn max_variants<'a>(draft: &mut CacheDraft<'a>, args: &mut Args<'a, '_>) -> Outcome {
    let most = args.integer("a number of variants", 1, 1_000_000)?;
    draft.max_variants = Some((most, args.last()));
    args.finish()
}

fn disk<'a>(draft: &mut CacheDraft<'a>, args: &mut Args<'a, '_>) -> Outcome {
    let directory = args.required("a directory")?;
    if !args.take("size") {
        return Err(args.wrong("add the size of the directory, such as `size 10g`"));
    }
    let size = args.size(1 << 50)?;
    if size < LEAST_DISK {
        return Err(args.wrong(format!("the cache directory is too small: {size} bytes, the minimum is 1m")));
    }
    draft.disk = Some((directory, size));
    args.finish()
}

/// The minimum size of a directory in bytes.
const LEAST_DISK: u64 = 1 << 20;

fn purge_tags<'a>(draft: &mut CacheDraft<'a>, args: &mut Args<'a, '_>) -> Outcome {
    let word = args.required("a header name")?;
    if !http::is_token(word.as_str().as_bytes()) {
        return Err(args.wrong(format!("invalid header name `{word}`")));
    }
    draft.tags = Some(word);
    args.finish()
}

fn early_hints<'a>(draft: &mut CacheDraft<'a>, args: &mut Args<'a, '_>) -> Outcome {
    let which = args.one_of(&[("on", Hints::On), ("off", Hints::Off), ("only", Hints::Only)])?;
    let ratio = match args.take("ratio") {
        true => Some(args.integer("a percentage", 1, 99)?),
        false => None,
    };
    draft.hints = Some((which, ratio));
    args.finish()
}
