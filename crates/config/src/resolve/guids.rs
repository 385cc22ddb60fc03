//! Globally unique identifiers (`guid`, `guid-prefix`): each names one frontend, backend, socket or
//! server, and no two are the same.

use std::collections::HashMap;
use std::sync::OnceLock;

use diag::{Diagnostic, Diagnostics, Span};
use syntax::Word;

/// The identifiers given so far, and where each stands.
#[derive(Default)]
pub(crate) struct Guids(HashMap<String, Span>);

impl Guids {
    /// Gives `guid` to who has `place` for it; `word` is what it was made of.
    pub(crate) fn name(
        &mut self,
        guid: String,
        place: &OnceLock<Box<str>>,
        word: &Word,
        diagnostics: &mut Diagnostics,
    ) {
        if let Some(other) = self.0.get(&guid) {
            diagnostics.push(
                Diagnostic::alert(format!("the globally unique identifier `{guid}` is used twice"))
                    .at(word.span())
                    .related(*other, "first here")
                    .haproxy(format!("guid '{guid}': duplicate entry")),
            );
            return;
        }
        // Set once: whoever is named is new.
        let _ = place.set(guid.as_str().into());
        self.0.insert(guid, word.span());
    }
}
