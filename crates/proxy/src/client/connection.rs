//! A client's connection, from accept to close: PROXY header, TLS handshake, session rules, and the idle time between requests.

use std::cell::RefCell;
use std::ops::{Deref, DerefMut};
use std::rc::{Rc, Weak};

use runtime::Boxed;
use runtime::timer::Timer;
use runtime::worker::ConnectionGuard;
use sample::Session;
use state::sessions::RegisteredSession;

use super::{Client, Downstream, Link};
use crate::flow::Socket;
use crate::server::per_worker::LocalProxy;
use crate::worker::Worker;

/// A client's connection: the link, the deadline, the register entry and the socket.
///
/// This is a [`Client`], in the same box, with the socket or the QUIC connection as its client side. Serving a request therefore
/// lends the box ([`into_client`](Self::into_client)) instead of moving its content, and rules see the connection in the same way
/// as the client of a request.
pub(crate) struct ClientConnection(Boxed<Client>);

impl ClientConnection {
    /// Creates a connection. If the number of concurrent TLS handshakes is limited, `tls_place` is the slot reserved for this
    /// one.
    pub(crate) fn new(
        worker: Rc<Worker>,
        frontend: Rc<LocalProxy>,
        side: Downstream,
        session: Session,
        entry: RegisteredSession,
        load: ConnectionGuard,
        tls_place: Option<tls::ConnectionPermit>,
    ) -> Self {
        Self(Boxed::new(Client {
            timer: Timer::new(),
            idle_from: session.accepted_us,
            entry,
            side,
            tls_place,
            link: Rc::new(Link {
                session,
                frontend,
                worker,
                private: RefCell::default(),
                last_server: RefCell::new(Weak::new()),
                _load: load,
            }),
        }))
    }

    /// Lends the connection to a request that uses it exclusively.
    #[inline]
    pub(crate) fn into_client(self) -> Boxed<Client> {
        self.0
    }

    /// Takes the connection back after the request.
    #[inline]
    pub(crate) fn of_client(client: Boxed<Client>) -> Self {
        debug_assert!(!matches!(client.side, Downstream::Stream(_)), "a stream is not a connection");
        Self(client)
    }

    /// The socket.
    pub(crate) fn socket(&mut self) -> &mut Socket {
        match &mut self.0.side {
            Downstream::Socket(socket) => socket,
            Downstream::Stream(_) | Downstream::Quic(_) => {
                unreachable!("only connections with a socket are asked for it")
            }
        }
    }
}

impl Deref for ClientConnection {
    type Target = Client;

    #[inline]
    fn deref(&self) -> &Client {
        &self.0
    }
}

impl DerefMut for ClientConnection {
    #[inline]
    fn deref_mut(&mut self) -> &mut Client {
        &mut self.0
    }
}
