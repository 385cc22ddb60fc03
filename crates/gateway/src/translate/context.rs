//! The state of a translation.

use std::collections::{BTreeMap, BTreeSet};

use crate::objects::{Key, Objects};
use crate::output::{ObjectEvent, StatusUpdate};
use crate::settings::{ListenAddress, Settings};
use crate::text::digest;

use super::grants::Grants;
use super::policy_table::Policies;

/// The objects and settings of a translation, and the results so far.
pub(crate) struct Context<'a> {
    pub(crate) objects: &'a Objects,
    pub(crate) settings: &'a Settings,
    /// The addresses of the settings: those for all gateways, then those for single ones.
    pub(crate) addresses: Vec<&'a ListenAddress>,
    pub(crate) grants: Grants<'a>,
    pub(crate) policies: Policies<'a>,
    pub(crate) files: BTreeMap<String, Vec<u8>>,
    pub(crate) statuses: Vec<StatusUpdate>,
    pub(crate) events: BTreeSet<ObjectEvent>,
    /// Whether a rule uses an authorization service.
    pub(crate) authorizes: bool,
    /// User lists: the lines, keyed by list name.
    pub(crate) users: BTreeMap<String, Vec<String>>,
}

impl<'a> Context<'a> {
    pub(crate) fn new(objects: &'a Objects, settings: &'a Settings) -> Self {
        Self {
            objects,
            settings,
            addresses: settings.addresses.iter().chain(settings.placements.values()).collect(),
            grants: Grants::new(objects),
            policies: Policies::default(),
            files: BTreeMap::new(),
            statuses: Vec::new(),
            events: BTreeSet::new(),
            authorizes: false,
            users: BTreeMap::new(),
        }
    }

    /// Adds a file with a name that depends on its content, and returns its absolute path.
    pub(crate) fn add_map(&mut self, name: &str, content: String) -> String {
        let relative = format!("maps/{name}-{}.map", digest(&content));
        self.add_file(relative, content)
    }

    /// Adds a file and returns its absolute path.
    pub(crate) fn add_file(&mut self, relative: String, content: String) -> String {
        let path = self.path(&relative);
        self.files.insert(relative, content.into_bytes());
        path
    }

    /// Adds a map for `map_end`, which takes the first key that fits: longer ones come first.
    pub(crate) fn add_suffix_map(&mut self, name: &str, mut lines: Vec<(String, String)>) -> String {
        lines.sort_by(|(one, _), (other, _)| (other.len(), one).cmp(&(one.len(), other)));
        self.add_map(name, lines.iter().map(|(suffix, value)| format!("{suffix} {value}\n")).collect())
    }

    /// The absolute path of a file.
    pub(crate) fn path(&self, relative: &str) -> String {
        format!("{}/{relative}", self.settings.directory.trim_end_matches('/'))
    }

    /// Adds a warning about an object.
    pub(crate) fn warn(&mut self, kind: &'static str, key: &Key, reason: &str, message: impl Into<String>) {
        let (key, reason, message) = (key.clone(), reason.into(), message.into());
        self.events.insert(ObjectEvent { kind, key, is_warning: true, reason, message });
    }
}
