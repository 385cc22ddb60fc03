//! Resolves the host names in URLs: through a `resolvers` section, like `do-resolve`, or not at all. The system's resolver is not
//! used, because it would block a worker.

use std::net::IpAddr;
use std::sync::Arc;

use base::address::Family;
use resolvers::Sections;
use state::resolvers::ResolversSection;

use crate::error::{Error, ErrorKind};

/// The resolver of host names. By default there is none, and URLs must then contain addresses.
#[derive(Clone, Default)]
pub struct Names(Option<NameQuery>);

#[derive(Clone)]
struct NameQuery {
    sections: Sections,
    section: Arc<ResolversSection>,
    prefer: Option<Family>,
}

impl Names {
    /// Resolves with `section`, one of `sections`; `prefer` selects the preferred address family (`httpclient.resolvers.prefer`).
    pub fn new(sections: Sections, section: Arc<ResolversSection>, prefer: Option<Family>) -> Self {
        Self(Some(NameQuery { sections, section, prefer }))
    }

    /// Resolves a name.
    ///
    /// # Errors
    /// There is no resolver, or the name has no address.
    pub async fn address(&self, name: &str) -> Result<IpAddr, Error> {
        let Some(asked) = &self.0 else {
            let cause = format!("`{name}` is not an IP address, and no resolvers section is configured");
            return Err(Error::new(ErrorKind::Name, cause));
        };
        let found = asked.sections.lookup(&asked.section, name, asked.prefer).await;
        found.ok_or_else(|| {
            let section = &asked.section.name;
            Error::new(
                ErrorKind::Name,
                format!("the resolvers section `{section}` found no address for `{name}`"),
            )
        })
    }
}
