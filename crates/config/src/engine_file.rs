//! The files named in `filter spoe` lines (HAProxy's doc/SPOE.txt, 2.1). They are read after all other lines, each scope once,
//! however many lines use it.
//!
//! Values are not parsed in this module: `resolve::spoe` does that.

use std::path::{Path, PathBuf};

use base::raw::path_of;
use diag::{Diagnostic, Diagnostics, FileId, SourceMap, Span};
use syntax::{Line, ProgramFacts, Reader, Word};

use crate::draft::{Draft, EngineFile, Section, SectionKind};
use crate::read::read_statement;
use crate::system::error_text;

/// Reads all files named by the lines of `draft`.
pub(crate) fn read(
    draft: &mut Draft,
    sources: &mut SourceMap,
    facts: &ProgramFacts,
    diagnostics: &mut Diagnostics,
) {
    for use_of in uses(draft, sources) {
        let same = |file: &&mut EngineFile| file.path == use_of.path && file.scope == use_of.scope;
        if let Some(known) = draft.engines.iter_mut().find(same) {
            known.lines.push(use_of.at);
            continue;
        }
        let text = match base::file::read(&use_of.path) {
            Ok(text) => text,
            Err(error) => {
                let (name, error) = (&use_of.name, error_text(&error));
                diagnostics.push(
                    Diagnostic::alert(format!("cannot read `{name}`: {error}")).at(use_of.at).haproxy_whole(
                        format!("config : stat() failed for configuration file {name} : {error}"),
                    ),
                );
                continue;
            }
        };
        let file = sources.add(use_of.name, text);
        let reader = Reader::new(sources, vec![file], facts, draft.environment.clone());
        let sections = sections(reader, file, use_of.scope.as_deref(), diagnostics);
        let UseOf { path, scope, at, .. } = use_of;
        draft.engines.push(EngineFile { path, scope, sections, lines: vec![at] });
    }
}

/// The file and scope that a line names.
struct UseOf {
    /// The file name as written.
    name: String,
    path: PathBuf,
    scope: Option<Box<str>>,
    at: Span,
}

fn uses(draft: &Draft, sources: &SourceMap) -> Vec<UseOf> {
    let mut all = Vec::new();
    for section in &draft.sections {
        for statement in section.statements.iter().filter(|statement| statement.keyword.name == "filter") {
            let [kind, rest @ ..] = statement.arguments() else { continue };
            if *kind != "spoe" {
                continue;
            }
            let value = |name: &str| {
                let at = rest.iter().step_by(2).position(|word| *word == name)?;
                rest.get(2 * at + 1)
            };
            let Some(config) = value("config") else { continue };
            all.push(UseOf {
                name: config.as_str().to_owned(),
                path: located(draft, sources, section, config),
                scope: value("engine").map(|word| word.as_str().into()),
                at: config.span(),
            });
        }
    }
    all
}

/// The path of a relative name (`default-path`). Errors in the `default-path` line are reported elsewhere.
fn located(draft: &Draft, sources: &SourceMap, section: &Section, name: &Word) -> PathBuf {
    let path = path_of(name.as_str());
    let globals = draft.sections.iter().filter(|section| section.kind == SectionKind::Global);
    let mut lines = globals.flat_map(|section| &section.statements);
    let Some(line) = lines.rfind(|line| line.keyword.name == "default-path") else {
        return path.into_owned();
    };
    let file = path_of(sources.file(section.file).name());
    let directory = || file.parent().unwrap_or(Path::new(""));
    match line.arguments() {
        [word, ..] if *word == "config" => directory().join(path),
        [word, ..] if *word == "parent" => directory().join("..").join(path),
        [word, origin, ..] if *word == "origin" => path_of(origin.as_str()).join(path),
        _ => path.into_owned(),
    }
}

/// The sections of one scope; other scopes are skipped.
fn sections(
    mut reader: Reader<'_>,
    file: FileId,
    scope: Option<&str>,
    diagnostics: &mut Diagnostics,
) -> Vec<Section> {
    let mut sections: Vec<Section> = Vec::new();
    let mut line = Line::default();
    let mut is_here = scope.is_none();
    while reader.next_line(&mut line, diagnostics) {
        let first = &line.words[0];
        if let Some(name) = first.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')) {
            is_here = scope == Some(name);
            continue;
        }
        if !is_here {
            continue;
        }
        let kind = match first.as_str() {
            "spoe-agent" => SectionKind::SpoeAgent,
            "spoe-message" => SectionKind::SpoeMessage,
            "spoe-group" => SectionKind::SpoeGroup,
            _ => {
                let outcome = match sections.last_mut() {
                    Some(section) => {
                        read_statement(section, &mut line).map(|read| section.statements.push(read))
                    }
                    None => Err(outside(first)),
                };
                if let Err(error) = outcome {
                    diagnostics.push(error);
                }
                continue;
            }
        };
        match open(kind, file, &line) {
            Ok(section) => sections.push(section),
            Err(error) => diagnostics.push(error),
        }
    }
    sections
}

fn outside(word: &Word) -> Diagnostic {
    let sections = ["spoe-agent", "spoe-message", "spoe-group"];
    Diagnostic::alert(format!("`{word}` appears before any section"))
        .at(word.span())
        .did_you_mean(diag::suggest(word, sections))
        .help("a file for `filter spoe` consists of `spoe-agent`, `spoe-message` and `spoe-group` sections")
        .haproxy(format!("unknown keyword '{word}' out of section."))
}

fn open(kind: SectionKind, file: FileId, line: &Line) -> Result<Section, Diagnostic> {
    let keyword = line.words[0].clone();
    let Some(name) = line.words.get(1).cloned() else {
        return Err(Diagnostic::alert(format!("`{keyword}` expects a name"))
            .at(keyword.span())
            .haproxy(format!("missing name for {keyword} section.")));
    };
    if let Some(extra) = line.words.get(2) {
        return Err(Diagnostic::alert(format!("unexpected argument `{extra}` for `{keyword}`"))
            .at(extra.span())
            .haproxy(format!("'{keyword}' cannot handle unexpected argument '{extra}'.")));
    }
    Ok(Section { kind, name, from: None, file, line: line.number, statements: Vec::new(), keyword })
}
