//! ACLs by name, as expressions use them: lists of tests. `acl` compiles the tests.

use std::collections::HashMap;
use std::fmt::Debug;
use std::sync::Arc;

use crate::env::Env;
use crate::explained::ExplainedTest;
use crate::place::Columns;

/// One compiled line of an ACL.
pub trait AclTest: Debug + Send + Sync {
    /// Tests the values of the expression until one matches. Returns a constant of `outcome`.
    fn test(&self, env: &Env<'_>) -> u8;
    /// The name of the fetch.
    fn keyword(&self) -> &'static str;
    /// The places at which the fetch may be used.
    fn columns(&self) -> Columns;
    /// Whether the fetch reads the bytes of a connection (manual, 7.3.5).
    fn reads_bytes(&self) -> bool;
    /// Like [`AclTest::test`], with the values and the pattern that matched. A test with side effects is skipped unless `is_live`.
    fn explain(&self, env: &Env<'_>, is_live: bool) -> ExplainedTest;
}

/// An ACL: the tests declared under one name. The ACL matches if one of them does.
pub type Acl = Arc<[Arc<dyn AclTest>]>;

/// An ACL of one test.
pub(crate) fn single(test: impl AclTest + 'static) -> Acl {
    Arc::from([Arc::new(test) as Arc<dyn AclTest>])
}

/// A condition given as an argument: `acl(…)`, `when(acl,…)`.
pub trait Predicate: Debug + Send + Sync {
    /// Whether the condition is true. An undecided result counts as false.
    fn holds(&self, env: &Env<'_>) -> bool;
}

/// The ACLs of a proxy, by name.
#[derive(Debug, Default)]
pub struct Acls {
    named: HashMap<Box<str>, Acl>,
}

impl Acls {
    /// An empty set.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a test to the ACL `name`, which is created if it does not exist.
    pub fn add(&mut self, name: Box<str>, test: impl AclTest + 'static) {
        let test: Arc<dyn AclTest> = Arc::new(test);
        let acl = self.named.entry(name).or_insert_with(|| Arc::from([]));
        *acl = acl.iter().cloned().chain([test]).collect();
    }

    /// The ACL `name`, if it was declared.
    pub fn get(&self, name: &str) -> Option<Acl> {
        self.named.get(name).cloned()
    }

    /// The declared names, for suggestions.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.named.keys().map(|name| &**name)
    }
}
