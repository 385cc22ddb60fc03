//! Renders diagnostics: with the source line and an underline for a terminal, or as HAProxy's one-line form.
//!
//! Both write to a `String` and never fail. The cost depends on the lines shown, not on the file size.

use crate::{Diagnostic, Severity, SourceMap, Span};
use std::fmt::Write;

/// The longest source line that is shown whole. Longer lines are cut to a window around the underline.
const WINDOW: usize = 160;

/// Whether the terminal form uses colours.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Colour {
    /// Plain text.
    Never,
    /// ANSI colours.
    Always,
}

struct Paint {
    head: &'static str,
    bold: &'static str,
    gutter: &'static str,
    end: &'static str,
}

impl Paint {
    fn new(severity: Severity, colour: Colour) -> Self {
        if colour == Colour::Never {
            return Self { head: "", bold: "", gutter: "", end: "" };
        }
        let head = match severity {
            Severity::Alert => "\x1b[1;31m",
            Severity::Warning => "\x1b[1;33m",
            Severity::Notice => "\x1b[1;36m",
            Severity::Diag => "\x1b[1;35m",
        };
        Self { head, bold: "\x1b[1m", gutter: "\x1b[1;34m", end: "\x1b[0m" }
    }
}

/// Renders the form for people: severity and message, location, the source line with an underline, label, help and notes.
pub fn terminal(diagnostic: &Diagnostic, sources: &SourceMap, colour: Colour) -> String {
    let paint = Paint::new(diagnostic.severity, colour);
    let Paint { head, bold, gutter, end } = paint;
    let mut out = String::new();
    let _ = writeln!(out, "{head}{}{end}{bold}: {}{end}", diagnostic.severity.word(), diagnostic.message);
    let places = diagnostic.span.into_iter().chain(diagnostic.related.iter().map(|(span, _)| *span));
    let digits =
        places.map(|span| sources.position(span).line).max().map_or(0, |line| line.to_string().len());
    if let Some(span) = diagnostic.span {
        let label = diagnostic.label.as_deref().unwrap_or("");
        snippet(&mut out, sources, span, &Underline { arrow: "-->", mark: '^', label }, digits, &paint);
    } else if let Some(label) = &diagnostic.label {
        let _ = writeln!(out, "  {gutter}={end} {label}");
    }
    for (span, text) in &diagnostic.related {
        snippet(
            &mut out,
            sources,
            *span,
            &Underline { arrow: ":::", mark: '-', label: text },
            digits,
            &paint,
        );
    }
    let trailers = diagnostic.help.iter().map(|text| ("help", text));
    for (kind, text) in trailers.chain(diagnostic.notes.iter().map(|text| ("note", text))) {
        let indented = text.replace('\n', &format!("\n{:digits$}         ", ""));
        let _ = writeln!(out, "{:digits$} {gutter}={end} {bold}{kind}{end}: {indented}", "");
    }
    out
}

/// How a location is underlined.
struct Underline<'a> {
    /// Precedes the location.
    arrow: &'a str,
    /// Repeated below the underlined characters.
    mark: char,
    label: &'a str,
}

/// Writes a source line with a part of it underlined. The line number has at most `digits` digits.
fn snippet(
    out: &mut String,
    sources: &SourceMap,
    span: Span,
    underline: &Underline<'_>,
    digits: usize,
    paint: &Paint,
) {
    let Underline { arrow, mark, label } = *underline;
    let Paint { head, gutter, end, .. } = *paint;
    let file = sources.file(span.file);
    let position = file.position(span.start);
    let (start, line) = file.line(position.line);
    let from = (span.start as usize - start).min(line.len());
    let to = (span.end as usize).saturating_sub(start).clamp(from, line.len());
    let (cut, line) = window(line, from, to);
    let (before, marked, after) =
        (&line[..from - cut], &line[from - cut..to.min(cut + line.len()) - cut], &line);
    let indent = shown(before).chars().count();
    let width = shown(marked).chars().count().max(1);
    let marks: String = std::iter::repeat_n(mark, width).collect();
    let (name, number, column) = (file.name(), position.line, position.column);
    let _ = writeln!(out, "{:digits$}{gutter}{arrow}{end} {name}:{number}:{column}", "");
    let _ = writeln!(out, "{:digits$} {gutter}|{end}", "");
    let text = shown(after);
    let _ = writeln!(out, "{gutter}{number:digits$} |{end} {}", text.trim_end());
    let colour = if mark == '^' { head } else { gutter };
    let labelled = format!("{marks} {label}");
    let _ = writeln!(out, "{:digits$} {gutter}|{end} {:indent$}{colour}{}{end}", "", "", labelled.trim_end());
}

/// Returns the part of a long line around the underlined bytes, and how many bytes were cut before it.
fn window(line: &[u8], from: usize, to: usize) -> (usize, &[u8]) {
    if line.len() <= WINDOW {
        return (0, line);
    }
    let start = if to <= WINDOW { 0 } else { from.saturating_sub(WINDOW / 3) };
    (start, &line[start..(start + WINDOW).min(line.len())])
}

/// Makes source bytes printable: tabs become four spaces, and control characters and invalid UTF-8 become the replacement
/// character.
fn shown(bytes: &[u8]) -> String {
    let text = String::from_utf8_lossy(bytes);
    let mut out = String::with_capacity(text.len());
    for character in text.chars() {
        match character {
            '\t' => out.push_str("    "),
            other if other.is_control() => out.push('\u{fffd}'),
            other => out.push(other),
        }
    }
    out
}

/// Renders HAProxy's own form: `[ALERT]    (4711) : config : parsing [haproxy.cfg:31] : message`.
///
/// Without a span, the location and `config : ` are left out: HAProxy finds such errors after parsing, and prints no prefix for
/// them. Backticks become single quotes; label, help and related locations follow, separated by semicolons.
pub fn line(diagnostic: &Diagnostic, sources: &SourceMap, pid: u32) -> String {
    let mut out = format!("{}({pid}) : ", diagnostic.severity.tag());
    if let Some(span) = diagnostic.span.filter(|_| !diagnostic.whole) {
        let number = sources.position(span).line;
        let tight = diagnostic.haproxy.as_ref().is_some_and(|text| text.starts_with(": "));
        let separator = if tight { "" } else { " : " };
        let _ = write!(out, "config : parsing [{}:{number}]{separator}", sources.file(span.file).name());
    } else if !diagnostic.whole {
        out.push_str("config : ");
    }
    out.push_str(&diagnostic.one_line());
    if diagnostic.haproxy.is_none() {
        for (span, text) in &diagnostic.related {
            out.push_str("; ");
            push_quoted(&mut out, text);
            let file = sources.file(span.file);
            let _ = write!(out, " at [{}:{}]", file.name(), file.position(span.start).line);
        }
    }
    out.push('\n');
    out
}

/// Renders a message that is not about the configuration, in HAProxy's form: `[NOTICE]   (4711) : message`.
pub fn process_line(severity: Severity, pid: u32, message: &str) -> String {
    format!("{}({pid}) : {message}\n", severity.tag())
}

fn push_quoted(out: &mut String, text: &str) {
    out.extend(text.chars().map(|character| if character == '`' { '\'' } else { character }));
}

#[cfg(test)]
mod tests {
    use super::*;

    fn example() -> (SourceMap, Span) {
        let mut sources = SourceMap::new();
        let text = format!("{}    balanse roundrobin\n", "\n".repeat(30));
        let file = sources.add("haproxy.cfg", text);
        (sources, Span::new(file, 34, 41))
    }

    fn unknown(span: Span) -> Diagnostic {
        Diagnostic::alert("unknown keyword `balanse` in backend `api`").at(span).did_you_mean(Some("balance"))
    }

    #[test]
    fn the_terminal_form_underlines_the_words() {
        let (sources, span) = example();
        let expected = "\
error: unknown keyword `balanse` in backend `api`
  --> haproxy.cfg:31:5
   |
31 |     balanse roundrobin
   |     ^^^^^^^ did you mean `balance`?
";
        assert_eq!(terminal(&unknown(span), &sources, Colour::Never), expected);
        assert!(terminal(&unknown(span), &sources, Colour::Always).contains("\x1b[1;31merror\x1b[0m"));
    }

    #[test]
    fn one_line_form_matches_haproxy() {
        let (sources, span) = example();
        assert_eq!(
            line(&unknown(span), &sources, 4711),
            "[ALERT]    (4711) : config : parsing [haproxy.cfg:31] : unknown keyword 'balanse' in backend 'api'; \
             did you mean 'balance' maybe ?\n"
        );
        let own = unknown(span).haproxy("unknown keyword 'balanse' in 'backend' section");
        assert_eq!(
            line(&own, &sources, 1),
            "[ALERT]    (1) : config : parsing [haproxy.cfg:31] : unknown keyword 'balanse' in 'backend' section\n"
        );
        let bare = Diagnostic::warning("nothing to do");
        assert_eq!(line(&bare, &sources, 7), "[WARNING]  (7) : config : nothing to do\n");
        assert_eq!(process_line(Severity::Notice, 7, "started"), "[NOTICE]   (7) : started\n");
    }

    #[test]
    fn help_notes_and_related_places_follow() {
        let mut sources = SourceMap::new();
        let file = sources.add("a.cfg", "frontend web\nfrontend web\n");
        let diagnostic = Diagnostic::alert("frontend `web` is defined twice")
            .at(Span::new(file, 22, 25))
            .related(Span::new(file, 9, 12), "first defined here")
            .help("give one of them another name")
            .note("names are case sensitive");
        let expected = "\
error: frontend `web` is defined twice
 --> a.cfg:2:10
  |
2 | frontend web
  |          ^^^
 ::: a.cfg:1:10
  |
1 | frontend web
  |          --- first defined here
  = help: give one of them another name
  = note: names are case sensitive
";
        assert_eq!(terminal(&diagnostic, &sources, Colour::Never), expected);
        assert_eq!(
            line(&diagnostic, &sources, 1),
            "[ALERT]    (1) : config : parsing [a.cfg:2] : frontend 'web' is defined twice; give one of them another \
             name; first defined here at [a.cfg:1]\n"
        );
    }

    #[test]
    fn underline_is_aligned_with_tabs_long_lines_and_bad_utf8() {
        let mut sources = SourceMap::new();
        let tabs = sources.add("t", "\tx\ty\n");
        let shown = terminal(&Diagnostic::alert("m").at(Span::new(tabs, 3, 4)), &sources, Colour::Never);
        assert!(shown.contains("1 |     x    y\n  |          ^\n"), "{shown}");

        let long = sources.add("l", format!("{}word{}", "a ".repeat(500), " b".repeat(500)));
        let shown =
            terminal(&Diagnostic::alert("m").at(Span::new(long, 1000, 1004)), &sources, Colour::Never);
        let lines: Vec<&str> = shown.lines().collect();
        assert!(lines[3].len() < 200);
        assert_eq!(lines[3].find("word"), lines[4].find("^^^^"));

        let broken = sources.add("b", b"\xff\xfe\0 x".to_vec());
        let shown = terminal(&Diagnostic::alert("m").at(Span::new(broken, 4, 5)), &sources, Colour::Never);
        assert!(shown.contains("  |     ^\n"), "{shown}");

        let past = terminal(&Diagnostic::alert("m").at(Span::new(broken, 5, 5)), &sources, Colour::Never);
        assert!(past.contains("  |      ^\n"), "{past}");
    }
}
