//! The objects of a proxy that have rows in `show stat`.

use std::sync::Arc;

use state::{Listener, Server};

use crate::column::ObjectRow;
use crate::config_view::ProxyView;
use crate::stat::{RowFilter, Show, backend_row, frontend_row, listener_row, server_row};

/// The object that a row describes. Rows are several kB and are created one by one; a list of all objects is small.
pub(crate) enum RowObject {
    Frontend,
    Listener(Arc<Listener>),
    Server(Arc<Server>),
    Backend,
}

impl RowObject {
    /// Creates the row of this object of `proxy`.
    pub(crate) fn row(&self, proxy: &ProxyView, show: Show) -> ObjectRow {
        match self {
            Self::Frontend => frontend_row(proxy, show),
            Self::Listener(listener) => listener_row(proxy, listener, show),
            Self::Server(server) => server_row(proxy, server, show),
            Self::Backend => backend_row(proxy, show),
        }
    }
}

/// The objects of one proxy in HAProxy's order: frontend, listeners, servers, backend.
pub(crate) fn objects(proxy: &ProxyView, filter: &RowFilter) -> Vec<RowObject> {
    let state = &proxy.state;
    let front = state.is_frontend && filter.wants_kind(1) && filter.server.is_none();
    let listeners = state.is_frontend && proxy.listeners && filter.wants_kind(8);
    let back = state.is_backend && filter.wants_kind(2) && filter.server.is_none();
    let mut objects = Vec::new();
    objects.extend(front.then_some(RowObject::Frontend));
    if listeners {
        objects.extend(state.listeners.load().iter().cloned().map(RowObject::Listener));
    }
    if state.is_backend && filter.wants_kind(4) {
        let servers = state.servers.load();
        let wanted = servers.iter().filter(|server| filter.wants_server(server));
        objects.extend(wanted.cloned().map(RowObject::Server));
    }
    objects.extend(back.then_some(RowObject::Backend));
    objects
}
