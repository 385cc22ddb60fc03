//! Listening sockets: those that this process has bound, and those that it took over from an earlier one.

use std::os::fd::OwnedFd;
use std::sync::Arc;

use net::listen::ListenOptions;
use net::steering::SocketPlace;
use plan::bind::BindAddress;
use plan::quic::QuicBind;
use plan::{Bind, Global};
use proxy::serve::quic::{DatagramQueue, Retirement};

/// The user of a socket.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum SocketOwner {
    /// A frontend's bind.
    Frontend {
        /// The proxy's index.
        proxy: usize,
        /// The bind's index.
        bind: usize,
    },
    /// A `dgram-bind` of a frontend, which is a log forwarder.
    Datagrams {
        /// The proxy's index.
        proxy: usize,
        /// The index of the `dgram-bind`.
        bind: usize,
    },
    /// A `stats socket` of global, by number.
    RuntimeSocket(usize),
}

/// A listening socket.
#[derive(Debug)]
pub(crate) struct ListeningSocket {
    pub(crate) socket: OwnedFd,
    pub(crate) owner: SocketOwner,
    /// The workers that may serve the socket's connections.
    pub(crate) workers: Arc<[usize]>,
    /// Its place, if the socket is for QUIC.
    pub(crate) quic: Option<QuicPlace>,
    /// Its worker's end of the queues between the workers of a QUIC bind line.
    pub(crate) queue: Option<DatagramQueue>,
    /// The users of it and the other QUIC sockets of the bind line.
    pub(crate) users: Option<Arc<QuicUsers>>,
}

/// The workers that serve the QUIC sockets of a bind line.
#[derive(Debug)]
pub(crate) struct QuicUsers {
    pub(crate) workers: Vec<usize>,
    /// The settings with which the workers started.
    pub(crate) settings: Option<Box<QuicBind>>,
    pub(crate) retirement: Retirement,
}

/// The place of a QUIC socket among those of its address.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct QuicPlace {
    /// Its position in the kernel's order.
    pub(crate) slot: u8,
    /// Its index in connection IDs, and those of the same process.
    pub(crate) position: SocketPlace,
    /// Its use.
    pub(crate) role: QuicRole,
}

/// The use of a QUIC socket.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum QuicRole {
    /// A worker is going to serve it.
    New,
    /// A worker is going to send through this copy of a socket. Another worker receives, and forwards datagrams.
    Copy,
    /// A worker has served it since before an in-place reload.
    Served,
    /// A worker serves its connections. New connections belong to other sockets, because an in-place reload has changed the
    /// workers.
    Retired,
    /// Another process serves it. It is kept open so that no position changes before that process has ended.
    Elsewhere {
        /// The process, if it is known.
        pid: Option<i32>,
    },
}

/// The mark at the beginning of a note about a QUIC socket.
const MARK: u8 = b'Q';

impl QuicPlace {
    /// Describes the place to a successor.
    pub(crate) fn note(&self) -> [u8; 4] {
        [MARK, self.position.index, self.slot, 0]
    }

    /// Reads the description of a socket that process `pid` serves.
    pub(crate) fn from_note(note: [u8; 4], pid: Option<i32>) -> Option<Self> {
        let [MARK, index, slot, _] = note else { return None };
        let position = SocketPlace { index, first: index, count: 1 };
        Some(Self { slot, position, role: QuicRole::Elsewhere { pid } })
    }

    /// Whether a worker is going to serve it.
    pub(crate) fn is_new(&self) -> bool {
        matches!(self.role, QuicRole::New | QuicRole::Copy)
    }

    /// Lets other sockets have the new connections, if this process serves it.
    pub(crate) fn retire(&mut self) {
        if self.is_own() {
            self.role = QuicRole::Retired;
        }
    }

    /// Whether this process serves it.
    pub(crate) fn is_own(&self) -> bool {
        !matches!(self.role, QuicRole::Elsewhere { .. })
    }
}

/// A socket of an earlier process.
#[derive(Debug)]
pub(crate) struct InheritedSocket {
    pub(crate) address: BindAddress,
    pub(crate) namespace: String,
    pub(crate) interface: String,
    pub(crate) socket: OwnedFd,
    /// The user of the socket in the current plan, if this process opened it.
    pub(crate) owner: Option<SocketOwner>,
    /// Its place, if the socket is for QUIC and the place is known.
    pub(crate) quic: Option<QuicPlace>,
    /// Its users, if this process opened it.
    pub(crate) users: Option<Arc<QuicUsers>>,
    /// The process that passed it, if known.
    pub(crate) pid: Option<i32>,
}

/// Sockets of an earlier process.
pub(crate) type Inherited = Vec<InheritedSocket>;

/// Returns the options of the UDP sockets of a line.
pub(crate) fn datagram_options<'a>(bind: &'a Bind, global: &Global) -> ListenOptions<'a> {
    ListenOptions {
        v6only: bind.v6only,
        interface: bind.interface.as_deref(),
        namespace: bind.namespace.as_deref(),
        transparent: bind.transparent,
        reuse_port: !global.no_reuseport,
        buffers: (global.tune.rcvbuf_frontend, global.tune.sndbuf_frontend),
        ..ListenOptions::default()
    }
}
