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
    row("collapsed-forwarding",  "<time>",       "how long a request waits for the response to another one for the same", |d, a| { d.wait_ms = a.duration(Milliseconds)?.as_millis() as u64; a.finish() }),
    row("disk",                  "<directory> size <size>", "where responses stand that memory does not hold any more", disk),
    row("early-hints",           "{ on | off | only } [ratio <integer>]", "sends the links of a response that is not fresh any more ahead of the new one", early_hints),
    row("max-age",               "<seconds>",    "the longest that a response is used, in seconds",                  |d, a| { d.max_age = Some(a.integer("a number of seconds", 0, i32::MAX as u32)?); a.finish() }),
    row("max-object-size",       "<bytes>",      "the largest response that is kept",                                max_object),
    row("max-secondary-entries", "<number>",     "how many variants of one resource are kept",                       max_variants),
    row("process-range",         "{ on | off }", "answers requests for a range out of whole responses",              |d, a| { d.ranges = a.on_off()?; a.finish() }),
    row("process-vary",          "{ on | off }", "keeps responses that vary on accept-encoding, referer or origin",  |d, a| { d.vary = Some(a.on_off()?); a.finish() }),
    row("purge-tags",            "<header>",     "the field of responses whose values are tags to purge by",         purge_tags),
    row("revalidation",          "{ on | off }", "asks servers whether what is stale is still what it was, by its tag or date", |d, a| { d.revalidation = a.on_off()?; a.finish() }),
    row("stale-if-error",        "<seconds>",    "how long beyond its lifetime a response is used where no other can be fetched", |d, a| { d.stale_if_error = a.integer("a number of seconds", 0, i32::MAX as u32)?; a.finish() }),
    row("stale-while-revalidate", "<seconds>",   "how long beyond its lifetime a response is used while another is fetched", |d, a| { d.stale_while_revalidate = a.integer("a number of seconds", 0, i32::MAX as u32)?; a.finish() }),
    row("total-max-size",        "<megabytes>",  "the memory of the cache, in megabytes",                            |d, a| { d.megabytes = Some(a.integer("a number of megabytes", 1, 4095)?); a.finish() }),
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
        return Err(args.wrong("`size` and the size of the directory come next, such as `size 10g`"));
    }
    let size = args.size(1 << 50)?;
    if size < LEAST_DISK {
        return Err(args.wrong(format!("a directory of {size} bytes is too small: at least 1m")));
    }
    draft.disk = Some((directory, size));
    args.finish()
}

/// The minimum size of a directory in bytes.
const LEAST_DISK: u64 = 1 << 20;

fn purge_tags<'a>(draft: &mut CacheDraft<'a>, args: &mut Args<'a, '_>) -> Outcome {
    let word = args.required("the name of a header")?;
    if !http::is_token(word.as_str().as_bytes()) {
        return Err(args.wrong(format!("`{word}` is no name of a header")));
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
