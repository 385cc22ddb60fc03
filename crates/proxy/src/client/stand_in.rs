//! A session of the proxy's own in the place of a client's. What is asked on behalf of a client is a
//! stream of its own: rules of where it goes see nothing of the client's session, and count nothing
//! in it. Used by `evaluate::spoe`.

use std::cell::RefCell;
use std::ops::{Deref, DerefMut};
use std::rc::Rc;

use runtime::worker::Load;
use sample::Session;

use super::{Client, Link};

/// A client that has another session until this is dropped.
pub(crate) struct StandIn<'a> {
    client: &'a mut Client,
    /// What it had before.
    theirs: Rc<Link>,
}

impl Client {
    /// Has `session`, which no listener accepted, stand in for the client's own.
    pub(crate) fn stand_in(&mut self, session: Session) -> StandIn<'_> {
        debug_assert!(session.listener.is_nobody(), "it would give back places that it never took");
        let own = Rc::new(Link {
            session,
            frontend: self.frontend.clone(),
            worker: self.worker.clone(),
            private: RefCell::default(),
            last_server: RefCell::default(),
            _load: Load::none(),
        });
        let theirs = std::mem::replace(&mut self.link, own);
        StandIn { client: self, theirs }
    }
}

impl Deref for StandIn<'_> {
    type Target = Client;

    fn deref(&self) -> &Client {
        self.client
    }
}

impl DerefMut for StandIn<'_> {
    fn deref_mut(&mut self) -> &mut Client {
        self.client
    }
}

impl Drop for StandIn<'_> {
    fn drop(&mut self) {
        std::mem::swap(&mut self.client.link, &mut self.theirs);
    }
}
