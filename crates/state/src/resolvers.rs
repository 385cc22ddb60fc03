//! Name server counters (`show resolvers`, `show stat domain resolvers`; management manual, 9.3 and 9.1).
//!
//! The worker that sends the queries writes them; the runtime socket reads them.

use std::sync::Arc;

use runtime::count::Count;

/// A `resolvers` section.
#[derive(Debug)]
pub struct ResolversSection {
    /// The name of the section.
    pub name: Box<str>,
    /// The name servers, in order.
    pub nameservers: Vec<NameServer>,
}

impl ResolversSection {
    /// Creates a section without counts.
    pub fn new(name: &str, nameservers: impl IntoIterator<Item = Box<str>>) -> Arc<Self> {
        let nameservers =
            nameservers.into_iter().map(|name| NameServer { name, counters: Counters::default() }).collect();
        Arc::new(Self { name: name.into(), nameservers })
    }
}

/// A name server.
#[derive(Debug)]
pub struct NameServer {
    /// The name of the name server.
    pub name: Box<str>,
    /// The counters of the name server.
    pub counters: Counters,
}

/// The counters of one name server, in display order.
#[derive(Debug, Default)]
pub struct Counters {
    /// Queries sent.
    pub sent: Count,
    /// Queries that could not be sent.
    pub send_errors: Count,
    /// Valid answers.
    pub valid: Count,
    /// Answers that changed a server's address.
    pub update: Count,
    /// Answers with an alias.
    pub cname: Count,
    /// Aliases without an address.
    pub cname_error: Count,
    /// Empty answers.
    pub any_err: Count,
    /// The name does not exist.
    pub nx: Count,
    /// Queries without an answer in time.
    pub timeout: Count,
    /// Answers that refuse the query.
    pub refused: Count,
    /// Answers with any other error.
    pub other: Count,
    /// Responses that do not match the query.
    pub invalid: Count,
    /// Answers larger than `accepted_payload_size`.
    pub too_big: Count,
    /// Truncated answers.
    pub truncated: Count,
    /// Answers that arrived too late.
    pub outdated: Count,
}

impl Counters {
    /// Returns every counter with its name in `show resolvers`. The statistics call the second one `send_error`.
    pub fn named(&self) -> [(&'static str, u64); 15] {
        [
            ("sent", self.sent.get()),
            ("snd_error", self.send_errors.get()),
            ("valid", self.valid.get()),
            ("update", self.update.get()),
            ("cname", self.cname.get()),
            ("cname_error", self.cname_error.get()),
            ("any_err", self.any_err.get()),
            ("nx", self.nx.get()),
            ("timeout", self.timeout.get()),
            ("refused", self.refused.get()),
            ("other", self.other.get()),
            ("invalid", self.invalid.get()),
            ("too_big", self.too_big.get()),
            ("truncated", self.truncated.get()),
            ("outdated", self.outdated.get()),
        ]
    }

    /// Sets all to zero (`clear counters all`).
    pub fn clear(&self) {
        for count in [
            &self.sent,
            &self.send_errors,
            &self.valid,
            &self.update,
            &self.cname,
            &self.cname_error,
            &self.any_err,
            &self.nx,
            &self.timeout,
            &self.refused,
            &self.other,
            &self.invalid,
            &self.too_big,
            &self.truncated,
            &self.outdated,
        ] {
            count.clear();
        }
    }
}
