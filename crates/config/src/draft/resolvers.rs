//! A `resolvers` section that is still being parsed.

use std::time::Duration;

use plan::resolvers::{Hold, NameServer, Resolvers};

use crate::draft::Statement;
use crate::draft::args::Args;
use crate::draft::row::Outcome;
use crate::draft::tls::ServerTls;

/// Reads a line into a section.
pub type ReadResolvers = for<'a> fn(&mut ResolversDraft<'a>, &mut Args<'a, '_>) -> Outcome;

/// A section that is still being parsed.
#[derive(Debug)]
pub struct ResolversDraft<'a> {
    /// Name servers with their names.
    pub nameservers: Vec<(Box<str>, NameServer)>,
    /// TLS settings of name servers, by the server's index.
    pub secure: Vec<(usize, ServerTls<'a>, &'a Statement)>,
    /// `accepted_payload_size`.
    pub payload_size: u16,
    /// `resolve_retries`.
    pub retries: u32,
    /// `timeout resolve`.
    pub every: Duration,
    /// `timeout retry`.
    pub retry: Duration,
    /// The times of `hold`.
    pub hold: Hold,
}

impl Default for ResolversDraft<'_> {
    fn default() -> Self {
        Self {
            nameservers: Vec::new(),
            secure: Vec::new(),
            payload_size: 512,
            retries: 3,
            every: Duration::from_secs(1),
            retry: Duration::from_secs(1),
            hold: Hold::default(),
        }
    }
}

impl ResolversDraft<'_> {
    /// Builds the section named `name`.
    pub fn finish(self, name: &str) -> Resolvers {
        let (names, nameservers): (Vec<_>, Vec<_>) = self.nameservers.into_iter().unzip();
        Resolvers {
            state: state::resolvers::ResolversSection::new(name, names),
            nameservers,
            payload_size: self.payload_size,
            retries: self.retries,
            every: self.every,
            retry: self.retry,
            hold: self.hold,
        }
    }
}
