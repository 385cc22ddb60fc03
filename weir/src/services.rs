//! Connects services of other crates to requests: the statistics page, metrics, name lookups by rules, connections from peers.

use std::collections::HashMap;
use std::sync::Arc;

use base::raw::text_of;
use control::Runtime;
use diag::Severity;
use plan::Plan;
use proxy::Services;
use proxy::shared::{AddressLookup, ServedConnection, ServiceReply, ServiceRequest};
use statistics::page::{PageRequest, PageResponse};
use statistics::prometheus::MetricsRequest;

use crate::messages::MessageFormat;
use crate::view;

/// Returns the services of other crates.
pub(crate) fn services(
    runtime: Arc<Runtime>,
    sections: resolvers::Sections,
    asking: httpclient::ClientSettings,
    plan: &Plan,
    messages: MessageFormat,
) -> Services {
    let (of_page, of_scripts) = (runtime.clone(), runtime.clone());
    let page =
        move |_: &plan::Proxy, page: &plan::proxy::StatsPage, request: &ServiceRequest<'_>| -> ServiceReply {
            let settings = view::page(page);
            let uri = text_of(request.target);
            let request = PageRequest {
                method: http::Method::from_bytes(request.method),
                uri: &uri,
                body: request.body,
                admin: request.admin,
            };
            reply(control::page::respond(&of_page, &settings, &request))
        };
    let metrics = move |request: &ServiceRequest<'_>| -> ServiceReply {
        let uri = text_of(request.target);
        let request = MetricsRequest {
            method: http::Method::from_bytes(request.method),
            uri: &uri,
            accept: &request.accept,
        };
        reply(statistics::prometheus::respond(&runtime.statistics, &request))
    };
    let resolve =
        move |section: &Arc<state::resolvers::ResolversSection>, name: Box<str>, prefer| -> AddressLookup {
            let (sections, section) = (sections.clone(), section.clone());
            Box::pin(async move { sections.lookup(&section, &name, prefer).await })
        };
    // `peers` sections outlive plans, and have a different index in each plan.
    let places = plan.proxies.iter().enumerate().filter(|(_, proxy)| proxy.peers.is_some());
    let names: HashMap<usize, Box<str>> =
        places.map(|(place, proxy)| (place, proxy.state.name.clone())).collect();
    let serve_peer = move |place: usize, stream: net::Stream, early: Vec<u8>| -> ServedConnection {
        let name = names.get(&place).cloned().unwrap_or_default();
        Box::pin(crate::peers::serve(name, stream, early))
    };
    let asking = Arc::new(asking);
    Services {
        perform: Box::new(move |wait| crate::scripts::perform(asking.clone(), of_scripts.clone(), wait)),
        statistics: Box::new(page),
        metrics: Box::new(metrics),
        resolve: Box::new(resolve),
        serve_peer: Box::new(serve_peer),
        alert: Box::new(move |text: &str| messages.say(Severity::Alert, text)),
    }
}

/// Converts a page to the proxy's type.
fn reply(response: PageResponse) -> ServiceReply {
    ServiceReply {
        status: response.status,
        headers: response.headers.into_iter().map(|(name, value)| (name.to_owned(), value)).collect(),
        body: response.body,
    }
}
