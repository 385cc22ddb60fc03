//! The thread that keeps the lists of instances current: a task for each list, with its back-off.

use std::cell::RefCell;
use std::collections::HashMap;
use std::io;
use std::rc::Rc;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use plan::Plan;
use plan::discovery::DiscoverySection;
use runtime::timer;
use state::discovery::Feed;
use tokio::sync::Notify;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::task::AbortHandle;

use crate::callbacks::DiscoveryCallbacks;
use crate::follow::Follower;

/// How often servers that are leaving are looked at.
const SWEEP: Duration = Duration::from_millis(200);

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
                    let follower = Follower::new(section.clone(), feed, &callbacks, &leaving);
                    Task { section, end: tokio::task::spawn_local(follower.run()).abort_handle() }
                }
            };
            tasks.insert(key, task);
        }
    }
}

/// Removes servers that have left once they are idle.
async fn sweep(callbacks: DiscoveryCallbacks, leaving: Rc<Notify>) {
    loop {
        leaving.notified().await;
        while (callbacks.sweep)().await {
            timer::sleep(SWEEP).await;
        }
    }
}
