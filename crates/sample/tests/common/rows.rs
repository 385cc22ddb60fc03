//! A world in which every row of the tables has something to say, for the tests that walk them.

#![allow(dead_code, reason = "most tests need a world of their own")]

use runtime::usage::Turns;
use sample::{ConnectionError, Place};

use super::World;

/// The value of an expression, at the first of the places where it may stand.
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

/// One request with its response, and whatever may be told of them.
pub(crate) fn usual() -> World {
    let mut world = World::new();
    world.kernel = true;
    world.transaction.last_rule = Some(("a.cfg", 9));
    world.transaction.waiting_rule = Some(("a.cfg", 10));
    world.transaction.server_uses = 3;
    world.transaction.server_glitches = 4;
    world.session.glitches.set(2);
    world.transaction.server_error = ConnectionError::REFUSED;
    let _ = world.frontend.default_backend.set("be".into());
    world.declare_acl("yes", "always_true");
    world
}
