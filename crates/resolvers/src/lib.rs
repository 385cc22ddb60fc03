//! Name resolution at run time: `resolvers` sections (manual, section 5.3), the servers that follow them, and `do-resolve`.
//!
//! Each section runs on one worker: [`Sections::start`] is called on every worker and starts the sections assigned to it. `engine`
//! decides which queries to send and evaluates the answers, without socket or clock; `transport` owns the sockets; `servers`
//! applies the results to [`state::Server`]. [`Sections::lookup`] and [`Sections::rename`] can be called from any worker. This
//! crate does not use the system's own resolver; `config` uses it at startup.

#![forbid(unsafe_code)]

mod choose;
mod engine;
mod families;
pub mod fuzzing;
mod message;
mod secure;
mod servers;
mod task;
mod transport;

use std::net::IpAddr;
use std::sync::Arc;

use base::address::Family;
use plan::Plan;
use state::Process;
use state::resolvers::ResolversSection;
use tokio::sync::oneshot;

/// Receives messages. The arguments are the backend concerned, the syslog level and the text.
pub type NotifyFn = Arc<dyn Fn(&state::Proxy, u8, &str) + Send + Sync>;

/// Callbacks for events.
#[derive(Clone)]
pub struct ResolverCallbacks {
    /// Receives messages.
    pub notify: NotifyFn,
    /// Called when a server's address has changed. The arguments are the index of its backend, and its index in that backend.
    pub moved: Arc<dyn Fn(usize, usize) + Send + Sync>,
    /// Called with the name of a `peers` section when a resolution of its peers has ended.
    pub peers: Arc<dyn Fn(&str) + Send + Sync>,
}

/// The `resolvers` sections of a plan.
#[derive(Clone)]
pub struct Sections {
    plan: Arc<Plan>,
    process: Arc<Process>,
    callbacks: ResolverCallbacks,
}

impl Sections {
    /// Returns the sections of `plan`, not yet started.
    pub fn new(plan: Arc<Plan>, process: Arc<Process>, callbacks: ResolverCallbacks) -> Self {
        Self { plan, process, callbacks }
    }

    /// Starts the sections assigned to the calling worker. Called once on each worker.
    pub fn start(&self) {
        for (place, section) in self.plan.resolvers.iter().enumerate() {
            if worker_of(place) == runtime::current_worker() {
                task::begin(place, section, &self.plan, &self.process, &self.callbacks);
            }
        }
    }

    /// Stops the sections assigned to the calling worker because another plan is in use.
    pub fn stop(&self) {
        for place in 0..self.plan.resolvers.len() {
            if worker_of(place) == runtime::current_worker() {
                task::end(place);
            }
        }
    }

    /// Returns the address of `name`, cached or resolved by `section`, which must be a section of the plan; `None` if the name has
    /// no address. `prefer` selects the preferred address family.
    pub async fn lookup(
        &self,
        section: &Arc<ResolversSection>,
        name: &str,
        prefer: Option<Family>,
    ) -> Option<IpAddr> {
        let place = self.plan.resolvers.iter().position(|one| Arc::ptr_eq(&one.state, section))?;
        let (send, receive) = oneshot::channel();
        let name = name.to_owned();
        runtime::worker::post(worker_of(place), move || task::lookup(place, &name, prefer, send));
        receive.await.ok().flatten()
    }

    /// Gives a server of the plan another host name, and starts to resolve that.
    pub fn rename(&self, backend: &str, server: &Arc<state::Server>, name: &str) {
        let found = self.plan.backend(backend).and_then(|backend| {
            let own = backend.servers.iter().find(|own| Arc::ptr_eq(&own.state, server))?;
            let section = &own.resolution.as_ref()?.resolvers;
            self.plan.resolvers.iter().position(|one| Arc::ptr_eq(one, section))
        });
        let Some(place) = found else { return };
        let (backend, server, name) = (backend.to_owned(), server.clone(), name.to_owned());
        runtime::worker::post(worker_of(place), move || task::rename(place, &backend, &server, &name));
    }
}

/// Returns the worker to which a section is assigned.
fn worker_of(place: usize) -> usize {
    place % runtime::shard::workers()
}
