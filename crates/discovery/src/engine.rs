//! The thread that keeps the lists of instances current: a task for each list, with its back-off.

use std::cell::RefCell;
use std::collections::HashMap;
use std::io;
use std::path::Path;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime};

use base::clock::now_ms;
use plan::Plan;
use plan::discovery::{DiscoverySection, SourceKind, SourcePlace, SourceUrl};
use runtime::timer;
use state::discovery::{Feed, Instance};
use tokio::sync::Notify;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::task::AbortHandle;

use crate::decode::{LARGEST_DOCUMENT, targets};
use crate::fetch;

/// Receives messages: the syslog level and the text.
pub type NotifyDiscovery = Arc<dyn Fn(u8, &str) + Send + Sync>;

/// Removes servers that have left and are idle. The result is whether others are still busy.
pub type SweptServers = Pin<Box<dyn Future<Output = bool>>>;

/// Callbacks of the engine. They are called on its thread.
#[derive(Clone)]
pub struct DiscoveryCallbacks {
    /// Receives messages.
    pub notify: NotifyDiscovery,
    /// Called after the list of a feed has changed.
    pub changed: Arc<dyn Fn(&Arc<Feed>) + Send + Sync>,
    /// Removes servers that have left.
    pub sweep: Arc<dyn Fn() -> SweptServers + Send + Sync>,
}

/// The syslog levels of messages.
const WARNING: u8 = 4;
const NOTICE: u8 = 5;

/// The delays after consecutive failures.
const FIRST_DELAY: Duration = Duration::from_millis(500);
const LONGEST_DELAY: Duration = Duration::from_secs(30);

/// How often servers that are leaving are looked at.
const SWEEP: Duration = Duration::from_millis(200);

/// The longest time that a source may take to answer a request.
const ANSWER: Duration = Duration::from_secs(30);

/// A list to be kept current.
struct Subscription {
    section: Arc<DiscoverySection>,
    feed: Arc<Feed>,
}

/// The discovery of the process. Its thread starts with the first plan that has a line.
#[derive(Default)]
pub struct Discoverer(Mutex<Option<UnboundedSender<Vec<Subscription>>>>);

impl Discoverer {
    /// Follows the lists that the lines of `plan` use from now on.
    ///
    /// # Errors
    /// The thread cannot be started.
    pub fn follow(&self, plan: &Plan, callbacks: &DiscoveryCallbacks) -> io::Result<()> {
        let mut running = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let lines = plan.proxies.iter().filter(|proxy| !proxy.disabled).flat_map(|proxy| &proxy.discovered);
        let mut wanted: Vec<Subscription> = Vec::new();
        for line in lines {
            if !wanted.iter().any(|own| Arc::ptr_eq(&own.feed, &line.feed)) {
                wanted.push(Subscription { section: line.section.clone(), feed: line.feed.clone() });
            }
        }
        if running.is_none() && wanted.is_empty() {
            return Ok(());
        }
        let sender = match &*running {
            Some(sender) => sender.clone(),
            None => {
                let (sender, receiver) = unbounded_channel();
                let callbacks = callbacks.clone();
                runtime::worker::spawn_aside("weir/discovery", move || serve(receiver, callbacks))?;
                running.insert(sender).clone()
            }
        };
        sender.send(wanted).map_err(|_| io::Error::other("the discovery thread has ended"))
    }
}

/// A running task.
struct Task {
    /// The settings, which a reload may replace.
    section: Rc<RefCell<Arc<DiscoverySection>>>,
    end: AbortHandle,
}

impl Drop for Task {
    fn drop(&mut self) {
        self.end.abort();
    }
}

/// Runs the tasks of the current lists.
async fn serve(mut commands: UnboundedReceiver<Vec<Subscription>>, callbacks: DiscoveryCallbacks) {
    let leaving = Rc::new(Notify::new());
    tokio::task::spawn_local(sweep(callbacks.clone(), leaving.clone()));
    // The feed outlives its task, so no other feed can have its address.
    let mut tasks: HashMap<*const Feed, Task> = HashMap::new();
    while let Some(wanted) = commands.recv().await {
        let mut former = std::mem::take(&mut tasks);
        for Subscription { section, feed } in wanted {
            let key = Arc::as_ptr(&feed);
            let task = match former.remove(&key) {
                Some(task) => {
                    task.section.replace(section);
                    task
                }
                None => {
                    let section = Rc::new(RefCell::new(section));
                    let follower = Follower {
                        section: section.clone(),
                        feed,
                        callbacks: callbacks.clone(),
                        leaving: leaving.clone(),
                    };
                    Task { section, end: tokio::task::spawn_local(follower.run()).abort_handle() }
                }
            };
            tasks.insert(key, task);
        }
    }
}

/// Removes servers that have left, as soon as they are idle.
async fn sweep(callbacks: DiscoveryCallbacks, leaving: Rc<Notify>) {
    loop {
        leaving.notified().await;
        while (callbacks.sweep)().await {
            timer::sleep(SWEEP).await;
        }
    }
}

/// Keeps one list current.
struct Follower {
    section: Rc<RefCell<Arc<DiscoverySection>>>,
    feed: Arc<Feed>,
    callbacks: DiscoveryCallbacks,
    leaving: Rc<Notify>,
}

impl Follower {
    async fn run(self) {
        let mut failures = 0;
        let mut seen = None;
        loop {
            let section = self.section.borrow().clone();
            let outcome = match (section.kind, &section.place) {
                (SourceKind::Targets, SourcePlace::File(path)) => self.read(path, &mut seen),
                (SourceKind::Targets, SourcePlace::Url(url)) => self.poll(&section, url).await,
            };
            match outcome {
                Ok(()) => failures = 0,
                Err(error) => {
                    self.failed(&section, &error);
                    failures += 1;
                }
            }
            // A source that is polled is not asked more often because it fails.
            timer::sleep(delay(failures).max(section.refresh)).await;
        }
    }

    /// Reads a file, if it is not the one that was read before.
    fn read(&self, path: &Path, seen: &mut Option<FileVersion>) -> Result<(), String> {
        let version = FileVersion::of(path).map_err(|error| without_number(&error))?;
        if *seen == Some(version) {
            self.confirmed();
            return Ok(());
        }
        if version.size > LARGEST_DOCUMENT as u64 {
            return Err(format!("the file has more than {LARGEST_DOCUMENT} bytes"));
        }
        let bytes = base::file::read(path).map_err(|error| without_number(&error))?;
        let list = targets::decode(&bytes).map_err(|error| error.to_string())?;
        *seen = Some(version);
        self.answered(list);
        Ok(())
    }

    /// Sends one request.
    async fn poll(&self, section: &DiscoverySection, url: &SourceUrl) -> Result<(), String> {
        let settings = fetch::settings(section, url, ANSWER).await?;
        let request = fetch::request(section, "GET", &url.to_string())?;
        let response = fetch::send(&settings, &request).await?;
        self.answered(targets::decode(&response.body).map_err(|error| error.to_string())?);
        Ok(())
    }

    fn answered(&self, list: Vec<Instance>) {
        let before = self.feed.state().0;
        let count = list.len();
        let has_changed = self.feed.answered(list, now_ms());
        self.report_back(before, count);
        if has_changed {
            (self.callbacks.changed)(&self.feed);
            self.leaving.notify_one();
        }
    }

    fn confirmed(&self) {
        let before = self.feed.state().0;
        self.feed.confirmed(now_ms());
        self.report_back(before, self.feed.list().map_or(0, |list| list.len()));
    }

    /// Reports that the source answers again after a failure.
    fn report_back(&self, before: state::FeedState, count: usize) {
        if before == state::FeedState::Failed {
            let text = format!("{}: the source answers again, with {count} instances.", self.title());
            (self.callbacks.notify)(NOTICE, &text);
        }
    }

    fn failed(&self, section: &DiscoverySection, error: &str) {
        if self.feed.failed(error) {
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

/// The text of an error without its number.
fn without_number(error: &io::Error) -> String {
    let text = error.to_string();
    text.split(" (os error").next().unwrap_or_default().to_owned()
}

/// The delay after consecutive failures: it doubles, and varies so that many processes do not return at once.
fn delay(failures: u32) -> Duration {
    if failures == 0 {
        return Duration::ZERO;
    }
    let longest = LONGEST_DELAY.min(FIRST_DELAY * 2_u32.saturating_pow((failures - 1).min(10)));
    longest / 2 + longest.mul_f64(fastrand::f64() / 2.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn delays_grow_up_to_a_limit() {
        assert_eq!(delay(0), Duration::ZERO);
        for failures in 1..100 {
            let longest = FIRST_DELAY * 2_u32.pow((failures - 1).min(10));
            let own = delay(failures);
            assert!(
                own >= longest.min(LONGEST_DELAY) / 2 && own <= longest.min(LONGEST_DELAY),
                "{failures}: {own:?}"
            );
        }
    }
}
