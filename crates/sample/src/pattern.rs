//! Patterns by kind (manual, 7.1): what a value is compared with, and the lists they come from.
//!
//! A [`List`] is the text of a pattern file, a map or the words of one ACL: named, shared between ACLs and maps, changed by
//! the runtime socket and by rules (`add-acl`, `set-map`). A [`View`] is one way to look into a list: a match method,
//! with or without case, compiled into the structure that answers fastest. A view notices by a version number that its
//! list changed and compiles itself anew at the next lookup.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, OnceLock, RwLock};

use arc_swap::ArcSwap;

use crate::env::Names;
pub use crate::index::{Index, Range};
use crate::regex::Regex;
use crate::value::{Type, Value};

/// A match method (`-m`).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[allow(missing_docs)]
pub enum Method {
    Found,
    Bool,
    Int,
    Ip,
    Bin,
    Len,
    Str,
    Sub,
    Reg,
    Beg,
    End,
    Dir,
    Dom,
}

/// Name, method, and the type the value is cast to before it is compared.
const METHODS: &[(&str, Method, Type)] = &[
    ("found", Method::Found, Type::Any),
    ("bool", Method::Bool, Type::Bool),
    ("int", Method::Int, Type::Int),
    ("ip", Method::Ip, Type::Addr),
    ("bin", Method::Bin, Type::Bin),
    ("len", Method::Len, Type::Str),
    ("str", Method::Str, Type::Str),
    ("sub", Method::Sub, Type::Str),
    ("reg", Method::Reg, Type::Str),
    ("beg", Method::Beg, Type::Str),
    ("end", Method::End, Type::Str),
    ("dir", Method::Dir, Type::Str),
    ("dom", Method::Dom, Type::Str),
];

impl Method {
    /// The method of that name.
    pub fn parse(name: &str) -> Option<Self> {
        METHODS.iter().find(|row| row.0 == name).map(|row| row.1)
    }

    /// Its name.
    pub fn name(self) -> &'static str {
        METHODS.iter().find(|row| row.1 == self).map_or("", |row| row.0)
    }

    /// All names, for messages.
    pub fn names() -> impl Iterator<Item = &'static str> {
        METHODS.iter().map(|row| row.0)
    }

    /// The method that a type implies; `None` where `-m` is needed.
    pub fn implied_by(kind: Type) -> Option<Self> {
        match kind {
            Type::Bool => Some(Self::Bool),
            Type::Int => Some(Self::Int),
            Type::Addr | Type::Ip4 | Type::Ip6 => Some(Self::Ip),
            Type::Str | Type::Method => Some(Self::Str),
            Type::Bin | Type::Any | Type::Same => None,
        }
    }

    /// The type a value is cast to.
    pub fn expects(self) -> Type {
        METHODS.iter().find(|row| row.1 == self).map_or(Type::Any, |row| row.2)
    }

    /// Whether patterns may follow.
    pub fn takes_patterns(self) -> bool {
        !matches!(self, Self::Found | Self::Bool)
    }
}

/// One line of a list.
#[derive(Clone, Debug)]
pub struct Entry {
    /// Unique in the list, shown by the runtime socket.
    pub id: u64,
    /// The pattern as written.
    pub key: Box<str>,
    /// The value of a map's line.
    pub value: Option<Box<str>>,
}

/// A named list of patterns.
#[derive(Debug)]
pub struct List {
    /// The name of its file, or of the virtual list; empty for the words of one ACL.
    pub name: Box<str>,
    /// Number shown by the runtime socket (`#3`).
    pub number: u32,
    /// Whether it has values.
    pub is_map: bool,
    entries: RwLock<Vec<Entry>>,
    version: AtomicU64,
    next_id: AtomicU64,
    /// The ways in which the configuration looks into it: method, and whether case is ignored.
    uses: RwLock<Vec<(Method, bool)>>,
}

impl List {
    fn new(name: &str, number: u32, is_map: bool) -> Self {
        Self {
            name: name.into(),
            number,
            is_map,
            entries: RwLock::default(),
            version: AtomicU64::new(1),
            next_id: AtomicU64::new(1),
            uses: RwLock::default(),
        }
    }

    /// The ways in which the configuration looks into it: method, and whether case is ignored.
    pub fn uses(&self) -> Vec<(Method, bool)> {
        self.uses.read().unwrap_or_else(|poisoned| poisoned.into_inner()).clone()
    }

    fn note_use(&self, method: Method, ignore_case: bool) {
        let mut uses = self.uses.write().unwrap_or_else(|poisoned| poisoned.into_inner());
        if !uses.contains(&(method, ignore_case)) {
            uses.push((method, ignore_case));
        }
    }

    /// The entry that `text` matches in one of those ways; an index is built for this one question.
    pub fn probe(&self, method: Method, ignore_case: bool, text: &str) -> Option<Entry> {
        let built = View::build(self, method, ignore_case, false).ok()?;
        let value = match method.expects() {
            Type::Any => Value::str(text.as_bytes()),
            kind => Value::str(text.as_bytes()).cast(kind)?,
        };
        let at = built.index.find(&value, true)?;
        built.entries.get(at).cloned()
    }

    /// The entries now.
    pub fn entries(&self) -> Vec<Entry> {
        self.entries.read().unwrap_or_else(|poisoned| poisoned.into_inner()).clone()
    }

    /// How many entries there are.
    pub fn len(&self) -> usize {
        self.entries.read().unwrap_or_else(|poisoned| poisoned.into_inner()).len()
    }

    /// Whether there is no entry.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    fn change<R>(&self, change: impl FnOnce(&mut Vec<Entry>) -> R) -> R {
        let mut entries = self.entries.write().unwrap_or_else(|poisoned| poisoned.into_inner());
        let result = change(&mut entries);
        self.version.fetch_add(1, Relaxed);
        result
    }

    /// Adds an entry at the end.
    pub fn add(&self, key: &str, value: Option<&str>) {
        let id = self.next_id.fetch_add(1, Relaxed);
        self.change(|entries| entries.push(Entry { id, key: key.into(), value: value.map(Into::into) }));
    }

    /// Adds `key` unless it is there (`http-request add-acl`).
    pub fn add_once(&self, key: &str) {
        let there = self.entries.read().unwrap_or_else(|poisoned| poisoned.into_inner());
        if there.iter().any(|entry| &*entry.key == key) {
            return;
        }
        drop(there);
        self.add(key, None);
    }

    /// Sets the value of every entry with `key`, or adds one (`http-request set-map`).
    pub fn set_or_add(&self, key: &str, value: &str) {
        if !self.set(key, value) {
            self.add(key, Some(value));
        }
    }

    /// Sets the value of every entry with `key`; says whether there was one.
    pub fn set(&self, key: &str, value: &str) -> bool {
        self.change(|entries| {
            let mut found = false;
            for entry in entries.iter_mut().filter(|entry| &*entry.key == key) {
                entry.value = Some(value.into());
                found = true;
            }
            found
        })
    }

    /// Removes every entry with `key`; says whether there was one.
    pub fn remove(&self, key: &str) -> bool {
        self.change(|entries| {
            let before = entries.len();
            entries.retain(|entry| &*entry.key != key);
            entries.len() != before
        })
    }

    /// Sets the value of the entry with that id; says whether there is one.
    pub fn set_id(&self, id: u64, value: &str) -> bool {
        self.change(|entries| match entries.iter_mut().find(|entry| entry.id == id) {
            Some(entry) => {
                entry.value = Some(value.into());
                true
            }
            None => false,
        })
    }

    /// Removes the entry with that id; says whether there was one.
    pub fn remove_id(&self, id: u64) -> bool {
        self.change(|entries| {
            let before = entries.len();
            entries.retain(|entry| entry.id != id);
            entries.len() != before
        })
    }

    /// Replaces all entries at once (`commit map`): no lookup sees a mixture.
    pub fn replace(&self, lines: Vec<(Box<str>, Option<Box<str>>)>) {
        let first = self.next_id.fetch_add(lines.len() as u64, Relaxed);
        let new = lines.into_iter().zip(first..).map(|((key, value), id)| Entry { id, key, value }).collect();
        self.change(|entries| *entries = new);
    }

    /// Removes all entries.
    pub fn clear(&self) {
        self.change(Vec::clear);
    }

    fn load(&self, text: &str, split_values: bool) {
        for line in text.lines() {
            let line = line.trim_start_matches([' ', '\t']).trim_end_matches('\r');
            // A sharp that had a space before it is a pattern, as the manual's advice for such patterns goes.
            if line.is_empty() || (line.starts_with('#') && !text_starts_with_blank(text, line)) {
                continue;
            }
            if split_values {
                let (key, value) = line.split_once([' ', '\t']).unwrap_or((line, ""));
                self.add(key, Some(value.trim_start_matches([' ', '\t'])));
            } else {
                self.add(line, None);
            }
        }
    }
}

/// Whether `line`, a part of `text`, stands after a blank.
fn text_starts_with_blank(text: &str, line: &str) -> bool {
    let at = line.as_ptr() as usize - text.as_ptr() as usize;
    at > 0 && matches!(text.as_bytes()[at - 1], b' ' | b'\t')
}

/// The lists of a plan.
#[derive(Debug, Default)]
pub struct PatternSets {
    lists: Vec<Arc<List>>,
}

impl PatternSets {
    /// The list of a file (`file@`, the default), of a file that may be missing (`opt@`), or of no file (`virt@`).
    pub fn file(&mut self, name: &str, is_map: bool, names: &dyn Names) -> Result<Arc<List>, String> {
        let (path, optional, is_virtual) = match name.split_once('@') {
            Some(("file", path)) => (path, false, false),
            Some(("opt", path)) => (path, true, false),
            Some(("virt", _)) => (name, true, true),
            _ => (name, false, false),
        };
        if let Some(list) = self.find(path) {
            if list.is_map != is_map && !is_virtual {
                let (was, now) = if is_map { ("ACL patterns", "a map") } else { ("a map", "ACL patterns") };
                return Err(format!("`{path}` is already used as {was} and cannot be used as {now}"));
            }
            return Ok(list);
        }
        let list = self.register(path, is_map);
        if !is_virtual {
            match names.read_file(path) {
                Ok(text) => list.load(&base::raw::text_of(&text), is_map),
                Err(_) if optional => {}
                Err(error) => return Err(format!("cannot read the patterns in `{path}`: {error}")),
            }
        }
        Ok(list)
    }

    /// A list of no file: the words of one ACL.
    pub fn inline(&mut self) -> Arc<List> {
        self.register("", false)
    }

    fn register(&mut self, name: &str, is_map: bool) -> Arc<List> {
        let list = Arc::new(List::new(name, self.lists.len() as u32, is_map));
        self.lists.push(Arc::clone(&list));
        list
    }

    /// The list of that name, or `#number`.
    pub fn find(&self, name: &str) -> Option<Arc<List>> {
        let found = match name.strip_prefix('#').and_then(|number| number.parse::<u32>().ok()) {
            Some(number) => self.lists.iter().find(|list| list.number == number),
            None => self.lists.iter().find(|list| !list.name.is_empty() && &*list.name == name),
        };
        found.cloned()
    }

    /// All lists, in the order of their numbers.
    pub fn lists(&self) -> &[Arc<List>] {
        &self.lists
    }
}

/// A list as one match method sees it.
#[derive(Debug)]
pub struct View {
    list: Arc<List>,
    method: Method,
    ignore_case: bool,
    built: ArcSwap<Built>,
}

#[derive(Debug)]
struct Built {
    version: u64,
    index: Index,
    entries: Box<[Entry]>,
    /// The keys as single expressions, made when `map_regm` first asks for what one captured.
    regexes: OnceLock<Box<[Option<Regex>]>>,
}

impl View {
    /// Looks into `list`; the error names the pattern that this method cannot take.
    pub fn new(list: Arc<List>, method: Method, ignore_case: bool) -> Result<Self, String> {
        let built = Self::build(&list, method, ignore_case, true)?;
        list.note_use(method, ignore_case);
        Ok(Self { list, method, ignore_case, built: ArcSwap::from_pointee(built) })
    }

    fn build(list: &List, method: Method, ignore_case: bool, strict: bool) -> Result<Built, String> {
        let version = list.version.load(Relaxed);
        let mut entries = list.entries();
        if !strict {
            // Added at run time by a rule: a pattern this method cannot take never matches.
            entries.retain(|entry| Index::new(method, ignore_case, [&*entry.key]).is_ok());
        }
        let index = Index::new(method, ignore_case, entries.iter().map(|entry| &*entry.key))?;
        Ok(Built { version, index, entries: entries.into(), regexes: OnceLock::new() })
    }

    /// The list.
    pub fn list(&self) -> &Arc<List> {
        &self.list
    }

    fn current(&self) -> arc_swap::Guard<Arc<Built>> {
        let built = self.built.load();
        if built.version == self.list.version.load(Relaxed) {
            return built;
        }
        if let Ok(fresh) = Self::build(&self.list, self.method, self.ignore_case, false) {
            self.built.store(Arc::new(fresh));
        }
        self.built.load()
    }

    /// Whether a pattern matches `value`, which has the type the method expects.
    pub fn matches(&self, value: &Value<'_>) -> bool {
        self.current().index.find(value, false).is_some()
    }

    /// The map's value for `value`, handed to `take`.
    pub fn lookup<R>(&self, value: &Value<'_>, take: impl FnOnce(&str) -> R) -> Option<R> {
        let built = self.current();
        let at = built.index.find(value, true)?;
        built.entries.get(at)?.value.as_deref().map(take)
    }

    /// Likewise the key that matched (`map_*_key`).
    pub fn lookup_key<R>(&self, value: &Value<'_>, take: impl FnOnce(&str) -> R) -> Option<R> {
        let built = self.current();
        let at = built.index.find(value, true)?;
        built.entries.get(at).map(|entry| take(&entry.key))
    }

    /// The template of the first regular expression that matches, with its references filled (`map_regm`).
    pub fn expand(&self, bytes: &[u8], out: &mut Vec<u8>) -> bool {
        let built = self.current();
        let Some(at) = built.index.find(&Value::str(bytes), true) else { return false };
        let compile = |entry: &Entry| Regex::new(&entry.key, self.ignore_case).ok();
        let regexes = built.regexes.get_or_init(|| built.entries.iter().map(compile).collect());
        let (Some(Some(regex)), Some(entry)) = (regexes.get(at), built.entries.get(at)) else { return false };
        entry
            .value
            .as_deref()
            .is_some_and(|template| regex.expand(bytes, &base::raw::bytes_of(template), out))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_view_sees_what_is_added_to_its_list() {
        let mut sets = PatternSets::default();
        let list = sets.register("virt@m", true);
        list.add("a", Some("1"));
        let view = View::new(Arc::clone(&list), Method::Str, false).unwrap();
        let look = |key: &str| view.lookup(&Value::str(key.as_bytes()), str::to_owned);
        assert_eq!(look("a").as_deref(), Some("1"));
        assert_eq!(look("b"), None);
        list.set_or_add("b", "2");
        list.set_or_add("a", "3");
        assert_eq!((look("a").as_deref(), look("b").as_deref()), (Some("3"), Some("2")));
        list.remove("a");
        assert_eq!(look("a"), None);
    }

    #[test]
    fn a_pattern_file_skips_comments_and_blank_lines() {
        let list = List::new("f", 0, true);
        list.load("# comment\n\n  key  value with spaces\r\n #sharp x\nlone\n", true);
        let entries: Vec<_> =
            list.entries().into_iter().map(|e| (e.key, e.value.unwrap_or_default())).collect();
        let expected =
            [("key", "value with spaces"), ("#sharp", "x"), ("lone", "")].map(|(k, v)| (k.into(), v.into()));
        assert_eq!(entries, expected);
    }
}
