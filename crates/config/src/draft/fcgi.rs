//! An `fcgi-app` section while its lines are read.

use syntax::Word;

use crate::draft::Statement;
use crate::draft::settings::LogLine;

/// A section while its lines are read.
#[derive(Debug, Clone)]
pub struct FcgiDraft<'a> {
    /// `docroot`.
    pub docroot: Option<&'a Word>,
    /// `index`.
    pub index: Option<&'a Word>,
    /// `path-info`.
    pub path_info: Option<&'a Word>,
    /// `log-stderr`.
    pub loggers: Vec<LogLine<'a>>,
    /// `option keep-conn`.
    pub keeps: bool,
    /// `option get-values`.
    pub asks: bool,
    /// `option mpxs-conns`.
    pub multiplexes: bool,
    /// `option max-reqs`.
    pub most: u16,
    /// `acl`, `pass-header` and `set-param`, in order.
    pub rules: Vec<&'a Statement>,
}

impl Default for FcgiDraft<'_> {
    fn default() -> Self {
        Self {
            docroot: None,
            index: None,
            path_info: None,
            loggers: Vec::new(),
            keeps: true,
            asks: false,
            multiplexes: false,
            most: 1,
            rules: Vec::new(),
        }
    }
}
