use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::ops::Range;
use std::os::fd::AsFd;

use super::{BUFFER, Transmit, UdpSocket};
use crate::sys::{self, Addressed};

/// The maximum number of datagrams that one call sends. More save little.
const MOST: usize = 16;

/// Datagrams to several receivers that are sent with one call.
pub struct Replies {
    buffer: Box<[u8]>,
    filled: usize,
    waiting: Vec<Reply>,
}

struct Reply {
    destination: SocketAddr,
    source: Option<IpAddr>,
    place: Range<usize>,
}

impl Default for Replies {
    fn default() -> Self {
        // Twice the size, so that the largest datagram fits behind others. Memory that was never filled is not used.
        let buffer = vec![0; 2 * BUFFER].into_boxed_slice();
        Self { buffer, filled: 0, waiting: Vec::with_capacity(MOST) }
    }
}

impl Replies {
    /// The unused part of the buffer, of at least 64 KiB.
    pub fn room(&mut self) -> &mut [u8] {
        &mut self.buffer[self.filled..]
    }

    /// Adds the datagrams of `segment` bytes (the last may be shorter) at `place` in the [`room`](Self::room). All datagrams are sent
    /// once there are [`MOST`] of them or the buffer is full. Several datagrams to one receiver are sent at once.
    ///
    /// Datagrams that the kernel refuses are lost, as in any other queue.
    pub fn add(
        &mut self,
        socket: &UdpSocket,
        destination: SocketAddr,
        source: Option<IpAddr>,
        place: Range<usize>,
        segment: usize,
    ) {
        // The kernel's choice is right unless the socket has several addresses.
        let source = source.filter(|_| socket.local_addr().ip().is_unspecified());
        let place = self.filled + place.start..self.filled + place.end;
        if place.len() > segment {
            self.flush(socket);
            let bytes = &self.buffer[place];
            let _ = socket.try_send(&Transmit {
                destination,
                source,
                ecn: 0,
                segment_size: Some(segment),
                bytes,
            });
            return;
        }
        self.filled = place.end;
        self.waiting.push(Reply { destination, source, place });
        if self.waiting.len() == MOST || self.filled > self.buffer.len() - BUFFER {
            self.flush(socket);
        }
    }

    /// Sends all datagrams.
    pub fn flush(&mut self, socket: &UdpSocket) {
        let addressed = |reply: &Reply| Addressed {
            destination: reply.destination,
            source: reply.source,
            bytes: &self.buffer[reply.place.clone()],
        };
        match &*self.waiting {
            [] => {}
            [one] => {
                let Addressed { destination, source, bytes } = addressed(one);
                let _ = socket.try_send(&Transmit { destination, source, ecn: 0, segment_size: None, bytes });
            }
            several => {
                let all: Vec<_> = several.iter().map(addressed).collect();
                let mut rest = &*all;
                while !rest.is_empty() {
                    // An error is about the first datagram.
                    let sent = sys::send_each(socket.as_fd(), rest).unwrap_or(1).max(1);
                    rest = &rest[sent..];
                }
            }
        }
        self.waiting.clear();
        self.filled = 0;
    }
}

impl fmt::Debug for Replies {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Replies").field("waiting", &self.waiting.len()).finish_non_exhaustive()
    }
}
