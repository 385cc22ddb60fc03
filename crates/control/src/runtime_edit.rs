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

/// The response to a request of the process's own.
#[derive(Debug, Clone)]
pub struct OwnResponse {
    /// Its status code.
    pub status: u16,
    /// The words behind it.
    pub reason: String,
    /// Names and values, in the order in which they came.
    pub headers: Vec<(String, String)>,
    /// The body.
    pub body: Vec<u8>,
}

/// A response, or why there is none, once it is known.
pub type Receiving = Pin<Box<dyn Future<Output = Result<OwnResponse, String>>>>;

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
    /// Sends a request to a URL, without a body, from the calling worker (`httpclient`).
    ///
    /// # Errors
    /// The URL is none.
    fn send(&self, method: &str, url: &str) -> Result<Receiving, String>;
    /// The parameters that an added server may have.
    fn parameters(&self) -> Vec<&'static str>;
}

/// What a command answers, once it has.
pub type Answered = Pin<Box<dyn Future<Output = String>>>;

/// Commands that scripts registered.
pub trait Scripts: Send + Sync {
    /// Runs the one that begins with these words, if there is one.
    fn run(&self, words: &[String]) -> Option<Answered>;
    /// The words of each, and its usage.
    fn usages(&self) -> Vec<(String, String)>;
}

/// How a difference is shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum DifferenceFormat {
    /// As text.
    #[default]
    Text,
    /// As text with colours.
    Colours,
    /// As JSON.
    Json,
}

/// Reads the configuration anew in the running process: it knows where it stands.
pub trait Reloader: Send + Sync {
    /// Uses what the files say now. Says what has changed.
    ///
    /// # Errors
    /// What is wrong with them, or cannot change while the process runs: nothing has changed.
    fn reload(&self, shown: DifferenceFormat) -> Result<String, String>;
    /// The same without using it: what would change. With `text`, a configuration of that text
    /// instead of the files.
    ///
    /// # Errors
    /// As above.
    fn difference(&self, text: Option<&str>, shown: DifferenceFormat) -> Result<String, String>;
    /// A configuration that holds what was done to the process.
    fn configuration(&self) -> String;
    /// Writes that to a file, whole or not at all.
    ///
    /// # Errors
    /// The file cannot be written.
    fn save(&self, path: &str) -> Result<(), String>;
}
