//! Attaches all routes and compiles their rules.

use std::collections::BTreeMap;

use crate::api::{Meta, Object, ParentRef, StreamRouteSpec};
use crate::objects::Key;

use super::Listeners;
use super::attach::{Attachment, Parent, Route, attach, set_status};
use super::backends::Backends;
use super::context::Context;
use super::gateways::GatewayState;
use super::http::{self, HttpRule, Lowered, Parents};
use super::streams::{self, StreamAttached};

/// A route of HTTP requests or gRPC calls with its listeners.
pub(crate) struct HttpAttached<'a> {
    pub(crate) rules: Vec<HttpRule<'a>>,
    pub(crate) attachments: Vec<Attachment>,
}

/// All routes with their listeners.
#[derive(Default)]
pub(crate) struct AllAttached<'a> {
    pub(crate) http: Vec<HttpAttached<'a>>,
    pub(crate) tls: Vec<StreamAttached<'a>>,
    pub(crate) tcp: Vec<StreamAttached<'a>>,
    pub(crate) udp: Vec<StreamAttached<'a>>,
}

/// Attaches all routes, and sets their statuses.
pub(crate) fn attach_all<'a>(
    context: &mut Context<'a>,
    gateways: &[GatewayState<'a>],
    listeners: &mut Listeners<'a>,
    backends: &mut Backends<'a>,
) -> AllAttached<'a> {
    let mut all = AllAttached::default();
    let objects = context.objects;
    for (key, object) in &objects.http_routes {
        let spec = &object.spec;
        let route = route("HTTPRoute", key, object.meta(), &spec.parent_refs, &spec.hostnames);
        let (parents, attachments) = attach(context, listeners, route);
        let own = lower_groups(gateways, listeners, attachments, |parents| {
            http::http_route(context, backends, route, parents, object)
        });
        finish(context, &mut all, route, &parents, own);
    }
    for (key, object) in &objects.grpc_routes {
        let spec = &object.spec;
        let route = route("GRPCRoute", key, object.meta(), &spec.parent_refs, &spec.hostnames);
        let (parents, attachments) = attach(context, listeners, route);
        let own = lower_groups(gateways, listeners, attachments, |parents| {
            http::grpc_route(context, backends, route, parents, object)
        });
        finish(context, &mut all, route, &parents, own);
    }
    let mut streams = |kind, key, meta, spec: &'a StreamRouteSpec| {
        let hostnames: &[String] = if kind == "TLSRoute" { &spec.hostnames } else { &[] };
        let route = route(kind, key, meta, &spec.parent_refs, hostnames);
        let (parents, attachments) = attach(context, listeners, route);
        let keys = gateway_keys(gateways, listeners, &attachments);
        let (destination, conditions) = streams::lower(context, backends, route, &keys, spec);
        set_status(context, route, &parents, &conditions);
        StreamAttached { age: (&meta.creation_timestamp, key), destination, attachments }
    };
    for (key, it) in &objects.tls_routes {
        all.tls.push(streams("TLSRoute", key, &it.metadata, &it.spec));
    }
    for (key, it) in &objects.tcp_routes {
        all.tcp.push(streams("TCPRoute", key, &it.metadata, &it.spec));
    }
    for (key, it) in &objects.udp_routes {
        all.udp.push(streams("UDPRoute", key, &it.metadata, &it.spec));
    }
    all
}

/// The gateways of attachments.
fn gateway_keys<'a>(
    gateways: &[GatewayState<'a>],
    listeners: &Listeners<'a>,
    attachments: &[Attachment],
) -> Vec<&'a Key> {
    let mut keys: Vec<&Key> =
        attachments.iter().map(|it| gateways[listeners.list[it.listener].gateway].key).collect();
    keys.sort();
    keys.dedup();
    keys
}

/// Compiles a route for each group of gateways with the same client certificate; once without attachments, for the status.
fn lower_groups<'a>(
    gateways: &[GatewayState<'a>],
    listeners: &Listeners<'a>,
    attachments: Vec<Attachment>,
    mut lower: impl FnMut(Parents<'_>) -> Lowered<'a>,
) -> Vec<(Lowered<'a>, Vec<Attachment>)> {
    let mut groups: BTreeMap<Option<&str>, Vec<Attachment>> = BTreeMap::new();
    for attachment in attachments {
        let gateway = &gateways[listeners.list[attachment.listener].gateway];
        groups.entry(gateway.client_certificate()).or_default().push(attachment);
    }
    if groups.is_empty() {
        groups.insert(None, Vec::new());
    }
    let mut lowered = Vec::new();
    for (group, (certificate, attachments)) in groups.into_iter().enumerate() {
        let keys = gateway_keys(gateways, listeners, &attachments);
        lowered.push((lower(Parents { gateways: &keys, certificate, group }), attachments));
    }
    lowered
}

fn finish<'a>(
    context: &mut Context<'a>,
    all: &mut AllAttached<'a>,
    route: Route<'a>,
    parents: &[Parent<'_>],
    own: Vec<(Lowered<'a>, Vec<Attachment>)>,
) {
    if let Some((lowered, _)) = own.first() {
        set_status(context, route, parents, &lowered.conditions);
    }
    let attached = own.into_iter().filter(|(_, attachments)| !attachments.is_empty());
    all.http
        .extend(attached.map(|(lowered, attachments)| HttpAttached { rules: lowered.rules, attachments }));
}

fn route<'a>(
    kind: &'static str,
    key: &'a Key,
    meta: &'a Meta,
    parents: &'a [ParentRef],
    hostnames: &'a [String],
) -> Route<'a> {
    Route { kind, key, meta, parents, hostnames }
}
