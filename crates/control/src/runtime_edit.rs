//! Interfaces for adding and removing servers and backends at run time: implemented by the binary, called by commands.

use std::pin::Pin;
use std::sync::Arc;

use state::Server;

/// A parsed `add backend` command.
#[derive(Debug, Clone, Copy)]
pub struct NewBackend<'a> {
    /// The backend's name.
    pub name: &'a str,
    /// The `defaults` section from which the backend is made.
    pub defaults: &'a str,
    /// `mode`, if given.
    pub mode: Option<state::Mode>,
    /// `guid`, if given.
    pub guid: Option<&'a str>,
}

/// The response to a request made by the process itself.
#[derive(Debug, Clone)]
pub struct OwnResponse {
    /// Its status code.
    pub status: u16,
    /// The reason phrase.
    pub reason: String,
    /// Header names and values, in the order received.
    pub headers: Vec<(String, String)>,
    /// The body.
    pub body: Vec<u8>,
}

/// The eventual response, or the reason for its absence.
pub type Receiving = Pin<Box<dyn Future<Output = Result<OwnResponse, String>>>>;

/// Adds and removes servers and backends, with access to the configuration and the data path.
pub trait Keeper: Send + Sync {
    /// Adds server `name`, in maintenance, to a backend; `words` are its address and parameters.
    fn add(&self, backend: &str, name: &str, words: &[String]) -> Result<(), String>;
    /// Removes an unused server.
    fn remove(&self, backend: &str, server: &Arc<Server>);
    /// Closes the idle connections to a server; completes when they are closed.
    fn close_idle(&self, backend: &str, server: &Arc<Server>) -> Pin<Box<dyn Future<Output = ()>>>;
    /// Changes the host name of a server resolved by `resolvers`.
    fn rename_host(&self, backend: &str, server: &Arc<Server>, name: &str);
    /// The names of a backend's default servers; empty for the unnamed one.
    fn default_servers(&self, backend: &str) -> Vec<String>;
    /// The named `defaults` sections, and whether each sets a mode explicitly.
    fn defaults(&self) -> Vec<(Box<str>, bool)>;
    /// Adds a backend, which rules do not choose yet.
    fn add_backend(&self, asked: &NewBackend<'_>) -> Result<(), String>;
    /// Removes an unused backend.
    fn remove_backend(&self, name: &str);
    /// Writes a line to the process's logs.
    fn log(&self, text: &str);
    /// Sends a request without a body to a URL, from the calling worker (`httpclient`).
    ///
    /// # Errors
    /// The URL is invalid.
    fn send(&self, method: &str, url: &str) -> Result<Receiving, String>;
    /// Explains what would happen to a request, which the words after `explain` describe.
    ///
    /// # Errors
    /// The words do not describe a request to one of the frontends.
    fn explain(&self, words: &[String]) -> Result<String, String>;
    /// The parameters allowed for an added server.
    fn parameters(&self) -> Vec<&'static str>;
}

/// The eventual response of a command.
pub type Answered = Pin<Box<dyn Future<Output = String>>>;

/// Commands registered by scripts.
pub trait Scripts: Send + Sync {
    /// Runs the command that begins with these words, if there is one.
    fn run(&self, words: &[String]) -> Option<Answered>;
    /// The words and the usage of each command.
    fn usages(&self) -> Vec<(String, String)>;
}

/// The output format of a difference.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum DifferenceFormat {
    /// As text.
    #[default]
    Text,
    /// Text with colours.
    Colours,
    /// As JSON.
    Json,
}

/// Reloads the configuration in the running process.
pub trait Reloader: Send + Sync {
    /// Applies the current files. Returns the changes.
    ///
    /// # Errors
    /// The files are invalid, or contain changes that a running process cannot apply. In both cases nothing has changed.
    fn reload(&self, shown: DifferenceFormat) -> Result<String, String>;
    /// Returns the changes without applying them. If `text` is given, it is used instead of the configuration files.
    ///
    /// # Errors
    /// The errors of [`reload`](Self::reload).
    fn difference(&self, text: Option<&str>, shown: DifferenceFormat) -> Result<String, String>;
    /// A configuration that includes all run-time changes.
    fn configuration(&self) -> String;
    /// Writes that configuration to a file, atomically.
    ///
    /// # Errors
    /// The file cannot be written.
    fn save(&self, path: &str) -> Result<(), String>;
}
