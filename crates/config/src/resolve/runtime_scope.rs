//! The plan in use, as the environment of a server or backend that is added to it: it provides the names that the expressions and
//! lines of the addition may use. Called when the names of a configuration are collected and when servers are finished.

use std::cell::RefCell;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use diag::{Diagnostic, Span};
use plan::discovery::DiscoverySection;
use plan::mail::Mailers;
use plan::telemetry::TelemetrySection;
use plan::{Global, Plan, Resolvers};
use runtime::placement::Placement;
use sample::Acls;
use sample::Place;

use sample::pattern::PatternSets;
use sample::scope::{Names, Scope};
use sample::vars::Variables;
use state::Mode;

use crate::draft::row::Outcome;
use crate::resolve::log::LogNames;
use crate::resolve::names::NameTable;

/// The plan, and the requirements of the expressions that are compiled for the addition.
pub(crate) struct Around<'a> {
    plan: &'a Plan,
    /// The current pattern lists.
    lists: &'a PatternSets,
    variables: RefCell<Variables>,
    patterns: RefCell<PatternSets>,
    acls: Acls,
    /// Whether the addition may use the names of proxies, tables and the like.
    lends_names: bool,
}

impl<'a> Around<'a> {
    pub(crate) fn new(plan: &'a Plan, lists: &'a PatternSets) -> Self {
        Self {
            plan,
            lists,
            variables: RefCell::new(plan.variables.aside()),
            patterns: RefCell::default(),
            acls: Acls::new(),
            lends_names: true,
        }
    }

    /// Creates the environment of an addition that uses no names of other objects.
    pub(crate) fn without_names(plan: &'a Plan, lists: &'a PatternSets) -> Self {
        Self { lends_names: false, ..Self::new(plan, lists) }
    }

    /// The settings of the global section.
    pub(crate) fn global(&self) -> Global {
        self.plan.global.clone()
    }

    /// A copy of the plan's variables.
    pub(crate) fn variables(&self) -> Variables {
        self.plan.variables.aside()
    }

    /// The pattern lists. Files that are already loaded are not read again.
    pub(crate) fn patterns(&self) -> PatternSets {
        self.lists.clone()
    }

    /// `mailers` sections.
    pub(crate) fn mailers(&self) -> Vec<Arc<Mailers>> {
        self.plan.mailers.clone()
    }

    /// `opentelemetry` sections.
    pub(crate) fn telemetry(&self) -> Vec<Arc<TelemetrySection>> {
        self.plan.telemetry.clone()
    }

    /// `discovery` sections.
    pub(crate) fn discovery(&self) -> Vec<Arc<DiscoverySection>> {
        self.plan.discovery.clone()
    }

    /// Scripts.
    pub(crate) fn lua(&self) -> Option<Arc<lua::Program>> {
        self.plan.lua.clone()
    }

    /// The stores of `cache` sections.
    pub(crate) fn caches(&self) -> Vec<Arc<cache::Store>> {
        self.plan.caches.clone()
    }

    /// `resolvers` sections.
    pub(crate) fn resolvers(&self) -> Vec<Arc<Resolvers>> {
        self.plan.resolvers.clone()
    }

    /// The TLS files in use.
    pub(crate) fn tls(&self) -> Arc<tls::files::Files> {
        self.plan.tls.clone()
    }

    /// Adds the names known to the plan in use.
    pub(crate) fn lend_names(&self, names: &mut NameTable<'_>, log: &mut LogNames) {
        self.lend_rings(names, log);
        if !self.lends_names {
            return;
        }
        for proxy in self.plan.proxies.iter().filter(|proxy| !proxy.is_hidden()) {
            let (name, state) = (&proxy.state.name, &proxy.state);
            if state.is_frontend {
                names.frontends.entry(name.clone()).or_insert_with(|| state.clone());
            }
        }
        for name in self.plan.backends.names() {
            let Some(index) = self.plan.backends.get(&name) else { continue };
            let proxy = &self.plan.proxies[index];
            names.backends.entry(name.clone()).or_insert_with(|| proxy.state.clone());
            log.backends.entry(name).or_insert((index, proxy.mode));
        }
        for table in &self.plan.tables {
            names.tables.insert(table.name().into(), table.clone());
        }
        names.certificates = self.plan.certificates.clone();
    }

    fn lend_rings(&self, names: &mut NameTable<'_>, log: &mut LogNames) {
        let sections = self.plan.proxies.iter().filter_map(|proxy| proxy.ring.as_deref());
        for settings in sections {
            log.rings.insert(settings.ring.name.clone(), settings.clone());
        }
        for ring in &self.plan.rings {
            if let Some(settings) = log.rings.get_mut(&ring.name) {
                settings.ring = ring.clone();
            }
            names.rings.insert(ring.name.clone(), ring.clone());
        }
    }

    /// The placement of the workers.
    pub(crate) fn placement(&self) -> &Placement {
        &self.plan.global.placement
    }

    /// Whether the plan in use has that backend, to which the server is then added.
    pub(crate) fn has(&self, backend: &str) -> bool {
        self.plan.backend(backend).is_some()
    }

    /// Whether that backend uses a FastCGI application.
    pub(crate) fn runs_app(&self, backend: &str) -> bool {
        self.plan.backend(backend).is_some_and(|proxy| proxy.fcgi.is_some())
    }

    /// Returns the scope for expressions of this backend's servers or their checks.
    pub(crate) fn scope(&self, backend: &str, mode: Mode, place: Place) -> Scope<'_> {
        Scope {
            names: self,
            variables: &self.variables,
            patterns: &self.patterns,
            acls: &self.acls,
            proxy: self.plan.backend(backend).map(|proxy| &proxy.state),
            mode,
            place,
            inherited: false,
        }
    }

    /// Refuses requirements that the plan in use does not meet, because its slots and measurements were fixed when it was
    /// resolved.
    pub(crate) fn suffices(&self, span: Span) -> Outcome {
        match self.variables.borrow().beyond(&self.plan.variables) {
            Some(what) => Err(Diagnostic::alert(&what).at(span).haproxy(what)),
            None => Ok(()),
        }
    }
}

impl Names for Around<'_> {
    fn predicate(
        &self,
        names: Vec<String>,
        scope: &Scope<'_>,
    ) -> Result<Box<dyn sample::named_acls::Predicate>, String> {
        Ok(Box::new(sample::Condition::of_names(names.into_iter(), scope)?))
    }

    fn backend(&self, name: &str) -> Option<Arc<state::Proxy>> {
        let found = self.plan.backend(name)?;
        found.state.referenced.store(true, Relaxed);
        Some(found.state.clone())
    }

    fn frontend(&self, name: &str) -> Option<Arc<state::Proxy>> {
        self.plan.frontend(name).map(|proxy| proxy.state.clone())
    }

    fn table(&self, name: &str) -> Option<Arc<state::table::Table>> {
        self.plan.tables.iter().find(|table| table.name() == name).cloned()
    }

    fn stick_counters(&self) -> u32 {
        self.plan.global.tune.stick_counters
    }

    fn ring(&self, name: &str) -> Option<Arc<state::Ring>> {
        self.plan.rings.iter().find(|ring| *ring.name == *name).cloned()
    }
}
