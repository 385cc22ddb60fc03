//! The hash of a request's key (manual, 4.2 `balance`).

use http::{Method, uri};
use sample::Env;

use crate::key;
use crate::settings::{Algorithm, BalanceSettings, HashFunction};

impl BalanceSettings {
    /// The hash of a request's key; `None` if the algorithm uses no key or the request does not have one.
    pub fn key_hash(&self, env: &Env<'_>) -> Option<u32> {
        let kind = &self.hash;
        let request = env.transaction.map(|transaction| &transaction.request);
        match &self.algorithm {
            Algorithm::Source => env.source()?.address().map(|address| kind.of_address(address.ip())),
            Algorithm::Uri(part) => Some(kind.of(part.of(request?.target()))),
            Algorithm::UrlParam { name, check_post } => {
                let request = request?;
                let query = uri::split(request.target()).query();
                let in_query = query.and_then(|query| key::parameter(query, name));
                let in_body = || key::posted_parameter(env.request_bytes, name);
                let posted = *check_post && request.method_id() == Method::Post;
                in_query.or_else(|| posted.then(in_body).flatten()).map(|value| kind.of(value))
            }
            Algorithm::Header { name, domain_only } => {
                let value = request?.values(name).next().filter(|value| !value.is_empty())?;
                Some(kind.of(if *domain_only { key::domain(value) } else { value }))
            }
            Algorithm::RdpCookie { name } => {
                key::rdp_cookie(env.request_bytes, name).map(|value| kind.of(value))
            }
            Algorithm::Hash(expression) => {
                let value = expression.eval(env)?;
                // A key that is already a number is parsed as text; all other keys are hashed as bytes.
                let bytes = match kind.function {
                    HashFunction::None => value.into_str()?,
                    _ => value.into_bin()?,
                };
                Some(kind.of(&bytes))
            }
            _ => None,
        }
    }
}
