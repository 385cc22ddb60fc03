//! Certificate stores and SNI choice; empty until TLS arrives.

#![forbid(unsafe_code)]
