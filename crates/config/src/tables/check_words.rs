//! Helpers shared by `http-check` and `tcp-check` lines.

use diag::Diagnostic;

use crate::draft::args::Args;
use crate::draft::check::RuleDraft;
use crate::draft::row::Outcome;
use crate::draft::settings::ProxySettings;

/// The value of the parameter taken last.
pub(super) fn value<'a>(args: &mut Args<'a, '_>) -> Result<&'a syntax::Word, Diagnostic> {
    let (name, keyword) = (args.last(), args.keyword());
    args.next().ok_or_else(|| {
        Diagnostic::alert(format!("`{name}` expects an argument"))
            .at(name.span())
            .haproxy(format!("'{keyword}' : '{name}' expects a string as argument."))
    })
}

/// Adds a line to the list that the keyword's first word determines.
pub(super) fn push<'a>(
    settings: &mut ProxySettings<'a>,
    rule: RuleDraft<'a>,
    args: &Args<'a, '_>,
) -> Outcome {
    let span = args.statement.keyword_span();
    let check = settings.own_check();
    if args.statement.words[0] == "http-check" {
        return check.push_http(rule, span);
    }
    check.push_tcp(rule);
    Ok(())
}

/// Decodes an even number of hexadecimal digits.
pub(super) fn hexadecimal(word: &syntax::Word, args: &Args<'_, '_>) -> Result<Box<[u8]>, Diagnostic> {
    let digit = |byte: &u8| char::from(*byte).to_digit(16);
    let pairs = word.as_str().as_bytes().chunks(2);
    let bytes: Option<Box<[u8]>> =
        pairs.map(|pair| Some((digit(&pair[0])? << 4 | digit(pair.get(1)?)?) as u8)).collect();
    bytes.ok_or_else(|| {
        args.wrong(format!("`{word}` is not an even number of hexadecimal digits"))
            .haproxy(format!("'{}' : '{word}' invalid binary string.", args.keyword()))
    })
}
