//! Bulk changes of headers from one binary value: `add-headers-bin`, `set-headers-bin`, `del-headers-bin` (manual, 4.3). The value
//! contains names and values, or only names, each preceded by its length. The list ends with an empty name or at the end of the
//! value.

use diag::Diagnostic;
use http::{Head, Name};
use sample::length_prefixed::take_text;

use crate::action::{Action, BinaryHeaders, NamesMatch};
use crate::context::Context;
use crate::parse::wrong;

const METHODS: [(&str, NamesMatch); 4] = [
    ("str", NamesMatch::Exact),
    ("beg", NamesMatch::Begin),
    ("end", NamesMatch::End),
    ("sub", NamesMatch::Within),
];

/// Parses the arguments of the three actions.
pub(crate) fn parse(context: &mut Context<'_, '_, '_>) -> Result<Action, Diagnostic> {
    let value = context.expression()?;
    let change = if context.row.name == "del-headers-bin" {
        let mut how = NamesMatch::Exact;
        if context.words.take("-m") {
            let method = context.need("a matching method")?;
            let found = METHODS.iter().find(|(name, _)| *name == method.text);
            how =
                found.ok_or_else(|| wrong(method, "matching method here", &METHODS.map(|(name, _)| name)))?.1;
        }
        BinaryHeaders::Remove(how)
    } else {
        let mut prefix = Box::default();
        if context.words.take("prefix") {
            prefix = context.need("a prefix")?.bytes().to_ascii_lowercase().into();
        }
        match context.row.name {
            "set-headers-bin" => BinaryHeaders::Set { prefix },
            _ => BinaryHeaders::Add { prefix },
        }
    };
    Ok(Action::BinaryHeaders { change, value: Box::new(value) })
}

/// Applies `packed` to `head`, within `limit` bytes. Stops at malformed data. Returns whether everything could be applied.
pub(crate) fn apply(change: &BinaryHeaders, head: &mut Head, mut packed: &[u8], limit: usize) -> bool {
    let mut done = true;
    while let Some(name) = take_text(&mut packed).filter(|name| !name.is_empty()) {
        let prefix = match change {
            BinaryHeaders::Remove(how) => {
                remove(head, name, *how);
                continue;
            }
            BinaryHeaders::Add { prefix } | BinaryHeaders::Set { prefix } => prefix,
        };
        let Some(value) = take_text(&mut packed) else { return false };
        let begins = name.get(..prefix.len()).is_some_and(|start| start.eq_ignore_ascii_case(prefix));
        if !begins {
            continue;
        }
        let (added, replaces) = (name.len() + value.len() + 4, matches!(change, BinaryHeaders::Set { .. }));
        let known = Name::new(name);
        let fits = head.fits(limit, added, |head| if replaces { head.lines_len(&known) } else { 0 });
        // A name that is not a token would corrupt the message.
        if !fits || !http::is_token(name) {
            done = false;
            continue;
        }
        if replaces {
            head.remove_all(&known);
        }
        done &= head.append(name, value);
    }
    done
}

fn remove(head: &mut Head, wanted: &[u8], how: NamesMatch) {
    let same = |part: Option<&[u8]>| part.is_some_and(|part| part.eq_ignore_ascii_case(wanted));
    match how {
        NamesMatch::Exact => head.remove_all(&Name::new(wanted)),
        NamesMatch::Begin => head.remove_if(|name, _| same(name.get(..wanted.len()))),
        NamesMatch::End => {
            head.remove_if(|name, _| same(name.len().checked_sub(wanted.len()).and_then(|at| name.get(at..))))
        }
        NamesMatch::Within => head.remove_if(|name, _| {
            name.windows(wanted.len().max(1)).any(|part| part.eq_ignore_ascii_case(wanted))
        }),
    };
}
