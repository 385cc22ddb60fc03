//! E-mails about servers (manual, section 12.3 and `email-alert`), delivered to mail servers by SMTP (RFC 5321): plain connections,
//! `HELO`, no authentication, as in HAProxy.
//!
//! [`Letter`] is a message with its recipients, [`Dialog`] the dialogue with a server, without a socket or a clock, and [`Post`]
//! the threads that run it. Each mail server has its own thread, which may block as long as that server takes without affecting a
//! worker. The queue is bounded. The binary creates a [`Post`] and passes it the alerts about servers.

#![forbid(unsafe_code)]

mod dialog;
mod letter;
mod post;

pub use dialog::{Dialog, Refusal};
pub use letter::Letter;
pub use post::{MailFailed, Mailer, Post, QUEUE};
