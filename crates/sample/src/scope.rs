//! The environment of a compilation: name lookup, and the place of the expression.

use std::any::Any;
use std::cell::RefCell;
use std::collections::HashMap;
use std::sync::Arc;

use state::{Mode, Proxy};

use crate::named_acls::{Acls, Predicate};
use crate::pattern::PatternSets;
use crate::place::{CHECK, CLI, CONFIG, Columns, Place};
use crate::vars::Variables;

/// The messages of an `http-errors` section: status, and the bytes of the file.
pub type HttpErrors = Arc<[(u16, Arc<[u8]>)]>;

/// All proxies by name, for lookups at run time.
#[derive(Debug, Default)]
pub struct Directory {
    /// Proxies with a frontend side.
    pub frontends: HashMap<Box<str>, Arc<Proxy>>,
    /// Proxies with a backend side.
    pub backends: HashMap<Box<str>, Arc<Proxy>>,
}

/// Name lookup while a plan is resolved. Implemented by `config`.
pub trait Names {
    /// Looks up a proxy with a backend side.
    fn backend(&self, name: &str) -> Option<Arc<Proxy>>;
    /// Looks up a proxy with a frontend side.
    fn frontend(&self, name: &str) -> Option<Arc<Proxy>>;
    /// Looks up a `userlist`, for passwords and groups.
    fn userlist(&self, name: &str) -> Option<Arc<crate::auth::Userlist>> {
        let _ = name;
        None
    }
    /// Whether experimental directives are allowed (`expose-experimental-directives`).
    fn experimental(&self) -> bool {
        true
    }
    /// The raw messages of an `http-errors` section, by status.
    fn http_errors(&self, name: &str) -> Option<HttpErrors> {
        let _ = name;
        None
    }
    /// Reads a file named in the configuration (error files, keys), relative to the working directory. Always returns an error at
    /// run time.
    fn read_file(&self, path: &str) -> Result<Vec<u8>, String> {
        Err(format!("`{path}`: files cannot be read at run time"))
    }
    /// Reads a pattern file. Such files are often large and read once, so the caller owns the bytes and no copy is cached.
    fn read_patterns(&self, path: &str) -> Result<Vec<u8>, String> {
        self.read_file(path)
    }
    /// An environment variable (`env`), including changes made by the configuration.
    fn variable(&self, name: &[u8]) -> Option<Vec<u8>> {
        use std::os::unix::ffi::{OsStrExt, OsStringExt};
        std::env::var_os(std::ffi::OsStr::from_bytes(name)).map(OsStringExt::into_vec)
    }
    /// Looks up a ring, for the converter `debug`.
    fn ring(&self, name: &str) -> Option<Arc<state::Ring>> {
        let _ = name;
        None
    }
    /// The certificates that expressions name, including those of `crt-store` sections with `jwt on`.
    fn certificates(&self) -> Arc<crate::keys::Certificates> {
        Arc::default()
    }
    /// All proxies, for names that are only known at run time. Built once and shared.
    fn directory(&self) -> Option<Arc<Directory>> {
        None
    }
    /// Looks up a bandwidth filter of the proxy being compiled.
    fn bandwidth(&self, name: &str) -> Option<Arc<crate::bandwidth::BandwidthFilter>> {
        let _ = name;
        None
    }
    /// Registers a rule of the proxy being compiled that sends a message group of an engine, and returns the number of the group.
    ///
    /// # Errors
    /// The engine or group does not exist. The message lists the existing ones.
    fn spoe_group(
        &self,
        engine: crate::Word<'_>,
        group: crate::Word<'_>,
        place: Place,
    ) -> Result<usize, diag::Diagnostic> {
        let _ = (group, place);
        Err(diag::Diagnostic::alert("there are no engines here").at(engine.span))
    }
    /// Looks up a stick table.
    fn table(&self, name: &str) -> Option<Arc<state::table::Table>> {
        let _ = name;
        None
    }
    /// Looks up the store of a `cache` section.
    fn cache(&self, name: &str) -> Option<Arc<cache::Store>> {
        let _ = name;
        None
    }
    /// The names of all `cache` sections, for suggestions.
    fn cache_names(&self) -> Vec<Box<str>> {
        Vec::new()
    }
    /// The number of available counters (`tune.stick-counters`).
    fn stick_counters(&self) -> u32 {
        crate::tracked::DEFAULT_COUNTERS
    }
    /// Looks up a `resolvers` section.
    fn resolvers(&self, name: &str) -> Option<Arc<state::resolvers::ResolversSection>> {
        let _ = name;
        None
    }
    /// The names of all `resolvers` sections, for suggestions.
    fn resolvers_names(&self) -> Vec<Box<str>> {
        Vec::new()
    }
    /// A new capture slot of the current frontend for values of up to `length` bytes; `None`
    /// outside frontends.
    fn capture_slot(&self, length: usize) -> Option<usize> {
        let _ = length;
        None
    }
    /// Looks up a `log-profile` section: a [`LogProfile`](crate::LogProfile), which [`log_profile::find`](crate::log_profile::find)
    /// casts.
    fn log_profile(&self, name: &str) -> Option<Arc<dyn Any + Send + Sync>> {
        let _ = name;
        None
    }
    /// The names of all `log-profile` sections, for suggestions.
    fn log_profile_names(&self) -> Vec<Box<str>> {
        Vec::new()
    }
    /// The conjunction of the ACLs `names`, each optionally prefixed with `!`. Implemented by
    /// [`Condition::of_names`](crate::Condition::of_names).
    ///
    /// # Errors
    /// An ACL does not exist.
    fn predicate(&self, names: Vec<String>, scope: &Scope<'_>) -> Result<Box<dyn Predicate>, String>;
    /// Looks up a function that a script has registered.
    fn script(&self, used: crate::script::Use, name: &str) -> Option<Arc<dyn crate::script::Function>> {
        let _ = (used, name);
        None
    }
    /// The names of all functions that scripts have registered, for suggestions.
    fn script_names(&self, used: crate::script::Use) -> Vec<Box<str>> {
        let _ = used;
        Vec::new()
    }
    /// Records a warning about the compiled configuration.
    fn warn(&self, warning: diag::Diagnostic) {
        let _ = warning;
    }
    /// The file and line of a span, for `last_rule_file` and `last_rule_line`.
    fn position(&self, span: diag::Span) -> (String, u32) {
        let _ = span;
        (String::new(), 0)
    }
}

/// The context in which expressions, conditions and rules of one proxy are compiled.
pub struct Scope<'a> {
    /// Name lookup.
    pub names: &'a dyn Names,
    /// The variables of the whole plan, which map names to slots.
    pub variables: &'a RefCell<Variables>,
    /// Pattern files and other pattern sets of the whole plan, shared between ACLs and maps.
    pub patterns: &'a RefCell<PatternSets>,
    /// The ACLs of the proxy declared so far, by name.
    pub acls: &'a Acls,
    /// The proxy, or `None` in `global`.
    pub proxy: Option<&'a Arc<Proxy>>,
    /// The mode of the proxy.
    pub mode: Mode,
    /// The place of the expression.
    pub place: Place,
    /// Whether the expression is inherited from a `defaults` section, which has no servers.
    pub inherited: bool,
}

impl Scope<'_> {
    /// The columns of `-dKsmp` for this place.
    pub fn columns(&self) -> Columns {
        let (frontend, backend) =
            self.proxy.map_or((true, true), |proxy| (proxy.is_frontend, proxy.is_backend));
        let of = |front: u32, back: u32| {
            Columns(if frontend { 1 << front } else { 0 } | if backend { 1 << back } else { 0 })
        };
        match self.place {
            Place::QuicInitial | Place::TcpConnection => Columns(1),
            Place::TcpSession => Columns(1 << 1),
            // In HTTP mode, the request head was already received at this place.
            Place::TcpRequestContent if self.mode == Mode::Http => Columns(of(2, 6).0 | of(3, 7).0),
            Place::TcpRequestContent | Place::UdpRequest => of(2, 6),
            Place::HttpRequest => of(3, 7),
            Place::BackendRequest => Columns(1 << 9 | 1 << 10),
            Place::TcpResponseContent => of(15, 11),
            Place::HttpResponse => of(16, 12),
            Place::Log => Columns(1 << 18),
            Place::Check => Columns(CHECK),
            Place::Boot => Columns(CONFIG),
            Place::Command => Columns(CLI),
        }
    }
}
