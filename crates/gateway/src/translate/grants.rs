//! References between namespaces.

use std::collections::BTreeMap;

use crate::api::ReferenceGrant;
use crate::objects::Objects;

/// The grants, keyed by the namespace of the objects to which they allow references.
pub(crate) struct Grants<'a>(BTreeMap<&'a str, Vec<&'a ReferenceGrant>>);

/// The object that refers to another one.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Referrer<'a> {
    pub(crate) group: &'a str,
    pub(crate) kind: &'a str,
    pub(crate) namespace: &'a str,
}

impl<'a> Grants<'a> {
    pub(crate) fn new(objects: &'a Objects) -> Self {
        let mut by_namespace: BTreeMap<&str, Vec<&ReferenceGrant>> = BTreeMap::new();
        for (key, grant) in &objects.reference_grants {
            by_namespace.entry(&key.namespace).or_default().push(grant);
        }
        Self(by_namespace)
    }

    /// Whether an object may refer to another one. References within a namespace are always allowed.
    pub(crate) fn allow(
        &self,
        from: Referrer<'_>,
        group: &str,
        kind: &str,
        namespace: &str,
        name: &str,
    ) -> bool {
        if from.namespace == namespace {
            return true;
        }
        self.0.get(namespace).is_some_and(|grants| {
            grants.iter().any(|grant| {
                let comes_from = grant.spec.from.iter().any(|it| {
                    it.group == from.group && it.kind == from.kind && it.namespace == from.namespace
                });
                let goes_to = grant.spec.to.iter().any(|it| {
                    it.group == group && it.kind == kind && it.name.as_deref().is_none_or(|own| own == name)
                });
                comes_from && goes_to
            })
        })
    }
}
