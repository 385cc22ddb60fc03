//! Accept, session, stream, route, connect, forward, retry, log.

#![forbid(unsafe_code)]
