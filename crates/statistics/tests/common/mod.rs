//! Statistics of a process with a frontend and a backend of three servers, for tests.

#![allow(dead_code, reason = "no test needs all of it")]

pub(crate) mod farm;

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use state::proxy::ProxySeed;
use state::server::{ServerAddress, ServerSeed};
use state::{Listener, Mode, Proxy, Server};
use statistics::{ConfigView, ProxyView, ServerView, SocketView, Statistics};

pub(crate) fn server(id: u32, name: &str, checked: bool, backup: bool) -> Arc<Server> {
    let server = Server::new(ServerSeed {
        id,
        name: name.into(),
        proxy: "be".into(),
        backup,
        maxconn: 0,
        minconn: 0,
        maxqueue: 0,
        address: ServerAddress::Ip(SocketAddr::from(([127, 0, 0, 1], 8000 + id as u16))),
        weight: 10,
        disabled: false,
        checked,
    });
    server.health.configured.store(checked, Relaxed);
    server.health.rise.store(2, Relaxed);
    server.health.fall.store(3, Relaxed);
    server.health.level.store(4, Relaxed);
    server
}

pub(crate) fn proxy(
    id: u32,
    name: &str,
    is_frontend: bool,
    is_backend: bool,
    servers: Vec<Arc<Server>>,
) -> ProxyView {
    let state = Arc::new(Proxy::new(ProxySeed {
        id,
        name: name.into(),
        mode: Mode::Http,
        is_frontend,
        is_backend,
        maxconn: 2000,
        session_limit: 0,
        disabled: false,
    }));
    state.servers.store(Arc::new(servers.clone()));
    if is_frontend {
        let listener = Listener::new(1, "sock-1".into(), "127.0.0.1:80".into(), 0);
        state.listeners.store(Arc::new(vec![Arc::new(listener)]));
    }
    let view = |state: Arc<Server>| ServerView {
        cookie: Some(format!("c{}", state.id).into()),
        pool_max: -1,
        pool_purge: Duration::from_secs(5),
        state,
    };
    ProxyView {
        policies: Default::default(),
        servers: servers.into_iter().map(view).collect(),
        state,
        algorithm: "roundrobin",
        dynamic_weights: true,
        cookie: None,
        description: None,
        listeners: false,
    }
}

pub(crate) fn statistics() -> Arc<Statistics> {
    let process = Arc::new(state::Process::default());
    process.maxconn.store(1000, Relaxed);
    process.hard_maxconn.store(1000, Relaxed);
    let servers =
        vec![server(1, "s1", true, false), server(2, "s2", false, false), server(3, "s3", false, true)];
    let view = ConfigView {
        node: "n1".into(),
        proxies: vec![proxy(2, "fe", true, false, vec![]), proxy(3, "be", false, true, servers)],
        sockets: vec![SocketView { address: "unix@/tmp/s".into(), level: "admin" }],
        environment: vec![("A".into(), "1".into())],
        ..ConfigView::default()
    };
    Arc::new(Statistics::new(process, view))
}
