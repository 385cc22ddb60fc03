//! The pattern lists of a plan, by name and number: files, virtual lists, and the patterns of each ACL.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use super::entries::Entries;
use super::list::{List, ListOrigin};
use super::method::MatchMethod;

/// The lists of a plan.
#[derive(Debug, Default, Clone)]
pub struct PatternSets {
    lists: Vec<Arc<List>>,
    named: HashMap<Box<str>, usize>,
    /// Files that could not be read and to which only run-time changes refer, with the reason.
    unread: HashMap<Box<str>, String>,
    /// Numbers requested with `-u`, by the index of their list.
    wanted: HashMap<usize, u32>,
}

impl PatternSets {
    /// The list of a file (`file@`, the default), of an optional file (`opt@`), or without a file (`virt@`). The list
    /// is the only owner of the bytes that `read` returns.
    pub fn file(
        &mut self,
        name: &str,
        is_map: bool,
        read: impl FnOnce(&str) -> Result<Vec<u8>, String>,
    ) -> Result<Arc<List>, String> {
        let (path, optional, is_virtual) = match name.split_once('@') {
            Some(("file", path)) => (path, false, false),
            Some(("opt", path)) => (path, true, false),
            Some(("virt", _)) => (name, true, true),
            _ => (name, false, false),
        };
        if let Some(list) = self.named.get(path).and_then(|at| self.lists.get(*at)) {
            if list.is_map != is_map && !is_virtual {
                let (was, now) = if is_map { ("ACL patterns", "a map") } else { ("a map", "ACL patterns") };
                return Err(format!("`{path}` is already used as {was} and cannot be used as {now}"));
            }
            if let Some(error) = self.unread.get(path).filter(|_| !optional) {
                return Err(error.clone());
            }
            return Ok(Arc::clone(list));
        }
        if is_virtual {
            return Ok(self.register(ListOrigin::Virtual(path.into()), is_map, Entries::default()));
        }
        let failed = |error: String| format!("failed to open pattern file <{path}>: {error}");
        let entries = match read(path) {
            Ok(text) => Entries::load(text, is_map).map_err(failed)?,
            Err(_) if optional => Entries::default(),
            Err(error) => return Err(failed(error)),
        };
        Ok(self.register(ListOrigin::File(path.into()), is_map, entries))
    }

    /// The list of a file that rules change (`set-map` and similar actions). The file may be missing; the list is then empty,
    /// unless a lookup uses it as well.
    pub fn changed(
        &mut self,
        name: &str,
        is_map: bool,
        read: impl FnOnce(&str) -> Result<Vec<u8>, String>,
    ) -> Result<Arc<List>, String> {
        let path = name.strip_prefix("file@").unwrap_or(name);
        if let Some(list) = self.unread.get(path).and_then(|_| self.lists.get(*self.named.get(path)?))
            && list.is_map == is_map
        {
            return Ok(Arc::clone(list));
        }
        let mut unread = None;
        let list = self.file(name, is_map, |path| {
            read(path).or_else(|error| {
                unread = Some(format!("failed to open pattern file <{path}>: {error}"));
                Ok(Vec::new())
            })
        })?;
        if let Some(error) = unread {
            self.unread.insert(path.into(), error);
        }
        Ok(list)
    }

    fn register(&mut self, origin: ListOrigin, is_map: bool, entries: Entries) -> Arc<List> {
        if let ListOrigin::File(name) | ListOrigin::Virtual(name) = &origin {
            self.named.insert(name.clone(), self.lists.len());
        }
        self.push(List::new(origin, self.lists.len() as u32, is_map, entries))
    }

    fn push(&mut self, list: List) -> Arc<List> {
        let list = Arc::new(list);
        self.lists.push(Arc::clone(&list));
        list
    }

    /// The patterns of an ACL as a list, with the number requested with `-u`, which must be unused.
    pub(crate) fn acl(
        &mut self,
        origin: ListOrigin,
        words: &[String],
        method: MatchMethod,
        ignore_case: bool,
        number: Option<u32>,
    ) -> Result<Arc<List>, String> {
        let mut entries = Entries::default();
        words.iter().for_each(|word| {
            entries.push(&base::raw::bytes_of(word), None);
        });
        if let Some(number) = number {
            if self.wanted.values().any(|other| *other == number) {
                return Err(format!("number {number} is already used by another ACL"));
            }
            self.wanted.insert(self.lists.len(), number);
        }
        Ok(self.push(List::of_acl(origin, self.lists.len() as u32, entries, method, ignore_case)))
    }

    /// Numbers the lists: requested numbers first, then free ones in configuration order.
    pub fn finish(&mut self) {
        let taken: HashSet<u32> = self.wanted.values().copied().collect();
        let mut free = (0..).filter(|number| !taken.contains(number));
        for (at, list) in self.lists.iter().enumerate() {
            let number = self.wanted.get(&at).copied().or_else(|| free.next());
            list.number.store(number.unwrap_or(at as u32), Relaxed);
        }
    }

    /// Looks up a list by name or `#number`.
    pub fn find(&self, name: &str) -> Option<Arc<List>> {
        let found = match name.strip_prefix('#').and_then(|number| number.parse::<u32>().ok()) {
            Some(number) => self.lists.iter().find(|list| list.number() == number),
            None => self.named.get(name).and_then(|at| self.lists.get(*at)),
        };
        found.cloned()
    }

    /// All lists, in the order of their numbers.
    pub fn lists(&self) -> &[Arc<List>] {
        &self.lists
    }
}
