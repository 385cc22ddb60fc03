//! The parts of the draft kept for backends and servers added at run time (`add backend`, `add server`): the named `defaults`
//! sections, and the sections that their lines may refer to, as text that can be parsed again.

use std::sync::Arc;

use diag::SourceMap;
use plan::source_text;
use plan::{DefaultsSection, RuntimeDefaults};

use crate::draft::row::Negation;
use crate::draft::section::quoted;
use crate::draft::{Draft, Section, SectionKind, Statement};

/// Extracts these parts from `draft`.
pub(crate) fn of(draft: &Draft) -> RuntimeDefaults {
    let mut kept = RuntimeDefaults::default();
    let named = |section: &&Section| section.kind == SectionKind::Defaults && !section.name.is_empty();
    for section in draft.sections.iter().filter(named) {
        let own = section.statements.iter().any(|statement| statement.keyword.name == "mode");
        let inherited =
            section.from.as_ref().and_then(|from| kept.find(from)).is_some_and(|from| from.has_mode);
        kept.defaults
            .push(DefaultsSection { name: section.name.as_str().into(), has_mode: own || inherited });
    }
    kept.healthchecks = text(draft, |section| section.kind == SectionKind::Healthcheck);
    if kept.defaults.is_empty() {
        return kept;
    }
    let helps = |kind| {
        matches!(
            kind,
            SectionKind::Userlist
                | SectionKind::HttpErrors
                | SectionKind::Healthcheck
                | SectionKind::LogProfile
        )
    };
    kept.text = text(draft, |section| helps(section.kind) || named(&section));
    kept
}

/// All sections of `draft` as source text.
pub(crate) fn source_sections(draft: &Draft, sources: &SourceMap) -> Vec<source_text::PlacedSection> {
    let line = |section: &Section, statement: &Statement| {
        let sign = match statement.negation {
            Negation::None => None,
            Negation::No => Some("no".to_owned()),
            Negation::Default => Some("default".to_owned()),
        };
        let words: Vec<String> =
            sign.into_iter().chain(statement.words.iter().map(|word| shown(word))).collect();
        let (keyword, text) = (statement.keyword.name, words.join(" ").into());
        source_text::SourceLine { keyword, offset: statement.line.saturating_sub(section.line), text }
    };
    let section = |section: &Section| source_text::PlacedSection {
        line: section.line,
        section: Arc::new(source_text::SourceSection {
            kind: section.keyword.as_str().into(),
            name: section.name.as_str().into(),
            from: section.from.as_ref().map(|from| from.as_str()).unwrap_or_default().into(),
            file: section.statements.first().map_or("", |first| sources.file(first.span.file).name()).into(),
            lines: section.statements.iter().map(|statement| line(section, statement)).collect(),
        }),
    };
    let of_engines = draft.engines.iter().flat_map(|file| &file.sections);
    draft.sections.iter().chain(of_engines).map(section).collect()
}

/// Quotes a word if necessary, so that the parser reads it literally.
pub fn shown(word: &str) -> String {
    let plain = |byte: u8| byte.is_ascii_graphic() && !matches!(byte, b'\'' | b'"' | b'#' | b'\\' | b'$');
    match !word.is_empty() && word.bytes().all(plain) {
        true => word.to_owned(),
        false => quoted(word),
    }
}

fn text(draft: &Draft, is_wanted: impl Fn(&Section) -> bool) -> Box<str> {
    let mut text = String::new();
    draft
        .sections
        .iter()
        .filter(|section| is_wanted(section))
        .for_each(|section| write_section(section, &mut text));
    text.into()
}

fn write_section(section: &Section, text: &mut String) {
    text.push_str(&section.keyword);
    text.push(' ');
    text.push_str(&quoted(&section.name));
    if let Some(from) = &section.from {
        text.push_str(" from ");
        text.push_str(&quoted(from));
    }
    text.push('\n');
    for statement in &section.statements {
        write_line(statement, text);
    }
}

fn write_line(statement: &Statement, text: &mut String) {
    text.push_str(match statement.negation {
        Negation::None => "",
        Negation::No => "no",
        Negation::Default => "default",
    });
    for word in &statement.words {
        text.push(' ');
        text.push_str(&quoted(word));
    }
    text.push('\n');
}
