//! What makes and removes servers and backends at run time: the binary gives it, commands call it.

use std::pin::Pin;
use std::sync::Arc;

use state::Server;

/// What `add backend` asks for.
#[derive(Debug, Clone, Copy)]
pub struct NewBackend<'a> {
    /// Its name.
    pub name: &'a str,
    /// The `defaults` section that it is made from.
    pub defaults: &'a str,
    /// `mode`, if it is said.
    pub mode: Option<state::Mode>,
    /// `guid`, if it is said.
    pub guid: Option<&'a str>,
}

/// Makes and removes servers and backends: it knows the configuration and the data path.
pub trait Keeper: Send + Sync {
    /// Adds server `name`, in maintenance, to a backend; `words` are its address and parameters.
    fn add(&self, backend: &str, name: &str, words: &[String]) -> Result<(), String>;
    /// Removes a server that nothing uses.
    fn remove(&self, backend: &str, server: &Arc<Server>);
    /// Closes the idle connections to a server; ready when they are closed.
    fn close_idle(&self, backend: &str, server: &Arc<Server>) -> Pin<Box<dyn Future<Output = ()>>>;
    /// Gives a server that `resolvers` name servers for another host name.
    fn rename_host(&self, backend: &str, server: &Arc<Server>, name: &str);
    /// The names of a backend's default servers; empty for the one without a name.
    fn default_servers(&self, backend: &str) -> Vec<String>;
    /// The named `defaults` sections, and whether each says which mode.
    fn defaults(&self) -> Vec<(Box<str>, bool)>;
    /// Adds a backend that rules do not choose yet.
    fn add_backend(&self, asked: &NewBackend<'_>) -> Result<(), String>;
    /// Removes a backend that nothing uses.
    fn remove_backend(&self, name: &str);
    /// Writes a line to the logs of the process.
    fn log(&self, text: &str);
    /// The parameters that an added server may have.
    fn parameters(&self) -> Vec<&'static str>;
}
