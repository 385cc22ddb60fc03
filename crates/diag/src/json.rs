//! Diagnostics as JSON, one object on a line, for scripts and editors.

use std::fmt::Write;

use crate::{Diagnostic, Severity, SourceMap, Span};

/// Renders a diagnostic. Fields without a value are omitted.
///
/// `severity` is `error`, `warning`, `notice` or `advice`. `file`, `line`, `column` and `end_column` are the underlined words, with
/// numbers from 1; columns count bytes, and the end is exclusive. `label` and `help` are remedies, `notes` is background, and
/// `related` has objects with a location and a `message`.
pub fn diagnostic(diagnostic: &Diagnostic, sources: &SourceMap, pid: u32) -> String {
    let mut out = begin(diagnostic.severity, pid, &diagnostic.message);
    if let Some(span) = diagnostic.span {
        push_location(&mut out, sources, span);
    }
    for (name, text) in [("label", &diagnostic.label), ("help", &diagnostic.help)] {
        if let Some(text) = text {
            push_field(&mut out, name, text);
        }
    }
    if !diagnostic.notes.is_empty() {
        let notes: Vec<String> = diagnostic.notes.iter().map(|note| string(note)).collect();
        let _ = write!(out, ",\"notes\":[{}]", notes.join(","));
    }
    if !diagnostic.related.is_empty() {
        let related = diagnostic.related.iter().map(|(span, text)| {
            let mut one = format!("{{\"message\":{}", string(text));
            push_location(&mut one, sources, *span);
            one + "}"
        });
        let _ = write!(out, ",\"related\":[{}]", related.collect::<Vec<_>>().join(","));
    }
    out + "}\n"
}

/// Renders a message that is not about the configuration.
pub fn process(severity: Severity, pid: u32, message: &str) -> String {
    begin(severity, pid, message) + "}\n"
}

fn begin(severity: Severity, pid: u32, message: &str) -> String {
    format!("{{\"severity\":\"{}\",\"pid\":{pid},\"message\":{}", severity.word(), string(message))
}

fn push_location(out: &mut String, sources: &SourceMap, span: Span) {
    let file = sources.file(span.file);
    let (from, to) = (file.position(span.start), file.position(span.end));
    push_field(out, "file", file.name());
    let _ = write!(out, ",\"line\":{},\"column\":{}", from.line, from.column);
    // Spans end on their line.
    if to.line == from.line {
        let _ = write!(out, ",\"end_column\":{}", to.column);
    }
}

fn push_field(out: &mut String, name: &str, text: &str) {
    let _ = write!(out, ",\"{name}\":{}", string(text));
}

/// A JSON string (RFC 8259, 7).
fn string(text: &str) -> String {
    let mut out = String::with_capacity(text.len() + 2);
    out.push('"');
    for character in text.chars() {
        match character {
            '"' | '\\' => out.extend(['\\', character]),
            '\n' => out.push_str("\\n"),
            '\t' => out.push_str("\\t"),
            character if character < ' ' => {
                let _ = write!(out, "\\u{:04x}", character as u32);
            }
            character => out.push(character),
        }
    }
    out.push('"');
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_present_if_they_have_a_value() {
        let mut sources = SourceMap::new();
        let file = sources.add("a\"b.cfg", "global\n  balanse x\n".to_owned());
        let found = Diagnostic::alert("unknown keyword `balanse`")
            .at(Span::new(file, 9, 16))
            .did_you_mean(Some("balance"))
            .help("one\ntwo\u{1}")
            .note("n")
            .related(Span::new(file, 0, 6), "here");
        let expected = concat!(
            r#"{"severity":"error","pid":7,"message":"unknown keyword `balanse`","file":"a\"b.cfg","line":2,"column":3,"#,
            r#""end_column":10,"label":"did you mean `balance`?","help":"one\ntwo\u0001","notes":["n"],"#,
            r#""related":[{"message":"here","file":"a\"b.cfg","line":1,"column":1,"end_column":7}]}"#,
            "\n"
        );
        assert_eq!(diagnostic(&found, &sources, 7), expected);
        let bare = r#"{"severity":"warning","pid":7,"message":"m"}"#;
        assert_eq!(process(Severity::Warning, 7, "m"), format!("{bare}\n"));
    }
}
