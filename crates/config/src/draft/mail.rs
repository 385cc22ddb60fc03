//! A `mailers` section, and a proxy's e-mail settings, while their lines are read.

use std::time::Duration;

use mail::Mailer;
use syntax::Word;

/// A section that is still being parsed.
#[derive(Debug)]
pub struct MailersDraft {
    /// The mail servers.
    pub mailers: Vec<Mailer>,
    /// The value of `timeout mail`; its position in the section does not matter.
    pub limit: Duration,
}

impl Default for MailersDraft {
    fn default() -> Self {
        Self { mailers: Vec::new(), limit: Duration::from_secs(10) }
    }
}

/// `email-alert …` of a proxy.
#[derive(Clone, Copy, Debug, Default)]
pub struct EmailDraft<'a> {
    /// The last `email-alert` line.
    pub configured_at: Option<&'a Word>,
    /// `email-alert mailers`.
    pub mailers: Option<&'a Word>,
    /// `email-alert from`.
    pub from: Option<&'a Word>,
    /// `email-alert to`.
    pub to: Option<&'a Word>,
    /// `email-alert myhostname`.
    pub hello: Option<&'a Word>,
    /// `email-alert level`.
    pub level: Option<u8>,
}
