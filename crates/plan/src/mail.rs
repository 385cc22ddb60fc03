//! Emails about servers (manual, section 12.3 and 4.2 `email-alert`). Read by the binary, which sends them.

use std::sync::Arc;

use mail::Mailer;

/// A `mailers` section.
#[derive(Debug, Default)]
pub struct Mailers {
    /// The name of the section.
    pub name: Box<str>,
    /// The mail servers, each of which gets every email.
    pub mailers: Box<[Mailer]>,
}

/// The email settings of a proxy.
#[derive(Debug)]
pub struct EmailAlert {
    /// The mail servers.
    pub mailers: Arc<Mailers>,
    /// The sender.
    pub from: Box<str>,
    /// The recipient.
    pub to: Box<str>,
    /// The name to use in the greeting; `None` for the host name.
    pub hello: Option<Box<str>>,
    /// The least severe syslog level to report.
    pub level: u8,
}
