//! Listeners, dialing, the PROXY protocol, splice; the one room that may hold unsafe code, in sys.

#![deny(unsafe_code)]
