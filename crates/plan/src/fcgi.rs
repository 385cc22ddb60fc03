//! Applications that speak FastCGI (configuration manual, 10.1).

use fcgi::ScriptPath;
use sample::condition::Condition;
use sample::format::Format;
use sample::regex::Regex;

use crate::log::Logger;

/// What serves, as applications are told (manual, 10.2 `SERVER_SOFTWARE`).
pub const SOFTWARE: &str = concat!("HAProxy 3.5.0-weir", env!("CARGO_PKG_VERSION"));

/// An `fcgi-app` section.
#[derive(Debug)]
pub struct App {
    /// Its name.
    pub name: Box<str>,
    /// `docroot`: where the scripts are, on the application's machine.
    pub docroot: Box<str>,
    /// `index`: what is meant by a path that ends with a slash.
    pub index: Option<Box<str>>,
    /// `path-info`: tells the script's name from what is behind it.
    pub path_info: Option<Regex>,
    /// `log-stderr`: who is told what the application says.
    pub loggers: Vec<Logger>,
    /// `option keep-conn`: whether connections outlive requests.
    pub keeps: bool,
    /// `option get-values`: whether the application is asked how many requests it takes.
    pub asks: bool,
    /// `option mpxs-conns`: whether it takes several at a time over one connection.
    pub multiplexes: bool,
    /// `option max-reqs`: how many.
    pub most: u16,
    /// `set-param` and `pass-header`, in order.
    pub rules: Vec<Rule>,
}

impl App {
    /// What a target means: its script, and what is behind that.
    #[must_use]
    pub fn script(&self, target: &[u8]) -> Option<ScriptPath> {
        let path = http::uri::split(target).path().filter(|path| path.starts_with(b"/"))?;
        let mut name = Vec::with_capacity(path.len());
        if !http::uri::url_decode(path, false, &mut name) {
            return None;
        }
        let mut path_info = Vec::new();
        if let Some(regex) = &self.path_info {
            if name.iter().any(|byte| matches!(byte, b'\n' | 0)) {
                return None;
            }
            let mut matched = Vec::new();
            if regex.expand(&name, b"\\1", &mut matched) && !matched.is_empty() {
                regex.expand(&name, b"\\2", &mut path_info);
                name = matched;
            }
        }
        if let Some(index) = self.index.as_deref().filter(|_| name.ends_with(b"/")) {
            name.extend_from_slice(index.as_bytes());
        }
        Some(ScriptPath { name, path_info })
    }
}

/// A line that says what requests tell the application.
#[derive(Debug)]
pub struct Rule {
    /// When it counts.
    pub condition: Option<Condition>,
    /// What it says.
    pub effect: Effect,
}

/// What such a line says.
#[derive(Debug)]
pub enum Effect {
    /// `set-param`.
    Set(Box<str>, Format),
    /// `pass-header`.
    Pass(Box<str>),
}
