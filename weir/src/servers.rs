//! Servers and backends added and removed at run time: applies the decisions of the runtime socket to the plan, the workers and the
//! checks.

use std::pin::Pin;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Mutex, Weak};

use config::dynamic::{self, AddServer, AskedBackend};
use control::{Keeper, NewBackend, OwnResponse, Receiving, Runtime};
use plan::Proxy;
use proxy::Shared;
use state::{Admin, Server, events};

use crate::view;

/// The largest body that `httpclient` shows.
const LONGEST_BODY: usize = 64 << 20;

/// Manages the servers of a running process.
pub(crate) struct RuntimeServers {
    pub(crate) shared: Arc<Shared>,
    runtime: Weak<Runtime>,
    pub(crate) checks: Arc<health::Checks>,
    sections: resolvers::Sections,
    /// Serialises changes.
    pub(crate) changing: Mutex<()>,
}

/// Enables the runtime socket to add and remove servers.
pub(crate) fn keep(
    shared: &Arc<Shared>,
    runtime: &Arc<Runtime>,
    checks: &Arc<health::Checks>,
    sections: &resolvers::Sections,
) -> Arc<RuntimeServers> {
    let keeper = Arc::new(RuntimeServers {
        shared: shared.clone(),
        runtime: Arc::downgrade(runtime),
        checks: checks.clone(),
        sections: sections.clone(),
        changing: Mutex::default(),
    });
    runtime.keep(keeper.clone());
    keeper
}

impl RuntimeServers {
    fn backend(&self, name: &str) -> Option<(usize, &Arc<Proxy>)> {
        let index = self.shared.plan.backends.get(name)?;
        Some((index, &self.shared.plan.proxies[index]))
    }

    /// Returns the server that `track` names. It must be a server of the configuration with its own checks.
    fn tracked(&self, own: &Proxy, name: &str) -> Result<(Arc<state::Proxy>, Arc<Server>), String> {
        let (backend, server) = name.split_once('/').unwrap_or((&own.state.name, name));
        let found = self.backend(backend).and_then(|(_, proxy)| Some((proxy, proxy.state.server(server)?)));
        let Some((proxy, found)) = found else {
            return Err(format!("unable to find required proxy or server '{name}' for tracking."));
        };
        let wrong = |why: &str| Err(format!("unable to use {backend}/{server} for tracking as it {why}."));
        if found.dynamic.load(Relaxed) {
            return wrong("is a dynamic server");
        }
        let settings = proxy.servers.fixed().iter().find(|one| Arc::ptr_eq(&one.state, &found));
        let watched =
            settings.is_some_and(|one| one.check.is_some() || one.agent.is_some() || one.track.is_some());
        if !watched {
            return wrong("does not have any check nor agent enabled");
        }
        Ok((proxy.state.clone(), found))
    }

    /// Updates the configuration view of the runtime socket.
    fn update(&self, change: impl FnOnce(&mut statistics::ConfigView)) {
        let Some(runtime) = self.runtime.upgrade() else { return };
        let mut all = statistics::ConfigView::clone(&runtime.view());
        change(&mut all);
        runtime.statistics.replace(all);
    }

    /// Returns the current holder of a globally unique identifier.
    fn holder_of(&self, guid: &str) -> Option<String> {
        let is = |own: &std::sync::OnceLock<Box<str>>| own.get().is_some_and(|own| **own == *guid);
        self.shared.plan.proxies.iter().filter(|proxy| !proxy.state.removed.load(Relaxed)).find_map(|proxy| {
            let (name, state) = (&proxy.state.name, &proxy.state);
            if is(&state.guid) {
                let kind = if !state.is_backend {
                    "frontend"
                } else if state.is_frontend {
                    "listen"
                } else {
                    "backend"
                };
                return Some(format!("{kind} {name}"));
            }
            if let Some(listener) = state.listeners.load().iter().find(|listener| is(&listener.guid)) {
                return Some(format!("listener {}", listener.name));
            }
            let servers = state.servers.load();
            let server = servers.iter().find(|server| is(&server.guid))?;
            Some(format!("server {name}/{}", server.name))
        })
    }

    /// Updates the list of servers of the runtime socket.
    pub(crate) fn show(&self, proxy: &Proxy) {
        self.update(|all| {
            if let Some(own) = all.proxies.iter_mut().find(|own| own.state.id == proxy.state.id) {
                own.servers = view::servers(proxy);
            }
        });
    }
}

/// Returns the index of a server in its backend.
fn place_of(proxy: &Proxy, server: &Arc<Server>) -> Option<usize> {
    proxy.servers.iter().find(|one| Arc::ptr_eq(&one.state, server)).map(|one| one.index)
}

/// Removes `track` and its argument from the parameters.
fn split_track(words: &[String]) -> Result<(Vec<String>, Option<String>), String> {
    let mut rest = words.to_vec();
    let Some(at) = rest.iter().skip(1).position(|word| word == "track").map(|at| at + 1) else {
        return Ok((rest, None));
    };
    if rest.len() <= at + 1 {
        return Err("'track' expects [<proxy>/]<server> as argument.".to_owned());
    }
    if rest.iter().any(|word| word == "check") {
        return Err("unable to enable checks and tracking at the same time!".to_owned());
    }
    let track = rest.drain(at..at + 2).nth(1);
    Ok((rest, track))
}

impl Keeper for RuntimeServers {
    fn add(&self, backend: &str, name: &str, words: &[String]) -> Result<(), String> {
        // After a panic while adding a server, the others are intact.
        let _changing = self.changing.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        let (index, proxy) = self.backend(backend).ok_or("No such backend.")?;
        let prepared = &self.shared.proxies[index];
        if proxy.mode == state::Mode::Log {
            return Err("Dynamic servers cannot be used with log backends.".to_owned());
        }
        if !prepared.is_dynamic() {
            return Err(format!(
                "Backend does not support dynamic servers : backend '{backend}' uses a non dynamic load balancing method."
            ));
        }
        let (words, track) = split_track(words)?;
        if proxy.mode != state::Mode::Http
            && words.windows(2).any(|pair| pair[0] == "proto" && pair[1] == "h2")
        {
            return Err("MUX protocol is not usable for server.".to_owned());
        }
        let track = track.map(|track| self.tracked(proxy, &track)).transpose()?;
        let mut states = proxy.state.servers.load().to_vec();
        if states.iter().any(|server| *server.name == *name) {
            return Err("Already exists a server with the same name in backend.".to_owned());
        }
        let id = (1..).find(|id| states.iter().all(|server| server.id != *id)).unwrap_or(0);
        let asked = AddServer { backend: index, name, words: &words, id, track };
        let server = dynamic::resolve(&self.shared.plan, asked)?;
        if states.iter().any(|other| other.id == server.state.id) {
            return Err(format!("'id' : custom id {} already used.", server.state.id));
        }
        if let Some(other) = server.guid.as_ref().and_then(|guid| self.holder_of(guid)) {
            return Err(format!("'guid': duplicate entry with {other}"));
        }
        let server = proxy.servers.add(server).ok_or("The backend has too many servers.")?;
        if let Some((backend, followed)) = &server.track {
            server.state.track(&proxy.state, backend, followed);
            if followed.admin().in_maintenance() {
                server.state.change_admin(Admin::INHERITED_MAINT, 0, base::clock::now_ms());
            }
        }
        server.state.number_revision();
        states.push(server.state.clone());
        proxy.state.servers.store(Arc::new(states));
        prepared.renew();
        self.show(proxy);
        self.checks.add(proxy, &server);
        events::added(&proxy.state, &server.state);
        Ok(())
    }

    fn remove(&self, backend: &str, server: &Arc<Server>) {
        // The state is intact after a panic, as explained above.
        let _changing = self.changing.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        let Some((index, proxy)) = self.backend(backend) else { return };
        let mut states = proxy.state.servers.load().to_vec();
        states.retain(|other| !Arc::ptr_eq(other, server));
        proxy.state.servers.store(Arc::new(states));
        self.checks.forget(server);
        server.end_revision();
        events::removed(&proxy.state, server);
        self.show(proxy);
        let settings = proxy.servers.iter().find(|one| Arc::ptr_eq(&one.state, server));
        if let Some(tls) = settings.as_ref().and_then(|one| one.tls.as_ref()) {
            let files = &self.shared.plan.tls;
            files.remove_server(&tls.connector);
            tls.check.iter().for_each(|connector| files.remove_server(connector));
        }
        if let Some(place) = place_of(proxy, server) {
            proxy.servers.remove(place);
            proxy::worker::forget(self.shared.generation, index, place);
        }
    }

    fn close_idle(&self, backend: &str, server: &Arc<Server>) -> Pin<Box<dyn Future<Output = ()>>> {
        let found = self.backend(backend).and_then(|(index, proxy)| Some((index, place_of(proxy, server)?)));
        let generation = self.shared.generation;
        Box::pin(async move {
            let Some((backend, server)) = found else { return };
            proxy::worker::close_idle(generation, backend, server).await;
        })
    }

    fn rename_host(&self, backend: &str, server: &Arc<Server>, name: &str) {
        self.sections.rename(backend, server, name);
    }

    fn default_servers(&self, backend: &str) -> Vec<String> {
        self.backend(backend).map_or_else(Vec::new, |(_, proxy)| {
            proxy.lent.default_names().into_iter().map(str::to_owned).collect()
        })
    }

    fn defaults(&self) -> Vec<(Box<str>, bool)> {
        let sections = &self.shared.plan.kept.defaults;
        sections.iter().map(|section| (section.name.clone(), section.has_mode)).collect()
    }

    fn add_backend(&self, asked: &NewBackend<'_>) -> Result<(), String> {
        // After a panic while adding a backend, the others are intact.
        let _changing = self.changing.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        let plan = &self.shared.plan;
        let here =
            |proxy: &&Arc<Proxy>| !proxy.state.removed.load(Relaxed) && *proxy.state.name == *asked.name;
        if let Some(other) = plan.proxies.iter().find(here) {
            let kind = if other.state.is_backend { "backend" } else { "frontend" };
            return Err(format!("name is already used by other proxy '{kind} {}'.", asked.name));
        }
        if let Some(other) = asked.guid.and_then(|guid| self.holder_of(guid)) {
            return Err(format!("GUID insertion : duplicate entry with {other}."));
        }
        let id = (2..).find(|id| plan.proxies.iter().all(|proxy| proxy.state.id != *id)).unwrap_or(0);
        let NewBackend { name, defaults, mode, guid } = *asked;
        let view = self.runtime.upgrade().map(|runtime| runtime.view());
        let patterns = view.as_ref().map_or(&*plan.patterns, |view| &*view.patterns);
        let asked = AskedBackend { name, defaults, mode, guid, id, patterns };
        let (backend, patterns) = dynamic::resolve_backend(plan, &asked)?;
        let backend = self.shared.add(backend).ok_or("too many proxies.")?;
        self.update(|all| {
            all.proxies.push(view::proxy_view(backend));
            all.patterns = patterns;
        });
        plan.backends.insert(name, backend.index);
        Ok(())
    }

    fn remove_backend(&self, name: &str) {
        // The state is intact after a panic, as explained above.
        let _changing = self.changing.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        let Some((_, backend)) = self.backend(name) else { return };
        self.shared.plan.backends.remove(name);
        self.update(|all| all.proxies.retain(|own| own.state.id != backend.state.id));
    }

    fn log(&self, text: &str) {
        // Level `info`.
        crate::checks::log_global(&self.shared, 6, text);
    }

    fn send(&self, method: &str, url: &str) -> Result<Receiving, String> {
        let url = httpclient::Url::parse(url).map_err(|error| error.to_string())?;
        let mut settings = httpclient::ClientSettings::of(&self.shared.plan, &self.sections);
        settings.max_body = LONGEST_BODY;
        let request = httpclient::Request::new(method, url);
        Ok(Box::pin(async move {
            let httpclient::Response { status, reason, headers, body } =
                httpclient::send(&settings, &request).await.map_err(|error| error.to_string())?;
            Ok(OwnResponse { status, reason, headers, body })
        }))
    }

    fn explain(&self, words: &[String]) -> Result<String, String> {
        let question = explain::Question::parse(words)?;
        explain::explain(&self.shared.plan, &self.shared.process, &question)
    }

    fn parameters(&self) -> Vec<&'static str> {
        dynamic::keywords().collect()
    }
}
