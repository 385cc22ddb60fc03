//! `show cache` (management manual, 9.3): the caches and their contents. `clear cache` empties them.

use std::fmt::Write;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use base::clock::now_ms;
use cache::{Entry, FileCounts, Object, Purge, Store, StoreFiles};

use crate::invocation::{Call, CommandReply, error};

/// The number of objects per output piece.
const PORTION: usize = 100;

pub(crate) fn show(call: &mut Call<'_>) -> CommandReply {
    let stores = call.runtime.view().caches.clone();
    CommandReply::Pieces(Box::new(stores.into_iter().flat_map(pieces)))
}

/// `clear cache <name> [ key <key> | prefix <prefix> | tag <tag> ]`.
pub(crate) fn clear(call: &mut Call<'_>) -> CommandReply {
    let view = call.runtime.view();
    let Some(store) = view.caches.iter().find(|store| *store.settings.name == *call.arg(0)) else {
        return error("No such cache\n");
    };
    let what = base::raw::bytes_of(call.arg(2));
    let purge = match (call.arg(1), what.is_empty()) {
        ("", _) => Purge::All,
        ("key", false) => Purge::Key(&what),
        ("prefix", false) => Purge::Prefix(&what),
        ("tag", false) if store.settings.tags.is_none() => {
            return error("Purging by tag is not enabled for this cache: its section has no 'purge-tags'\n");
        }
        ("tag", false) => Purge::Tag(&what),
        _ => {
            return error(
                "Required arguments: <cache> [ key <host/target> | prefix <host/target> | tag <tag> ]\n",
            );
        }
    };
    CommandReply::Text(format!("{} objects removed\n", store.purge(&purge)))
}

fn pieces(store: Arc<Store>) -> impl Iterator<Item = String> {
    let at = Arc::as_ptr(&store);
    let first =
        format!("{at:p}: {} (shctx:{at:p}, available blocks:{})\n", store.settings.name, store.free());
    let files = store.files.clone();
    let mut objects = store.objects().into_iter();
    let rest = std::iter::from_fn(move || {
        let portion: Vec<Arc<Object>> = objects.by_ref().take(PORTION).collect();
        (!portion.is_empty()).then(|| lines(&portion))
    });
    let on_disk = files.into_iter().flat_map(of_files);
    std::iter::once(first).chain(rest).chain(on_disk)
}

/// The output about a cache's files.
fn of_files(files: Arc<StoreFiles>) -> impl Iterator<Item = String> {
    let count = |count: &AtomicU64| count.load(Relaxed);
    let FileCounts { hits, written, evicted, passed, wrong, errors } = &files.counts;
    let mut entries = files.entries().into_iter();
    let first = format!(
        "disk {}: {}, files:{} size:{}/{} hits:{} written:{} evicted:{} passed:{} wrong:{} errors:{}\n",
        files.settings.directory,
        if files.is_open() { "in use" } else { "not in use" },
        entries.len(),
        files.bytes(),
        files.settings.size,
        count(hits),
        count(written),
        count(evicted),
        count(passed),
        count(wrong),
        count(errors),
    );
    let rest = std::iter::from_fn(move || {
        let portion: Vec<Arc<Entry>> = entries.by_ref().take(PORTION).collect();
        (!portion.is_empty()).then(|| lines_of_files(&portion))
    });
    std::iter::once(first).chain(rest)
}

/// The lines of fresh entries.
fn lines_of_files(entries: &[Arc<Entry>]) -> String {
    let mut out = String::new();
    for entry in entries.iter().filter(|entry| entry.expires(now_ms()) > 0) {
        // Writing to text cannot fail.
        let _ = writeln!(
            out,
            "{:016x} hash:{} vary:0x{:016x} type:disk size:{}, expire:{}",
            entry.number,
            entry.hash(),
            entry.variant(),
            entry.size,
            entry.expires(now_ms())
        );
    }
    out
}

/// The lines of fresh objects, as in HAProxy.
fn lines(objects: &[Arc<Object>]) -> String {
    let mut out = String::new();
    for object in objects {
        let own = object.shown(now_ms());
        if own.expires <= 0 {
            continue;
        }
        let kind = if own.is_hints { "hints" } else { "full" };
        // Three references belong to the cache itself and to this list.
        let users = Arc::strong_count(object).saturating_sub(3);
        // Writing to text cannot fail.
        let _ = writeln!(
            out,
            "{:p} hash:{} vary:0x{:016x} type:{kind} size:{} ({} blocks), refcount:{users}, expire:{}",
            Arc::as_ptr(object),
            own.hash,
            own.variant,
            own.size,
            own.blocks,
            own.expires
        );
    }
    out
}
