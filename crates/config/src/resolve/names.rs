//! Name lookup while a plan is resolved: proxies, userlists, files, hosts, and the system's users and groups.

use crate::system::error_text;
use std::cell::{Cell, OnceCell, RefCell};
use std::collections::{HashMap, HashSet};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use syntax::Environment;

use base::raw;
use diag::{Diagnostic, SourceMap, Span};
use plan::Resolvers;
use plan::discovery::DiscoverySection;
use plan::global::DefaultPath;
use plan::mail::Mailers;
use plan::telemetry::TelemetrySection;
use sample::LogProfile;
use sample::auth::Userlist;
use sample::bandwidth::BandwidthFilter;
use state::table::Table;

use crate::resolve::spoe::{self, GroupRequest, KnownEngine};

/// A raw message by status.
pub(crate) type RawMessages = Arc<[(u16, Arc<[u8]>)]>;

/// A capture: the header's name, or `None` for a slot that rules fill, and the maximum length.
pub(crate) type CaptureDraft = (Option<Box<str>>, usize);

/// All names of one configuration.
pub(crate) struct NameTable<'a> {
    /// For the locations of rules.
    sources: &'a SourceMap,
    /// The environment after the last line; empty for text read at run time.
    environment: &'a Environment,
    /// Proxies with a backend side.
    pub(crate) backends: HashMap<Box<str>, Arc<state::Proxy>>,
    /// Proxies with a frontend side.
    pub(crate) frontends: HashMap<Box<str>, Arc<state::Proxy>>,
    /// `userlist` sections.
    pub(crate) userlists: HashMap<Box<str>, Arc<Userlist>>,
    /// `http-errors` sections.
    pub(crate) http_errors: HashMap<Box<str>, RawMessages>,
    /// `resolvers` sections, in configuration order.
    pub(crate) resolvers: Vec<Arc<Resolvers>>,
    /// `opentelemetry` sections, in configuration order.
    pub(crate) telemetry: Vec<Arc<TelemetrySection>>,
    /// The names of `opentelemetry` sections with errors.
    pub(crate) refused_telemetry: HashSet<Box<str>>,
    /// `discovery` sections, in configuration order.
    pub(crate) discovery: Vec<Arc<DiscoverySection>>,
    /// The names of `discovery` sections with errors.
    pub(crate) refused_discovery: HashSet<Box<str>>,
    /// `mailers` sections, in configuration order.
    pub(crate) mailers: Vec<Arc<Mailers>>,
    /// The stores of `cache` sections, in configuration order.
    pub(crate) caches: Vec<Arc<cache::Store>>,
    /// The caches that rules of the proxy being compiled refer to.
    pub(crate) caches_used: RefCell<Vec<Arc<cache::Store>>>,
    /// `log-profile` sections.
    pub(crate) log_profiles: HashMap<Box<str>, Arc<LogProfile>>,
    /// Rings, for the converter `debug`.
    pub(crate) rings: HashMap<Box<str>, Arc<state::Ring>>,
    /// Scripts, if there are any.
    pub(crate) lua: Option<Arc<lua::Program>>,
    /// Stick tables.
    pub(crate) tables: HashMap<Box<str>, Arc<Table>>,
    /// `tune.stick-counters`.
    pub(crate) stick_counters: u32,
    /// Certificates for JSON Web Tokens.
    pub(crate) certificates: Arc<sample::keys::Certificates>,
    /// `expose-experimental-directives`.
    pub(crate) experimental: bool,
    /// Whether any experimental feature was used.
    pub(crate) experiments: Cell<bool>,
    /// `default-path`.
    pub(crate) default_path: DefaultPath,
    /// The directory of the file being compiled.
    pub(crate) directory: RefCell<PathBuf>,
    /// Lengths of the request captures of the frontend being compiled, or `None` in a backend.
    pub(crate) captures: RefCell<Option<Vec<CaptureDraft>>>,
    /// The bandwidth filters of the proxy being compiled.
    pub(crate) bandwidth: RefCell<HashMap<Box<str>, Arc<BandwidthFilter>>>,
    /// The engines of the proxy being compiled.
    pub(crate) engines: RefCell<Vec<KnownEngine>>,
    /// The groups that its rules send to agents.
    pub(crate) sendings: RefCell<Vec<GroupRequest>>,
    /// Warnings of the compilers that were not moved to the diagnostics yet.
    pub(crate) warnings: RefCell<Vec<Diagnostic>>,
    /// Files already read, by resolved path: thousands of proxies share their error files.
    files: RefCell<HashMap<PathBuf, Arc<[u8]>>>,
    /// Built for the first expression that looks up proxies at run time, when all names are known.
    directory_of_proxies: OnceCell<Arc<sample::scope::Directory>>,
}

impl<'a> NameTable<'a> {
    /// Creates an empty table.
    pub(crate) fn new(sources: &'a SourceMap, environment: &'a Environment) -> Self {
        Self {
            sources,
            environment,
            backends: HashMap::new(),
            frontends: HashMap::new(),
            userlists: HashMap::new(),
            http_errors: HashMap::new(),
            resolvers: Vec::new(),
            telemetry: Vec::new(),
            refused_telemetry: HashSet::new(),
            discovery: Vec::new(),
            refused_discovery: HashSet::new(),
            mailers: Vec::new(),
            caches: Vec::new(),
            caches_used: RefCell::default(),
            log_profiles: HashMap::new(),
            rings: HashMap::new(),
            lua: None,
            tables: HashMap::new(),
            stick_counters: sample::track::DEFAULT_COUNTERS,
            certificates: Arc::default(),
            experimental: false,
            experiments: Cell::new(false),
            default_path: DefaultPath::default(),
            directory: RefCell::default(),
            captures: RefCell::default(),
            bandwidth: RefCell::default(),
            engines: RefCell::default(),
            sendings: RefCell::default(),
            warnings: RefCell::default(),
            files: RefCell::default(),
            directory_of_proxies: OnceCell::new(),
        }
    }

    /// Resolves a relative path (`default-path`).
    pub(crate) fn path(&self, path: &str) -> PathBuf {
        let path = raw::path_of(path);
        if path.is_absolute() {
            return path.into_owned();
        }
        match &self.default_path {
            DefaultPath::Current => path.into_owned(),
            DefaultPath::Config => self.directory.borrow().join(path),
            DefaultPath::Parent => self.directory.borrow().join("..").join(path),
            DefaultPath::Origin(origin) => origin.join(path),
        }
    }

    /// The bytes of a file.
    pub(crate) fn file(&self, path: &str) -> Result<Arc<[u8]>, String> {
        let path = self.path(path);
        if let Some(known) = self.files.borrow().get(&path) {
            return Ok(known.clone());
        }
        let bytes: Arc<[u8]> = base::file::read(&path).map_err(|error| error_text(&error))?.into();
        self.files.borrow_mut().insert(path, bytes.clone());
        Ok(bytes)
    }
}

impl sample::Names for NameTable<'_> {
    fn predicate(
        &self,
        names: Vec<String>,
        scope: &sample::Scope<'_>,
    ) -> Result<Box<dyn sample::named_acls::Predicate>, String> {
        Ok(Box::new(sample::Condition::of_names(names.into_iter(), scope)?))
    }

    fn variable(&self, name: &[u8]) -> Option<Vec<u8>> {
        if self.environment.iter().next().is_none() {
            let own = std::env::var_os(std::ffi::OsStr::from_bytes(name));
            return own.map(OsStringExt::into_vec);
        }
        self.environment.get(&raw::text_of(name)).map(|value| raw::bytes_of(value).into_owned())
    }

    fn backend(&self, name: &str) -> Option<Arc<state::Proxy>> {
        let found = self.backends.get(name)?;
        // The caller keeps a reference to this server.
        found.referenced.store(true, Relaxed);
        Some(found.clone())
    }

    fn frontend(&self, name: &str) -> Option<Arc<state::Proxy>> {
        self.frontends.get(name).cloned()
    }

    fn userlist(&self, name: &str) -> Option<Arc<Userlist>> {
        self.userlists.get(name).cloned()
    }

    fn experimental(&self) -> bool {
        self.experiments.set(true);
        self.experimental
    }

    fn http_errors(&self, name: &str) -> Option<RawMessages> {
        self.http_errors.get(name).cloned()
    }

    fn bandwidth(&self, name: &str) -> Option<Arc<BandwidthFilter>> {
        self.bandwidth.borrow().get(name).cloned()
    }

    fn spoe_group(
        &self,
        engine: sample::Word<'_>,
        group: sample::Word<'_>,
        place: sample::Place,
    ) -> Result<usize, Diagnostic> {
        spoe::wanted(&self.engines.borrow(), &mut self.sendings.borrow_mut(), engine, group, place)
    }

    fn resolvers(&self, name: &str) -> Option<Arc<state::resolvers::ResolversSection>> {
        let found = self.resolvers.iter().find(|section| *section.state.name == *name)?;
        Some(found.state.clone())
    }

    fn resolvers_names(&self) -> Vec<Box<str>> {
        self.resolvers.iter().map(|section| section.state.name.clone()).collect()
    }

    fn log_profile(&self, name: &str) -> Option<Arc<dyn std::any::Any + Send + Sync>> {
        Some(self.log_profiles.get(name)?.clone())
    }

    fn log_profile_names(&self) -> Vec<Box<str>> {
        self.log_profiles.keys().cloned().collect()
    }

    fn directory(&self) -> Option<Arc<sample::scope::Directory>> {
        let make = || {
            Arc::new(sample::scope::Directory {
                frontends: self.frontends.clone(),
                backends: self.backends.clone(),
            })
        };
        Some(self.directory_of_proxies.get_or_init(make).clone())
    }

    fn table(&self, name: &str) -> Option<Arc<Table>> {
        self.tables.get(name).cloned()
    }

    fn cache(&self, name: &str) -> Option<Arc<cache::Store>> {
        let found = self.caches.iter().find(|store| *store.settings.name == *name)?;
        let mut used = self.caches_used.borrow_mut();
        if !used.iter().any(|other| Arc::ptr_eq(other, found)) {
            used.push(found.clone());
        }
        Some(found.clone())
    }

    fn cache_names(&self) -> Vec<Box<str>> {
        self.caches.iter().map(|store| store.settings.name.clone()).collect()
    }

    fn stick_counters(&self) -> u32 {
        self.stick_counters
    }

    fn ring(&self, name: &str) -> Option<Arc<state::Ring>> {
        self.rings.get(name).cloned()
    }

    fn certificates(&self) -> Arc<sample::keys::Certificates> {
        Arc::clone(&self.certificates)
    }

    fn capture_slot(&self, length: usize) -> Option<usize> {
        let mut captures = self.captures.borrow_mut();
        let captures = captures.as_mut()?;
        captures.push((None, length));
        Some(captures.len() - 1)
    }

    fn script(&self, used: sample::script::Use, name: &str) -> Option<Arc<dyn sample::script::Function>> {
        let function = self.lua.as_ref()?.function(used, name)?;
        Some(function)
    }

    fn script_names(&self, used: sample::script::Use) -> Vec<Box<str>> {
        self.lua.as_ref().map_or_else(Vec::new, |program| program.names(used))
    }

    fn warn(&self, warning: Diagnostic) {
        self.warnings.borrow_mut().push(warning);
    }

    fn position(&self, span: Span) -> (String, u32) {
        (self.sources.file(span.file).name().to_owned(), self.sources.position(span).line)
    }

    fn read_file(&self, path: &str) -> Result<Vec<u8>, String> {
        self.file(path).map(|bytes| bytes.to_vec())
    }

    fn read_patterns(&self, path: &str) -> Result<Vec<u8>, String> {
        base::file::read(self.path(path)).map_err(|error| error_text(&error))
    }
}
