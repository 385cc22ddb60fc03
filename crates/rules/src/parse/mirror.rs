//! `mirror`: sends a copy of the request to another backend. Only in Weir.

use std::sync::atomic::Ordering::Relaxed;

use diag::Diagnostic;
use state::Mode;

use crate::action::Action;
use crate::context::{Context, Parsed};

/// `mirror <backend> [sample <percent>]`.
pub(crate) fn mirror(context: &mut Context<'_, '_, '_>) -> Parsed {
    let word = context.need("a backend name")?;
    let backend = context.scope.names.backend(word.text).ok_or_else(|| {
        let name = word.text;
        Diagnostic::alert(format!("there is no backend `{name}`"))
            .at(word.span)
            .help(format!("define it with a section `backend {name}`"))
    })?;
    if backend.mode != Mode::Http {
        let name = word.text;
        return Err(Diagnostic::alert(format!("backend `{name}` does not accept HTTP requests"))
            .at(word.span)
            .help("add `mode http` to it"));
    }
    let mut percent = 100;
    if context.words.take("sample") {
        let word = context.need("a percentage of requests")?;
        let number = word.text.strip_suffix('%').unwrap_or(word.text).parse().ok();
        percent = number.filter(|percent| (1..=100).contains(percent)).ok_or_else(|| {
            Diagnostic::alert(format!("invalid percentage `{}`", word.text))
                .at(word.span)
                .label("use 1 to 100")
        })?;
    }
    backend.referenced.store(true, Relaxed);
    backend.keep_mirror();
    Ok(Action::Mirror { backend, percent })
}
