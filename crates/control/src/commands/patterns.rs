//! Pattern lists at run time: `show`, `add`, `del`, `set`, `clear` of ACLs and maps, and versions that are prepared separately and
//! committed atomically.

use std::fmt::Write;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use base::raw::{bytes_of, text_of};
use sample::pattern::{List, MatchMethod, NewLine as Entry, PatternLine};

use crate::invocation::{Call, CommandReply, error, info};
use crate::versions::PreparedVersions;

/// The number of lines shown before the worker yields.
const PORTION: usize = 256;
/// Lists longer than this are replaced on a separate thread.
const LONG: usize = 2000;

/// An ACL or a map, for which messages use different words.
#[derive(Clone, Copy, PartialEq, Eq)]
enum PatternKind {
    Acl,
    Map,
}

impl PatternKind {
    fn word(self) -> &'static str {
        match self {
            Self::Acl => "ACL",
            Self::Map => "map",
        }
    }
}

/// Parses the version (`@3`) and the list at the start of the arguments; also returns the number of words consumed.
fn list(call: &Call<'_>, kind: PatternKind) -> Result<(Option<u32>, Arc<List>, usize), CommandReply> {
    let (version, at) = match call.arg(0).strip_prefix('@') {
        Some(digits) => match digits.parse() {
            Ok(version) => (Some(version), 1),
            Err(_) => return Err(error("Version number expected after '@'.")),
        },
        None => (None, 0),
    };
    let found = call.runtime.view().patterns.find(call.arg(at));
    // ACL commands never touch a map, and vice versa.
    match found.filter(|list| list.is_map == (kind == PatternKind::Map)) {
        Some(list) => Ok((version, list, at + 1)),
        None => Err(error(format!("Unknown {} identifier. Please use #<id> or <file>.", kind.word()))),
    }
}

fn with_versions<R>(call: &Call<'_>, number: u32, work: impl FnOnce(&mut PreparedVersions) -> R) -> R {
    // After a panic elsewhere, all entries are complete.
    let mut versions = call.runtime.versions.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
    let prepared = versions.0.entry(number).or_default();
    let before = prepared.waiting();
    let result = work(prepared);
    // Wraps around if the number decreased; the lock keeps both in sync.
    call.runtime.statistics.waiting_patterns.fetch_add(prepared.waiting().wrapping_sub(before), Relaxed);
    result
}

fn show(call: &mut Call<'_>, kind: PatternKind) -> CommandReply {
    if call.args.is_empty() {
        return overview(call, kind);
    }
    match list(call, kind) {
        Ok((None, list, _)) => show_lines(list),
        Ok((Some(version), list, _)) => with_versions(call, list.number(), |prepared| {
            if version == prepared.current {
                return show_lines(Arc::clone(&list));
            }
            let mut out = String::new();
            for (id, (key, value)) in prepared.waiting.get(&version).into_iter().flatten().enumerate() {
                write_line(&mut out, &PatternLine { id: id as u64, key: key.clone(), value: value.clone() });
            }
            CommandReply::Text(out)
        }),
        Err(reply) => reply,
    }
}

/// Shows the lines of a list in batches; concurrent changes are visible.
fn show_lines(list: Arc<List>) -> CommandReply {
    let ids = list.ids();
    let mut shown = 0;
    CommandReply::Pieces(Box::new(std::iter::from_fn(move || {
        let portion = ids.get(shown..(shown + PORTION).min(ids.len())).filter(|ids| !ids.is_empty())?;
        shown += portion.len();
        let mut out = String::new();
        list.lines(portion).iter().for_each(|line| write_line(&mut out, line));
        Some(out)
    })))
}

fn write_line(out: &mut String, line: &PatternLine) {
    let (id, key) = (line.id, text_of(&line.key));
    let _ = match &line.value {
        Some(value) => writeln!(out, "{id:#x} {key} {}", text_of(value)),
        None => writeln!(out, "{id:#x} {key}"),
    };
}

fn overview(call: &Call<'_>, kind: PatternKind) -> CommandReply {
    let mut out = "# id (file) description\n".to_owned();
    let view = call.runtime.view();
    let mut lists: Vec<_> =
        view.patterns.lists().iter().filter(|l| l.is_map == (kind == PatternKind::Map)).collect();
    lists.sort_by_key(|list| list.number());
    for list in lists {
        let (current, next, waiting) = with_versions(call, list.number(), |prepared| {
            (prepared.current, prepared.next, prepared.waiting() as usize)
        });
        let (count, description) = (list.len() + waiting, list.description());
        let _ = writeln!(
            out,
            "{} ({}) {description}. curr_ver={current} next_ver={next} entry_cnt={count}",
            list.number(),
            list.name()
        );
    }
    CommandReply::Text(out)
}

/// Parses a payload's lines into entries: the first word is the key, the rest of a map's line its value.
fn payload_entries(payload: &str, kind: PatternKind) -> Result<Vec<Entry>, CommandReply> {
    let mut entries = Vec::new();
    for line in
        payload.lines().map(|line| line.trim_start_matches([' ', '\t'])).filter(|line| !line.is_empty())
    {
        let entry = match kind {
            PatternKind::Acl => (bytes_of(line).into(), None),
            PatternKind::Map => match line.split_once([' ', '\t']) {
                Some((key, value)) => {
                    (bytes_of(key).into(), Some(bytes_of(value.trim_start_matches([' ', '\t'])).into()))
                }
                None => return Err(error(format!("Missing value for the key '{line}'."))),
            },
        };
        entries.push(entry);
    }
    Ok(entries)
}

fn add(call: &mut Call<'_>, kind: PatternKind) -> CommandReply {
    let usage = match kind {
        PatternKind::Acl => "'add acl' expects two parameters: ACL identifier and pattern.",
        PatternKind::Map => {
            "'add map' expects three parameters (map identifier, key and value) or one parameter (map identifier) and a payload"
        }
    };
    if call.args.is_empty() {
        return error(usage);
    }
    let (version, list, at) = match list(call, kind) {
        Ok(found) => found,
        Err(reply) => return reply,
    };
    let (key, value) = (call.arg(at), call.arg(at + 1));
    let entries = match (kind, call.payload) {
        (_, Some(payload)) if key.is_empty() => match payload_entries(payload, kind) {
            Ok(entries) => entries,
            Err(reply) => return reply,
        },
        (_, None) if key.is_empty() => return error(usage),
        (PatternKind::Map, _) if value.is_empty() => return error(usage),
        (PatternKind::Map, _) => vec![(bytes_of(key).into(), Some(bytes_of(value).into()))],
        (PatternKind::Acl, _) => vec![(bytes_of(key).into(), None)],
    };
    if let Some(why) = entries.iter().find_map(|(key, _)| list.check(key).err()) {
        return error(format!("{}.", why.replace('`', "'")));
    }
    let values = entries.iter().filter_map(|(_, value)| value.as_deref());
    if let Some(why) = values.into_iter().find_map(|value| list.check_value(value).err()) {
        return error(why);
    }
    let add_now = |entries: Vec<Entry>| {
        entries.iter().for_each(|(key, value)| list.add(key, value.as_deref()));
        CommandReply::Done
    };
    let Some(version) = version else { return add_now(entries) };
    with_versions(call, list.number(), |prepared| match prepared.waiting.get_mut(&version) {
        Some(waiting) => {
            waiting.extend(entries);
            CommandReply::Done
        }
        None if version == prepared.current => add_now(entries),
        None if version > prepared.current => {
            let prepare = kind.word().to_lowercase();
            error(format!("Version number in the future, please use 'prepare {prepare}' before."))
        }
        None => error("Version number out of range."),
    })
}

fn prepare(call: &mut Call<'_>, kind: PatternKind) -> CommandReply {
    match list(call, kind) {
        Ok((_, list, _)) => with_versions(call, list.number(), |prepared| {
            prepared.next = prepared.next.wrapping_add(1);
            prepared.waiting.insert(prepared.next, Vec::new());
            info(format!("New version created: {}\n", prepared.next))
        }),
        Err(reply) => reply,
    }
}

fn commit(call: &mut Call<'_>, kind: PatternKind) -> CommandReply {
    let (version, list) = match list(call, kind) {
        Ok((Some(version), list, _)) => (version, list),
        Ok((None, ..)) => return error(format!("Missing version number for the {}.", kind.word())),
        Err(reply) => return reply,
    };
    let entries = with_versions(call, list.number(), |prepared| {
        let entries = prepared.waiting.remove(&version)?;
        prepared.current = version;
        // Versions older than the current one can no longer be committed.
        prepared.waiting.retain(|&other, _| other > version);
        Some(entries)
    });
    match entries {
        Some(entries) => replace(list, entries),
        None => error("Version number out of range."),
    }
}

/// Replaces all lines. Large indexes are built outside the worker.
fn replace(list: Arc<List>, entries: Vec<Entry>) -> CommandReply {
    if entries.len().max(list.len()) <= LONG {
        list.replace(entries);
        return CommandReply::Done;
    }
    CommandReply::Later(Box::pin(async move {
        match tokio::task::spawn_blocking(move || list.replace(entries)).await {
            Ok(()) => CommandReply::Done,
            Err(failed) => error(format!("The list was not replaced: {failed}.")),
        }
    }))
}

fn clear(call: &mut Call<'_>, kind: PatternKind) -> CommandReply {
    if call.args.is_empty() {
        return error(format!("Missing {} identifier.", kind.word()));
    }
    match list(call, kind) {
        Ok((None, list, _)) => replace(list, Vec::new()),
        Ok((Some(version), list, _)) => {
            let current = with_versions(call, list.number(), |prepared| {
                prepared.waiting.get_mut(&version).map(Vec::clear);
                version == prepared.current
            });
            if current { replace(list, Vec::new()) } else { CommandReply::Done }
        }
        Err(reply) => reply,
    }
}

/// Parses `#0x1f`, which refers to an entry by the number that `show` prints.
fn reference(text: &str) -> Option<u64> {
    u64::from_str_radix(text.strip_prefix("#0x")?, 16).ok()
}

fn delete(call: &mut Call<'_>, kind: PatternKind) -> CommandReply {
    if call.args.len() < 2 {
        let word = kind.word();
        return error(format!("This command expects two parameters: {word} identifier and key."));
    }
    let (_, list, at) = match list(call, kind) {
        Ok(found) => found,
        Err(reply) => return reply,
    };
    let key = call.arg(at);
    let removed = reference(key).map_or_else(|| list.remove(&bytes_of(key)), |id| list.remove_id(id));
    if removed { CommandReply::Done } else { error("Key not found.") }
}

pub(crate) fn set_map(call: &mut Call<'_>) -> CommandReply {
    if call.args.len() < 3 {
        return error("'set map' expects three parameters: map identifier, key and value.");
    }
    let (_, list, at) = match list(call, PatternKind::Map) {
        Ok(found) => found,
        Err(reply) => return reply,
    };
    let (key, value) = (call.arg(at), call.arg(at + 1));
    let value = bytes_of(value);
    if let Err(why) = list.check_value(&value) {
        return error(why);
    }
    let done = reference(key).map_or_else(|| list.set(&bytes_of(key), &value), |id| list.set_id(id, &value));
    if done { CommandReply::Done } else { error("entry not found.") }
}

pub(crate) fn show_acl(call: &mut Call<'_>) -> CommandReply {
    show(call, PatternKind::Acl)
}

pub(crate) fn show_map(call: &mut Call<'_>) -> CommandReply {
    show(call, PatternKind::Map)
}

pub(crate) fn add_acl(call: &mut Call<'_>) -> CommandReply {
    add(call, PatternKind::Acl)
}

pub(crate) fn add_map(call: &mut Call<'_>) -> CommandReply {
    add(call, PatternKind::Map)
}

pub(crate) fn del_acl(call: &mut Call<'_>) -> CommandReply {
    delete(call, PatternKind::Acl)
}

pub(crate) fn del_map(call: &mut Call<'_>) -> CommandReply {
    delete(call, PatternKind::Map)
}

pub(crate) fn clear_acl(call: &mut Call<'_>) -> CommandReply {
    clear(call, PatternKind::Acl)
}

pub(crate) fn clear_map(call: &mut Call<'_>) -> CommandReply {
    clear(call, PatternKind::Map)
}

pub(crate) fn prepare_acl(call: &mut Call<'_>) -> CommandReply {
    prepare(call, PatternKind::Acl)
}

pub(crate) fn prepare_map(call: &mut Call<'_>) -> CommandReply {
    prepare(call, PatternKind::Map)
}

pub(crate) fn commit_acl(call: &mut Call<'_>) -> CommandReply {
    commit(call, PatternKind::Acl)
}

pub(crate) fn commit_map(call: &mut Call<'_>) -> CommandReply {
    commit(call, PatternKind::Map)
}

/// `get map`, `get acl`: looks a value up in each view of the list.
fn get(call: &mut Call<'_>, kind: PatternKind) -> CommandReply {
    if call.args.len() < 2 {
        return error(format!("Missing {} identifier and/or key.", kind.word()));
    }
    let (_, list, at) = match list(call, kind) {
        Ok(found) => found,
        Err(reply) => return reply,
    };
    let (found, key) = if kind == PatternKind::Map { ("found", "key") } else { ("match", "pattern") };
    let mut out = String::new();
    for way in list.probe(&bytes_of(call.arg(at))) {
        let case = if way.ignore_case { "insensitive" } else { "sensitive" };
        let _ = write!(out, "type={}, case={case}", way.method.name());
        let Some(line) = way.line else {
            let _ = writeln!(out, ", {found}=no");
            continue;
        };
        use MatchMethod::{Dir, Dom, Len, Reg, Sub};
        let index = if matches!(way.method, Reg | Sub | Dir | Dom | Len) { "list" } else { "tree" };
        let _ = write!(out, ", {found}=yes, idx={index}, {key}=\"{}\"", text_of(&line.key));
        let _ = match (&line.value, kind) {
            (Some(value), _) => write!(out, ", value=\"{}\", type=\"str\"", text_of(value)),
            (None, PatternKind::Map) => write!(out, ", value=none"),
            (None, PatternKind::Acl) => Ok(()),
        };
        out.push('\n');
    }
    CommandReply::Text(out)
}

pub(crate) fn get_acl(call: &mut Call<'_>) -> CommandReply {
    get(call, PatternKind::Acl)
}

pub(crate) fn get_map(call: &mut Call<'_>) -> CommandReply {
    get(call, PatternKind::Map)
}
