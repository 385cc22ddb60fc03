//! How the names in URLs get addresses: by a `resolvers` section, as `do-resolve` finds them, or
//! not at all. The system's own resolver is not asked: it would hold up a worker.

use std::net::IpAddr;
use std::sync::Arc;

use base::address::Family;
use resolvers::Sections;
use state::resolvers::ResolversSection;

use crate::error::{Error, ErrorKind};

/// Who is asked for addresses. The default is nobody: then URLs must have addresses.
#[derive(Clone, Default)]
pub struct Names(Option<NameQuery>);

#[derive(Clone)]
struct NameQuery {
    sections: Sections,
    section: Arc<ResolversSection>,
    prefer: Option<Family>,
}

impl Names {
    /// Asks `section`, one of those of `sections`, for one family rather than the other if `prefer`
    /// says so (`httpclient.resolvers.prefer`).
    pub fn new(sections: Sections, section: Arc<ResolversSection>, prefer: Option<Family>) -> Self {
        Self(Some(NameQuery { sections, section, prefer }))
    }

    /// The address of a name.
    ///
    /// # Errors
    /// Nobody is asked, or nobody knows it.
    pub async fn address(&self, name: &str) -> Result<IpAddr, Error> {
        let Some(asked) = &self.0 else {
            let cause = format!("`{name}` is no address, and no resolvers section is asked for names");
            return Err(Error::new(ErrorKind::Name, cause));
        };
        let found = asked.sections.lookup(&asked.section, name, asked.prefer).await;
        found.ok_or_else(|| {
            let section = &asked.section.name;
            Error::new(
                ErrorKind::Name,
                format!("the resolvers section `{section}` found no address of `{name}`"),
            )
        })
    }
}
