//! E-mails about servers (manual, section 12.3 and `email-alert`), handed to mail servers by SMTP
//! (RFC 5321): plain connections, `HELO`, no authentication, as HAProxy's own did it.
//!
//! [`Letter`] is what is written to whom, [`Dialog`] the conversation with a server, without a
//! socket or a clock, and [`Post`] the threads that have it. A thread of its own for each mail
//! server may be blocked as long as that server likes, without a worker noticing; what waits for it
//! is bounded. The binary makes a [`Post`] and hands it what is told of servers.

#![forbid(unsafe_code)]

mod dialog;
mod letter;
mod post;

pub use dialog::{Dialog, Refusal};
pub use letter::Letter;
pub use post::{MailFailed, Mailer, Post, QUEUE};
