//! Applications that speak FastCGI (configuration manual, 10.1).

use sample::condition::Condition;
use sample::format::Format;
use sample::regex::Regex;

use crate::log::Logger;

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
