//! Passes descriptors between processes over a UNIX socket. Also implements the exchange by which a process hands its listening
//! sockets to its successor (`_getsocks`, `-x`), compatible with HAProxy.
//!
//! The successor sends the command. The response is the number of sockets as four bytes in native order, followed by messages with
//! up to [`BATCH`] sockets each. Each socket is accompanied by the names of its network namespace and its interface, both preceded
//! by a length byte, and four bytes that HAProxy ignores ([`Passed::note`]). Each message is acknowledged with four bytes.

use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage,
    SendFlags, recvmsg, sendmsg,
};

/// The command.
pub const COMMAND: &str = "_getsocks";

/// The number of descriptors per message. The kernel allows one more.
pub const BATCH: usize = 252;

/// The time limit for each step of the peer, as in HAProxy.
const PATIENCE: Duration = Duration::from_secs(1);

/// The maximum plausible number of sockets.
const MOST: i32 = 1 << 20;

/// A socket that was passed, and the properties that cannot be queried from it.
#[derive(Debug)]
pub struct Passed<F> {
    /// The socket.
    pub socket: F,
    /// The network namespace in which the socket was created; empty for the default one.
    pub namespace: String,
    /// The interface to which the socket is bound; empty for none.
    pub interface: String,
    /// Further information for a successor that runs the same program. Zero bytes if there is nothing to pass.
    pub note: [u8; 4],
}

/// Sends `bytes` together with `descriptors`, at most [`BATCH`].
pub fn send(socket: impl AsFd, bytes: &[u8], descriptors: &[BorrowedFd<'_>]) -> io::Result<()> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(BATCH))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    if !descriptors.is_empty() && !control.push(SendAncillaryMessage::ScmRights(descriptors)) {
        return Err(io::Error::other("too many descriptors for one message"));
    }
    let mut sent = 0;
    while sent < bytes.len() {
        wait(&socket, PollFlags::OUT)?;
        match sendmsg(&socket, &[IoSlice::new(&bytes[sent..])], &mut control, SendFlags::NOSIGNAL) {
            Ok(n) => {
                sent += n;
                // The descriptors were sent with the first bytes.
                control.clear();
            }
            Err(rustix::io::Errno::AGAIN | rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(())
}

/// Receives bytes into `room`, and the descriptors that arrived with them. Returns 0 bytes at the end of the stream. Never blocks
/// on a non-blocking socket: if no data is available, returns `WouldBlock`.
pub fn receive(socket: impl AsFd, room: &mut [u8]) -> io::Result<(usize, Vec<OwnedFd>)> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(BATCH))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let message = recvmsg(socket, &mut [IoSliceMut::new(room)], &mut control, RecvFlags::CMSG_CLOEXEC)?;
    let mut descriptors = Vec::new();
    for ancillary in control.drain() {
        if let RecvAncillaryMessage::ScmRights(received) = ancillary {
            descriptors.extend(received);
        }
    }
    Ok((message.bytes, descriptors))
}

/// Waits for `what` on the socket, within the time limit of the peer.
fn wait(socket: impl AsFd, what: PollFlags) -> io::Result<()> {
    let deadline = Instant::now() + PATIENCE;
    loop {
        let left = deadline.saturating_duration_since(Instant::now());
        let left = Timespec { tv_sec: left.as_secs() as _, tv_nsec: left.subsec_nanos() as _ };
        match poll(&mut [PollFd::new(&socket, what)], Some(&left)) {
            Ok(0) => return Err(io::ErrorKind::TimedOut.into()),
            Ok(_) => return Ok(()),
            Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
}

fn receive_some(socket: impl AsFd, room: &mut [u8]) -> io::Result<(usize, Vec<OwnedFd>)> {
    loop {
        wait(&socket, PollFlags::IN)?;
        match receive(&socket, room) {
            Ok((0, _)) => return Err(io::ErrorKind::UnexpectedEof.into()),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            other => return other,
        }
    }
}

/// Responds to the command by sending all of `sockets`. Blocks for at most a second at each step of the peer.
pub fn hand_over(socket: impl AsFd, sockets: &[Passed<BorrowedFd<'_>>]) -> io::Result<()> {
    if sockets.is_empty() {
        return Ok(());
    }
    send(&socket, &(sockets.len() as i32).to_ne_bytes(), &[])?;
    for batch in sockets.chunks(BATCH) {
        let mut bytes = Vec::new();
        for passed in batch {
            for name in [&passed.namespace, &passed.interface] {
                let length = u8::try_from(name.len()).map_err(|_| io::ErrorKind::InvalidInput)?;
                bytes.push(length);
                bytes.extend_from_slice(name.as_bytes());
            }
            bytes.extend_from_slice(&passed.note);
        }
        let descriptors: Vec<BorrowedFd<'_>> = batch.iter().map(|passed| passed.socket).collect();
        send(&socket, &bytes, &descriptors)?;
        receive_some(&socket, &mut [0; 4])?;
    }
    Ok(())
}

/// Requests the listening sockets from the process behind a runtime socket. Blocks for at most a second at each step.
///
/// # Errors
/// `UnexpectedEof` if the other process does not pass sockets (no `expose-fd listeners`), `InvalidData` if it does not speak the
/// protocol, and socket errors.
pub fn ask(socket: impl AsFd) -> io::Result<Vec<Passed<OwnedFd>>> {
    send(&socket, format!("{COMMAND}\n").as_bytes(), &[])?;
    let mut number = [0; 4];
    let mut had = 0;
    while had < number.len() {
        had += receive_some(&socket, &mut number[had..])?.0;
    }
    let number = i32::from_ne_bytes(number);
    if !(1..=MOST).contains(&number) {
        return Err(io::Error::new(io::ErrorKind::InvalidData, "missing number of sockets"));
    }
    let mut all = Vec::new();
    while all.len() < number as usize {
        let mut sockets = Vec::new();
        let mut bytes = Vec::new();
        let mut names = Vec::new();
        while names.is_empty() || names.len() < sockets.len() {
            let mut room = [0; 16384];
            let (count, mut received) = receive_some(&socket, &mut room)?;
            bytes.extend_from_slice(&room[..count]);
            sockets.append(&mut received);
            while let Some((described, length)) = names_of(&bytes) {
                names.push(described);
                bytes.drain(..length);
            }
            if names.len() > sockets.len() {
                return Err(io::Error::new(io::ErrorKind::InvalidData, "names without sockets"));
            }
        }
        let acknowledged = send(&socket, &(sockets.len() as i32).to_ne_bytes(), &[]);
        all.extend(sockets.into_iter().zip(names).map(|(socket, (namespace, interface, note))| Passed {
            socket,
            namespace,
            interface,
            note,
        }));
        if all.len() < number as usize {
            acknowledged?;
        }
        // Older programs close after the last message without reading the acknowledgement.
    }
    Ok(all)
}

/// The names of a socket, and its note.
type Described = (String, String, [u8; 4]);

/// Parses the names and the note of one socket; also returns their total length. `None` if they are incomplete.
fn names_of(bytes: &[u8]) -> Option<(Described, usize)> {
    let mut at = 0;
    let mut name = || {
        let length = usize::from(*bytes.get(at)?);
        let text = bytes.get(at + 1..at + 1 + length)?;
        at += 1 + length;
        Some(String::from_utf8_lossy(text).into_owned())
    };
    let (namespace, interface) = (name()?, name()?);
    let note = bytes.get(at..at + 4)?.try_into().ok()?;
    Some(((namespace, interface, note), at + 4))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Read;
    use std::net::TcpListener;
    use std::os::unix::net::UnixStream;

    #[test]
    fn all_sockets_arrive_with_their_names() {
        for count in [1, 2, BATCH, BATCH + 1] {
            let listeners: Vec<TcpListener> =
                (0..count).map(|_| TcpListener::bind("127.0.0.1:0").unwrap()).collect();
            let wanted: Vec<_> = listeners.iter().map(|one| one.local_addr().unwrap()).collect();
            let (mut old, new) = UnixStream::pair().unwrap();
            let thread = std::thread::spawn(move || {
                old.read_exact(&mut [0; COMMAND.len() + 1]).unwrap();
                let passed: Vec<_> = listeners
                    .iter()
                    .enumerate()
                    .map(|(number, one)| Passed {
                        socket: one.as_fd(),
                        namespace: if number == 1 { "blue".to_owned() } else { String::new() },
                        interface: String::new(),
                        note: [number as u8; 4],
                    })
                    .collect();
                hand_over(&old, &passed).unwrap();
            });
            let got = ask(&new).unwrap();
            thread.join().unwrap();
            assert!(got.iter().enumerate().all(|(number, passed)| passed.note == [number as u8; 4]));
            let names: Vec<&str> = got.iter().map(|passed| passed.namespace.as_str()).collect();
            assert!(names.iter().enumerate().all(|(number, name)| (number == 1) == (*name == "blue")));
            let found: Vec<_> = got
                .into_iter()
                .map(|passed| TcpListener::from(passed.socket).local_addr().unwrap())
                .collect();
            assert_eq!(found, wanted, "{count}");
        }
    }

    #[test]
    fn processes_without_sockets_to_pass_are_errors() {
        let (old, new) = UnixStream::pair().unwrap();
        drop(old);
        assert!(ask(&new).is_err());
    }
}
