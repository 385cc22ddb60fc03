//! E-mails about servers (manual, section 12.3 and 4.2 `email-alert`). Read by the binary, which
//! sends them.

use std::sync::Arc;

use mail::Mailer;

/// A `mailers` section.
#[derive(Debug, Default)]
pub struct Mailers {
    /// Its name.
    pub name: Box<str>,
    /// The mail servers: each gets every e-mail.
    pub mailers: Box<[Mailer]>,
}

/// The e-mails of a proxy.
#[derive(Debug)]
pub struct EmailAlert {
    /// Who gets them to be passed on.
    pub mailers: Arc<Mailers>,
    /// Who writes.
    pub from: Box<str>,
    /// To whom.
    pub to: Box<str>,
    /// How mail servers are greeted; `None` for the machine's own name.
    pub hello: Option<Box<str>>,
    /// What is told: messages of this syslog level and of those that are more severe.
    pub level: u8,
}
