use std::net::{SocketAddr, UdpSocket};
use std::os::fd::{AsFd, OwnedFd};
use std::time::Duration;

use super::*;
use crate::listen::ListenOptions;
use crate::udp::bind_group;

/// Sockets at one address.
struct Sockets {
    address: SocketAddr,
    /// With the index of each, in the order of the group.
    all: Vec<(u8, UdpSocket)>,
    group: Group,
}

fn bind(address: SocketAddr, count: usize) -> Vec<OwnedFd> {
    let options = ListenOptions { reuse_port: true, ..ListenOptions::default() };
    bind_group(address, &options, count).expect("sockets at one address")
}

impl Sockets {
    fn first(address: &str, count: u8) -> Self {
        let all = bind(address.parse().expect("an address"), count.into());
        let all: Vec<_> = (0..count).zip(all.into_iter().map(UdpSocket::from)).collect();
        let address = all[0].1.local_addr().expect("it is bound");
        let sockets = Self { address, all, group: Group::first(count) };
        sockets.steer();
        sockets
    }

    fn steer(&self) {
        steer(self.all[0].1.as_fd(), &self.group).expect("the kernel takes the program");
    }

    /// Adds the sockets of a successor.
    fn succeed(&mut self, count: usize) -> Range<u8> {
        let indexes = self.group.append(count).expect("few sockets");
        let new = bind(self.address, count).into_iter().map(UdpSocket::from);
        self.all.extend(indexes.clone().zip(new));
        self.steer();
        indexes
    }

    /// Closes a socket.
    fn close(&mut self, index: u8) {
        assert!(self.group.remove(index));
        self.all.retain(|(own, _)| *own != index);
        self.steer();
    }

    /// Sends a datagram from a new port, and returns the index of the socket that received it.
    fn receiver_of(&self, datagram: &[u8]) -> u8 {
        let client = UdpSocket::bind((self.address.ip(), 0)).expect("a socket");
        client.send_to(datagram, self.address).expect("it is sent");
        for _ in 0..1000 {
            for (index, socket) in &self.all {
                if socket.recv(&mut [0; 2000]).is_ok() {
                    return *index;
                }
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        panic!("no socket received it");
    }
}

fn id(index: u8) -> [u8; ID_LENGTH] {
    let mut id = [0; ID_LENGTH];
    fastrand::fill(&mut id);
    id[0] = index ^ id[1];
    id
}

/// An ID that a server issued.
fn issued(index: u8) -> [u8; ID_LENGTH] {
    let mut id = id(index);
    let check = u16::from_be_bytes([id[4], id[5]]) ^ CHECK;
    id[2..4].copy_from_slice(&check.to_be_bytes());
    id
}

/// One that a client chose.
fn chosen(index: u8) -> [u8; ID_LENGTH] {
    let mut id = issued(index);
    id[2] ^= 1 << fastrand::u8(..8);
    id
}

fn short(id: [u8; ID_LENGTH]) -> Vec<u8> {
    [&[0x40 | fastrand::u8(..0x40)], &id[..], &[0; 30]].concat()
}

fn long(kind: u8, version: u32, id: [u8; ID_LENGTH]) -> Vec<u8> {
    let first = 0xc0 | kind << 4 | fastrand::u8(..16);
    [&[first], &version.to_be_bytes()[..], &[8], &id, &[0; 1200]].concat()
}

const VERSION_1: u32 = 1;
const INITIAL: u8 = 0;
const EARLY: u8 = 1;
const HANDSHAKE: u8 = 2;

#[test]
fn datagrams_of_a_connection_reach_its_socket_from_any_port() {
    for address in ["127.0.0.1:0", "[::1]:0"] {
        let sockets = Sockets::first(address, 5);
        for index in (0..5).cycle().take(25) {
            assert_eq!(sockets.receiver_of(&short(id(index))), index);
            assert_eq!(sockets.receiver_of(&long(HANDSHAKE, VERSION_1, id(index))), index);
        }
    }
}

#[test]
fn new_connections_are_spread_and_all_their_datagrams_reach_one_socket() {
    let sockets = Sockets::first("127.0.0.1:0", 3);
    let mut counts = [0; 3];
    for _ in 0..150 {
        let mut random = [0; ID_LENGTH];
        fastrand::fill(&mut random);
        let receiver = sockets.receiver_of(&long(INITIAL, VERSION_1, random));
        counts[usize::from(receiver)] += 1;
        assert_eq!(sockets.receiver_of(&long(EARLY, VERSION_1, random)), receiver);
        let position = SocketPlace { index: 1, first: 0, count: 3 };
        assert_eq!(position.share_of(random), usize::from(receiver));
    }
    assert!(counts.iter().all(|count| *count > 20), "{counts:?}");
}

#[test]
fn a_successor_gets_new_connections_and_the_predecessor_keeps_its_own() {
    for (old, new) in [(3, 3), (1, 4), (4, 2), (2, 1)] {
        let mut sockets = Sockets::first("127.0.0.1:0", old);
        let indexes = sockets.succeed(new);
        assert_eq!(indexes, old..old + new as u8);
        let check = |sockets: &Sockets, indexes: Range<u8>| {
            for index in indexes {
                for _ in 0..3 {
                    assert_eq!(sockets.receiver_of(&short(id(index))), index);
                    assert_eq!(sockets.receiver_of(&long(HANDSHAKE, VERSION_1, id(index))), index);
                    assert_eq!(sockets.receiver_of(&long(3, VERSION_2, id(index))), index);
                    // Initial packets that follow an answer.
                    assert_eq!(sockets.receiver_of(&long(INITIAL, VERSION_1, issued(index))), index);
                    assert_eq!(sockets.receiver_of(&long(EARLY, VERSION_1, issued(index))), index);
                    assert_eq!(sockets.receiver_of(&long(1, VERSION_2, issued(index))), index);
                }
            }
        };
        let starts = |sockets: &Sockets| {
            for value in 0..=u8::MAX {
                let kinds =
                    [(VERSION_1, [INITIAL, EARLY]), (0xabad_cafe, [INITIAL, EARLY]), (VERSION_2, [1, 2])];
                for (version, kinds) in kinds {
                    let id = chosen(value);
                    let receivers = kinds.map(|kind| sockets.receiver_of(&long(kind, version, id)));
                    assert_eq!(receivers[0], receivers[1], "{value} {version:x}");
                    assert!(indexes.contains(&receivers[0]), "{value} went to {}", receivers[0]);
                }
            }
        };
        check(&sockets, 0..indexes.end);
        starts(&sockets);
        // Unknown connections get an answer from the successor.
        assert!(indexes.contains(&sockets.receiver_of(&short(id(200)))));
        // IDs of other lengths are the client's.
        let mut longer = long(INITIAL, VERSION_1, issued(0));
        longer[5] = 9;
        assert!(indexes.contains(&sockets.receiver_of(&longer)));
        // In an order that permutes the others as much as possible.
        for index in 0..old {
            sockets.close(index);
            check(&sockets, index + 1..indexes.end);
        }
        starts(&sockets);
    }
}

#[test]
fn generations_that_follow_each_other_use_free_indexes() {
    let mut sockets = Sockets::first("127.0.0.1:0", 2);
    for generation in 0..6 {
        let old = sockets.group.indexes().to_vec();
        let new = sockets.succeed(2);
        assert!(old.iter().all(|index| !new.contains(index)), "generation {generation}");
        for index in old.iter().copied().chain(new.clone()) {
            assert_eq!(sockets.receiver_of(&short(id(index))), index);
        }
        old.into_iter().rev().for_each(|index| sockets.close(index));
        for index in new {
            assert_eq!(sockets.receiver_of(&short(id(index))), index);
        }
    }
}

#[test]
fn the_process_chooses_as_the_kernel() {
    let mut sockets = Sockets::first("127.0.0.1:0", 3);
    let check = |sockets: &Sockets, first: u8| {
        let place = SocketPlace { index: first, first, count: 3 };
        for index in first..first + 6 {
            for datagram in [
                short(id(index)),
                long(INITIAL, VERSION_1, id(index)),
                long(EARLY, VERSION_1, id(index)),
                long(HANDSHAKE, VERSION_1, id(index)),
                long(2, VERSION_2, id(index)),
                long(3, VERSION_2, id(index)),
            ] {
                let Some(share) = place.share_of_datagram(&datagram) else {
                    assert!(index >= first + 3, "{index}");
                    continue;
                };
                assert_eq!(usize::from(sockets.receiver_of(&datagram) - first), share, "{index}");
            }
        }
    };
    check(&sockets, 0);
    sockets.succeed(3);
    check(&sockets, 3);
    assert_eq!(SocketPlace::alone().share_of_datagram(&[0x40; 8]), None, "too short");
    assert_eq!(SocketPlace::alone().share_of_datagram(&[]), None);
}

#[test]
fn datagrams_that_are_too_short_are_received_too() {
    let sockets = Sockets::first("127.0.0.1:0", 3);
    for length in 1..8 {
        sockets.receiver_of(&vec![0x40; length]);
        sockets.receiver_of(&vec![0xc0; length]);
    }
}

#[test]
fn indexes_are_a_byte() {
    let mut group = Group::first(MOST_SOCKETS as u8);
    assert_eq!(group.append(MOST_SOCKETS).expect("two generations fit"), 127..254);
    assert!(group.append(2).is_err());
    assert_eq!(group.append(1).expect("one index is left"), 254..255);
}
