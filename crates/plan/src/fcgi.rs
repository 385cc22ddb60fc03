//! FastCGI applications (configuration manual, 10.1).

use fcgi::ScriptPath;
use sample::condition::Condition;
use sample::format::Format;
use sample::regex::Regex;

use crate::log::Logger;

/// The server software, as reported to applications (manual, 10.2 `SERVER_SOFTWARE`).
pub const SOFTWARE: &str = concat!("HAProxy 3.5.0-weir", env!("CARGO_PKG_VERSION"));

/// An `fcgi-app` section.
#[derive(Debug)]
pub struct App {
    /// The name of the application.
    pub name: Box<str>,
    /// `docroot`: the directory of the scripts on the application's machine.
    pub docroot: Box<[u8]>,
    /// `index`: the script for a path that ends with a slash.
    pub index: Option<Box<[u8]>>,
    /// `path-info`: splits the script's name from the rest of the path.
    pub path_info: Option<Regex>,
    /// `log-stderr`: the loggers for the application's error output.
    pub loggers: Vec<Logger>,
    /// `option keep-conn`: whether connections are kept open after a request.
    pub keeps: bool,
    /// `option get-values`: whether to query the application for its limits.
    pub asks: bool,
    /// `option mpxs-conns`: whether the application supports several requests on one connection.
    pub multiplexes: bool,
    /// `option max-reqs`: the maximum number of these requests.
    pub most: u16,
    /// `set-param` and `pass-header`, in order.
    pub rules: Vec<Rule>,
}

impl App {
    /// Splits a target into the script and the path info.
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
            name.extend_from_slice(index);
        }
        Some(ScriptPath { name, path_info })
    }
}

/// A rule that sets a request's parameters.
#[derive(Debug)]
pub struct Rule {
    /// The condition under which the rule applies.
    pub condition: Option<Condition>,
    /// The effect of the rule.
    pub effect: Effect,
}

/// The effect of a rule.
#[derive(Debug)]
pub enum Effect {
    /// `set-param`.
    Set(Box<[u8]>, Format),
    /// `pass-header`.
    Pass(Box<[u8]>),
}
