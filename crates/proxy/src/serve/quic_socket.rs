//! The UDP socket of a bind line and worker, with its QUIC connections.

use std::cell::RefCell;
use std::rc::Rc;
use std::task::Waker;

use ::quic::{ConnectionHandle, Endpoint, QuicConnection};
use net::udp::UdpSocket;
use runtime::timer::{self, Timer};

use crate::serve::reply_budget::ReplyBudget;
use crate::stream::h3::{H3Connection, QuicEngine};
use crate::stream::quic::of_engine;

/// A socket with its connections.
pub(crate) struct QuicSocket {
    pub(super) socket: UdpSocket,
    pub(super) endpoint: RefCell<Endpoint>,
    /// By handle.
    connections: RefCell<Vec<Option<Rc<H3Connection>>>>,
    /// Datagrams being assembled.
    pub(super) output: RefCell<Vec<u8>>,
    /// Limits the replies that are sent without a connection.
    pub(super) replies: RefCell<ReplyBudget>,
    /// Wakes the task of the socket.
    pub(super) task: RefCell<Option<Waker>>,
    /// Wakes the task when a stopping socket no longer waits for clients.
    pub(super) timer: Timer,
}

impl QuicSocket {
    /// Creates the state of a socket without connections.
    pub(super) fn new(socket: UdpSocket, endpoint: Endpoint) -> Rc<Self> {
        Rc::new(Self {
            socket,
            endpoint: RefCell::new(endpoint),
            connections: RefCell::default(),
            output: RefCell::default(),
            replies: RefCell::new(ReplyBudget::new(timer::now_ms())),
            task: RefCell::default(),
            timer: Timer::new(),
        })
    }

    /// Passes a datagram to a connection and wakes its task.
    pub(super) fn pass(&self, handle: ConnectionHandle, receive: impl FnOnce(&mut QuicConnection)) {
        let connection = self.connections.borrow().get(handle.0).cloned().flatten();
        if let Some(connection) = connection {
            receive(&mut connection.engine.borrow_mut().transport.connection);
            connection.touch();
        }
    }

    /// Sends datagrams that belong to no connection. They are lost if the socket does not accept them.
    pub(super) fn send(&self, transmit: &::quic::Transmit, bytes: &[u8]) {
        let _ = self.socket.try_send(&of_engine(transmit, bytes));
    }

    pub(super) fn register(&self, handle: ConnectionHandle, connection: Rc<H3Connection>) {
        let mut all = self.connections.borrow_mut();
        if all.len() <= handle.0 {
            all.resize_with(handle.0 + 1, || None);
        }
        all[handle.0] = Some(connection);
    }

    /// Passes the input of a connection to the endpoint.
    pub(super) fn exchange(&self, handle: ConnectionHandle, engine: &mut QuicEngine) {
        while let Some(input) = engine.transport.connection.endpoint_input() {
            let is_end = input.is_end();
            self.endpoint.borrow_mut().handle(handle, input);
            if is_end {
                self.forget(handle);
            }
        }
    }

    fn forget(&self, handle: ConnectionHandle) {
        if let Some(place) = self.connections.borrow_mut().get_mut(handle.0) {
            *place = None;
        }
        // A socket that is about to close waits for its last connection.
        if let Some(task) = self.task.take() {
            task.wake();
        }
    }
}
