//! The QUIC sockets of a plan: for each bind line one per worker, all bound at start, and their positions at their address.
//!
//! A process that replaces another binds its sockets behind the old ones. It keeps copies of these until the old process has ended,
//! so that the old connections keep their positions. See [`net::steering`].

use std::collections::BTreeMap;
use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;

use net::listen::ListenOptions;
use net::steering::{self, Group, MOST_SOCKETS, SocketPlace};
use net::udp;
use plan::bind::BindAddress;
use plan::{Bind, Global};
use proxy::serve::quic::DatagramQueue;
use socket2::SockRef;

use crate::sockets::{
    Inherited, InheritedSocket, ListeningSocket, QuicPlace, QuicRole, QuicUsers, SocketOwner,
    datagram_options,
};

/// Opens the sockets of a QUIC bind line; none with `tune.quic.listen off`.
pub(crate) fn open(
    bind: &Bind,
    owner: SocketOwner,
    global: &Global,
    inherited: &mut Inherited,
) -> io::Result<Vec<ListeningSocket>> {
    if !global.tune.quic.listen {
        return Ok(Vec::new());
    }
    let mut others = take(bind, inherited);
    if others.iter().any(|taken| taken.owner.is_some()) {
        // A single socket cannot have other users while its connections last.
        let is_single = global.no_reuseport || matches!(bind.address, BindAddress::InheritedQuic(_));
        if is_single || are_served_as(&others, bind) {
            return Ok(others.into_iter().map(|taken| keep(taken, owner)).collect());
        }
        others.iter_mut().filter_map(|taken| taken.quic.as_mut()).for_each(QuicPlace::retire);
    }
    let options = datagram_options(bind, global);
    match bind.address {
        BindAddress::InheritedQuic(number) => alone(udp::inherited(number, &options)?, bind, owner),
        // Only one socket can have the address.
        BindAddress::Quic(address) if global.no_reuseport => {
            let socket = match others.into_iter().next() {
                Some(taken) => taken.socket,
                None => udp::bind_group(address, &options, 1)?.remove(0),
            };
            alone(socket, bind, owner)
        }
        BindAddress::Quic(address) => bind_all(address, &options, bind, owner, others),
        _ => Err(io::ErrorKind::Unsupported.into()),
    }
}

/// Whether the sockets are served by the workers and with the transport settings of the bind line.
fn are_served_as(sockets: &[InheritedSocket], bind: &Bind) -> bool {
    let is_current = |taken: &&InheritedSocket| {
        matches!(taken.quic, Some(QuicPlace { role: QuicRole::New | QuicRole::Served, .. }))
    };
    let current = sockets.iter().filter(is_current).find_map(|taken| taken.users.as_ref());
    current.is_none_or(|users| users.workers == bind.workers && users.settings == bind.quic)
}

/// Binds a socket for each worker, behind the sockets of `others`.
fn bind_all(
    address: SocketAddr,
    options: &ListenOptions<'_>,
    bind: &Bind,
    owner: SocketOwner,
    others: Vec<InheritedSocket>,
) -> io::Result<Vec<ListeningSocket>> {
    let mut all = predecessors(others, owner);
    let places: Vec<QuicPlace> = all.iter().filter_map(|one| one.quic).collect();
    let mut group = group_of(&places, udp::bound_elsewhere(address, options.namespace));
    let wanted = bind.workers.len().min(MOST_SOCKETS);
    let count = (1..=wanted).rev().find(|count| group.free(*count).is_some()).unwrap_or(1);
    let first_slot = group.indexes().len();
    let indexes = group.append(count)?;
    let mut sockets = udp::bind_group(address, options, count)?;
    if let Some(first) = sockets.first()
        && let Err(error) = steering::steer(first.as_fd(), &group)
    {
        if first_slot > 0 {
            return Err(error);
        }
        // Without steering, only a single socket receives all datagrams of a connection that changes its address.
        return alone(sockets.swap_remove(0), bind, owner);
    }
    let placed = sockets.into_iter().zip(&bind.workers).zip(indexes.clone());
    let queues = DatagramQueue::between(count);
    let users = users_of(&queues, bind);
    all.extend(placed.zip(queues).enumerate().map(|(at, (((socket, worker), index), queue))| {
        let position = SocketPlace { index, first: indexes.start, count: count as u8 };
        let slot = (first_slot + at) as u8;
        let quic = Some(QuicPlace { slot, position, role: QuicRole::New });
        ListeningSocket {
            socket,
            owner,
            workers: [*worker].into(),
            quic,
            queue: Some(queue),
            users: users.clone(),
        }
    }));
    Ok(all)
}

/// The only socket of an address. One worker receives from it, and forwards the datagrams of connections that others serve.
fn alone(socket: OwnedFd, bind: &Bind, owner: SocketOwner) -> io::Result<Vec<ListeningSocket>> {
    let count = bind.workers.len().min(MOST_SOCKETS);
    let copies = (1..count).map(|_| socket.try_clone()).collect::<io::Result<Vec<_>>>()?;
    let queues = DatagramQueue::between(count);
    let users = users_of(&queues, bind);
    let sockets = [socket].into_iter().chain(copies).zip(&bind.workers).zip(queues);
    let placed = sockets.zip(0..).map(|(((socket, worker), queue), index)| {
        let position = SocketPlace { index, first: 0, count: count as u8 };
        let role = if index == 0 { QuicRole::New } else { QuicRole::Copy };
        let quic = Some(QuicPlace { slot: 0, position, role });
        ListeningSocket {
            socket,
            owner,
            workers: [*worker].into(),
            quic,
            queue: Some(queue),
            users: users.clone(),
        }
    });
    Ok(placed.collect())
}

fn users_of(queues: &[DatagramQueue], bind: &Bind) -> Option<Arc<QuicUsers>> {
    let retirement = queues.first()?.retirement();
    Some(Arc::new(QuicUsers { workers: bind.workers.clone(), settings: bind.quic.clone(), retirement }))
}

/// Takes the sockets for the address of the bind line, either from the plan before an in-place reload or from another process.
fn take(bind: &Bind, inherited: &mut Inherited) -> Vec<InheritedSocket> {
    let address = match &bind.address {
        BindAddress::Quic(address) => Some(*address),
        BindAddress::InheritedQuic(number) => udp::inherited(*number, &ListenOptions::default())
            .ok()
            .and_then(|socket| SockRef::from(&socket).local_addr().ok()?.as_socket()),
        _ => None,
    };
    let is_here = |taken: &mut InheritedSocket| {
        address.is_some_and(|address| taken.address == BindAddress::Udp(address))
            && (taken.quic.is_some() || taken.owner.is_none())
            && taken.namespace == bind.namespace.as_deref().unwrap_or_default()
            && taken.interface == bind.interface.as_deref().unwrap_or_default()
    };
    inherited.extract_if(.., is_here).collect()
}

/// Keeps a socket of the plan before an in-place reload.
fn keep(taken: InheritedSocket, owner: SocketOwner) -> ListeningSocket {
    let quic = taken.quic.map(|place| match place.role {
        QuicRole::New => QuicPlace { role: QuicRole::Served, ..place },
        QuicRole::Copy | QuicRole::Served | QuicRole::Retired | QuicRole::Elsewhere { .. } => place,
    });
    ListeningSocket { socket: taken.socket, owner, workers: [].into(), quic, queue: None, users: taken.users }
}

/// The sockets of another process, and of this one if others replace them. Those of other programs have unknown indexes, and are assumed to be in order.
fn predecessors(others: Vec<InheritedSocket>, owner: SocketOwner) -> Vec<ListeningSocket> {
    let is_known = others.iter().all(|taken| taken.quic.is_some());
    let all = others.into_iter().zip(0..).map(|(taken, at): (_, u8)| {
        let index = u8::MAX - at;
        let unknown = QuicPlace {
            slot: at,
            position: SocketPlace { index, first: index, count: 1 },
            role: QuicRole::Elsewhere { pid: taken.pid },
        };
        let quic = Some(taken.quic.filter(|_| is_known).unwrap_or(unknown));
        ListeningSocket {
            socket: taken.socket,
            owner,
            workers: [].into(),
            quic,
            queue: None,
            users: taken.users,
        }
    });
    all.collect()
}

/// Returns the group of these sockets, among at least `present` at the address. An unknown socket is assumed to have its position as
/// its index, as in a process that replaced no other.
fn group_of(places: &[QuicPlace], present: usize) -> Group {
    let slots: BTreeMap<u8, u8> = places.iter().map(|place| (place.slot, place.position.index)).collect();
    let known = slots.last_key_value().map_or(0, |(slot, _)| usize::from(*slot) + 1);
    let total = known.max(present).min(usize::from(u8::MAX)) as u8;
    let indexes = (0..total).map(|slot| slots.get(&slot).copied().unwrap_or(slot));
    let is_current = |place: &&QuicPlace| place.is_own() && place.role != QuicRole::Retired;
    let own = places.iter().find(is_current).map(|place| place.position);
    Group::of(indexes.collect(), own.map_or(0..0, |own| own.first..own.first + own.count))
}

/// Follows the end of all other processes: closes the copies of their sockets in `all`, the sockets of one bind line, and steers to
/// the positions that the others have then.
pub(crate) fn close_predecessors<T: AsFd>(all: &mut Vec<(QuicPlace, T)>) {
    let places: Vec<QuicPlace> = all.iter().map(|(place, _)| *place).collect();
    let mut group = group_of(&places, 0);
    // Sockets without a copy closed with their process, in ascending order.
    for index in group.indexes().to_vec() {
        if places.iter().all(|place| place.position.index != index) {
            group.remove(index);
        }
    }
    while let Some(at) = all.iter().rposition(|(place, _)| !place.is_own()) {
        let (place, _) = all.remove(at);
        group.remove(place.position.index);
    }
    for (place, _) in all.iter_mut() {
        let slot = group.indexes().iter().position(|index| *index == place.position.index);
        place.slot = slot.map_or(place.slot, |slot| slot as u8);
    }
    if let Some((_, socket)) = all.first() {
        // A kernel that accepted the program before accepts it again.
        let _ = steering::steer(socket.as_fd(), &group);
    }
}

#[cfg(test)]
mod tests {
    use std::net::UdpSocket;
    use std::os::unix::net::UnixStream;
    use std::sync::{Mutex, MutexGuard, PoisonError};
    use std::time::Duration;

    use config::{Boot, load_text};
    use plan::Plan;

    use super::*;
    use crate::hand_over::{self, Exposed};
    use crate::listeners;

    const WORKERS: usize = 3;

    /// A process with a QUIC listener.
    struct Process {
        exposed: Exposed,
        /// The sockets that its workers serve, with the index of each.
        served: Vec<(u8, UdpSocket)>,
    }

    impl Process {
        fn start(plan: &Plan, mut inherited: Inherited) -> Self {
            let bound = listeners::bind(plan, &mut inherited, 100).expect("the address is free");
            let exposed = Exposed::of(plan, &bound).expect("enough descriptors");
            let shares = listeners::share(bound, WORKERS);
            assert!(shares.iter().all(|share| share.len() == 1));
            let served = shares.into_iter().flatten().map(|one| {
                let place = one.quic.expect("a QUIC socket");
                (place.position.index, UdpSocket::from(one.socket))
            });
            Self { served: served.collect(), exposed }
        }

        /// Passes its sockets to a successor, as process number `pid`.
        fn hand_over(&self, pid: i32) -> Inherited {
            let (ours, theirs) = UnixStream::pair().expect("a socket pair");
            std::thread::scope(|scope| {
                let asking = scope.spawn(move || hand_over::receive_over(&theirs, Some(pid)));
                // The command.
                io::Read::read_exact(&mut &ours, &mut [0; 10]).expect("it asks");
                self.exposed.hand_over(&ours).expect("it passes them");
                asking.join().expect("no panic").expect("it receives them")
            })
        }

        fn indexes(&self) -> Vec<u8> {
            self.served.iter().map(|(index, _)| *index).collect()
        }
    }

    fn plan(port: u16) -> Plan {
        plan_of(port, "")
    }

    fn plan_of(port: u16, parameters: &str) -> Plan {
        let text = format!(
            "global\n nbthread {WORKERS}\ndefaults\n mode http\n timeout client 1s\nfrontend f\n bind quic4@127.0.0.1:{port} ssl strict-sni {parameters}\n"
        );
        load_text("t.cfg", &text, &Boot::default()).plan.expect("it is valid")
    }

    /// Lets only one test run at a time: the tests share the descriptors of this process, and a socket keeps its place in the
    /// kernel while any copy is open.
    fn turn() -> MutexGuard<'static, ()> {
        static TURN: Mutex<()> = Mutex::new(());
        TURN.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn free_port() -> u16 {
        let socket = UdpSocket::bind("127.0.0.1:0").expect("a socket");
        socket.local_addr().expect("it is bound").port()
    }

    /// Sends a datagram, and returns the index of the socket that received it.
    fn receiver_of(processes: &[&Process], port: u16, datagram: &[u8]) -> u8 {
        let client = UdpSocket::bind("127.0.0.1:0").expect("a socket");
        client.send_to(datagram, ("127.0.0.1", port)).expect("it is sent");
        for _ in 0..1000 {
            for (index, socket) in processes.iter().flat_map(|process| &process.served) {
                if socket.recv(&mut [0; 2000]).is_ok() {
                    return *index;
                }
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        panic!("no socket received it");
    }

    fn short(index: u8) -> Vec<u8> {
        [&[0x40, index ^ 0x5a, 0x5a][..], &[0; 30]].concat()
    }

    fn initial(value: u8) -> Vec<u8> {
        [&[0xc0, 0, 0, 0, 1, 8, value ^ 0x5a, 0x5a][..], &[0; 1200]].concat()
    }

    /// Checks that packets reach the connections of all `processes`, and that new connections reach the last one.
    fn check(processes: &[&Process], port: u16) {
        for index in processes.iter().flat_map(|process| process.indexes()) {
            assert_eq!(receiver_of(processes, port, &short(index)), index);
        }
        let newest = processes.last().expect("a process").indexes();
        for value in 0..=u8::MAX {
            assert!(newest.contains(&receiver_of(processes, port, &initial(value))), "{value}");
        }
    }

    #[test]
    fn connections_keep_their_sockets_while_processes_replace_each_other() {
        let _turn = turn();
        let port = free_port();
        let plan = plan(port);
        let mut old = Process::start(&plan, Vec::new());
        check(&[&old], port);
        assert_eq!(old.exposed.predecessors(), None);
        for _ in 0..4 {
            let new = Process::start(&plan, old.hand_over(1));
            assert_eq!(new.exposed.predecessors(), Some(vec![1]));
            check(&[&old, &new], port);
            // The old process has a successor, which takes care of the positions.
            old.exposed.close_predecessors();
            drop(old);
            check(&[&new], port);
            new.exposed.close_predecessors();
            assert_eq!(new.exposed.predecessors(), None);
            check(&[&new], port);
            old = new;
        }
    }

    #[test]
    fn a_third_process_keeps_the_connections_of_the_first_two() {
        let _turn = turn();
        let port = free_port();
        let plan = plan(port);
        for ends_in_order in [true, false] {
            let first = Process::start(&plan, Vec::new());
            let second = Process::start(&plan, first.hand_over(1));
            let third = Process::start(&plan, second.hand_over(2));
            assert_eq!(third.exposed.predecessors(), Some(vec![1, 2]));
            check(&[&first, &second, &third], port);
            // The second has a successor, which takes care of the positions.
            second.exposed.close_predecessors();
            let (ended, left) = if ends_in_order { (first, second) } else { (second, first) };
            drop(ended);
            check(&[&left, &third], port);
            drop(left);
            third.exposed.close_predecessors();
            check(&[&third], port);
        }
    }

    #[test]
    fn a_process_finds_the_sockets_of_one_that_passed_none() {
        let _turn = turn();
        let port = free_port();
        let plan = plan(port);
        let old = Process::start(&plan, Vec::new());
        let new = Process::start(&plan, Vec::new());
        assert_eq!(new.exposed.predecessors(), Some(Vec::new()));
        check(&[&old, &new], port);
        drop(old);
        new.exposed.close_predecessors();
        check(&[&new], port);
    }

    #[test]
    fn an_in_place_reload_keeps_the_sockets() {
        let _turn = turn();
        let port = free_port();
        let plan = plan(port);
        let process = Process::start(&plan, Vec::new());
        let mut copies = process.exposed.copies().expect("enough descriptors");
        let bound = listeners::bind(&plan, &mut copies, 100).expect("they are kept");
        assert!(copies.is_empty());
        assert!(bound.iter().all(|one| one.quic.is_some_and(|place| place.role == QuicRole::Served)));
        process.exposed.replace(Exposed::of(&plan, &bound).expect("enough descriptors"));
        assert!(listeners::share(bound, WORKERS).iter().all(Vec::is_empty));
        check(&[&process], port);
        assert_eq!(process.exposed.predecessors(), None);
    }

    #[test]
    fn other_workers_get_other_sockets() {
        let _turn = turn();
        let port = free_port();
        let process = Process::start(&plan(port), Vec::new());
        let mut copies = process.exposed.copies().expect("enough descriptors");
        let changed = plan_of(port, "thread 1-2");
        let bound = listeners::bind(&changed, &mut copies, 100).expect("they are bound");
        assert!(copies.is_empty());
        let roles =
            |role| bound.iter().filter(|one| one.quic.is_some_and(|place| place.role == role)).count();
        assert_eq!((roles(QuicRole::Retired), roles(QuicRole::New)), (WORKERS, 2));
        let exposed = Exposed::of(&changed, &bound).expect("enough descriptors");
        let served = listeners::share(bound, WORKERS).into_iter().flatten().map(|one| {
            let place = one.quic.expect("a QUIC socket");
            (place.position.index, UdpSocket::from(one.socket))
        });
        let new = Process { served: served.collect(), exposed };
        check(&[&process, &new], port);
        assert_eq!(new.exposed.predecessors(), None);
        new.exposed.close_predecessors();
        check(&[&process, &new], port);
        // Another reload keeps all of them.
        let mut copies = new.exposed.copies().expect("enough descriptors");
        let bound = listeners::bind(&changed, &mut copies, 100).expect("they are kept");
        assert_eq!(bound.len(), WORKERS + 2);
        assert!(listeners::share(bound, WORKERS).iter().all(Vec::is_empty));
        check(&[&process, &new], port);
    }

    #[test]
    fn removed_listeners_keep_the_positions_of_predecessors() {
        let _turn = turn();
        let port = free_port();
        let plan = plan(port);
        let first = Process::start(&plan, Vec::new());
        let mut second = Process::start(&plan, first.hand_over(1));
        second.exposed.replace(Exposed::default());
        // The connections of one worker have ended.
        second.served.remove(0);
        for index in first.indexes().into_iter().chain(second.indexes()) {
            assert_eq!(receiver_of(&[&first, &second], port, &short(index)), index);
        }
        // The listener comes back.
        let third = Process::start(&plan, second.exposed.copies().expect("enough descriptors"));
        check(&[&first, &second, &third], port);
        drop(first);
        second.exposed.close_predecessors();
        assert!(second.exposed.copies().expect("enough descriptors").is_empty());
    }

    #[test]
    fn listeners_can_be_switched_off() {
        let _turn = turn();
        let port = free_port();
        let mut plan = plan(port);
        plan.global.no_reuseport = true;
        let one = listeners::bind(&plan, &mut Vec::new(), 100).expect("the address is free");
        let roles: Vec<_> = one.iter().filter_map(|one| Some(one.quic?.role)).collect();
        assert_eq!(roles, [QuicRole::New, QuicRole::Copy, QuicRole::Copy]);
        let exposed = Exposed::of(&plan, &one).expect("enough descriptors");
        assert_eq!(exposed.copies().expect("enough descriptors").len(), 1, "it is one socket");
        assert_eq!(exposed.predecessors(), None);
        drop((one, exposed));
        plan.global.tune.quic.listen = false;
        assert!(listeners::bind(&plan, &mut Vec::new(), 100).expect("nothing is bound").is_empty());
    }
}
