//! Transfer of listening sockets from a process to its successor (management manual, 3, `-x`): sending and receiving.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::Mutex;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;

use net::listen;
use net::pass::{self, Passed};
use plan::Bind;
use plan::Plan;
use plan::bind::BindAddress;
use socket2::{SockRef, Type};

use crate::sockets::{Inherited, InheritedSocket, ListeningSocket, SocketOwner};

/// Requests the listening sockets from the process behind the runtime socket at `path`; `/dev/null` yields none.
pub(crate) fn receive(path: &Path) -> io::Result<Inherited> {
    if path == Path::new("/dev/null") {
        return Ok(Vec::new());
    }
    receive_over(&UnixStream::connect(path)?)
}

/// Requests the listening sockets over an existing connection to the runtime API.
pub(crate) fn receive_over(stream: &UnixStream) -> io::Result<Inherited> {
    Ok(pass::ask(stream)?.into_iter().filter_map(taken).collect())
}

/// Returns the socket with its address; `None` if it is neither a listening stream socket nor a UDP socket.
fn taken(passed: Passed<OwnedFd>) -> Option<InheritedSocket> {
    let Passed { socket, namespace, interface } = passed;
    let reference = SockRef::from(&socket);
    let is_datagram = reference.r#type().is_ok_and(|kind| kind == Type::DGRAM);
    if !is_datagram && !reference.is_listener().unwrap_or(false) {
        return None;
    }
    let address = reference.local_addr().ok()?;
    let address = if let Some(address) = address.as_socket() {
        if is_datagram { BindAddress::Udp(address) } else { BindAddress::Ip(address) }
    } else if is_datagram {
        // Nothing receives on Unix datagram sockets.
        return None;
    } else if let Some(path) = address.as_pathname() {
        BindAddress::Unix(final_path(path))
    } else {
        abstract_name(address.as_abstract_namespace()?)
    };
    Some(InheritedSocket { address, namespace, interface, socket, owner: None })
}

/// Removes the suffix `.PID.tmp`. Sockets are bound under that name and then renamed, which their own address does not show.
fn final_path(path: &Path) -> std::path::PathBuf {
    let text = path.to_string_lossy();
    let bare = text.strip_suffix(".tmp").and_then(|text| text.rsplit_once('.'));
    match bare {
        Some((path, pid)) if !pid.is_empty() && pid.bytes().all(|byte| byte.is_ascii_digit()) => path.into(),
        _ => path.to_owned(),
    }
}

/// A name that fills the whole address was padded.
fn abstract_name(name: &[u8]) -> BindAddress {
    const LONGEST: usize = 107;
    let padded = name.len() >= LONGEST;
    let end = name.iter().rposition(|byte| *byte != 0).map_or(0, |at| at + 1);
    BindAddress::Abstract { name: if padded { name[..end].to_vec() } else { name.to_vec() }, padded }
}

/// Copies of the listening sockets for a successor. They also keep the sockets open; a soft stop closes them too.
#[derive(Debug, Default)]
pub(crate) struct Exposed {
    sockets: Mutex<Vec<(SocketOwner, Passed<OwnedFd>)>>,
    /// Whether a successor has taken the sockets. If so, it also has the connections in their queues.
    handed_over: AtomicBool,
}

impl Exposed {
    /// Copies all bound sockets.
    pub(crate) fn of(plan: &Plan, bound: &[ListeningSocket]) -> io::Result<Self> {
        let mut all = Vec::with_capacity(bound.len());
        for one in bound {
            let of_bind = |bind: &Bind| (bind.namespace.clone(), bind.interface.clone());
            let (namespace, interface) = match one.owner {
                SocketOwner::Frontend { proxy, bind } => of_bind(&plan.proxies[proxy].binds[bind]),
                SocketOwner::RuntimeSocket(number) => of_bind(&plan.global.stats_sockets[number]),
                SocketOwner::Datagrams { proxy, bind } => match &plan.proxies[proxy].log_forward {
                    Some(forward) => {
                        let bind = &forward.datagrams[bind];
                        (bind.namespace.clone(), bind.interface.clone())
                    }
                    None => continue,
                },
            };
            let passed = Passed {
                socket: one.socket.try_clone()?,
                namespace: namespace.unwrap_or_default().into(),
                interface: interface.unwrap_or_default().into(),
            };
            all.push((one.owner, passed));
        }
        Ok(Self { sockets: Mutex::new(all), handed_over: AtomicBool::new(false) })
    }

    /// Answers a successor over its connection. Blocks, so it must not run on a worker.
    pub(crate) fn hand_over(&self, connection: impl AsFd) -> io::Result<()> {
        let copies: Vec<Passed<OwnedFd>> = self
            .lock()
            .iter()
            .map(|(_, passed)| {
                Ok(Passed {
                    socket: passed.socket.try_clone()?,
                    namespace: passed.namespace.clone(),
                    interface: passed.interface.clone(),
                })
            })
            .collect::<io::Result<_>>()?;
        let borrowed: Vec<_> = copies
            .iter()
            .map(|passed| Passed {
                socket: passed.socket.as_fd(),
                namespace: passed.namespace.clone(),
                interface: passed.interface.clone(),
            })
            .collect();
        pass::hand_over(connection, &borrowed)?;
        self.handed_over.store(true, Relaxed);
        Ok(())
    }

    /// Returns whether a successor has received the sockets.
    pub(crate) fn is_handed_over(&self) -> bool {
        self.handed_over.load(Relaxed)
    }

    /// Directs new connections to the sockets that a successor has bound to the same addresses. This process can then accept all
    /// queued connections before it closes its sockets.
    pub(crate) fn turn_away(&self) {
        let all = self.lock();
        let addresses: Vec<_> =
            all.iter().map(|(_, passed)| SockRef::from(&passed.socket).local_addr().ok()).collect();
        for ((_, passed), address) in all.iter().zip(&addresses) {
            if address.as_ref().is_some_and(|address| address.as_socket().is_some()) {
                let own = addresses.iter().filter(|other| *other == address).count();
                listen::turn_away(passed.socket.as_fd(), own as u32);
            }
        }
    }

    /// Returns copies of the sockets, for the plan that replaces the current one.
    pub(crate) fn copies(&self) -> io::Result<Inherited> {
        let mut all = Vec::new();
        for (owner, passed) in self.lock().iter() {
            let copy = Passed {
                socket: passed.socket.try_clone()?,
                namespace: passed.namespace.clone(),
                interface: passed.interface.clone(),
            };
            all.extend(taken(copy).map(|taken| InheritedSocket { owner: Some(*owner), ..taken }));
        }
        Ok(all)
    }

    /// Replaces the sockets by those of `other`.
    pub(crate) fn replace(&self, other: Self) {
        let other = std::mem::take(&mut *other.lock());
        *self.lock() = other;
        self.handed_over.store(false, Relaxed);
    }

    /// Closes the sockets.
    pub(crate) fn close(&self) {
        self.lock().clear();
    }

    /// Closes the sockets of an owner that has stopped on its own.
    pub(crate) fn close_of(&self, owner: SocketOwner) {
        self.lock().retain(|(own, _)| *own != owner);
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Vec<(SocketOwner, Passed<OwnedFd>)>> {
        self.sockets.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn temporary_suffix_of_socket_path_is_stripped() {
        for (bound, wanted) in [
            ("/run/weir.sock.123.tmp", "/run/weir.sock"),
            ("/run/weir.sock", "/run/weir.sock"),
            ("/run/a.tmp", "/run/a.tmp"),
            ("/run/a.x1.tmp", "/run/a.x1.tmp"),
        ] {
            assert_eq!(final_path(Path::new(bound)), Path::new(wanted));
        }
    }

    #[test]
    fn full_length_abstract_names_are_padded() {
        let mut full = b"name".to_vec();
        full.resize(107, 0);
        let name = b"name".to_vec();
        assert_eq!(abstract_name(&full), BindAddress::Abstract { name: name.clone(), padded: true });
        assert_eq!(abstract_name(b"name"), BindAddress::Abstract { name, padded: false });
    }
}
