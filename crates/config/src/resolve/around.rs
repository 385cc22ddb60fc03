//! The plan in use around a server that is added to it: what the server's expressions may name. Called where servers are finished.

use std::cell::RefCell;
use std::sync::Arc;

use diag::{Diagnostic, Span};
use runtime::placement::Placement;
use sample::Place;
use sample::acl::Acls;

use sample::env::{Names, Scope};
use sample::pattern::PatternSets;
use sample::vars::Variables;
use state::Mode;

use crate::keyword::Outcome;
use crate::plan::Plan;

/// The plan, and what expressions compiled now ask of it.
pub(crate) struct Around<'a> {
    plan: &'a Plan,
    variables: RefCell<Variables>,
    patterns: RefCell<PatternSets>,
    acls: Acls,
}

impl<'a> Around<'a> {
    pub(crate) fn new(plan: &'a Plan) -> Self {
        Self {
            plan,
            variables: RefCell::new(plan.variables.aside()),
            patterns: RefCell::default(),
            acls: Acls::new(),
        }
    }

    /// Where the workers are.
    pub(crate) fn placement(&self) -> &Placement {
        &self.plan.global.placement
    }

    /// What expressions of a server of that backend mean.
    pub(crate) fn scope(&self, backend: &str, mode: Mode) -> Scope<'_> {
        Scope {
            names: self,
            variables: &self.variables,
            patterns: &self.patterns,
            acls: &self.acls,
            proxy: self.plan.backend(backend).map(|proxy| &proxy.state),
            mode,
            place: Place::BackendRequest,
            inherited: false,
        }
    }

    /// Refuses what the plan in use does not have: slots were handed out and measurements chosen when it was resolved.
    pub(crate) fn suffices(&self, span: Span) -> Outcome {
        match self.variables.borrow().beyond(&self.plan.variables) {
            Some(what) => Err(Diagnostic::alert(&what).at(span).haproxy(what)),
            None => Ok(()),
        }
    }
}

impl Names for Around<'_> {
    fn backend(&self, name: &str) -> Option<Arc<state::Proxy>> {
        self.plan.backend(name).map(|proxy| proxy.state.clone())
    }

    fn frontend(&self, name: &str) -> Option<Arc<state::Proxy>> {
        self.plan.frontend(name).map(|proxy| proxy.state.clone())
    }

    fn ring(&self, name: &str) -> Option<Arc<state::Ring>> {
        self.plan.rings.iter().find(|ring| *ring.name == *name).cloned()
    }
}
