//! The words after an ACL's criterion (manual, 7.1): flags, an operator and the patterns.

use std::sync::Arc;

use diag::Diagnostic;

use crate::Scope;
use crate::pattern::{List, ListOrigin, MatchMethod, PatternIndex};
use crate::word_cursor::{Word, Words};

/// The parsed flags of an ACL.
pub(super) struct Flags {
    pub(super) method: Option<MatchMethod>,
    pub(super) ignore_case: bool,
    pub(super) as_map: bool,
    pub(super) number: Option<u32>,
    pub(super) files: Vec<(Arc<List>, bool)>,
}

/// All flags, for suggestions.
const FLAGS: &[&str] = &["-i", "-f", "-m", "-M", "-n", "-u", "--"];

pub(super) fn flags(words: &mut Words<'_>, scope: &Scope<'_>) -> Result<Flags, Diagnostic> {
    let mut flags =
        Flags { method: None, ignore_case: false, as_map: false, number: None, files: Vec::new() };
    while let Some(word) = words.peek() {
        let missing = || Diagnostic::alert(format!("`{}` needs a value", word.text)).at(word.span);
        match word.text {
            "-i" => flags.ignore_case = true,
            "-n" => {}
            "-M" => flags.as_map = true,
            "--" => {
                words.next();
                break;
            }
            "-u" => {
                words.next();
                let id = words.peek().ok_or_else(missing)?;
                let number = id.text.parse::<u32>();
                let wrong =
                    |_| Diagnostic::alert(format!("invalid number `{}` for `-u`", id.text)).at(id.span);
                flags.number = Some(number.map_err(wrong)?);
            }
            "-m" => {
                words.next();
                let name = words.peek().ok_or_else(missing)?;
                if flags.method.is_some() {
                    return Err(Diagnostic::alert("`-m` is given twice").at(word.span));
                }
                if !flags.files.is_empty() {
                    return Err(Diagnostic::alert("`-m` must precede `-f`").at(word.span));
                }
                let method = MatchMethod::parse(name.text).ok_or_else(|| {
                    Diagnostic::alert(format!("unknown match method `{}`", name.text))
                        .at(name.span)
                        .did_you_mean(diag::suggest(name.text, MatchMethod::names()))
                })?;
                flags.method = Some(method);
            }
            "-f" => {
                words.next();
                let name = words.peek().ok_or_else(missing)?;
                let read = |path: &str| scope.names.read_patterns(path);
                let list = scope.patterns.borrow_mut().file(name.text, flags.as_map, read);
                let list = list.map_err(|error| Diagnostic::alert(error).at(name.span))?;
                let (file, line) = scope.names.position(name.span);
                list.note_user("acl", &file, line);
                flags.files.push((list, flags.ignore_case));
            }
            other if other.starts_with('-') => {
                return Err(Diagnostic::alert(format!("unknown ACL flag `{other}`"))
                    .at(word.span)
                    .did_you_mean(diag::suggest(other, FLAGS.iter().copied()))
                    .help("write `--` before a pattern that starts with a dash")
                    .haproxy(format!(
                        "'{other}' is not a valid ACL option. Please use '--' before any pattern beginning with a '-'"
                    )));
            }
            _ => break,
        }
        words.next();
    }
    Ok(flags)
}

/// Compiles the patterns of the line into an index, and into the list that the runtime socket edits.
pub(super) fn patterns(
    words: &mut Words<'_>,
    method: MatchMethod,
    flags: &Flags,
    criterion: Word<'_>,
    scope: &Scope<'_>,
) -> Result<(PatternIndex, Arc<List>), Diagnostic> {
    let numeric = matches!(method, MatchMethod::Int | MatchMethod::Len);
    let mut operator = "eq";
    let mut values: Vec<String> = Vec::new();
    let mut spans = Vec::new();
    while let Some(word) = words.next() {
        let text = word.text;
        if numeric && matches!(text, "eq" | "ge" | "gt" | "le" | "lt") {
            operator = text;
            continue;
        }
        let value = match method {
            MatchMethod::Int | MatchMethod::Len if operator != "eq" => {
                compared(text, operator).map_err(|error| Diagnostic::alert(error).at(word.span))?
            }
            _ => text.to_owned(),
        };
        spans.push(word.span);
        values.push(value);
    }
    let (file, line) = scope.names.position(criterion.span);
    let keyword = criterion.text.split(['(', ',']).next().unwrap_or_default();
    let origin = ListOrigin::Acl { keyword: keyword.into(), file: file.into(), line };
    let list = scope
        .patterns
        .borrow_mut()
        .acl(origin, &values, method, flags.ignore_case, flags.number)
        .map_err(|error| Diagnostic::alert(error).at(criterion.span))?;
    let mut index = PatternIndex::new(method, flags.ignore_case);
    if let Some(entries) = list.fixed() {
        for (slot, span) in entries.slots().zip(spans) {
            index.insert(slot, entries).map_err(|error| Diagnostic::alert(error).at(span))?;
        }
    }
    Ok((index, list))
}

/// `lt 5` as a range.
fn compared(text: &str, operator: &str) -> Result<String, String> {
    let range = crate::pattern::Range::parse(text)?;
    if range.min != range.max {
        return Err(format!("operator `{operator}` requires a number, not the range `{text}`"));
    }
    let value = range.min;
    Ok(match operator {
        "ge" => format!("{value}:"),
        "gt" => format!("{}:", value.saturating_add(1)),
        "le" => format!(":{value}"),
        _ => format!(":{}", value.saturating_sub(1)),
    })
}
