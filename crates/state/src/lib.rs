//! What lives on while plans change: proxies, servers, their counters and queues. No I/O; time is passed in.

#![forbid(unsafe_code)]
