//! Globally unique identifiers (`guid`, `guid-prefix`): each names a single frontend, backend, socket or server.

use std::collections::HashMap;
use std::sync::OnceLock;

use diag::{Diagnostic, Diagnostics, Span};
use syntax::Word;

/// The identifiers assigned so far, with their locations.
#[derive(Default)]
pub(crate) struct Guids(HashMap<String, Span>);

impl Guids {
    /// Assigns `guid` to an object through its `place`. `word` is the word that contains it.
    pub(crate) fn name(
        &mut self,
        guid: String,
        place: &OnceLock<Box<str>>,
        word: &Word,
        diagnostics: &mut Diagnostics,
    ) {
        if let Some(other) = self.0.get(&guid) {
            diagnostics.push(
                Diagnostic::alert(format!("globally unique identifier `{guid}` is already in use"))
                    .at(word.span())
                    .related(*other, "first used here")
                    .haproxy(format!("guid '{guid}': duplicate entry")),
            );
            return;
        }
        // A new object has no identifier yet.
        let _ = place.set(guid.as_str().into());
        self.0.insert(guid, word.span());
    }
}
