//! The arguments of actions that rewrite a message's headers, target or status.

use diag::Diagnostic;
use http::Name;
use sample::Word;
use sample::format::FormatFor;
use sample::regex::Regex;

use super::wrong;
use crate::action::{Action, NameMatch, RequestLinePart};
use crate::context::{Context, Parsed};

/// The name of a header to add.
pub(super) fn header_name<'w>(context: &mut Context<'_, 'w, '_>) -> Result<Word<'w>, Diagnostic> {
    let name = context.need("a header name")?;
    // A trailing colon is a common mistake, and is sent unchanged.
    let token = name.text.strip_suffix(':').unwrap_or(name.text);
    if !http::is_token(token.as_bytes()) {
        return Err(Diagnostic::alert(format!("`{}` is not a valid header name", name.text)).at(name.span));
    }
    if token.len() < name.text.len() {
        let text = format!("header name '{}' contains forbidden character ':'.", name.text);
        let warning = Diagnostic::warning(format!("header name with a trailing colon: `{}`", name.text));
        context.scope.names.warn(warning.at(name.span).haproxy(text));
    }
    Ok(name)
}

pub(crate) fn header_format(context: &mut Context<'_, '_, '_>) -> Parsed {
    let name = header_name(context)?;
    let value = context.format("a value", FormatFor::Header)?;
    let shown = name.bytes();
    Ok(if context.row.name == "set-header" {
        Action::SetHeader { name: Name::new(&shown), shown: shown.into(), value }
    } else {
        Action::AddHeader { name: shown.into(), value }
    })
}

pub(crate) fn del_header(context: &mut Context<'_, '_, '_>) -> Parsed {
    let name = context.need("a header name")?;
    let lower = name.bytes().to_ascii_lowercase().into_boxed_slice();
    if !context.words.take("-m") {
        return Ok(Action::DelHeader(NameMatch::Exact(Name::new(&name.bytes()))));
    }
    let method = context.need("a matching method")?;
    Ok(Action::DelHeader(match method.text {
        "str" => NameMatch::Exact(Name::new(&name.bytes())),
        "beg" => NameMatch::Begin(lower),
        "end" => NameMatch::End(lower),
        "sub" => NameMatch::Within(lower),
        "reg" => {
            NameMatch::Regex(Regex::new(name.text, false).map_err(|error| {
                Diagnostic::alert(format!("bad regular expression: {error}")).at(name.span)
            })?)
        }
        _ => return Err(wrong(method, "matching method here", &["str", "beg", "end", "sub", "reg"])),
    }))
}

pub(crate) fn replace_header(context: &mut Context<'_, '_, '_>) -> Parsed {
    let name = Name::new(&context.need("a header name")?.bytes());
    let regex = Box::new(context.regex()?);
    let with = context.format("a replacement", FormatFor::Header)?;
    Ok(Action::ReplaceHeader { name, regex, with, each_value: context.row.name == "replace-value" })
}

pub(crate) fn replace_uri_part(context: &mut Context<'_, '_, '_>) -> Parsed {
    let part = match context.row.name {
        "replace-path" => RequestLinePart::Path,
        "replace-pathq" => RequestLinePart::Pathq,
        _ => RequestLinePart::Uri,
    };
    let regex = context.regex()?;
    let with = context.format("a replacement", FormatFor::Uri)?;
    Ok(Action::ReplaceUri { part, regex, with })
}

pub(crate) fn set_part(context: &mut Context<'_, '_, '_>) -> Parsed {
    let part = match context.row.name {
        "set-method" => RequestLinePart::Method,
        "set-path" => RequestLinePart::Path,
        "set-pathq" => RequestLinePart::Pathq,
        "set-query" => RequestLinePart::Query,
        _ => RequestLinePart::Uri,
    };
    Ok(Action::SetPart { part, value: context.format("a value", FormatFor::Uri)? })
}

pub(crate) fn set_status(context: &mut Context<'_, '_, '_>) -> Parsed {
    let word = context.need("a status")?;
    let status =
        word.text.parse::<u16>().ok().filter(|status| (100..=999).contains(status)).ok_or_else(|| {
            Diagnostic::alert(format!("`{}` is not a status code between 100 and 999", word.text))
                .at(word.span)
        })?;
    let reason =
        if context.words.take("reason") { Some(context.need("a reason")?.bytes().into()) } else { None };
    Ok(Action::SetStatus { status, reason })
}
