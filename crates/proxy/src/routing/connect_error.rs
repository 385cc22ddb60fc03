//! Maps connection failures to faults of the request. Called by [`connect`](super::connect).

use std::io;

use base::event_counter;
use base::event_counter::EventCounter;
use net::dial::SourceError;
use net::socks4;
use rustix::io::Errno;
use sample::ConnectionError;

use crate::fault::Fault;

pub(crate) static NO_DESCRIPTOR: EventCounter =
    event_counter!(Count, "by_kernel()", "no file descriptor available for a server connection");
pub(crate) static NO_MEMORY: EventCounter =
    event_counter!(Count, "by_memory()", "no memory available for a server connection");
pub(crate) static NO_PORT: EventCounter =
    event_counter!(Count, "by_kernel()", "no source port or address available for a server connection");

/// Maps a kernel error by its cause: the source address, this machine, or the server.
pub(crate) fn by_kernel(error: &io::Error) -> Fault {
    match SourceError::inside(error) {
        Some(SourceError::PortRange) => return Fault::Resource(ConnectionError::PORT_RANGE),
        Some(SourceError::Address(_)) => return Fault::Resource(ConnectionError::CANNOT_BIND),
        None => {}
    }
    let (resource, seen) = match error.raw_os_error().map(Errno::from_raw_os_error) {
        Some(Errno::MFILE) => (ConnectionError::PROCESS_LIMIT, &NO_DESCRIPTOR),
        Some(Errno::NFILE) => (ConnectionError::SYSTEM_LIMIT, &NO_DESCRIPTOR),
        Some(Errno::NOBUFS | Errno::NOMEM) => (ConnectionError::SYSTEM_MEMORY, &NO_MEMORY),
        Some(Errno::ADDRINUSE) => (ConnectionError::ADDRESS_IN_USE, &NO_PORT),
        Some(Errno::ADDRNOTAVAIL) => (ConnectionError::NO_PORTS, &NO_PORT),
        _ => return Fault::ConnectFailed(ConnectionError::of_kernel(error)),
    };
    seen.note();
    Fault::Resource(resource)
}

/// Returns the fault for a connection that is not attempted because the process has almost reached its memory limit.
pub(super) fn by_memory() -> Fault {
    NO_MEMORY.note();
    Fault::Resource(ConnectionError::SYSTEM_MEMORY)
}

/// Maps the failure of a SOCKS4 proxy.
pub(super) fn by_socks4(why: socks4::Socks4Failure) -> Fault {
    Fault::ConnectFailed(match why {
        socks4::Socks4Failure::Send => ConnectionError::SOCKS4_SEND,
        socks4::Socks4Failure::Receive => ConnectionError::SOCKS4_RECEIVE,
        socks4::Socks4Failure::Denied => ConnectionError::SOCKS4_DENY,
        socks4::Socks4Failure::Closed => ConnectionError::SOCKS4_ABORT,
    })
}
