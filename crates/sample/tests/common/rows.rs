//! A world in which every table row has a value, for tests that iterate over the tables.

#![allow(dead_code, reason = "most tests need a world of their own")]

use runtime::usage::Turns;
use sample::track::{self, CountedEvent, Element};
use sample::{ConnectionError, Place};
use state::table::DataType;

use super::World;

/// Evaluates an expression at the first place that allows it.
pub(crate) fn eval_anywhere(world: &mut World, text: &str) -> String {
    let mut found = String::new();
    for place in [
        Place::HttpRequest,
        Place::HttpResponse,
        Place::Log,
        Place::TcpRequestContent,
        Place::TcpResponseContent,
    ] {
        world.place = place;
        found = Turns::default().measure(|| world.eval(text));
        if !found.contains("cannot be used here") {
            break;
        }
    }
    found
}

/// A request with its response, with as much data as possible.
pub(crate) fn usual() -> World {
    let mut world = World::new();
    world.kernel = true;
    world.transaction.last_rule = Some(("a.cfg", 9));
    world.transaction.waiting_rule = Some(("a.cfg", 10));
    world.transaction.server_uses = 3;
    world.transaction.server_glitches = 4;
    world.session.glitches.set(2);
    world.transaction.server_error = ConnectionError::REFUSED;
    world.frontend.default_backend.store(Some(std::sync::Arc::new("be".into())));
    track(&mut world);
    world.declare_acl("yes", "always_true");
    world
}

/// Sets up three counters that track the entry of `k`, with counts, and an entry for the client's address.
fn track(world: &mut World) {
    let table = world.table.clone();
    for (number, key) in [(0, "k"), (1, "k"), (2, "k"), (9, "192.0.2.7")] {
        world.transaction.trackers.begin(number, &table, key.as_bytes(), 1_000);
    }
    for key in ["k", "192.0.2.7"] {
        let entry = table.get(key.as_bytes(), 1_000).expect("there is room");
        for event in [
            CountedEvent::Request,
            CountedEvent::Error,
            CountedEvent::Failure,
            CountedEvent::Session,
            CountedEvent::Glitches(2),
        ] {
            track::count(*entry, event, 1_000);
        }
        track::count(*entry, CountedEvent::BytesIn(5_000), 1_000);
        track::count(*entry, CountedEvent::BytesOut(9_000), 1_000);
        entry.set(DataType::ServerId, 0, 7, 1_000);
        for element in 0..3 {
            track::tag(&entry, Element::Of(element), 5 + element, 1_000);
        }
    }
}
