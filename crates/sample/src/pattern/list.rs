//! A pattern list that can be changed while it is in use: its lines, and the indexes that views have built.

use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, Ordering::Relaxed};
use std::sync::{Arc, Mutex, OnceLock};

use crossbeam_utils::sync::ShardedLock;

use super::entries::{Entries, LineSlot, PatternEntry, Texts};
use super::exact::Keys;
use super::index::PatternIndex;
use super::method::MatchMethod;
use super::watch::{ListChange, Watcher, Watchers};
use crate::value::{Type, Value, parse_int, parse_ip};

/// The source of a list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ListOrigin {
    /// A file of that name.
    File(Box<str>),
    /// A list without a file, which only has a name (`virt@`).
    Virtual(Box<str>),
    /// The patterns of one ACL.
    Acl {
        /// The ACL's criterion.
        keyword: Box<str>,
        /// The file of the ACL.
        file: Box<str>,
        /// The ACL's line.
        line: u32,
    },
}

/// A line, as returned to callers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PatternLine {
    /// The ID of the line, unique in the list and shown by the runtime socket.
    pub id: u64,
    /// The pattern as configured.
    pub key: Box<[u8]>,
    /// The value of a map's line.
    pub value: Option<Box<[u8]>>,
}

impl From<PatternEntry<'_>> for PatternLine {
    fn from(entry: PatternEntry<'_>) -> Self {
        Self { id: entry.id, key: entry.key.into(), value: entry.value.map(Into::into) }
    }
}

/// A line to be added: the pattern, and the value for a map.
pub type NewLine = (Box<[u8]>, Option<Box<[u8]>>);

/// The result of looking up a value in one view of a list.
#[derive(Debug)]
pub struct PatternMatch {
    /// The match method.
    pub method: MatchMethod,
    /// Whether case is ignored.
    pub ignore_case: bool,
    /// The line that matched.
    pub line: Option<PatternLine>,
}

/// An index of the list for one match method.
#[derive(Debug)]
struct Indexed {
    method: MatchMethod,
    ignore_case: bool,
    /// `None`: the key table itself is the index.
    index: Option<PatternIndex>,
}

/// The lines and their indexes.
#[derive(Debug)]
struct Contents {
    entries: Entries,
    /// Finds lines by their literal key, for changes by key and for case-sensitive exact matches.
    keys: Keys,
    indexed: Vec<Indexed>,
}

/// The patterns of an ACL, which are matched without a lock as long as they are not changed.
#[derive(Debug)]
pub(crate) struct Fixed {
    entries: Entries,
    method: MatchMethod,
    ignore_case: bool,
}

/// A type that the values of a map have.
#[derive(Debug, Clone, Copy)]
pub(crate) enum ValueType {
    Int = 1,
    Address = 2,
}

impl ValueType {
    const ALL: [Self; 2] = [Self::Int, Self::Address];

    /// Whether a value has the type. An empty value is not an integer, but is accepted for one.
    fn accepts(self, value: &[u8]) -> bool {
        match self {
            Self::Int => value.is_empty() || parse_int(value).is_some(),
            Self::Address => parse_ip(value).is_some(),
        }
    }
}

/// A named list of patterns.
#[derive(Debug)]
pub struct List {
    /// The list's source.
    pub origin: ListOrigin,
    /// Whether the list has values.
    pub is_map: bool,
    /// The number shown by the runtime socket (`#3`); assigned while the configuration is read.
    pub(super) number: AtomicU32,
    /// The places where the configuration uses the list. Collected while the configuration is read.
    users: Mutex<String>,
    fixed: Option<Fixed>,
    /// Sharded, so that readers do not contend with each other. Built from an ACL's patterns when they are first shown or changed.
    contents: OnceLock<Box<ShardedLock<Contents>>>,
    /// Whether the list was ever changed. Until then, an ACL matches its fixed patterns.
    changed: AtomicBool,
    /// The types that values must have, as a bitmask. Collected while the configuration is read.
    value_types: AtomicU8,
    watchers: Watchers,
}

impl Contents {
    fn new(entries: Entries) -> Self {
        let mut keys = Keys::new(false);
        keys.reserve(entries.len(), &entries);
        entries.slots().for_each(|slot| keys.insert(slot, &entries));
        Self { entries, keys, indexed: Vec::new() }
    }

    /// Returns the index for a method, and builds it if necessary. If `strict` is set, a pattern that is invalid for the method
    /// is an error; otherwise, it never matches.
    fn index(&mut self, method: MatchMethod, ignore_case: bool, strict: bool) -> Result<usize, String> {
        let same = |other: &Indexed| (other.method, other.ignore_case) == (method, ignore_case);
        if let Some(at) = self.indexed.iter().position(same) {
            return Ok(at);
        }
        let index = if method == MatchMethod::Str && !ignore_case {
            None
        } else {
            let mut index = PatternIndex::new(method, ignore_case);
            index.reserve(self.entries.len(), &self.entries);
            for slot in self.entries.in_order() {
                match index.insert(slot, &self.entries) {
                    Err(error) if strict => return Err(error),
                    _ => {}
                }
            }
            Some(index)
        };
        self.indexed.push(Indexed { method, ignore_case, index });
        Ok(self.indexed.len() - 1)
    }

    #[inline]
    fn find(&self, at: usize, value: &Value<'_>, first: bool) -> Option<LineSlot> {
        let indexed = self.indexed.get(at)?;
        match (&indexed.index, value) {
            (Some(index), value) => index.find(value, first, &self.entries),
            (None, Value::Str(bytes) | Value::Bin(bytes) | Value::Method(bytes)) => {
                self.keys.find(bytes, &self.entries)
            }
            (None, _) => None,
        }
    }

    fn add(&mut self, key: &[u8], value: Option<&[u8]>) {
        let slot = self.entries.push(key, value);
        self.keys.insert(slot, &self.entries);
        for indexed in &mut self.indexed {
            // A pattern that is invalid for this method never matches in this index.
            let _ = indexed.index.as_mut().map(|index| index.insert(slot, &self.entries));
        }
    }

    fn remove(&mut self, slot: LineSlot) {
        self.keys.remove(slot, &self.entries);
        for index in self.indexed.iter_mut().filter_map(|indexed| indexed.index.as_mut()) {
            index.remove(slot, &self.entries);
        }
        self.entries.remove(slot);
    }

    fn with_key(&self, key: &[u8]) -> Vec<LineSlot> {
        self.keys.all(key, &self.entries).collect()
    }
}

impl List {
    pub(super) fn new(origin: ListOrigin, number: u32, is_map: bool, entries: Entries) -> Self {
        let list = Self::empty(origin, number, is_map, None);
        let _ = list.contents.set(Box::new(ShardedLock::new(Contents::new(entries))));
        list
    }

    pub(super) fn of_acl(
        origin: ListOrigin,
        number: u32,
        entries: Entries,
        method: MatchMethod,
        ignore_case: bool,
    ) -> Self {
        Self::empty(origin, number, false, Some(Fixed { entries, method, ignore_case }))
    }

    fn empty(origin: ListOrigin, number: u32, is_map: bool, fixed: Option<Fixed>) -> Self {
        Self {
            origin,
            is_map,
            number: AtomicU32::new(number),
            users: Mutex::default(),
            fixed,
            contents: OnceLock::new(),
            changed: AtomicBool::new(false),
            value_types: AtomicU8::new(0),
            watchers: Watchers::default(),
        }
    }

    /// The patterns of an ACL as configured.
    #[inline]
    pub(crate) fn fixed(&self) -> Option<&Entries> {
        self.fixed.as_ref().map(|fixed| &fixed.entries)
    }

    fn contents(&self) -> &ShardedLock<Contents> {
        self.contents.get_or_init(|| {
            let Some(fixed) = &self.fixed else {
                return Box::new(ShardedLock::new(Contents::new(Entries::default())));
            };
            let mut contents = Contents::new(fixed.entries.clone());
            // The ACL's own method comes first, because its patterns were checked.
            let _ = contents.index(fixed.method, fixed.ignore_case, false);
            Box::new(ShardedLock::new(contents))
        })
    }

    /// The number shown by the runtime socket.
    pub fn number(&self) -> u32 {
        self.number.load(Relaxed)
    }

    /// Records a use in the configuration: `acl` or `map`, file and line.
    pub fn note_user(&self, kind: &str, file: &str, line: u32) {
        let mut users = self.users.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        let joint = if users.is_empty() { "used by" } else { ", by" };
        users.push_str(&format!("{joint} {kind} at file '{file}' line {line}"));
    }

    /// The list and its users, in the format of `show map`.
    pub fn description(&self) -> String {
        let users = self.users.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        match &self.origin {
            ListOrigin::Acl { keyword, file, line } => format!("acl '{keyword}' file '{file}' line {line}"),
            ListOrigin::File(name) | ListOrigin::Virtual(name) => {
                format!("pattern loaded from file '{name}' {users}").trim_end().to_owned()
            }
        }
    }

    /// The name of the file or virtual list; empty for the patterns of an ACL.
    pub fn name(&self) -> &str {
        match &self.origin {
            ListOrigin::File(name) | ListOrigin::Virtual(name) => name,
            ListOrigin::Acl { .. } => "",
        }
    }

    fn read<R>(&self, read: impl FnOnce(&Contents) -> R) -> R {
        read(&self.contents().read().unwrap_or_else(|poisoned| poisoned.into_inner()))
    }

    fn change<R>(&self, change: impl FnOnce(&mut Contents) -> R) -> R {
        let result = change(&mut self.contents().write().unwrap_or_else(|poisoned| poisoned.into_inner()));
        self.changed.store(true, Relaxed);
        result
    }

    /// Whether the list was changed since the configuration was read.
    #[inline]
    pub fn is_changed(&self) -> bool {
        self.changed.load(Relaxed)
    }

    /// Looks up `text` in each view of the list in the configuration.
    pub fn probe(&self, text: &[u8]) -> Vec<PatternMatch> {
        let one = |contents: &Contents, at: usize, indexed: &Indexed| {
            let value = match indexed.method.expects() {
                Type::Any => Some(Value::str(text)),
                kind => Value::str(text).cast(kind),
            };
            let slot = value.and_then(|value| contents.find(at, &value, true));
            let line = slot.and_then(|slot| contents.entries.get(slot)).map(PatternLine::from);
            PatternMatch { method: indexed.method, ignore_case: indexed.ignore_case, line }
        };
        self.read(|contents| {
            contents.indexed.iter().enumerate().map(|(at, indexed)| one(contents, at, indexed)).collect()
        })
    }

    /// The slots of the lines in order, for retrieval in batches with [`lines`](Self::lines).
    pub fn ids(&self) -> Vec<LineSlot> {
        self.read(|contents| contents.entries.in_order())
    }

    /// The lines at `places`, which [`ids`](Self::ids) returned. Removed lines are skipped.
    pub fn lines(&self, places: &[LineSlot]) -> Vec<PatternLine> {
        self.read(|contents| {
            places.iter().filter_map(|slot| contents.entries.get(*slot)).map(PatternLine::from).collect()
        })
    }

    /// The first line of a map with a value that satisfies `is`. A missing value counts as empty.
    pub fn find_value(&self, is: impl Fn(&[u8]) -> bool) -> Option<PatternLine> {
        self.read(|contents| {
            let entries = &contents.entries;
            let mut lines = entries.in_order().into_iter().filter_map(|slot| entries.get(slot));
            lines.find(|entry| is(entry.value.unwrap_or_default())).map(PatternLine::from)
        })
    }

    /// The number of lines.
    pub fn len(&self) -> usize {
        self.read(|contents| contents.entries.len())
    }

    /// The number of lines ever added, and the current number.
    pub fn counts(&self) -> (u64, u64) {
        let of = |entries: &Entries| (entries.added(), entries.len() as u64);
        match (&self.fixed, self.contents.get()) {
            // The lines of an unchanged ACL are counted without copying them.
            (Some(fixed), None) => of(&fixed.entries),
            _ => self.read(|contents| of(&contents.entries)),
        }
    }

    /// Whether the list has no lines.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Adds a line at the end.
    pub fn add(&self, key: &[u8], value: Option<&[u8]>) {
        self.change(|contents| contents.add(key, value));
        self.watchers.notify(ListChange::Add);
    }

    /// Checks `key` as a pattern for every view of the list.
    ///
    /// # Errors
    /// The view for which the pattern is invalid, and the reason.
    pub fn check(&self, key: &[u8]) -> Result<(), String> {
        let mut entries = Entries::default();
        let slot = entries.push(key, None);
        let check = |indexed: &Indexed| match indexed.index {
            Some(_) => PatternIndex::new(indexed.method, indexed.ignore_case).insert(slot, &entries),
            None => Ok(()),
        };
        self.read(|contents| contents.indexed.iter().try_for_each(check))
    }

    /// Requires a type of all values, because a converter such as `map_str_int` uses the list. Returns a line with another value.
    pub(crate) fn require_values(&self, required: ValueType) -> Option<PatternLine> {
        self.value_types.fetch_or(required as u8, Relaxed);
        self.find_value(|value| !required.accepts(value))
    }

    /// Checks `value` for every converter that uses the list.
    ///
    /// # Errors
    /// The value does not have the type that a converter expects.
    pub fn check_value(&self, value: &[u8]) -> Result<(), String> {
        let types = self.value_types.load(Relaxed);
        let wrong = ValueType::ALL.into_iter().find(|own| types & *own as u8 != 0 && !own.accepts(value));
        wrong.map_or(Ok(()), |_| Err(format!("unable to parse '{}'.", base::raw::text_of(value))))
    }

    /// Adds `key` (`http-request add-acl`), unless it exists or is not a valid pattern for the list.
    pub fn add_once(&self, key: &[u8]) {
        let is_there = self.read(|contents| contents.keys.find(key, &contents.entries).is_some());
        if is_there || self.check(key).is_err() {
            return;
        }
        self.change(|contents| {
            if contents.keys.find(key, &contents.entries).is_none() {
                contents.add(key, None);
            }
        });
        self.watchers.notify(ListChange::Add);
    }

    /// Sets the value of every line with `key`. If no such line exists, adds one, provided that `key` is a valid pattern for the
    /// list (`http-request set-map`).
    pub fn set_or_add(&self, key: &[u8], value: &[u8]) {
        // The value is often unchanged, and skipping the write avoids blocking readers.
        let same = |contents: &Contents| {
            let mut slots = contents.keys.all(key, &contents.entries).peekable();
            slots.peek().is_some() && slots.all(|slot| contents.entries.value(slot) == Some(value))
        };
        if self.read(same) || self.check_value(value).is_err() {
            return;
        }
        let is_there = self.read(|contents| contents.keys.find(key, &contents.entries).is_some());
        if !is_there && self.check(key).is_err() {
            return;
        }
        let is_new = self.change(|contents| {
            let slots = contents.with_key(key);
            slots.iter().for_each(|slot| contents.entries.set_value(*slot, value));
            if slots.is_empty() {
                contents.add(key, Some(value));
            }
            slots.is_empty()
        });
        self.watchers.notify(if is_new { ListChange::Add } else { ListChange::Set });
    }

    /// Sets the value of every line with `key`. Returns whether there was a line.
    pub fn set(&self, key: &[u8], value: &[u8]) -> bool {
        let is_there = self.change(|contents| {
            let slots = contents.with_key(key);
            slots.iter().for_each(|slot| contents.entries.set_value(*slot, value));
            !slots.is_empty()
        });
        self.notify(is_there, ListChange::Set)
    }

    /// Notifies the watchers if something was changed.
    fn notify(&self, was_changed: bool, change: ListChange) -> bool {
        if was_changed {
            self.watchers.notify(change);
        }
        was_changed
    }

    /// Notifies `who` of these changes (a bitmask) as long as `who` exists.
    pub fn watch(&self, changes: u8, who: &Arc<dyn Watcher>) {
        self.watchers.add(changes, who);
    }

    /// The first line with `key`.
    pub fn line_of(&self, key: &[u8]) -> Option<PatternLine> {
        self.read(|contents| {
            let slot = contents.keys.find(key, &contents.entries)?;
            contents.entries.get(slot).map(PatternLine::from)
        })
    }

    /// Removes every line with `key`. Returns whether there was a line.
    pub fn remove(&self, key: &[u8]) -> bool {
        if self.read(|contents| contents.keys.find(key, &contents.entries).is_none()) {
            return false;
        }
        let was_there = self.change(|contents| {
            let slots = contents.with_key(key);
            slots.iter().for_each(|slot| contents.remove(*slot));
            !slots.is_empty()
        });
        self.notify(was_there, ListChange::Delete)
    }

    /// Sets the value of the line with that ID. Returns whether there was a line.
    pub fn set_id(&self, id: u64, value: &[u8]) -> bool {
        let is_there = self.change(|contents| {
            let found = contents.entries.find_id(id);
            found.inspect(|slot| contents.entries.set_value(*slot, value)).is_some()
        });
        self.notify(is_there, ListChange::Set)
    }

    /// Removes the line with that ID. Returns whether there was a line.
    pub fn remove_id(&self, id: u64) -> bool {
        let was_there = self.change(|contents| {
            let found = contents.entries.find_id(id);
            found.inspect(|slot| contents.remove(*slot)).is_some()
        });
        self.notify(was_there, ListChange::Delete)
    }

    /// Replaces all lines atomically (`commit map`): a lookup sees either the old or the new list. The new lines are built before
    /// the lock is taken, and the old ones are freed after it is released. This takes long for large lists, so do not call it on a
    /// worker.
    pub fn replace(&self, lines: Vec<NewLine>) {
        let ways = self.read(|contents| {
            contents.indexed.iter().map(|indexed| (indexed.method, indexed.ignore_case)).collect::<Vec<_>>()
        });
        let mut entries = Entries::default();
        self.read(|contents| entries.continue_from(&contents.entries));
        for (key, value) in &lines {
            entries.push(key, value.as_deref());
        }
        let mut new = Contents::new(entries);
        for (method, ignore_case) in ways {
            let _ = new.index(method, ignore_case, false);
        }
        let old = self.change(|contents| std::mem::replace(contents, new));
        drop(old);
        self.watchers.notify(if lines.is_empty() { ListChange::Clear } else { ListChange::Commit });
    }

    /// Removes all lines.
    pub fn clear(&self) {
        self.replace(Vec::new());
    }
}

/// A list as used by one match method.
#[derive(Debug)]
pub struct View {
    list: Arc<List>,
    /// The number of the view's index in the list.
    at: usize,
}

impl View {
    /// Creates a view of `list`. Returns an error if a pattern is invalid for this method.
    pub fn new(list: Arc<List>, method: MatchMethod, ignore_case: bool) -> Result<Self, String> {
        let mut contents = list.contents().write().unwrap_or_else(|poisoned| poisoned.into_inner());
        let at = contents.index(method, ignore_case, true)?;
        drop(contents);
        Ok(Self { list, at })
    }

    /// The list.
    pub fn list(&self) -> &Arc<List> {
        &self.list
    }

    /// The patterns of an ACL, including changes.
    pub(crate) fn of_acl(list: Arc<List>) -> Self {
        Self { list, at: 0 }
    }

    /// Whether a pattern matches `value`, which has the type that the method expects.
    pub fn matches(&self, value: &Value<'_>) -> bool {
        self.list.read(|contents| contents.find(self.at, value, false).is_some())
    }

    /// Passes the map's value for `value` to `take`.
    pub fn lookup<R>(&self, value: &Value<'_>, take: impl FnOnce(&[u8]) -> R) -> Option<R> {
        self.list.read(|contents| {
            let slot = contents.find(self.at, value, true)?;
            contents.entries.value(slot).map(take)
        })
    }

    /// Passes the matching key to `take` (`map_*_key`).
    pub fn lookup_key<R>(&self, value: &Value<'_>, take: impl FnOnce(&[u8]) -> R) -> Option<R> {
        self.list.read(|contents| {
            let slot = contents.find(self.at, value, true)?;
            Some(take(contents.entries.text(slot)))
        })
    }

    /// Expands the template of the first regular expression that matches (`map_regm`).
    pub fn expand(&self, bytes: &[u8], out: &mut Vec<u8>) -> bool {
        self.list.read(|contents| {
            let Some(Indexed { index: Some(PatternIndex::Regex(regexes)), .. }) =
                contents.indexed.get(self.at)
            else {
                return false;
            };
            let Some(slot) = regexes.find(bytes, true, &contents.entries) else { return false };
            let template = contents.entries.value(slot);
            template.is_some_and(|template| regexes.expand(slot, bytes, template, out))
        })
    }
}

#[cfg(test)]
mod tests;
