use std::future::poll_fn;
use std::net::Ipv4Addr;
use std::time::Duration;

use super::*;

const ECT0: u8 = 0b10;
const SEGMENT: usize = 1200;

/// Runs a future on a worker's kind of runtime.
fn run<T>(future: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_io().build().expect("a runtime");
    runtime.block_on(future)
}

fn bind_one(address: &str) -> UdpSocket {
    let address = address.parse().expect("an address");
    let mut all = bind_group(address, &ListenOptions::default(), 1).expect("a socket");
    UdpSocket::new(all.remove(0), true).expect("it is bound")
}

/// A datagram of a [`Batch`].
#[derive(Debug, Clone, PartialEq, Eq)]
struct Datagram {
    source: SocketAddr,
    destination: Option<IpAddr>,
    ecn: u8,
    bytes: Vec<u8>,
}

/// Receives `count` datagrams; also returns how many calls that took.
async fn receive(socket: &UdpSocket, count: usize) -> (Vec<Datagram>, usize) {
    let (mut all, mut calls) = (Vec::new(), 0);
    let mut batch = Batch::default();
    while all.len() < count {
        poll_fn(|context| socket.poll_recv(context, &mut batch)).await.expect("datagrams");
        calls += 1;
        for received in batch.received() {
            let Received { source, destination, ecn, .. } = received;
            let datagrams = received.datagrams();
            all.extend(datagrams.map(|bytes| Datagram { source, destination, ecn, bytes: bytes.to_vec() }));
        }
    }
    (all, calls)
}

async fn send(socket: &UdpSocket, transmit: &Transmit<'_>) {
    poll_fn(|context| socket.poll_send(context, transmit)).await.expect("it is sent");
}

fn to(destination: SocketAddr, bytes: &[u8]) -> Transmit<'_> {
    Transmit { destination, source: None, ecn: 0, segment_size: None, bytes }
}

/// Datagrams that differ, the last one shorter than the others.
fn segments(count: usize) -> Vec<u8> {
    (0..count * SEGMENT - 100).map(|at| (at / SEGMENT) as u8).collect()
}

#[test]
fn one_call_receives_datagrams_of_several_senders() {
    run(async {
        let receiver = bind_one("127.0.0.1:0");
        let senders = [(); 4].map(|()| bind_one("127.0.0.1:0"));
        for (sender, byte) in senders.iter().zip(0..) {
            send(sender, &Transmit { ecn: byte, ..to(receiver.local_addr(), &[byte; 50]) }).await;
        }
        let (all, calls) = receive(&receiver, 4).await;
        assert_eq!(calls, 1);
        for ((datagram, sender), byte) in all.iter().zip(&senders).zip(0..) {
            assert_eq!((datagram.source, datagram.ecn), (sender.local_addr(), byte));
            assert_eq!(datagram.destination, Some(Ipv4Addr::LOCALHOST.into()));
            assert_eq!(datagram.bytes, [byte; 50]);
        }
    });
}

#[test]
fn one_call_sends_and_receives_many_datagrams() {
    for address in ["127.0.0.1:0", "[::1]:0"] {
        run(async {
            let (receiver, sender) = (bind_one(address), bind_one(address));
            assert!(sender.most_segments() > 1, "the kernel can segment");
            let bytes = segments(40);
            let segment_size = Some(SEGMENT);
            let transmit = Transmit { segment_size, ecn: ECT0, ..to(receiver.local_addr(), &bytes) };
            send(&sender, &transmit).await;
            let (all, calls) = receive(&receiver, 40).await;
            assert_eq!(calls, 1);
            assert_eq!(all.len(), 40);
            assert!(all.iter().map(|one| &*one.bytes).eq(bytes.chunks(SEGMENT)));
            assert!(all.iter().all(|one| one.ecn == ECT0));
        });
    }
}

#[test]
fn datagrams_are_sent_singly_without_segmentation() {
    run(async {
        let (receiver, sender) = (bind_one("127.0.0.1:0"), bind_one("127.0.0.1:0"));
        sender.disable_segmentation();
        assert_eq!(sender.most_segments(), 1);
        let bytes = segments(5);
        let segment_size = Some(SEGMENT);
        send(&sender, &Transmit { segment_size, ecn: ECT0, ..to(receiver.local_addr(), &bytes) }).await;
        let (all, _) = receive(&receiver, 5).await;
        assert!(all.iter().map(|one| &*one.bytes).eq(bytes.chunks(SEGMENT)));
        assert!(all.iter().all(|one| one.ecn == ECT0));
    });
}

#[test]
fn a_batch_that_the_kernel_does_not_segment_is_sent_singly() {
    run(async {
        let (receiver, sender) = (bind_one("127.0.0.1:0"), bind_one("127.0.0.1:0"));
        // The kernel only segments datagrams with a checksum.
        let set = |on| sys::set_int_option(sender.as_fd(), libc::SOL_SOCKET, libc::SO_NO_CHECK, on);
        set(1).expect("an option of UDP sockets");
        let bytes = segments(5);
        let transmit = Transmit { segment_size: Some(SEGMENT), ..to(receiver.local_addr(), &bytes) };
        send(&sender, &transmit).await;
        assert_eq!(sender.most_segments(), 1);
        let (all, _) = receive(&receiver, 5).await;
        assert!(all.iter().map(|one| &*one.bytes).eq(bytes.chunks(SEGMENT)));
        // Later datagrams still have their ECN bits.
        set(0).expect("an option of UDP sockets");
        send(&sender, &Transmit { ecn: ECT0, ..transmit }).await;
        let (all, _) = receive(&receiver, 5).await;
        assert!(all.iter().all(|one| one.ecn == ECT0));
    });
}

#[test]
fn datagrams_too_large_for_the_path_are_errors_and_do_not_disable_segmentation() {
    run(async {
        let (receiver, sender) = (bind_one("127.0.0.1:0"), bind_one("127.0.0.1:0"));
        let before = sender.most_segments();
        let bytes = vec![0; 65_530];
        let error = sender.try_send(&to(receiver.local_addr(), &bytes)).expect_err("it is too long");
        assert_eq!(error.raw_os_error(), Some(libc::EMSGSIZE));
        assert_eq!(sender.most_segments(), before);
    });
}

#[test]
fn answers_leave_from_the_address_that_was_asked() {
    run(async {
        let (server, client) = (bind_one("0.0.0.0:0"), bind_one("127.0.0.1:0"));
        let port = server.local_addr().port();
        for last in [1, 2, 77] {
            let asked = SocketAddr::from(([127, 0, 0, last], port));
            send(&client, &to(asked, b"question")).await;
            let (questions, _) = receive(&server, 1).await;
            let Datagram { source, destination, .. } = questions[0];
            assert_eq!(destination, Some(asked.ip()));
            send(&server, &Transmit { source: destination, ..to(source, b"answer") }).await;
            let (answers, _) = receive(&client, 1).await;
            assert_eq!(answers[0].source, asked);
        }
    });
}

#[test]
fn all_tasks_that_wait_to_send_are_woken() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_io().build().expect("a runtime");
    let local = tokio::task::LocalSet::new();
    local.block_on(&runtime, async {
        let receiver = bind_one("127.0.0.1:0");
        let options = ListenOptions { buffers: (0, 1), ..ListenOptions::default() };
        let mut all = bind_group("127.0.0.1:0".parse().expect("an address"), &options, 1).expect("a socket");
        let sender = std::rc::Rc::new(UdpSocket::new(all.remove(0), true).expect("it is bound"));
        let tasks: Vec<_> = (0..8)
            .map(|_| {
                let (sender, destination) = (sender.clone(), receiver.local_addr());
                tokio::task::spawn_local(async move {
                    for _ in 0..100 {
                        send(&sender, &to(destination, &[0; 1000])).await;
                    }
                })
            })
            .collect();
        for task in tasks {
            task.await.expect("it ends");
        }
    });
}

#[test]
fn drained_socket_is_not_read_again() {
    run(async {
        let (sender, receiver) = (bind_one("127.0.0.1:0"), bind_one("127.0.0.1:0"));
        send(&sender, &to(receiver.local_addr(), b"one")).await;
        receive(&receiver, 1).await;
        let readable =
            poll_fn(|context| Poll::Ready(receiver.socket.poll_read_ready(context).is_ready())).await;
        assert!(!readable, "a short batch has emptied the socket");
        send(&sender, &to(receiver.local_addr(), b"two")).await;
        assert_eq!(receive(&receiver, 1).await.0[0].bytes, b"two");
    });
}

#[test]
fn datagrams_without_room_are_counted() {
    run(async {
        let options = ListenOptions { buffers: (4096, 0), ..ListenOptions::default() };
        let mut all = bind_group("127.0.0.1:0".parse().expect("an address"), &options, 1).expect("a socket");
        let receiver = UdpSocket::new(all.remove(0), true).expect("it is bound");
        assert_eq!(receiver.drops().expect("the kernel counts"), 0);
        let sender = bind_one("127.0.0.1:0");
        for _ in 0..100 {
            send(&sender, &to(receiver.local_addr(), &[0; SEGMENT])).await;
        }
        std::thread::sleep(Duration::from_millis(10));
        assert!(receiver.drops().expect("the kernel counts") > 0);
    });
}

#[test]
fn sockets_at_an_address_are_counted() {
    for address in ["127.0.0.1:0", "[::1]:0"] {
        let options = ListenOptions { reuse_port: true, ..ListenOptions::default() };
        let all = bind_group(address.parse().expect("an address"), &options, 3).expect("sockets");
        let address = SockRef::from(&all[0]).local_addr().expect("it is bound").as_socket().expect("UDP");
        assert_eq!(bound_elsewhere(address, None), 3);
        // A connected socket is not part of the group.
        SockRef::from(&all[1]).connect(&address.into()).expect("an address");
        assert_eq!(bound_elsewhere(address, None), 2);
        drop(all);
        assert_eq!(bound_elsewhere(address, None), 0);
    }
}

#[test]
fn inherited_descriptors_must_be_udp_sockets() {
    use std::os::fd::AsRawFd;
    let udp = std::net::UdpSocket::bind("127.0.0.1:0").expect("a socket");
    let tcp = std::net::TcpListener::bind("127.0.0.1:0").expect("a socket");
    let options = ListenOptions::default();
    let copy = inherited(udp.as_raw_fd(), &options).expect("a UDP socket");
    assert_eq!(std::net::UdpSocket::from(copy).local_addr().ok(), udp.local_addr().ok());
    assert!(inherited(tcp.as_raw_fd(), &options).is_err());
}

/// Returns a socket and one that is connected to it, at which an answer has arrived.
async fn answered() -> (UdpSocket, UdpSocket) {
    let server = bind_one("127.0.0.1:0");
    let address = server.local_addr();
    let socket = crate::Dial::default().connect_datagrams(address).expect("a socket");
    let socket = UdpSocket::connected(socket).expect("it is connected");
    send(&socket, &to(address, b"one")).await;
    let (all, _) = receive(&server, 1).await;
    send(&server, &to(all[0].source, b"two")).await;
    (server, socket)
}

#[test]
fn a_connected_socket_reports_a_closed_port() {
    run(async {
        let (server, socket) = answered().await;
        let address = server.local_addr();
        assert_eq!(receive(&socket, 1).await.0[0].bytes, b"two");
        let pending = poll_fn(|context| Poll::Ready(socket.poll_error(context).is_pending())).await;
        assert!(pending, "no error yet");
        drop(server);
        send(&socket, &to(address, b"three")).await;
        let error = poll_fn(|context| socket.poll_error(context)).await;
        assert_eq!(error.kind(), io::ErrorKind::ConnectionRefused);
    });
}

/// Returns a connected socket at which a datagram has arrived, and then the rejection of one that it has sent.
async fn socket_with_error() -> UdpSocket {
    let (server, socket) = answered().await;
    let address = server.local_addr();
    drop(server);
    send(&socket, &to(address, b"three")).await;
    socket
}

#[test]
fn an_error_does_not_hide_a_datagram() {
    run(async {
        let mut batch = Batch::default();
        // The kernel reports the error first.
        let socket = socket_with_error().await;
        let error = poll_fn(|context| socket.poll_recv(context, &mut batch)).await.expect_err("an error");
        assert_eq!(error.kind(), io::ErrorKind::ConnectionRefused);
        let socket = socket_with_error().await;
        poll_fn(|context| socket.poll_recv_any(context, &mut batch)).await;
        let received: Vec<_> =
            batch.received().flat_map(|one| one.datagrams().map(|one| one.to_vec())).collect();
        assert_eq!(received, [b"two"]);
    });
}

#[test]
fn replies_to_several_receivers_leave_from_the_addresses_that_were_asked() {
    run(async {
        for (server, ips) in [("0.0.0.0:0", ["127.0.0.1", "127.0.0.2"]), ("[::]:0", ["::1", "::1"])] {
            let server = bind_one(server);
            let port = server.local_addr().port();
            let asked = ips.map(|ip| SocketAddr::new(ip.parse().expect("an address"), port));
            let clients: Vec<_> = (0..40)
                .map(|at| {
                    (asked[at % 2], bind_one(if asked[0].is_ipv4() { "127.0.0.1:0" } else { "[::1]:0" }))
                })
                .collect();
            let mut replies = Replies::default();
            for (at, (asked, client)) in clients.iter().enumerate() {
                let bytes = [at as u8; 50];
                replies.room()[..50].copy_from_slice(&bytes);
                replies.add(&server, client.local_addr(), Some(asked.ip()), 0..50, 50);
                // Joined datagrams do not overtake others.
                let bytes = segments(3);
                replies.room()[..bytes.len()].copy_from_slice(&bytes);
                if at % 10 == 0 {
                    replies.add(&server, client.local_addr(), Some(asked.ip()), 0..bytes.len(), SEGMENT);
                }
            }
            replies.flush(&server);
            for (at, (asked, client)) in clients.iter().enumerate() {
                let (all, _) = receive(client, if at % 10 == 0 { 4 } else { 1 }).await;
                assert!(all.iter().all(|one| one.source == *asked));
                assert_eq!(all[0].bytes, [at as u8; 50]);
                assert_eq!(
                    all[1..].iter().map(|one| one.bytes.len()).sum::<usize>(),
                    if at % 10 == 0 { 3500 } else { 0 }
                );
            }
        }
    });
}

#[test]
fn a_refused_reply_does_not_stop_others() {
    run(async {
        let (server, client) = (bind_one("127.0.0.1:0"), bind_one("127.0.0.1:0"));
        let mut replies = Replies::default();
        // The kernel refuses port 0.
        let nowhere = SocketAddr::from(([127, 0, 0, 1], 0));
        for (to, byte) in
            [(nowhere, 0), (client.local_addr(), 1), (nowhere, 2), (client.local_addr(), 3), (nowhere, 4)]
        {
            replies.room()[0] = byte;
            replies.add(&server, to, None, 0..1, 1);
        }
        replies.flush(&server);
        let (all, _) = receive(&client, 2).await;
        assert!(all.iter().map(|one| one.bytes[0]).eq([1, 3]));
        // The largest datagram fits behind others.
        replies.add(&server, client.local_addr(), None, 0..1, 1);
        assert!(replies.room().len() >= 65_535);
        let most = 65_507;
        replies.add(&server, client.local_addr(), None, 0..most, most);
        replies.add(&server, client.local_addr(), None, 0..most, most);
        replies.flush(&server);
        let (all, _) = receive(&client, 3).await;
        assert!(all.iter().map(|one| one.bytes.len()).eq([1, most, most]));
    });
}
