//! Names that running scripts use: fetches and converters with their arguments, variables, proxies. They are resolved once and
//! cached, within limits.

use std::borrow::Borrow;
use std::cell::RefCell;
use std::collections::HashMap;
use std::hash::Hash;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, Weak};
use std::time::Duration;

use crate::host::ScriptHost;
use crate::inbox::Inbox;
use crate::settings::{LuaSettings, Stderr};
use crate::state::print;
use sample::pattern::{List, PatternSets};
use sample::scope::Directory;
use sample::script_functions::{CalledConvert, CalledFetch};
use sample::vars::{Var, Variables, find_process_variable};
use sample::{Acls, Names, Place, Scope};
use state::Mode;
use state::table::Table;

/// Maximum number of cached uses of fetches, of converters and of variables.
const KEPT: usize = 1024;

/// The maximum number of variables that the configuration does not use.
const NAMED: usize = 4096;

/// The names known once the configuration is read.
#[derive(Debug)]
pub struct KnownNames {
    /// Proxies.
    pub directory: Arc<Directory>,
    /// Stick tables.
    pub tables: HashMap<Box<str>, Arc<Table>>,
    /// Number of trackable stick counters.
    pub stick_counters: u32,
    /// The variables of the configuration.
    pub variables: Variables,
    /// The pattern lists, to which functions that run before the first connection may add maps.
    pub lists: Mutex<Arc<PatternSets>>,
    /// The email settings of proxies, by name.
    pub mailing: HashMap<Box<str>, Mailing>,
}

impl KnownNames {
    /// Returns the pattern list with that name or number.
    pub(crate) fn list(&self, name: &str) -> Option<Arc<List>> {
        locked(&self.lists).find(name)
    }
}

/// The email settings of a proxy, for scripts that send them (`email-alert`, `mailers` sections).
#[derive(Debug, Clone)]
pub struct Mailing {
    /// Whether each check is reported (`option log-health-checks`).
    pub tells_checks: bool,
    /// The least severe syslog level to report.
    pub level: u8,
    /// The mail servers: names and addresses.
    pub servers: Vec<(Box<str>, SocketAddr)>,
    /// The time limit for delivering an email.
    pub limit: Duration,
    /// The name in the greeting of mail servers; `None` for the host name.
    pub hello: Option<Box<str>>,
    /// The sender.
    pub from: Box<str>,
    /// The recipient.
    pub to: Box<str>,
}

impl Names for KnownNames {
    fn predicate(
        &self,
        names: Vec<String>,
        scope: &Scope<'_>,
    ) -> Result<Box<dyn sample::named_acls::Predicate>, String> {
        Ok(Box::new(sample::Condition::of_names(names.into_iter(), scope)?))
    }

    fn backend(&self, name: &str) -> Option<Arc<state::Proxy>> {
        self.directory.backends.get(name).cloned()
    }

    fn frontend(&self, name: &str) -> Option<Arc<state::Proxy>> {
        self.directory.frontends.get(name).cloned()
    }

    fn directory(&self) -> Option<Arc<Directory>> {
        Some(self.directory.clone())
    }

    fn table(&self, name: &str) -> Option<Arc<Table>> {
        self.tables.get(name).cloned()
    }

    fn stick_counters(&self) -> u32 {
        self.stick_counters
    }
}

/// The names shared by the states of a program.
#[derive(Default)]
pub(crate) struct SharedNames {
    known: OnceLock<KnownNames>,
    /// The process's services. Not set while files are being loaded.
    host: OnceLock<Box<dyn ScriptHost>>,
    to_loggers: bool,
    to_stderr: Stderr,
    /// Whether scripts send the emails about servers.
    sends_mail: AtomicBool,
    /// The event queues of scripts.
    inboxes: Mutex<Vec<Weak<Inbox>>>,
    scope: Mutex<OwnScope>,
}

impl std::fmt::Debug for SharedNames {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Shared").finish_non_exhaustive()
    }
}

/// The scope for compiling names: the variables of the configuration and those added by scripts.
#[derive(Debug, Default)]
struct OwnScope {
    variables: RefCell<Variables>,
    patterns: RefCell<PatternSets>,
    added: usize,
}

impl SharedNames {
    pub(crate) fn new(settings: &LuaSettings) -> Self {
        Self { to_loggers: settings.to_loggers, to_stderr: settings.to_stderr, ..Self::default() }
    }

    /// Sets the process's services.
    pub(crate) fn serve(&self, host: Box<dyn ScriptHost>) {
        // Called once, when the workers start.
        let _ = self.host.set(host);
    }

    /// Returns the process's services.
    pub(crate) fn host(&self) -> Option<&dyn ScriptHost> {
        self.host.get().map(|host| &**host)
    }

    /// Logs a message outside of any request, according to the settings.
    pub(crate) fn log(&self, level: u8, text: &[u8]) {
        let taken = self.to_loggers && self.host().is_some_and(|host| host.log(level, text));
        if self.to_stderr == Stderr::On || self.to_stderr == Stderr::Auto && !taken {
            print(level, text);
        }
    }

    /// Registers an event queue.
    pub(crate) fn keep_inbox(&self, inbox: &Arc<Inbox>) {
        let mut inboxes = locked(&self.inboxes);
        inboxes.retain(|inbox| inbox.strong_count() > 0);
        inboxes.push(Arc::downgrade(inbox));
    }

    /// Ends all subscriptions.
    pub(crate) fn close_inboxes(&self) {
        locked(&self.inboxes).drain(..).filter_map(|inbox| inbox.upgrade()).for_each(|inbox| inbox.end());
    }

    /// Lets scripts send the emails about servers (`core.use_native_mailers_config`).
    pub(crate) fn use_mailers(&self) {
        self.sends_mail.store(true, Relaxed);
    }

    /// Whether scripts send the emails about servers.
    pub(crate) fn sends_mail(&self) -> bool {
        self.sends_mail.load(Relaxed)
    }

    /// Returns the email settings of a proxy, if scripts send the emails.
    pub(crate) fn mailing(&self, proxy: &str) -> Option<&Mailing> {
        self.known().filter(|_| self.sends_mail())?.mailing.get(proxy)
    }

    /// Sets the known names.
    pub(crate) fn know(&self, known: KnownNames) {
        *self.scope().variables.borrow_mut() = known.variables.aside();
        // Called once, when the configuration is read.
        let _ = self.known.set(known);
    }

    /// Replaces the pattern lists.
    pub(crate) fn know_lists(&self, lists: Arc<PatternSets>) {
        if let Some(known) = self.known() {
            *locked(&known.lists) = lists;
        }
    }

    /// Returns the known names, once set.
    pub(crate) fn known(&self) -> Option<&KnownNames> {
        self.known.get()
    }

    fn scope(&self) -> MutexGuard<'_, OwnScope> {
        locked(&self.scope)
    }

    fn compile<T>(&self, make: impl FnOnce(&Scope<'_>) -> Result<T, String>) -> Result<T, String> {
        let known = self.known().ok_or("the configuration has not been read yet")?;
        let own = self.scope();
        make(&Scope {
            names: known,
            variables: &own.variables,
            patterns: &own.patterns,
            acls: &Acls::default(),
            proxy: None,
            mode: Mode::Http,
            place: Place::HttpRequest,
            inherited: false,
        })
    }

    pub(crate) fn variable(&self, name: &str, adds: bool) -> Option<Var> {
        let mut own = self.scope();
        let is_named = match name.strip_prefix("proc.") {
            Some(name) => find_process_variable(name).is_some(),
            None => own.variables.borrow().names_one(name),
        };
        if !is_named && (!adds || own.added >= NAMED) {
            return None;
        }
        own.added += usize::from(!is_named);
        own.variables.borrow_mut().resolve(name).ok()
    }
}

/// The cache of one state.
#[derive(Debug)]
pub(crate) struct Called {
    pub(crate) shared: Arc<SharedNames>,
    kept: Mutex<CachedName>,
}

/// Compiled names, up to [`KEPT`].
#[derive(Debug)]
struct CachedNames<K, V>(HashMap<K, V>);

impl<K, V> Default for CachedNames<K, V> {
    fn default() -> Self {
        Self(HashMap::new())
    }
}

impl<K: Hash + Eq, V: Clone> CachedNames<K, V> {
    fn get<Q: Hash + Eq + ?Sized>(&self, key: &Q) -> Option<V>
    where
        K: Borrow<Q>,
    {
        self.0.get(key).cloned()
    }

    /// Caches a value, up to the limit; returns whether there was room.
    fn keep(&mut self, key: K, value: V) -> bool {
        let has_room = self.0.len() < KEPT;
        if has_room {
            self.0.insert(key, value);
        }
        has_room
    }
}

#[derive(Debug, Default)]
struct CachedName {
    variables: CachedNames<Box<str>, Var>,
    fetches: CachedNames<Box<[String]>, Arc<CalledFetch>>,
    converts: CachedNames<Box<[String]>, Arc<CalledConvert>>,
}

impl Called {
    pub(crate) fn new(shared: Arc<SharedNames>) -> Self {
        Self { shared, kept: Mutex::default() }
    }

    /// Returns the fetch for `words`, which are its name and its arguments, and whether it is cached.
    pub(crate) fn fetch(&self, words: Vec<String>) -> Result<(Arc<CalledFetch>, bool), String> {
        let mut kept = locked(&self.kept);
        if let Some(known) = kept.fetches.get(&*words) {
            return Ok((known, true));
        }
        let made = self.shared.compile(|scope| CalledFetch::new(&words[0], &words[1..], scope))?;
        let made = Arc::new(made);
        let is_kept = kept.fetches.keep(words.into(), made.clone());
        Ok((made, is_kept))
    }

    /// Returns the converter for `words`, and whether it is cached.
    pub(crate) fn convert(&self, words: Vec<String>) -> Result<(Arc<CalledConvert>, bool), String> {
        let mut kept = locked(&self.kept);
        if let Some(known) = kept.converts.get(&*words) {
            return Ok((known, true));
        }
        let made = self.shared.compile(|scope| CalledConvert::new(&words[0], &words[1..], scope))?;
        let made = Arc::new(made);
        let is_kept = kept.converts.keep(words.into(), made.clone());
        Ok((made, is_kept))
    }

    /// Returns the variable with that name, and whether it is cached. If `adds`, an unknown one is added, as long as there is room.
    pub(crate) fn variable(&self, name: &str, adds: bool) -> Option<(Var, bool)> {
        let mut kept = locked(&self.kept);
        if let Some(known) = kept.variables.get(name) {
            return Some((known, true));
        }
        let var = self.shared.variable(name, adds)?;
        let is_kept = kept.variables.keep(name.into(), var.clone());
        Some((var, is_kept))
    }
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
}
