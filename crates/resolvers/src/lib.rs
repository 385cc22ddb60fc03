//! Names resolved at run time: `resolvers` sections (manual, section 5.3), the servers that follow
//! them, and `do-resolve`.
//!
//! Each section lives on one worker: [`Sections::start`] is called on every worker and takes those
//! that fall to it. What is asked, when, and what answers mean is `engine`, without socket or
//! clock; `transport` holds the sockets; `servers` does to [`state::Server`] what follows. Others
//! ask through [`Sections::lookup`] and [`Sections::rename`], from any worker. The system's own
//! resolver is not used here: that is `config`'s affair, at the start.

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

/// Takes a message: the backend it is about, its syslog level, its text.
pub type NotifyFn = Arc<dyn Fn(&state::Proxy, u8, &str) + Send + Sync>;

/// Who is told what happens.
#[derive(Clone)]
pub struct ResolverCallbacks {
    /// Takes messages.
    pub notify: NotifyFn,
    /// A server has another address: the places of its backend and of the server in it.
    pub moved: Arc<dyn Fn(usize, usize) + Send + Sync>,
}

/// The sections of a plan.
#[derive(Clone)]
pub struct Sections {
    plan: Arc<Plan>,
    process: Arc<Process>,
    tell: ResolverCallbacks,
}

impl Sections {
    /// The sections of `plan`, not at work yet.
    pub fn new(plan: Arc<Plan>, process: Arc<Process>, tell: ResolverCallbacks) -> Self {
        Self { plan, process, tell }
    }

    /// Begins the work of the sections that fall to the calling worker. Called once on each.
    pub fn start(&self) {
        for (place, section) in self.plan.resolvers.iter().enumerate() {
            if worker_of(place) == runtime::current_worker() {
                task::begin(place, section, &self.plan, &self.process, &self.tell);
            }
        }
    }

    /// Ends the work of the sections that fall to the calling worker: another plan is in use.
    pub fn stop(&self) {
        for place in 0..self.plan.resolvers.len() {
            if worker_of(place) == runtime::current_worker() {
                task::end(place);
            }
        }
    }

    /// The address of `name` as `section`, one of the plan's, knows or finds it; `None` when it has
    /// none. For one family rather than the other if `prefer` says so.
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

    /// Gives a server of the plan another host name, which is resolved from now on.
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

/// The worker that a section falls to.
fn worker_of(place: usize) -> usize {
    place % runtime::shard::workers()
}
