//! A stream that the proxy opens on behalf of a client. It has its own line in `show sess`. The rules of its destination do not see
//! the client's session and do not change its counts. Used by `evaluate::spoe`.

use std::cell::RefCell;
use std::ops::{Deref, DerefMut};
use std::rc::Rc;

use runtime::worker::ConnectionGuard;
use sample::Session;
use state::sessions::RegisteredSession;

use super::{Client, Link};

/// A client with a different register entry, and possibly a different session. Dropping this restores them.
pub(crate) struct Substitute<'a> {
    client: &'a mut Client,
    /// The replaced entry and link.
    entry: Option<RegisteredSession>,
    link: Option<Rc<Link>>,
}

impl Client {
    /// Replaces the client's entry with `entry`. Also replaces the session with `session` (which was not accepted by a listener)
    /// if anything uses it.
    pub(crate) fn substitute(
        &mut self,
        entry: RegisteredSession,
        session: Option<Session>,
    ) -> Substitute<'_> {
        let entry = Some(std::mem::replace(&mut self.entry, entry));
        let link = session.map(|session| {
            debug_assert!(session.listener.is_placeholder(), "it would give back places that it never took");
            let own = Rc::new(Link {
                session,
                frontend: self.frontend.clone(),
                worker: self.worker.clone(),
                private: RefCell::default(),
                last_server: RefCell::default(),
                _load: ConnectionGuard::none(),
            });
            std::mem::replace(&mut self.link, own)
        });
        Substitute { client: self, entry, link }
    }
}

impl Deref for Substitute<'_> {
    type Target = Client;

    fn deref(&self) -> &Client {
        self.client
    }
}

impl DerefMut for Substitute<'_> {
    fn deref_mut(&mut self) -> &mut Client {
        self.client
    }
}

impl Drop for Substitute<'_> {
    fn drop(&mut self) {
        if let Some(entry) = self.entry.take() {
            self.client.entry = entry;
        }
        if let Some(link) = self.link.take() {
            self.client.link = link;
        }
    }
}
