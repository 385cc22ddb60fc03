//! Translates objects to configuration text.

mod attach;
mod backends;
mod certificates;
mod context;
mod features;
mod gateways;
mod grants;
mod hostnames;
pub(crate) mod http;
mod ingress;
mod listeners;
mod pem;
mod policies;
mod policy_table;
mod ports;
mod resolve;
mod routes;
mod statuses;
mod streams;

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use crate::objects::{Key, Objects};
use crate::output::Output;
use crate::settings::Settings;
use crate::text::Text;

use self::backends::Backends;
pub use self::backends::endpoints_section;
use self::context::Context;
use self::gateways::GatewayState;
use self::listeners::{ListenerState, Owner};

/// All listeners of the controller.
pub(crate) struct Listeners<'a> {
    pub(crate) list: Vec<ListenerState<'a>>,
    /// The listeners of each object.
    pub(crate) by_owner: BTreeMap<Owner<'a>, Range<usize>>,
    /// The index of each gateway, keyed by the gateway's key.
    pub(crate) gateways: BTreeMap<&'a Key, usize>,
    /// The listener sets that belong to these gateways.
    pub(crate) sets: BTreeSet<&'a Key>,
}

/// Translates objects to configuration text, files, statuses and events.
///
/// Equal objects give equal output. Objects that contradict the specification, or that other objects contradict, are left out of
/// the text, with the reason in their statuses.
pub fn translate(objects: &Objects, settings: &Settings) -> Output {
    let Some(expanded) = ingress::expand(objects, settings) else {
        return translate_routes(objects, settings);
    };
    let mut output = translate_routes(&expanded, settings);
    ingress::contract(objects, settings, &mut output);
    output
}

fn translate_routes(objects: &Objects, settings: &Settings) -> Output {
    let mut context = Context::new(objects, settings);
    let classes = gateways::classes(&mut context);
    let gateways = gateways::gateways(&mut context, &classes);
    policies::read(&mut context);
    let mut listeners = collect(&mut context, &gateways);
    let mut backends = Backends::default();
    let attached = routes::attach_all(&mut context, &gateways, &mut listeners, &mut backends);
    let mut text = Text::default();
    write_header(&mut context, &mut text);
    let mut sections = Text::default();
    http::authorize::write_frontend(&context, &mut sections);
    ports::write(&mut context, &mut sections, &gateways, &listeners, &attached);
    statuses::set(&mut context, &gateways, &listeners);
    policies::set_statuses(&mut context);
    drop(attached);
    backends.write(&mut context, &mut text);
    text.verbatim(&sections.finish());
    text.verbatim(&settings.sections);
    let Context { files, mut statuses, events, .. } = context;
    statuses.sort_by(|one, other| (one.kind, &one.key).cmp(&(other.kind, &other.key)));
    Output { config: text.finish(), files, statuses, events: events.into_iter().collect() }
}

/// The listeners of gateways and of the listener sets that they admit, in the order of their precedence.
fn collect<'a>(context: &mut Context<'a>, gateways: &[GatewayState<'a>]) -> Listeners<'a> {
    let mut all = Listeners {
        list: Vec::new(),
        by_owner: BTreeMap::new(),
        gateways: gateways::by_key(gateways),
        sets: BTreeSet::new(),
    };
    let add = |all: &mut Listeners<'a>, owner, mut own: Vec<ListenerState<'a>>| {
        let start = all.list.len();
        all.list.append(&mut own);
        all.by_owner.insert(owner, start..all.list.len());
    };
    for (index, gateway) in gateways.iter().enumerate() {
        let own = listeners::of_gateway(context, gateways, index);
        add(&mut all, Owner::Gateway(gateway.key), own);
    }
    let objects = context.objects;
    let mut sets: Vec<_> = objects.listener_sets.iter().collect();
    sets.sort_by_key(|(key, set)| (&set.metadata.creation_timestamp, *key));
    for (key, set) in sets {
        let Some(index) = statuses::gateway_of_set(&all, key, set) else { continue };
        all.sets.insert(key);
        if statuses::admits(context, &gateways[index], key) {
            let own = listeners::of_set(context, gateways, index, key);
            add(&mut all, Owner::Set(key), own);
        }
    }
    listeners::find_conflicts(&mut all.list, gateways);
    all
}

fn write_header(context: &mut Context<'_>, text: &mut Text) {
    let settings = context.settings;
    text.section("global", "");
    http::authorize::write_global(context, text);
    settings.global.iter().for_each(|own| text.line(own));
    text.section("defaults", "");
    for own in [
        "mode http",
        "timeout connect 5s",
        "timeout client 60s",
        "timeout server 60s",
        "timeout tunnel 1h",
        "timeout http-request 30s",
    ] {
        text.line(own);
    }
    settings.defaults.iter().for_each(|own| text.line(own));
    for (name, lines) in &context.users {
        text.section("userlist", name);
        lines.iter().for_each(|own| text.line(own));
    }
}
