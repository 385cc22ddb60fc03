//! TLS without sockets: sessions, certificates, and the TLS settings of `bind` and `server` lines.
//!
//! A [`Session`] is one connection: it transforms bytes, and `net::Stream` moves them. Listeners create sessions from an
//! [`Acceptor`], which chooses the certificate based on the ClientHello ([`Acceptor::choose`], independent of the transport).
//! Servers use a [`Connector`]. Configurations consist of numbers and file contents ([`settings`]); [`names`] has OpenSSL's names
//! for the numbers.
//!
//! The engine is rustls, which only [`engine`] uses. It performs handshakes, and [`record`] encrypts and decrypts records. Features
//! that rustls lacks are provided by the system's OpenSSL, which only [`legacy`] uses, and only for lines that need it
//! ([`Parameters::legacy`]). Called by `net`, `config` and `proxy`.

#![forbid(unsafe_code)]

pub mod acceptor;
mod buffer;
pub mod capture;
pub mod challenges;
mod choice;
pub mod ciphers;
pub mod connector;
pub mod crl;
pub mod crt_list;
pub mod deframer;
mod der;
pub mod details;
pub mod dn;
mod engine;
mod entry;
pub mod error;
pub mod files;
mod finished;
pub mod generated;
pub mod hello;
pub mod keygen;
#[cfg(feature = "legacy-tls")]
mod legacy;
#[cfg(not(feature = "legacy-tls"))]
#[path = "legacy_absent.rs"]
mod legacy;
pub mod limit;
pub mod load;
mod load_error;
pub mod names;
pub mod ocsp;
mod ocsp_text;
mod ocsp_verify;
pub mod pair;
mod passphrase;
pub mod pem;
mod pkcs8;
pub mod quic;
mod quic_options;
pub mod record;
mod records;
mod rustls_fit;
pub mod session;
pub mod settings;
pub mod store;
pub mod suite_names;
mod suites;
pub mod tickets;
mod traffic;
mod verify;
pub mod verify_code;
mod verify_policy;
pub mod x509;

pub use acceptor::{Acceptor, Chosen, Listening, ServerConfig};
pub use capture::Keep;
pub use connector::{Connecting, Connector};
pub use details::{Details, Lacks};
pub use engine::key::{KeyKind, PrivateKey};
pub use engine::provider::{has_group, has_suite};
pub use engine::verify::verify_chain;
pub use entry::{CertificateEntry, EntryOptions};
pub use error::{Error, FailureKind, Reason};
pub use legacy::{BUILT_IN as HAS_OPENSSL, load_provider, version as openssl_version};
pub use limit::ConnectionPermit;
pub use load_error::LoadError;
pub use session::{OpenedData, PeerEnd, Session};
pub use settings::{AlternativeName, ClientVerify, Legacy, Limits, Parameters, Trust, VerifyMode};
pub use store::Certificate;
pub use suites::is_dhe;
pub use tickets::{Resumption, SessionCache, TicketKeys};
pub use verify_code::{VerifyCode, VerifyCodes};
pub use verify_policy::VerifyOutcome;

/// TLS 1.0.
pub const TLS10: u16 = 0x0301;
/// TLS 1.2.
pub const TLS12: u16 = 0x0303;
/// TLS 1.3.
pub const TLS13: u16 = 0x0304;
