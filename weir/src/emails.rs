//! E-mail alerts about servers: starts a delivery thread for each configured mailer, and decides which messages are sent.

use std::io;
use std::sync::Arc;

use mail::{Letter, MailFailed, Post};
use plan::Plan;
use plan::mail::{EmailAlert, Mailers};

/// The senders of all `mailers` sections; backends added at run time may name any of them.
pub(crate) struct Emails {
    posts: Vec<(Arc<Mailers>, Post)>,
    /// The host name.
    hello: String,
}

/// Returns the host name.
pub(crate) fn machine() -> String {
    rustix::system::uname().nodename().to_string_lossy().into_owned()
}

impl Emails {
    /// Starts the delivery threads.
    ///
    /// # Errors
    /// A thread cannot be started.
    pub(crate) fn start(plan: &Plan, failed: &MailFailed) -> io::Result<Self> {
        let start = |mailers: &Arc<Mailers>| Ok((mailers.clone(), Post::start(&mailers.mailers, failed)?));
        // A script that sends mail replaces this sender.
        let is_scripted = plan.lua.as_ref().is_some_and(|program| program.sends_mail());
        let posts = plan.mailers.iter().filter(|_| !is_scripted).map(start).collect::<io::Result<_>>()?;
        Ok(Self { posts, hello: machine() })
    }

    /// Sends a message about a server of a proxy, if `alert` selects it.
    pub(crate) fn send(&self, alert: &EmailAlert, level: u8, text: &str) {
        if state::transition::email_level(level, text).is_none_or(|level| level > alert.level) {
            return;
        }
        if let Some((_, post)) = self.posts.iter().find(|(mailers, _)| Arc::ptr_eq(mailers, &alert.mailers)) {
            let hello = alert.hello.as_deref().unwrap_or(&self.hello);
            post.send(Letter::new(&alert.from, &alert.to, hello, text));
        }
    }
}
