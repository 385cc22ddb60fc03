//! Keeps one list current: the conversation with each kind of source, and the back-off after failures.

use std::cell::{Cell, RefCell};
use std::collections::HashSet;
use std::future::poll_fn;
use std::io;
use std::path::Path;
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use base::clock::now_ms;
use httpclient::Request;
use plan::discovery::{DiscoverySection, SourceKind, SourcePlace};
use runtime::timer;
use state::discovery::{Feed, FeedState, Instance};
use tokio::sync::Notify;

use crate::callbacks::DiscoveryCallbacks;
use crate::decode::etcd::{KeyEvent, KeyStore};
use crate::decode::kubernetes::{SliceStore, WatchEvent};
use crate::decode::{
    Decoded, DocumentError, InstanceList, LARGEST_DOCUMENT, consul, containers, nomad, targets,
};
use crate::delays::{delay, failures_after, longest_delay};
use crate::fetch::{self, Ended, plain};
use crate::names::{self, HostNames, Lookup};

/// The syslog levels of messages.
const WARNING: u8 = 4;
const NOTICE: u8 = 5;

/// The shortest time between two streams or blocking requests, for sources that end them at once.
const SHORTEST_TURN: Duration = Duration::from_millis(100);

/// The longest time that a source may take to answer a request.
const ANSWER: Duration = Duration::from_secs(30);

/// How long a blocking request waits for a change. The source adds up to a sixteenth.
const BLOCKS: Duration = Duration::from_secs(60);

/// The longest silence of a stream. After it, the list is obtained again, because the connection may be dead.
const SILENCE: Duration = Duration::from_secs(75);

/// The most invalid elements of an answer that are reported one by one.
const REPORTED_APART: usize = 8;

/// From this number of instances on, free memory is returned to the system after each list.
const LONG_LIST: usize = 1000;

/// How long a watch of Kubernetes lasts. Within this time, bookmarks arrive about once a minute.
const WATCH: Duration = Duration::from_secs(240);

/// Reads the list of a source that is a file, so that a process does not start without servers. Errors are left to the task of the
/// list, which reports them.
pub fn read_now(section: &DiscoverySection) -> Option<Vec<Instance>> {
    let SourcePlace::File(path) = &section.place else { return None };
    let size = std::fs::metadata(path).ok()?.len();
    let bytes = (size <= LARGEST_DOCUMENT as u64).then(|| base::file::read(path).ok())??;
    Some(names::resolve_now(&targets::decode(&bytes).ok()?.instances))
}

/// Keeps one list current.
pub(crate) struct Follower {
    section: Rc<RefCell<Arc<DiscoverySection>>>,
    feed: Arc<Feed>,
    callbacks: DiscoveryCallbacks,
    leaving: Rc<Notify>,
    /// Whether a failure was reported, and its end was not.
    is_failure_reported: Cell<bool>,
    /// Whether the current turn has lasted long enough to report the end of a failure.
    has_lasted: Cell<bool>,
    /// The last list as the source sent it, if it has host names.
    named: RefCell<Vec<Instance>>,
    hosts: RefCell<HostNames>,
    /// The errors of the last list's invalid elements.
    last_invalid: RefCell<HashSet<DocumentError>>,
}

/// State between two turns of a source.
#[derive(Default)]
struct Kept {
    /// The version of the file that was read.
    file: Option<FileVersion>,
    /// The slices from which a watch can continue.
    slices: Option<SliceStore>,
    /// The keys, with the last valid values of those that are invalid now.
    keys: Option<KeyStore>,
}

impl Follower {
    /// Prepares the task of a feed. `section` is replaced by reloads; `leaving` is notified when servers may have to be removed.
    pub(crate) fn new(
        section: Rc<RefCell<Arc<DiscoverySection>>>,
        feed: Arc<Feed>,
        callbacks: &DiscoveryCallbacks,
        leaving: &Rc<Notify>,
    ) -> Self {
        let (callbacks, leaving) = (callbacks.clone(), leaving.clone());
        // The feed may have had another task.
        let is_failure_reported = Cell::new(feed.state().0 == FeedState::Failed);
        let has_lasted = Cell::new(false);
        let (named, hosts, last_invalid) = Default::default();
        Self {
            section,
            feed,
            callbacks,
            leaving,
            is_failure_reported,
            has_lasted,
            named,
            hosts,
            last_invalid,
        }
    }

    /// Runs until the task is aborted.
    pub(crate) async fn run(self) {
        tokio::select! {
            () = self.take_turns() => {}
            () = self.follow_names() => {}
        }
    }

    /// Looks up the host names of the list again and again.
    async fn follow_names(&self) {
        loop {
            timer::sleep(names::AGAIN).await;
            let all = names::names(&self.named.borrow());
            if all.is_empty() {
                continue;
            }
            let found = names::look_up(all.into_iter().collect()).await;
            self.note(found);
            let list = self.hosts.borrow_mut().applied(&self.named.borrow());
            // The source may have sent another list in the meantime.
            if !self.named.borrow().is_empty() {
                self.apply(self.feed.replaced(list, now_ms()));
            }
        }
    }

    /// Returns the instances of a list with their addresses. Names that are new are looked up.
    async fn resolved(&self, list: Vec<Instance>) -> Vec<Instance> {
        if list.iter().all(|own| own.host.is_none()) {
            self.named.take();
            return list;
        }
        let unknown = self.hosts.borrow().unknown(&list);
        let found = names::look_up(unknown).await;
        self.note(found);
        let resolved = self.hosts.borrow_mut().applied(&list);
        self.named.replace(list);
        resolved
    }

    /// Records lookups of host names, and reports those that have failed.
    fn note(&self, found: Vec<(Box<str>, Lookup)>) {
        let reports = self.hosts.borrow_mut().note(found);
        self.feed.errors.add(reports.len() as u64);
        let title = self.title();
        for report in reports.iter().take(REPORTED_APART) {
            (self.callbacks.notify)(WARNING, &format!("{title}: {report}."));
        }
        let further = reports.len().saturating_sub(REPORTED_APART);
        if further > 0 {
            let text = format!("{title}: {further} other host names cannot be resolved.");
            (self.callbacks.notify)(WARNING, &text);
        }
    }

    /// Reads the list in turns, with delays after failures.
    async fn take_turns(&self) {
        let mut failures = 0;
        let mut kept = Kept::default();
        loop {
            let section = self.section.borrow().clone();
            let begun = now_ms();
            let outcome = self.lasting(longest_delay(failures), self.turn(&section, &mut kept)).await;
            let least = match (section.kind, &outcome) {
                (SourceKind::Targets, _) => section.refresh,
                // A turn that did not fail ended because it was long enough, or because the source ended it.
                (_, Ok(())) => SHORTEST_TURN.saturating_sub(Duration::from_millis(now_ms() - begun)),
                (_, Err(_)) => Duration::ZERO,
            };
            match outcome {
                Ok(()) => {
                    failures = 0;
                    self.has_lasted.set(true);
                    self.recovered();
                }
                Err(error) => {
                    let lasted = Duration::from_millis(now_ms() - begun);
                    failures = failures_after(failures, self.feed.state().0, lasted);
                    kept.slices = None;
                    self.failed(&section, &error);
                }
            }
            let asked = poll_fn(|context| self.feed.poll_refresh(context));
            let _ = timer::timeout(delay(failures).max(least), asked).await;
        }
    }

    /// Waits for the end of a turn. A source that fails soon after each answer is not reported as answering again: the end of a
    /// failure is only reported `after` the start of a turn that has not failed, or at its end.
    async fn lasting<T>(&self, after: Duration, turn: impl Future<Output = T>) -> T {
        self.has_lasted.set(false);
        tokio::pin!(turn);
        if let Ok(outcome) = timer::timeout(after, &mut turn).await {
            return outcome;
        }
        self.has_lasted.set(true);
        self.recovered();
        turn.await
    }

    /// Reads the list, and follows its changes as long as the source reports them.
    async fn turn(&self, section: &DiscoverySection, kept: &mut Kept) -> Result<(), String> {
        match (section.kind, &section.place) {
            (SourceKind::Targets, SourcePlace::File(path)) => self.read(section, path, &mut kept.file).await,
            (SourceKind::Targets, _) => self.poll(section).await,
            (SourceKind::Kubernetes, _) => self.kubernetes(section, &mut kept.slices).await,
            (SourceKind::Consul, _) => {
                let path = format!("/v1/health/service/{}?", self.feed.query);
                self.blocking(section, &path, "x-consul-index", consul::decode).await
            }
            (SourceKind::Nomad, _) => {
                let (namespace, service) = match self.feed.query.split_once('/') {
                    Some((namespace, service)) => (Some(namespace), service),
                    None => (None, &*self.feed.query),
                };
                let namespace = namespace.map_or_else(String::new, |name| format!("namespace={name}&"));
                let path = format!("/v1/service/{service}?{namespace}");
                self.blocking(section, &path, "x-nomad-index", nomad::decode).await
            }
            (SourceKind::Etcd, _) => self.etcd(section, &mut kept.keys).await,
            (SourceKind::Docker | SourceKind::Podman, _) => self.containers(section).await,
        }
    }

    /// Reads a file, if it is not the one that was read before.
    async fn read(
        &self,
        section: &DiscoverySection,
        path: &Path,
        seen: &mut Option<FileVersion>,
    ) -> Result<(), String> {
        let version = FileVersion::of(path).map_err(|error| plain(&error))?;
        if *seen == Some(version) && self.feed.state().0 == FeedState::Current {
            self.feed.confirmed(now_ms());
            return Ok(());
        }
        if version.size > LARGEST_DOCUMENT as u64 {
            return Err(format!("the file has more than {LARGEST_DOCUMENT} bytes"));
        }
        let bytes = base::file::read(path).map_err(|error| plain(&error))?;
        let list = targets::decode(&bytes).map_err(|error| error.to_string())?;
        self.answered(list.instances).await;
        self.list_invalid(section, list.invalid);
        *seen = Some(version);
        Ok(())
    }

    /// Sends one request.
    async fn poll(&self, section: &DiscoverySection) -> Result<(), String> {
        let settings = fetch::settings(section, ANSWER).await?;
        let response = fetch::send(&settings, &fetch::get(section, "")?).await?;
        let list = targets::decode(&response.body).map_err(|error| error.to_string())?;
        self.answered(list.instances).await;
        self.list_invalid(section, list.invalid);
        Ok(())
    }

    /// Sends requests that the source answers when the list has changed (Consul, Nomad). Returns only with an error.
    async fn blocking(
        &self,
        section: &DiscoverySection,
        path: &str,
        header: &str,
        decode: fn(&[u8]) -> Decoded<InstanceList>,
    ) -> Result<(), String> {
        let mut index = 0;
        loop {
            let begun = now_ms();
            let wait = if index == 0 { Duration::ZERO } else { BLOCKS };
            // The name may have moved, and the token may have been replaced.
            let settings = fetch::settings(section, ANSWER + wait).await?;
            let query = format!("{path}index={index}&wait={}s", wait.as_secs());
            let response = fetch::send(&settings, &fetch::get(section, &query)?).await?;
            let list = decode(&response.body).map_err(|error| error.to_string())?;
            self.listed(list.instances).await;
            self.list_invalid(section, list.invalid);
            let next = response.header(header).and_then(|text| text.parse::<u64>().ok());
            let next = next.ok_or_else(|| format!("the answer has no valid header `{header}`"))?;
            self.followed();
            // After a restart of the source, its index may be lower.
            index = if next < index { 0 } else { next.max(1) };
            timer::sleep(SHORTEST_TURN.saturating_sub(Duration::from_millis(now_ms() - begun))).await;
        }
    }

    /// Lists the slices of a service, and watches them.
    async fn kubernetes(
        &self,
        section: &DiscoverySection,
        kept: &mut Option<SliceStore>,
    ) -> Result<(), String> {
        let (namespace, service) = self.feed.query.split_once('/').unwrap_or(("default", &self.feed.query));
        let path = format!(
            "/apis/discovery.k8s.io/v1/namespaces/{namespace}/endpointslices?labelSelector=kubernetes.io%2Fservice-name%3D{service}"
        );
        // Without a version, there is nothing to continue from. With an error, the list is obtained again.
        let mut store = match kept.take() {
            Some(store) => store,
            None => {
                let settings = fetch::settings(section, ANSWER).await?;
                let response = fetch::send(&settings, &fetch::get(section, &path)?).await?;
                let mut store = SliceStore::default();
                let invalid = store.replace(&response.body).map_err(|error| error.to_string())?;
                self.listed(store.instances().map_err(|error| error.to_string())?).await;
                self.list_invalid(section, invalid);
                store
            }
        };
        let watch = format!(
            "{path}&watch=1&allowWatchBookmarks=true&timeoutSeconds={}&resourceVersion={}",
            WATCH.as_secs(),
            store.version()
        );
        let settings = fetch::settings(section, SILENCE).await?;
        let mut stream = match fetch::stream(&settings, &fetch::get(section, &watch)?).await {
            Ok(stream) => stream,
            // The version is too old.
            Err(error) if error.status == Some(410) => return Ok(()),
            Err(error) => return Err(error.text),
        };
        self.followed();
        loop {
            let lines = match stream.lines().await {
                Ok(lines) => lines,
                Err(Ended::Whole | Ended::Silent) => {
                    *kept = Some(store);
                    return Ok(());
                }
                Err(Ended::Broken(error)) => return Err(error),
            };
            let (mut has_changed, mut all_invalid) = (false, Vec::new());
            for line in lines {
                let (event, invalid) = store.apply(&line).map_err(|error| error.to_string())?;
                all_invalid.extend(invalid);
                match event {
                    WatchEvent::Changed => has_changed = true,
                    WatchEvent::Bookmark => {}
                    WatchEvent::Expired => return Ok(()),
                }
            }
            match has_changed {
                true => self.answered(store.instances().map_err(|error| error.to_string())?).await,
                false => self.feed.confirmed(now_ms()),
            }
            self.invalid(section, &all_invalid);
        }
    }

    /// Reads the keys below a prefix, and watches them.
    async fn etcd(&self, section: &DiscoverySection, kept: &mut Option<KeyStore>) -> Result<(), String> {
        let store = kept.get_or_insert_with(|| KeyStore::new(&self.feed.query));
        let settings = fetch::settings(section, ANSWER).await?;
        let post = |path: &str, body: Vec<u8>| -> Result<Request, String> {
            Ok(fetch::request(section, "POST", path)?.body("application/json", body))
        };
        let response = fetch::send(&settings, &post("/v3/kv/range", store.range_request())?).await?;
        let invalid = store.replace(&response.body).map_err(|error| error.to_string())?;
        self.listed(store.instances().map_err(|error| error.to_string())?).await;
        self.invalid(section, &invalid);
        let settings = fetch::settings(section, SILENCE).await?;
        let stream = fetch::stream(&settings, &post("/v3/watch", store.watch_request())?).await;
        let mut stream = stream.map_err(|error| error.text)?;
        self.followed();
        loop {
            let lines = match stream.lines().await {
                Ok(lines) => lines,
                Err(Ended::Whole | Ended::Silent) => return Ok(()),
                Err(Ended::Broken(error)) => return Err(error),
            };
            let (mut has_changed, mut all_invalid) = (false, Vec::new());
            for line in lines {
                let (event, invalid) = store.apply(&line).map_err(|error| error.to_string())?;
                all_invalid.extend(invalid);
                match event {
                    KeyEvent::Changed => has_changed = true,
                    KeyEvent::Unchanged => {}
                    KeyEvent::Expired => return Ok(()),
                }
            }
            match has_changed {
                true => self.answered(store.instances().map_err(|error| error.to_string())?).await,
                false => self.feed.confirmed(now_ms()),
            }
            self.invalid(section, &all_invalid);
        }
    }

    /// Lists the running containers whenever one of them changes.
    async fn containers(&self, section: &DiscoverySection) -> Result<(), String> {
        // `{"type":["container"]}`. The stream begins before the list, so that no change is missed.
        let events = "/events?filters=%7B%22type%22%3A%5B%22container%22%5D%7D";
        let settings = fetch::settings(section, SILENCE).await?;
        let request = fetch::get(section, events)?;
        let opened = fetch::stream(&settings, &request);
        tokio::pin!(opened);
        // Some versions send the head only with the first event.
        let mut stream = timer::timeout(Duration::from_millis(500), &mut opened).await.ok();
        loop {
            let begun = now_ms();
            let settings = fetch::settings(section, ANSWER).await?;
            let response = fetch::send(&settings, &fetch::get(section, "/containers/json")?).await?;
            let list = containers::decode(&response.body).map_err(|error| error.to_string())?;
            self.listed(list.instances).await;
            self.list_invalid(section, list.invalid);
            if !matches!(stream, Some(Err(_))) {
                self.followed();
            }
            // Health checks of many containers are many events.
            timer::sleep(SHORTEST_TURN.saturating_sub(Duration::from_millis(now_ms() - begun))).await;
            if stream.is_none() {
                stream = Some(opened.as_mut().await);
                // It may have begun with an event.
                continue;
            }
            let stream = match stream.as_mut() {
                Some(Ok(stream)) => stream,
                Some(Err(error)) if error.is_silent => return Ok(()),
                Some(Err(error)) => return Err(std::mem::take(&mut error.text)),
                None => return Ok(()),
            };
            match stream.lines().await {
                Ok(_) => {}
                Err(Ended::Whole | Ended::Silent) => return Ok(()),
                Err(Ended::Broken(error)) => return Err(error),
            }
        }
    }

    /// Applies a list that is current.
    async fn answered(&self, list: Vec<Instance>) {
        let list = self.resolved(list).await;
        self.current(list);
    }

    fn current(&self, list: Vec<Instance>) {
        let has_changed = self.feed.answered(list, now_ms());
        self.recovered();
        self.apply(has_changed);
    }

    /// Applies a list before its changes are followed. If following them has failed before, the failure lasts until
    /// [`followed`](Self::followed).
    async fn listed(&self, list: Vec<Instance>) {
        let list = self.resolved(list).await;
        match self.feed.state().0 {
            FeedState::Failed => self.apply(self.feed.listed(list, now_ms())),
            FeedState::Waiting | FeedState::Current => self.current(list),
        }
    }

    /// Records that the source reports changes of the last list.
    fn followed(&self) {
        if self.feed.state().0 == FeedState::Failed {
            self.feed.confirmed(now_ms());
            self.recovered();
        }
    }

    /// Reports the end of a failure that was reported, once it is likely to last.
    fn recovered(&self) {
        let is_current = self.feed.state().0 == FeedState::Current;
        if !is_current || !self.has_lasted.get() || !self.is_failure_reported.replace(false) {
            return;
        }
        let count = self.feed.list().map_or(0, |list| list.len());
        let text = format!("{}: the source answers again, with {count} instances.", self.title());
        (self.callbacks.notify)(NOTICE, &text);
    }

    fn apply(&self, has_changed: bool) {
        if has_changed {
            (self.callbacks.changed)(&self.feed);
            self.leaving.notify_one();
        }
        // Decoding took several times the memory of the list, and the thread may not allocate again for a long time.
        if self.feed.list().is_some_and(|list| list.len() >= LONG_LIST) {
            process::return_memory();
        }
    }

    /// Reports the invalid elements of a complete list, except those that were invalid in the last one.
    fn list_invalid(&self, section: &DiscoverySection, errors: Vec<DocumentError>) {
        let before = self.last_invalid.replace(errors.iter().cloned().collect());
        let new: Vec<DocumentError> = errors.into_iter().filter(|error| !before.contains(error)).collect();
        self.invalid(section, &new);
    }

    /// Reports the parts of a list that are invalid, while the rest is applied.
    fn invalid(&self, section: &DiscoverySection, errors: &[DocumentError]) {
        self.feed.errors.add(errors.len() as u64);
        let title = self.title();
        for error in errors.iter().take(REPORTED_APART) {
            let text = format!("{title}: {}: {error}; it is ignored.", section.place);
            (self.callbacks.notify)(WARNING, &text);
        }
        let further = errors.len().saturating_sub(REPORTED_APART);
        if further > 0 {
            let text = format!("{title}: {}: {further} others are invalid and ignored.", section.place);
            (self.callbacks.notify)(WARNING, &text);
        }
    }

    fn failed(&self, section: &DiscoverySection, error: &str) {
        self.feed.failed(error);
        if !self.is_failure_reported.replace(true) {
            let kept = match self.feed.list() {
                Some(list) => format!("the last list ({} instances) is kept", list.len()),
                None => "there is no list yet".to_owned(),
            };
            let text = format!("{}: {}: {error}; {kept}.", self.title(), section.place);
            (self.callbacks.notify)(WARNING, &text);
        }
    }

    /// The section and the subject, for messages.
    fn title(&self) -> String {
        let Feed { section, query, .. } = &*self.feed;
        if query.is_empty() {
            format!("discovery {section}")
        } else {
            format!("discovery {section} ({query})")
        }
    }
}

/// Distinguishes the versions of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct FileVersion {
    modified: Option<SystemTime>,
    size: u64,
    number: u64,
}

impl FileVersion {
    fn of(path: &Path) -> io::Result<Self> {
        let facts = std::fs::metadata(path)?;
        let number = std::os::unix::fs::MetadataExt::ino(&facts);
        Ok(Self { modified: facts.modified().ok(), size: facts.len(), number })
    }
}
