//! Transfer of listening sockets from a process to its successor (management manual, 3, `-x`): sending and receiving.

use std::io::{self, Read, Write};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use net::listen;
use net::pass::{self, Passed};
use plan::Bind;
use plan::Plan;
use plan::bind::BindAddress;
use socket2::{SockRef, Type};

use crate::sockets::{
    Inherited, InheritedSocket, ListeningSocket, QuicPlace, QuicRole, QuicUsers, SocketOwner,
};
use crate::{quic_listeners, udp_sessions};

/// Requests the listening sockets from the process behind the runtime socket at `path`; `/dev/null` yields none.
pub(crate) fn receive(path: &Path) -> io::Result<Inherited> {
    if path == Path::new("/dev/null") {
        return Ok(Vec::new());
    }
    let stream = UnixStream::connect(path)?;
    let pid = rustix::net::sockopt::socket_peercred(&stream).ok().map(|peer| peer.pid.as_raw_nonzero().get());
    receive_over(&stream, pid)
}

/// Requests them over an existing connection to the runtime API of process `pid`.
pub(crate) fn receive_over(stream: &UnixStream, pid: Option<i32>) -> io::Result<Inherited> {
    let all = pass::ask(stream)?.into_iter().filter_map(udp_sessions::keep);
    Ok(all.filter_map(|passed| taken(passed, pid)).collect())
}

/// The largest answer of a predecessor about its lists, in bytes, and the longest time without a byte.
const LARGEST_LISTS: u64 = 64 << 20;
const SILENCE: Duration = Duration::from_secs(2);

/// Requests the lists of discovered servers from the process behind the runtime socket at `path`.
pub(crate) fn lists(path: &Path) -> io::Result<Vec<u8>> {
    lists_over(&UnixStream::connect(path)?)
}

/// Requests them at the addresses of the runtime sockets, which the process that is replaced usually has too. Empty if none answers.
pub(crate) fn lists_at(sockets: &[Bind]) -> Vec<u8> {
    let list = |socket: &Bind| match &socket.address {
        BindAddress::Unix(path) => lists(path).ok().filter(|lists| !lists.is_empty()),
        _ => None,
    };
    sockets.iter().find_map(list).unwrap_or_default()
}

/// Requests them over an existing connection. Another program answers with a message.
pub(crate) fn lists_over(mut stream: &UnixStream) -> io::Result<Vec<u8>> {
    stream.set_read_timeout(Some(SILENCE))?;
    stream.set_write_timeout(Some(SILENCE))?;
    stream.write_all(b"show discovery json\n")?;
    let mut bytes = Vec::new();
    stream.take(LARGEST_LISTS).read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// Returns the socket with its address, or `None` if it is neither a listening stream socket nor a UDP socket.
fn taken(passed: Passed<OwnedFd>, pid: Option<i32>) -> Option<InheritedSocket> {
    let Passed { socket, namespace, interface, note } = passed;
    let reference = SockRef::from(&socket);
    let is_datagram = is_datagram_socket(&socket);
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
    let (interface, owner) = without_pid(interface);
    let pid = owner.or(pid);
    let quic = if is_datagram { QuicPlace::from_note(note, pid) } else { None };
    Some(InheritedSocket { address, namespace, interface, socket, owner: None, quic, users: None, pid })
}

/// Whether a socket receives datagrams.
fn is_datagram_socket(socket: &OwnedFd) -> bool {
    SockRef::from(socket).r#type().is_ok_and(|kind| kind == Type::DGRAM)
}

/// Appends the process that serves a QUIC socket to the name of the socket's interface, unless it is the process that passes the
/// socket. A successor must know when all such processes have ended.
fn with_pid(interface: &str, quic: Option<QuicPlace>) -> String {
    match quic.map(|place| place.role) {
        Some(QuicRole::Elsewhere { pid: Some(pid) }) => format!("{interface}/{pid}"),
        _ => interface.to_owned(),
    }
}

/// Reverses [`with_pid`]. The name of an interface has no slash.
fn without_pid(interface: String) -> (String, Option<i32>) {
    let split = interface.rsplit_once('/').and_then(|(name, pid)| Some((name.to_owned(), pid.parse().ok()?)));
    split.map_or((interface, None), |(name, pid)| (name, Some(pid)))
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

/// A copy of a listening socket.
#[derive(Debug)]
struct ExposedSocket {
    owner: SocketOwner,
    quic: Option<QuicPlace>,
    users: Option<Arc<QuicUsers>>,
    passed: Passed<OwnedFd>,
}

impl AsFd for ExposedSocket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.passed.socket.as_fd()
    }
}

/// Copies of the listening sockets for a successor. They also keep the sockets open; a soft stop closes them too.
#[derive(Debug, Default)]
pub(crate) struct Exposed {
    sockets: Mutex<Vec<ExposedSocket>>,
    /// QUIC sockets at addresses that the plan does not have any more, while other processes serve some of them: as long as they are
    /// open, these keep their positions.
    left: Mutex<Vec<ExposedSocket>>,
    /// Whether a successor has taken them: it then owns the connections in their queues.
    handed_over: AtomicBool,
}

impl Exposed {
    /// Copies all bound sockets.
    pub(crate) fn of(plan: &Plan, bound: &[ListeningSocket]) -> io::Result<Self> {
        let mut all = Vec::with_capacity(bound.len());
        // A copy is the same socket.
        for one in bound.iter().filter(|one| one.quic.is_none_or(|place| place.role != QuicRole::Copy)) {
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
                note: one.quic.map_or([0; 4], |place| place.note()),
            };
            all.push(ExposedSocket { owner: one.owner, quic: one.quic, users: one.users.clone(), passed });
        }
        Ok(Self { sockets: Mutex::new(all), ..Self::default() })
    }

    /// Answers a successor over its connection. Blocks, so it must not run on a worker.
    pub(crate) fn hand_over(&self, connection: impl AsFd) -> io::Result<()> {
        let all = self.lock();
        let copies: Vec<Passed<OwnedFd>> = all
            .iter()
            .map(|ExposedSocket { passed, quic, .. }| {
                Ok(Passed {
                    socket: passed.socket.try_clone()?,
                    namespace: passed.namespace.clone(),
                    interface: with_pid(&passed.interface, *quic),
                    note: passed.note,
                })
            })
            .collect::<io::Result<_>>()?;
        let has_datagrams =
            |one: &ExposedSocket| one.quic.is_none() && is_datagram_socket(&one.passed.socket);
        let link = all.iter().any(has_datagrams).then(udp_sessions::offer).transpose()?;
        let copies: Vec<_> = copies.into_iter().chain(link).collect();
        // From here on, the successor manages the positions of QUIC sockets.
        self.handed_over.store(true, Relaxed);
        drop(all);
        let borrowed: Vec<_> = copies
            .iter()
            .map(|passed| Passed {
                socket: passed.socket.as_fd(),
                namespace: passed.namespace.clone(),
                interface: passed.interface.clone(),
                note: passed.note,
            })
            .collect();
        pass::hand_over(connection, &borrowed).inspect_err(|_| self.handed_over.store(false, Relaxed))
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
            all.iter().map(|one| SockRef::from(&one.passed.socket).local_addr().ok()).collect();
        for (ExposedSocket { passed, quic, .. }, address) in all.iter().zip(&addresses) {
            // QUIC sockets have their own program, and no queue of connections.
            if quic.is_none() && address.as_ref().is_some_and(|address| address.as_socket().is_some()) {
                let own = addresses.iter().filter(|other| *other == address).count();
                listen::turn_away(passed.socket.as_fd(), own as u32);
            }
        }
    }

    /// Returns copies of the sockets, for the plan that replaces the current one.
    pub(crate) fn copies(&self) -> io::Result<Inherited> {
        let mut all = Vec::new();
        let mut add = |one: &ExposedSocket, owner| {
            let copy = Passed {
                socket: one.passed.socket.try_clone()?,
                namespace: one.passed.namespace.clone(),
                interface: one.passed.interface.clone(),
                note: one.passed.note,
            };
            let quic = one.quic;
            let users = one.users.clone();
            all.extend(taken(copy, None).map(|taken| InheritedSocket { owner, quic, users, ..taken }));
            Ok::<_, io::Error>(())
        };
        self.lock().iter().try_for_each(|one| add(one, Some(one.owner)))?;
        lock(&self.left).iter().try_for_each(|one| add(one, None))?;
        Ok(all)
    }

    /// Returns the PIDs of the processes that serve other QUIC sockets at these addresses, if known. Returns `None` if all
    /// sockets belong to this process.
    pub(crate) fn predecessors(&self) -> Option<Vec<i32>> {
        let all = self.lock();
        let places = || all.iter().filter_map(|one| one.quic);
        // A position that no copy has belongs to a process that passed no sockets.
        let has_gap = all.iter().filter_map(|one| Some((one.owner, one.quic?.slot))).any(|(owner, slot)| {
            slot > 0
                && !all
                    .iter()
                    .any(|one| one.owner == owner && one.quic.is_some_and(|own| own.slot == slot - 1))
        });
        if !has_gap && places().all(|place| place.is_own()) {
            return None;
        }
        let mut pids: Vec<i32> = places()
            .filter_map(|place| match place.role {
                QuicRole::Elsewhere { pid } => pid,
                QuicRole::New | QuicRole::Copy | QuicRole::Served | QuicRole::Retired => None,
            })
            .collect();
        pids.sort_unstable();
        pids.dedup();
        Some(pids)
    }

    /// Closes the copies of QUIC sockets that other processes served, which have ended.
    pub(crate) fn close_predecessors(&self) {
        let mut all = self.lock();
        // A successor has copies too, and takes care of the positions.
        if self.is_handed_over() {
            return;
        }
        lock(&self.left).clear();
        let mut by_owner: Vec<(SocketOwner, Vec<(QuicPlace, ExposedSocket)>)> = Vec::new();
        for one in all.extract_if(.., |one| one.quic.is_some()) {
            let Some(place) = one.quic else { continue };
            match by_owner.iter_mut().find(|(owner, _)| *owner == one.owner) {
                Some((_, group)) => group.push((place, one)),
                None => by_owner.push((one.owner, vec![(place, one)])),
            }
        }
        for (_, mut group) in by_owner {
            quic_listeners::close_predecessors(&mut group);
            all.extend(group.into_iter().map(|(place, one)| ExposedSocket {
                quic: Some(place),
                passed: Passed { note: place.note(), ..one.passed },
                ..one
            }));
        }
    }

    /// Replaces the sockets with those of `other`.
    pub(crate) fn replace(&self, other: Self) {
        let other = std::mem::take(&mut *other.lock());
        for one in &other {
            if let (Some(QuicPlace { role: QuicRole::Retired, .. }), Some(users)) = (one.quic, &one.users) {
                users.retirement.begin();
            }
        }
        let address = |one: &ExposedSocket| SockRef::from(&one.passed.socket).local_addr().ok();
        let is_kept = |one: &ExposedSocket| other.iter().any(|new| address(new) == address(one));
        let mut all = self.lock();
        let has_others =
            |owner| all.iter().any(|one| one.owner == owner && one.quic.is_some_and(|place| !place.is_own()));
        let is_left: Vec<bool> =
            all.iter().map(|one| one.quic.is_some() && !is_kept(one) && has_others(one.owner)).collect();
        let mut all_left = lock(&self.left);
        all_left.retain(|one| !is_kept(one));
        let before = std::mem::replace(&mut *all, other);
        let left = before.into_iter().zip(is_left).filter_map(|(one, is_left)| is_left.then_some(one));
        all_left.extend(left.map(|mut one| {
            one.quic.iter_mut().for_each(QuicPlace::retire);
            one
        }));
        self.handed_over.store(false, Relaxed);
    }

    /// Closes the sockets.
    pub(crate) fn close(&self) {
        self.lock().clear();
        lock(&self.left).clear();
    }

    /// Closes the sockets of an owner that has stopped on its own.
    pub(crate) fn close_of(&self, owner: SocketOwner) {
        self.lock().retain(|one| one.owner != owner);
    }

    fn lock(&self) -> MutexGuard<'_, Vec<ExposedSocket>> {
        lock(&self.sockets)
    }
}

fn lock(sockets: &Mutex<Vec<ExposedSocket>>) -> MutexGuard<'_, Vec<ExposedSocket>> {
    sockets.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
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
    fn the_process_of_a_quic_socket_is_passed_with_its_interface() {
        let position = net::steering::SocketPlace::alone();
        let place = |role| Some(QuicPlace { slot: 0, position, role });
        for (interface, pid) in [("", Some(12)), ("eth0", Some(3)), ("eth0", None)] {
            let passed = with_pid(interface, place(QuicRole::Elsewhere { pid }));
            assert_eq!(without_pid(passed), (interface.to_owned(), pid));
        }
        assert_eq!(with_pid("eth0", place(QuicRole::Served)), "eth0");
        assert_eq!(with_pid("eth0", None), "eth0");
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
