//! Maps server names to certificates: exact names, wildcards for one label, and defaults (manual, 5.1 `crt`, `crt-list`).

use std::collections::HashMap;

use base::clock::WallTime;

use crate::engine::key::KeyKind;

/// The certificates of one name, by index, in configuration order.
#[derive(Debug, Default)]
struct NamedCertificates {
    entries: Vec<u32>,
    /// Certificates with a line that excludes the name (`!name`), even if their wildcards match.
    excluded: Vec<u32>,
}

/// All names of a listener.
#[derive(Debug, Default)]
pub(crate) struct NameIndex {
    exact: HashMap<Box<str>, NamedCertificates>,
    /// Wildcards, keyed by the part after `*`, including the dot.
    wild: HashMap<Box<str>, Vec<u32>>,
    defaults: Vec<u32>,
    kinds: Vec<KeyKind>,
    /// The start and the end of each certificate's validity, in seconds since 1970.
    validities: Vec<(i64, i64)>,
}

/// The kinds of keys that a client accepts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ClientKeyKinds {
    pub(crate) ecdsa: bool,
    pub(crate) rsa: bool,
}

/// The names of a certificate.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CertificateNames<'a> {
    pub(crate) kind: KeyKind,
    /// The names in the certificate.
    pub(crate) own: &'a [Box<str>],
    /// The start and the end of the validity, in seconds since 1970.
    pub(crate) validity: (i64, i64),
    /// The names on the line, which replace those in the certificate. `*` makes the certificate a default, `!name` excludes a name.
    pub(crate) filters: &'a [Box<str>],
    /// Whether the certificate is also a default.
    pub(crate) is_default: bool,
}

impl NameIndex {
    /// Adds the certificate at index `place`.
    pub(crate) fn add(&mut self, place: u32, names: CertificateNames<'_>) {
        let at = place as usize;
        if self.kinds.len() <= at {
            self.kinds.resize(at + 1, names.kind);
            self.validities.resize(at + 1, names.validity);
        }
        self.kinds[at] = names.kind;
        self.validities[at] = names.validity;
        each(names, |kind, name| {
            let list = match kind {
                NameKind::Default => &mut self.defaults,
                NameKind::Wild => self.wild.entry(name.into()).or_default(),
                NameKind::Exact => &mut self.exact.entry(name.into()).or_default().entries,
                NameKind::Excluded => &mut self.exact.entry(name.into()).or_default().excluded,
            };
            if let Err(before) = list.binary_search(&place) {
                list.insert(before, place);
            }
        });
        // The first certificate is always a default.
        if place == 0 && !self.defaults.contains(&0) {
            self.defaults.insert(0, 0);
        }
    }

    /// Removes the certificate at index `place`, which was added with these names.
    pub(crate) fn remove(&mut self, place: u32, names: CertificateNames<'_>) {
        let without = |list: &mut Vec<u32>| list.retain(|one| *one != place);
        without(&mut self.defaults);
        each(names, |kind, name| match kind {
            NameKind::Default => {}
            NameKind::Wild => {
                if let Some(list) = self.wild.get_mut(name) {
                    without(list);
                    if list.is_empty() {
                        self.wild.remove(name);
                    }
                }
            }
            NameKind::Exact | NameKind::Excluded => {
                if let Some(named) = self.exact.get_mut(name) {
                    without(&mut named.entries);
                    without(&mut named.excluded);
                    if named.entries.is_empty() && named.excluded.is_empty() {
                        self.exact.remove(name);
                    }
                }
            }
        });
    }

    /// Returns the certificate for `name`, which is empty if the client sent none. If `strict` is set, defaults are not used.
    pub(crate) fn choose(&self, name: &str, wanted: ClientKeyKinds, strict: bool) -> Option<usize> {
        self.choose_at(name, wanted, strict, &|| WallTime::now().seconds)
    }

    /// Like `choose`. `now` returns the time in seconds since 1970. It is only called if several certificates match equally.
    fn choose_at(
        &self,
        name: &str,
        wanted: ClientKeyKinds,
        strict: bool,
        now: &dyn Fn() -> i64,
    ) -> Option<usize> {
        let mut lower = [0; 256];
        let lower = lower.get_mut(..name.len())?;
        lower.copy_from_slice(name.as_bytes());
        lower.make_ascii_lowercase();
        let name = str::from_utf8(lower).ok()?;
        let named = self.exact.get(name);
        let exact = named.map_or(&[][..], |named| &named.entries);
        let domain = name.find('.').and_then(|dot| self.wild.get(&name[dot..]));
        let wild = domain.map_or(&[][..], |wild| wild);
        let excluded = named.map_or(&[][..], |named| &named.excluded);
        let levels = [(exact, &[][..]), (wild, excluded), (if strict { &[] } else { &*self.defaults }, &[])];
        // A wildcard with an accepted kind of key is preferred to an exact name with another kind of key. Defaults are only used if
        // neither matches.
        let fitting = |(places, excluded)| self.best(places, wanted, excluded, now);
        let any =
            |(places, excluded)| self.best(places, ClientKeyKinds { ecdsa: true, rsa: true }, excluded, now);
        let [exact, wild, default] = levels;
        fitting(exact)
            .or_else(|| fitting(wild))
            .or_else(|| any(exact))
            .or_else(|| any(wild))
            .or_else(|| fitting(default))
            .or_else(|| any(default))
    }

    /// Returns the first ECDSA certificate if the client accepts ECDSA, otherwise the first RSA certificate if the client accepts
    /// RSA. Certificates that have expired or are not valid yet are used only if no certificate of that kind is valid.
    fn best(
        &self,
        places: &[u32],
        wanted: ClientKeyKinds,
        excluded: &[u32],
        now: &dyn Fn() -> i64,
    ) -> Option<usize> {
        let first = |is_rsa: bool| {
            let mut fitting = places
                .iter()
                .filter(|place| !excluded.contains(place))
                .map(|place| *place as usize)
                .filter(|place| (self.kinds[*place] == KeyKind::Rsa) == is_rsa);
            let first = fitting.next()?;
            let Some(second) = fitting.next() else { return Some(first) };
            let now = now();
            let is_valid = |place: &usize| {
                let (begin, end) = self.validities[*place];
                (begin..=end).contains(&now)
            };
            [first, second].into_iter().chain(fitting).find(is_valid).or(Some(first))
        };
        let ecdsa = if wanted.ecdsa { first(false) } else { None };
        ecdsa.or_else(|| if wanted.rsa { first(true) } else { None })
    }
}

enum NameKind {
    Default,
    Wild,
    Exact,
    Excluded,
}

/// Calls `take` with each name, in lower case, and its kind.
fn each(names: CertificateNames<'_>, mut take: impl FnMut(NameKind, &str)) {
    if names.is_default {
        take(NameKind::Default, "");
    }
    let own = if names.filters.is_empty() { names.own } else { &[] };
    for name in own.iter().chain(names.filters) {
        let name = name.to_ascii_lowercase();
        let (is_excluded, name) = name.strip_prefix('!').map_or((false, &*name), |name| (true, name));
        match name.strip_prefix('*') {
            // As in HAProxy, `!` before `*` has no effect.
            Some(_) if is_excluded => {}
            Some("") => take(NameKind::Default, ""),
            Some(domain) => take(NameKind::Wild, domain),
            None if is_excluded => take(NameKind::Excluded, name),
            None => take(NameKind::Exact, name),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BOTH: ClientKeyKinds = ClientKeyKinds { ecdsa: true, rsa: true };
    const RSA: ClientKeyKinds = ClientKeyKinds { ecdsa: false, rsa: true };

    fn index(rows: &[(KeyKind, &str, &str)]) -> NameIndex {
        let words = |text: &str| text.split_whitespace().map(Box::from).collect::<Vec<Box<str>>>();
        let mut index = NameIndex::default();
        for (place, (kind, own, filters)) in (0u32..).zip(rows) {
            let (own, filters) = (words(own), words(filters));
            index.add(
                place,
                CertificateNames {
                    kind: *kind,
                    own: &own,
                    validity: (0, 100),
                    filters: &filters,
                    is_default: false,
                },
            );
        }
        index
    }

    #[test]
    fn names_find_their_certificate() {
        use KeyKind::{Ecdsa, Rsa};
        let index = index(&[
            (Rsa, "default.test", ""),
            (Rsa, "a.test *.w.test", ""),
            (Ecdsa, "a.test", ""),
            (Ecdsa, "x.test", "*.f.test !no.f.test"),
            (Rsa, "y.test", "exact.w.test"),
            (Ecdsa, "z.test", "*"),
            (Rsa, "no.f.test", ""),
            (Rsa, "q.test", "!other.test !*.other.test"),
            (Ecdsa, "ec.v.test", ""),
            (Rsa, "*.v.test", ""),
            (Ecdsa, "only.u.test", ""),
        ]);
        for (name, wanted, strict, place) in [
            ("default.test", BOTH, true, Some(0)),
            ("a.test", BOTH, true, Some(2)),
            ("A.TEST", RSA, true, Some(1)),
            ("b.w.test", BOTH, true, Some(1)),
            ("b.c.w.test", BOTH, true, None),
            ("w.test", BOTH, true, None),
            ("exact.w.test", BOTH, true, Some(4)),
            ("yes.f.test", BOTH, true, Some(3)),
            ("yes.f.test", RSA, true, Some(3)),
            ("no.f.test", BOTH, true, Some(6)),
            ("ec.v.test", BOTH, true, Some(8)),
            ("ec.v.test", RSA, true, Some(9)),
            ("only.u.test", RSA, true, Some(10)),
            ("x.test", BOTH, true, None),
            ("q.test", BOTH, true, None),
            ("a.other.test", BOTH, true, None),
            ("y.test", BOTH, true, None),
            ("", BOTH, true, None),
            ("", BOTH, false, Some(5)),
            ("", RSA, false, Some(0)),
            ("nobody.test", RSA, false, Some(0)),
        ] {
            assert_eq!(index.choose(name, wanted, strict), place, "{name} {wanted:?} {strict}");
        }
    }

    #[test]
    fn of_equal_certificates_the_first_valid_one_is_chosen() {
        let mut index = NameIndex::default();
        let own = ["a.test".into()];
        for (place, validity) in [(0, (0, 10)), (1, (20, 40)), (2, (5, 30))] {
            let kind = KeyKind::Rsa;
            index.add(place, CertificateNames { kind, own: &own, validity, filters: &[], is_default: false });
        }
        let chosen = |now: i64| index.choose_at("a.test", BOTH, true, &|| now);
        for (now, place) in [(0, 0), (10, 0), (11, 2), (20, 1), (41, 0)] {
            assert_eq!(chosen(now), Some(place), "{now}");
        }
    }

    #[test]
    fn exclusions_apply_only_to_wildcards_of_the_same_line() {
        let index = index(&[
            (KeyKind::Rsa, "", "*.f.test !no.f.test"),
            (KeyKind::Rsa, "", "*.g.test !no.f.test"),
            (KeyKind::Rsa, "", "*.f.test"),
        ]);
        assert_eq!(index.choose("no.f.test", BOTH, true), Some(2));
        assert_eq!(index.choose("yes.f.test", BOTH, true), Some(0));
    }

    #[test]
    fn removed_certificates_leave_no_names() {
        let mut index =
            index(&[(KeyKind::Rsa, "a.test *.b.test", "!c.b.test"), (KeyKind::Rsa, "d.test", "")]);
        let own = ["a.test".into(), "*.b.test".into()];
        index.remove(
            0,
            CertificateNames {
                kind: KeyKind::Rsa,
                own: &own,
                validity: (0, 100),
                filters: &["!c.b.test".into()],
                is_default: false,
            },
        );
        assert!(index.exact.len() == 1 && index.wild.is_empty() && index.defaults.is_empty());
        assert_eq!(index.choose("d.test", BOTH, true), Some(1));
        assert_eq!(index.choose("a.test", BOTH, false), None);
    }
}
