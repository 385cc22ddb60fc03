//! Sources of discovered servers (`discovery` sections), and the lists of instances that they last sent.
//!
//! The state survives an in-place reload, so a backend keeps its servers until the source answers again. Only the thread that
//! talks to the sources writes it. Commands, metrics and the code that adds servers read it.

use std::net::{IpAddr, SocketAddr};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::AcqRel, Ordering::Relaxed, Ordering::Release};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::task::{Context, Poll, Waker};

use arc_swap::ArcSwapOption;
use runtime::Count;

/// Names and values. Instances that a source describes together share them.
pub type InstanceLabels = Arc<[(Box<str>, Box<str>)]>;

/// An instance of a service, as its source describes it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Instance {
    /// The name by which the source identifies the instance, such as the name of a pod.
    pub id: Box<str>,
    /// The address. Unspecified for a host name that is not resolved yet.
    pub address: IpAddr,
    /// The host name, if the source has one instead of an address.
    pub host: Option<Box<str>>,
    /// The port.
    pub port: u16,
    /// The weight, 0 to 256, if the source has one.
    pub weight: Option<u32>,
    /// The zone, if the source names one.
    pub zone: Option<Box<str>>,
    /// Names and values that lines may select by; a name may occur several times.
    pub labels: InstanceLabels,
    /// Whether the instance may get new requests.
    pub is_ready: bool,
    /// Whether the instance is about to end and should get no new clients.
    pub is_draining: bool,
}

impl Instance {
    /// Creates an instance that is ready, without labels, zone or weight.
    pub fn new(id: &str, address: IpAddr, port: u16) -> Self {
        Self {
            id: id.into(),
            address,
            host: None,
            port,
            weight: None,
            zone: None,
            labels: InstanceLabels::default(),
            is_ready: true,
            is_draining: false,
        }
    }

    /// Returns the address with the port.
    pub fn socket(&self) -> SocketAddr {
        SocketAddr::new(self.address, self.port)
    }

    /// Whether one of the labels has that name and value.
    pub fn has(&self, name: &str, value: &str) -> bool {
        self.labels.iter().any(|(own, text)| **own == *name && **text == *value)
    }
}

/// The state of a source.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum FeedState {
    /// It has not answered yet.
    #[default]
    Waiting,
    /// It answers, and its list is current.
    Current,
    /// It does not answer, or its answers are unusable. The last list is kept.
    Failed,
}

impl FeedState {
    /// The name in commands.
    pub fn name(self) -> &'static str {
        match self {
            Self::Waiting => "waiting",
            Self::Current => "current",
            Self::Failed => "failed",
        }
    }
}

/// The parts of a feed's state that change together.
#[derive(Debug, Clone, Default)]
struct FeedStatus {
    state: FeedState,
    /// The last error.
    error: Box<str>,
}

/// A list of instances that a section provides: all of them, or those of one service.
#[derive(Debug, Default)]
pub struct Feed {
    /// The name of the section.
    pub section: Box<str>,
    /// The subject of the list, such as `shop/web`; empty if the source has only one list.
    pub query: Box<str>,
    /// The last list.
    list: ArcSwapOption<Vec<Instance>>,
    /// The list to which the servers of all lines were last brought.
    applied: ArcSwapOption<Vec<Instance>>,
    status: Mutex<FeedStatus>,
    /// When the source last answered, in ms of the monotonic clock; 0 for never.
    answered_at: AtomicU64,
    /// When the list last changed, in ms of the monotonic clock; 0 for never.
    changed_at: AtomicU64,
    /// The number of changes of the list.
    pub changes: Count,
    /// The number of failed requests and unusable answers.
    pub errors: Count,
    /// The number of servers that lines have made of the current list.
    pub servers: AtomicU64,
    /// The number of instances that lines left out of the current list because of `max`.
    pub excess: AtomicU64,
    /// Whether the list is to be read without waiting (`refresh discovery`).
    is_refresh_wanted: AtomicBool,
    /// The task that waits before it reads the list again.
    waiting: Mutex<Option<Waker>>,
}

impl Feed {
    /// Returns the last list, if there is one.
    pub fn list(&self) -> Option<Arc<Vec<Instance>>> {
        self.list.load_full()
    }

    /// Returns whether the servers of all lines are those of the last list.
    pub fn is_applied(&self) -> bool {
        let (list, applied) = (self.list.load(), self.applied.load());
        match (&*list, &*applied) {
            (Some(list), Some(applied)) => Arc::ptr_eq(list, applied),
            (list, _) => list.is_none(),
        }
    }

    /// Records the list to which the servers of all lines were brought; `None` if they must be compared with the list again.
    pub fn set_applied(&self, list: Option<Arc<Vec<Instance>>>) {
        self.applied.store(list);
    }

    /// Records an answer of the source. Returns whether the list is different from the last one.
    pub fn answered(&self, list: Vec<Instance>, now_ms: u64) -> bool {
        self.confirmed(now_ms);
        self.listed(list, now_ms)
    }

    /// Replaces the list without ending a failure: the source lists its instances, but cannot be followed. Returns whether the list
    /// is different from the last one.
    pub fn listed(&self, list: Vec<Instance>, now_ms: u64) -> bool {
        self.answered_at.store(now_ms.max(1), Relaxed);
        self.replaced(list, now_ms)
    }

    /// Replaces the list although the source sent nothing: host names have other addresses. Returns whether the list is different
    /// from the last one.
    pub fn replaced(&self, mut list: Vec<Instance>, now_ms: u64) -> bool {
        if self.list.load().as_deref().is_some_and(|own| *own == list) {
            return false;
        }
        list.shrink_to_fit();
        self.changes.add(1);
        self.changed_at.store(now_ms.max(1), Relaxed);
        self.list.store(Some(Arc::new(list)));
        true
    }

    /// Records that the source answered, and that its list is still the last one.
    pub fn confirmed(&self, now_ms: u64) {
        *self.status() = FeedStatus { state: FeedState::Current, error: Box::default() };
        self.answered_at.store(now_ms.max(1), Relaxed);
    }

    /// Records a failed request or an unusable answer. The list is kept. Returns whether the previous one had not failed.
    pub fn failed(&self, error: &str) -> bool {
        self.errors.add(1);
        let mut status = self.status();
        let is_first = status.state != FeedState::Failed;
        *status = FeedStatus { state: FeedState::Failed, error: error.into() };
        is_first
    }

    /// Makes the task of the list read its source without waiting, if it reads it in turns.
    pub fn refresh(&self) {
        self.is_refresh_wanted.store(true, Release);
        if let Some(waker) = self.waiting.lock().unwrap_or_else(PoisonError::into_inner).take() {
            waker.wake();
        }
    }

    /// Waits for [`Feed::refresh`]. A call before the wait ends it at once.
    pub fn poll_refresh(&self, context: &mut Context<'_>) -> Poll<()> {
        let mut waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        match self.is_refresh_wanted.swap(false, AcqRel) {
            true => Poll::Ready(()),
            false => {
                *waiting = Some(context.waker().clone());
                Poll::Pending
            }
        }
    }

    /// Sets the list that an earlier process had. It is used until the source answers.
    pub fn restore(&self, mut list: Vec<Instance>) {
        if self.list.load().is_none() {
            list.shrink_to_fit();
            self.list.store(Some(Arc::new(list)));
        }
    }

    /// Returns the state and the last error. The error is empty unless the state is [`FeedState::Failed`].
    pub fn state(&self) -> (FeedState, Box<str>) {
        let status = self.status();
        (status.state, status.error.clone())
    }

    /// Returns the time since the source last answered, in ms.
    pub fn age(&self, now_ms: u64) -> Option<u64> {
        since(&self.answered_at, now_ms)
    }

    /// Returns the time since the list last changed, in ms.
    pub fn unchanged(&self, now_ms: u64) -> Option<u64> {
        since(&self.changed_at, now_ms)
    }

    fn status(&self) -> MutexGuard<'_, FeedStatus> {
        self.status.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn since(at: &AtomicU64, now_ms: u64) -> Option<u64> {
    Some(at.load(Relaxed)).filter(|at| *at > 0).map(|at| now_ms.saturating_sub(at))
}

/// The state of a `discovery` section.
#[derive(Debug)]
pub struct DiscoverySource {
    /// The name of the section.
    pub name: Box<str>,
    /// The line of the section that sets the source. If it changes, the lists are obtained again.
    pub line: Box<str>,
    /// The feeds in use. Each belongs to the lines that use it.
    feeds: Mutex<Vec<Weak<Feed>>>,
}

impl DiscoverySource {
    /// Creates the state of a section without feeds.
    pub fn new(name: &str, line: &str) -> Self {
        Self { name: name.into(), line: line.into(), feeds: Mutex::default() }
    }

    /// Returns the feed for a query, and creates it if necessary.
    pub fn feed(&self, query: &str) -> Arc<Feed> {
        let mut feeds = self.feeds.lock().unwrap_or_else(PoisonError::into_inner);
        feeds.retain(|feed| feed.strong_count() > 0);
        if let Some(feed) = feeds.iter().filter_map(Weak::upgrade).find(|feed| *feed.query == *query) {
            return feed;
        }
        let feed = Arc::new(Feed { section: self.name.clone(), query: query.into(), ..Feed::default() });
        feeds.push(Arc::downgrade(&feed));
        feed
    }

    /// Returns the feeds in use, in order of their queries.
    pub fn feeds(&self) -> Vec<Arc<Feed>> {
        let feeds = self.feeds.lock().unwrap_or_else(PoisonError::into_inner);
        let mut feeds: Vec<Arc<Feed>> = feeds.iter().filter_map(Weak::upgrade).collect();
        feeds.sort_by(|one, other| one.query.cmp(&other.query));
        feeds
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn instance(id: &str) -> Instance {
        Instance::new(id, IpAddr::from([10, 0, 0, 1]), 80)
    }

    #[test]
    fn a_failure_keeps_the_list() {
        let feed = Feed::default();
        assert_eq!((feed.state().0, feed.list()), (FeedState::Waiting, None));
        assert!(feed.answered(vec![instance("a")], 5));
        assert!(!feed.answered(vec![instance("a")], 9), "the same list");
        assert!(feed.failed("no connection"));
        assert!(!feed.failed("no connection"), "only the first failure is news");
        assert_eq!(feed.state(), (FeedState::Failed, "no connection".into()));
        assert_eq!(feed.list().map(|list| list.len()), Some(1));
        assert_eq!((feed.age(10), feed.unchanged(10)), (Some(1), Some(5)));
        assert_eq!((feed.changes.get(), feed.errors.get()), (1, 2));
        assert!(
            feed.listed(vec![instance("b")], 9) && feed.state().0 == FeedState::Failed,
            "the failure lasts"
        );
        feed.restore(Vec::new());
        assert_eq!(
            feed.list().map(|list| list.len()),
            Some(1),
            "a list is newer than that of an earlier process"
        );
    }

    #[test]
    fn a_list_is_applied_until_it_changes() {
        let feed = Feed::default();
        assert!(feed.is_applied(), "there is nothing to apply");
        feed.answered(vec![instance("a")], 1);
        assert!(!feed.is_applied());
        feed.set_applied(feed.list());
        assert!(feed.is_applied());
        feed.answered(vec![instance("a")], 2);
        assert!(feed.is_applied(), "the same list");
        feed.answered(vec![instance("b")], 3);
        assert!(!feed.is_applied());
        feed.set_applied(feed.list());
        feed.set_applied(None);
        assert!(!feed.is_applied());
    }

    #[test]
    fn an_empty_list_is_a_change() {
        let feed = Feed::default();
        assert!(feed.answered(Vec::new(), 1));
        assert!(feed.answered(vec![instance("a")], 2));
        assert!(feed.answered(Vec::new(), 3));
    }

    #[test]
    fn a_refresh_before_the_wait_is_not_lost() {
        let feed = Feed::default();
        let mut context = Context::from_waker(Waker::noop());
        assert!(feed.poll_refresh(&mut context).is_pending());
        feed.refresh();
        assert!(feed.poll_refresh(&mut context).is_ready());
        assert!(feed.poll_refresh(&mut context).is_pending(), "it counts once");
    }

    #[test]
    fn feeds_are_shared_by_query_and_end_with_their_lines() {
        let source = DiscoverySource::new("kube", "kubernetes");
        let (one, same, other) = (source.feed("a"), source.feed("a"), source.feed("b"));
        assert!(Arc::ptr_eq(&one, &same) && !Arc::ptr_eq(&one, &other));
        drop((one, same));
        assert_eq!(source.feeds().len(), 1);
    }
}
