//! An `fcgi-app` section that is still being parsed, without the lines that are compiled in order.

use syntax::Word;

/// An `fcgi-app` section that is still being parsed.
#[derive(Debug, Clone)]
pub struct FcgiDraft<'a> {
    /// `docroot`.
    pub docroot: Option<&'a Word>,
    /// `index`.
    pub index: Option<&'a Word>,
    /// `path-info`.
    pub path_info: Option<&'a Word>,
    /// `option keep-conn`.
    pub keeps: bool,
    /// `option get-values`.
    pub asks: bool,
    /// `option mpxs-conns`.
    pub multiplexes: bool,
    /// `option max-reqs`.
    pub most: u16,
}

impl Default for FcgiDraft<'_> {
    fn default() -> Self {
        Self {
            docroot: None,
            index: None,
            path_info: None,
            keeps: true,
            asks: false,
            multiplexes: false,
            most: 1,
        }
    }
}
