//! `mirror`: sends a copy of the request to another backend. Weir's own.

use std::sync::atomic::Ordering::Relaxed;

use diag::Diagnostic;
use state::Mode;

use crate::action::Action;
use crate::context::{Context, Parsed};

/// `mirror <backend> [sample <percent>]`.
pub(crate) fn mirror(context: &mut Context<'_, '_, '_>) -> Parsed {
    let word = context.need("the name of a backend")?;
    let backend = context.scope.names.backend(word.text).ok_or_else(|| {
        let name = word.text;
        Diagnostic::alert(format!("there is no backend `{name}`"))
            .at(word.span)
            .help(format!("a section `backend {name}` makes it"))
    })?;
    if backend.mode != Mode::Http {
        let name = word.text;
        return Err(Diagnostic::alert(format!("backend `{name}` takes no requests of HTTP"))
            .at(word.span)
            .help("`mode http` makes it a backend of HTTP"));
    }
    let mut percent = 100;
    if context.words.take("sample") {
        let word = context.need("a share of the requests, in percent")?;
        let number = word.text.strip_suffix('%').unwrap_or(word.text).parse().ok();
        percent = number.filter(|percent| (1..=100).contains(percent)).ok_or_else(|| {
            Diagnostic::alert(format!("`{}` is no share of requests", word.text))
                .at(word.span)
                .label("1 to 100, in percent")
        })?;
    }
    backend.referenced.store(true, Relaxed);
    backend.keep_mirror();
    Ok(Action::Mirror { backend, percent })
}
