//! Which certificate answers which name: exact names, wildcards of one label, defaults (manual, 5.1 `crt`, `crt-list`).

use std::collections::HashMap;

use crate::engine::key::KeyKind;

/// Certificates of one name, by place, in the order of the configuration.
#[derive(Debug, Default)]
struct Named {
    entries: Vec<u32>,
    /// Whether a filter says that the name is none of its certificate's (`!name`).
    is_excluded: bool,
}

/// All names of a listener.
#[derive(Debug, Default)]
pub(crate) struct Index {
    exact: HashMap<Box<str>, Named>,
    /// By what stands behind `*`, with its dot.
    wild: HashMap<Box<str>, Named>,
    defaults: Vec<u32>,
    kinds: Vec<KeyKind>,
}

/// Which kinds of keys a client takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Wanted {
    pub(crate) ecdsa: bool,
    pub(crate) rsa: bool,
}

impl Index {
    /// Of each certificate the kind of its key, its own names, and the filters that stand for them: `*` makes it a default,
    /// `!name` is none of its names.
    pub(crate) fn new<'a>(
        certificates: impl Iterator<Item = (KeyKind, &'a [Box<str>], &'a [Box<str>])>,
    ) -> Self {
        let mut index = Self::default();
        for (place, (kind, own, filters)) in (0u32..).zip(certificates) {
            index.kinds.push(kind);
            let own = if filters.iter().any(|filter| !filter.starts_with('!')) { &[] } else { own };
            for name in own.iter().chain(filters) {
                index.add(place, &name.to_ascii_lowercase());
            }
        }
        if index.defaults.is_empty() && !index.kinds.is_empty() {
            index.defaults.push(0);
        }
        index
    }

    fn add(&mut self, place: u32, name: &str) {
        let (is_excluded, name) = name.strip_prefix('!').map_or((false, name), |name| (true, name));
        let named = match name.strip_prefix('*') {
            Some("") if is_excluded => return,
            Some("") => return self.defaults.push(place),
            Some(domain) => self.wild.entry(domain.into()).or_default(),
            None => self.exact.entry(name.into()).or_default(),
        };
        if is_excluded {
            named.is_excluded = true;
        } else if !named.entries.contains(&place) {
            named.entries.push(place);
        }
    }

    /// The certificate for `name`, empty where the client named none. `strict` leaves no default.
    pub(crate) fn choose(&self, name: &str, wanted: Wanted, strict: bool) -> Option<usize> {
        let mut lower = [0; 256];
        let lower = lower.get_mut(..name.len())?;
        lower.copy_from_slice(name.as_bytes());
        lower.make_ascii_lowercase();
        let name = str::from_utf8(lower).ok()?;
        self.named(name, wanted).or_else(|| if strict { None } else { self.best(&self.defaults, wanted) })
    }

    fn named(&self, name: &str, wanted: Wanted) -> Option<usize> {
        if name.is_empty() {
            return None;
        }
        if let Some(named) = self.exact.get(name) {
            // An excluded name is not looked for among the wildcards.
            if !named.entries.is_empty() || named.is_excluded {
                return self.best(&named.entries, wanted);
            }
        }
        let domain = &name[name.find('.')?..];
        self.best(&self.wild.get(domain)?.entries, wanted)
    }

    /// The first ECDSA certificate where the client takes it, else the first RSA one, else any.
    fn best(&self, places: &[u32], wanted: Wanted) -> Option<usize> {
        let first = |is_rsa: bool| {
            let of_kind = |place: &&u32| (self.kinds[**place as usize] == KeyKind::Rsa) == is_rsa;
            places.iter().find(of_kind).map(|place| *place as usize)
        };
        let (ecdsa, rsa) = (first(false), first(true));
        ecdsa
            .filter(|place| wanted.takes(self.kinds[*place]))
            .or_else(|| rsa.filter(|_| wanted.rsa))
            .or(ecdsa)
            .or(rsa)
    }
}
