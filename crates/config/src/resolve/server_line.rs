//! A parsed server line: `servers` makes states of these, and `peers` builds its own lines.

use std::rc::Rc;

use syntax::Word;

use crate::draft::Statement;
use crate::draft::server::ServerDraft;
use crate::tables::server_address::ServerPlace;

/// A parsed line.
pub(crate) struct ServerLine<'a> {
    pub(crate) statement: &'a Statement,
    pub(crate) name: Box<str>,
    pub(crate) name_word: &'a Word,
    pub(crate) address_word: &'a Word,
    pub(crate) place: Rc<ServerPlace>,
    pub(crate) draft: ServerDraft<'a>,
}
