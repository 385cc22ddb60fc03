//! Turns lines into sections and statements: every line is looked up in the keyword tables, and directives that affect reading
//! (`setenv` and others) take effect.
//!
//! Values are not parsed in this module: `resolve` does that.

use diag::{Diagnostic, Diagnostics, FileId, Severity, SourceMap, Span, suggest};
use syntax::{Environment, Line, ProgramFacts, Reader, Word};

use crate::draft::keyword::{Apply, apply_of};
use crate::draft::row::{Negation, Where, not_supported};
use crate::draft::section::section_kind;
use crate::draft::{Draft, Section, SectionKind, Statement, is_name_character, section_names};
use crate::find;
use crate::tables::environment::LOCAL_PEER;

/// Reads all lines of `files`.
pub(crate) fn read(
    sources: &SourceMap,
    files: Vec<FileId>,
    facts: &ProgramFacts,
    environment: Environment,
    diagnostics: &mut Diagnostics,
) -> Draft {
    let mut reader = Reader::new(sources, files, facts, environment);
    let mut draft = Draft::default();
    let mut line = Line::default();
    let mut inside = Inside { file: None, unknown: false };
    while reader.next_line(&mut line, diagnostics) {
        if inside.file != Some(line.file) {
            inside = Inside { file: Some(line.file), unknown: false };
        } else if inside.unknown && !is_section(&line.words[0]) {
            continue;
        }
        if let Some(kind) = section_kind(&line.words[0]) {
            inside.unknown = false;
            let section = open_section(kind, &mut line, diagnostics);
            reader.set_section(if section.name.is_empty() { &section.keyword } else { &section.name });
            draft.sections.push(section);
            continue;
        }
        let Some(section) = draft.sections.last_mut().filter(|section| section.file == line.file) else {
            diagnostics.push(outside(&line.words[0]));
            inside.unknown = true;
            continue;
        };
        if section.kind == SectionKind::Unsupported {
            continue;
        }
        match read_statement(section, &mut line) {
            Ok(statement) => {
                if let Apply::Environment(apply) = apply_of(&statement) {
                    match environment_arity(&statement, &reader.environment) {
                        Ok(()) => {
                            apply(&mut reader.environment, statement.arguments());
                            // Kept for the source text: `show config`, differences.
                            section.statements.push(statement);
                        }
                        Err(error) => diagnostics.push(error),
                    }
                } else {
                    section.statements.push(statement);
                }
            }
            Err(error) => {
                diagnostics.push(error);
                let first = line.words.first();
                inside.unknown =
                    first.is_some_and(|word| find::may_begin_section(word, section.kind.place()));
            }
        }
    }
    draft.environment = reader.environment;
    draft
}

/// The state of the reader.
struct Inside {
    file: Option<FileId>,
    /// Set after a misspelled section header: one message is enough until the next section.
    unknown: bool,
}

fn is_section(word: &Word) -> bool {
    section_kind(word).is_some()
}

fn outside(word: &Word) -> Diagnostic {
    let near = suggest(word, section_names());
    let known = crate::tables::all().any(|row| row.name.split(' ').next() == Some(word));
    let mut haproxy = format!("unknown keyword '{word}' out of section.");
    if let Some(near) = near {
        haproxy = format!("unknown keyword '{word}' out of section; did you mean '{near}' maybe ?");
    }
    let message =
        Diagnostic::alert(format!("`{word}` appears before any section")).at(word.span()).haproxy(haproxy);
    match near {
        Some(_) => message.did_you_mean(near),
        None if known => {
            message.help("each file must begin with a section such as `global` or `frontend` (section 2.1)")
        }
        None => message,
    }
}

fn open_section(kind: SectionKind, line: &mut Line, diagnostics: &mut Diagnostics) -> Section {
    let words = std::mem::take(&mut line.words);
    let keyword = words[0].clone();
    let mut rest = words[1..].iter();
    let mut section = Section {
        kind,
        name: Word::new("", keyword.span()),
        from: None,
        file: line.file,
        line: line.number,
        statements: Vec::new(),
        keyword,
    };
    if kind == SectionKind::Unsupported {
        let name = section.keyword.as_str();
        diagnostics.push(
            Diagnostic::alert(format!("section `{name}` is not supported yet"))
                .at(section.keyword.span())
                .haproxy(format!("section '{name}' is not supported yet")),
        );
        return section;
    }
    if kind == SectionKind::Global {
        refuse_extra(&section, rest.next(), diagnostics);
        return section;
    }
    match rest.next() {
        Some(word) if kind == SectionKind::Defaults && *word == "from" && words.len() > 2 => {
            section.from = rest.next().cloned();
        }
        Some(word) => {
            section.name = word.clone();
            // Any name is allowed for a section that is only used in `from`.
            if kind != SectionKind::Defaults {
                check_name(&section, diagnostics);
            }
        }
        None if matches!(kind, SectionKind::Defaults | SectionKind::CrtStore | SectionKind::Traces) => {}
        None => {
            let keyword = section.keyword.as_str();
            diagnostics.push(
                Diagnostic::alert(format!("`{keyword}` expects a name"))
                    .at(section.keyword.span())
                    .haproxy(format!("'{keyword}' expects an <id> argument")),
            );
        }
    }
    let mut extra = rest.next();
    if extra.is_some_and(|word| *word == "from") && section.from.is_none() && kind.place().holds(Where(15)) {
        section.from = rest.next().cloned();
        if section.from.is_none() {
            diagnostics.push(
                Diagnostic::alert("`from` expects the name of a defaults section")
                    .at(words[words.len() - 1].span())
                    .haproxy(format!(
                        "'{}' expects the name of a defaults section after 'from'.",
                        section.keyword
                    )),
            );
        }
        extra = rest.next();
    }
    refuse_extra(&section, extra, diagnostics);
    section
}

/// Refuses words after a section's name; HAProxy ignores them on sections that take none.
fn refuse_extra(section: &Section, extra: Option<&Word>, diagnostics: &mut Diagnostics) {
    let Some(extra) = extra else { return };
    let keyword = section.keyword.as_str();
    let ignored = matches!(section.kind, SectionKind::Defaults | SectionKind::Ring);
    let (severity, tail) =
        if ignored { (Severity::Warning, " It is ignored.") } else { (Severity::Alert, "") };
    diagnostics.push(
        Diagnostic::new(severity, format!("unexpected argument `{extra}` for `{keyword}`"))
            .at(extra.span())
            .haproxy(format!("'{keyword}' cannot handle unexpected argument '{extra}'.{tail}")),
    );
}

/// Names consist of letters, digits and `-`, `_`, `.`, `:`.
fn check_name(section: &Section, diagnostics: &mut Diagnostics) {
    let name = section.name.as_str();
    if let Some((at, wrong)) = name.char_indices().find(|(_, character)| !is_name_character(*character)) {
        let keyword = section.keyword.as_str();
        diagnostics.push(
            Diagnostic::alert(format!("character `{wrong}` is not allowed in the name of a `{keyword}`"))
                .at(section.name.part(at, at + wrong.len_utf8()))
                .label("use letters, digits, `-`, `_`, `.` and `:`")
                .haproxy(format!("character '{wrong}' is not permitted in '{keyword}' name '{name}'.")),
        );
    }
}

pub(crate) fn read_statement(section: &Section, line: &mut Line) -> Result<Statement, Diagnostic> {
    let words = &mut line.words;
    let mut negation = Negation::None;
    let prefix = words[0].clone();
    if words.len() > 1 && (prefix == "no" || prefix == "default") {
        negation = if prefix == "no" { Negation::No } else { Negation::Default };
        words.remove(0);
    }
    let keyword = find::find(words, section)?;
    if negation != Negation::None && !keyword.negatable {
        let name = keyword.name;
        return Err(Diagnostic::alert(format!("`{prefix}` cannot precede `{name}`"))
            .at(prefix.span())
            .label("only options, `log` and a few others can be negated")
            .haproxy(match name.strip_prefix("option ") {
                Some(option) => format!("negation/default is not supported for option '{option}'."),
                None => {
                    format!("negation/default currently supported only for options and log; got '{prefix} {name}'.")
                }
            }));
    }
    let statement = Statement {
        keyword: &keyword.row,
        apply: &keyword.apply,
        negation,
        words: words.drain(..).collect(),
        span: line.span,
        line: line.number,
    };
    match keyword.apply {
        Apply::Removed(version, way_out) => {
            Err(Diagnostic::alert(format!("the keyword `{}` was removed", keyword.name))
                .at(statement.keyword_span())
                .label(way_out)
                .haproxy(format!(
                    "the '{}' directive is not supported anymore since HAProxy {version}. {way_out}.",
                    keyword.name
                )))
        }
        Apply::Unsupported => Err(not_supported(keyword.name).at(statement.keyword_span())),
        _ => Ok(statement),
    }
}

fn environment_arity(statement: &Statement, environment: &Environment) -> Result<(), Diagnostic> {
    let (name, words) = (statement.keyword.name, statement.arguments());
    let wrong =
        |at: Span, message: String, haproxy: String| Err(Diagnostic::alert(message).at(at).haproxy(haproxy));
    let sets = matches!(name, "setenv" | "presetenv");
    // Without names `resetenv` clears the whole environment.
    let variable = words.first().filter(|word| !word.is_empty());
    if let (None, "setenv" | "presetenv" | "unsetenv") = (variable, name) {
        let what = if sets { "environment variable name" } else { "at least one variable name" };
        let at = words.first().map_or_else(|| statement.end(), |word| word.span());
        return wrong(at, format!("`{name}` expects a variable name"), format!("'{name}' expects {what}."));
    }
    if name == "localpeer" {
        return match (words.first(), words.get(1)) {
            (None, _) => wrong(
                statement.end(),
                "`localpeer` expects a peer name".to_owned(),
                "'localpeer' expects a name as argument.".to_owned(),
            ),
            (_, Some(more)) => wrong(
                more.span(),
                format!("`localpeer` takes one name, `{more}` is unexpected"),
                format!("'localpeer' cannot handle unexpected argument '{more}'."),
            ),
            (Some(name), None) if environment.is_given(LOCAL_PEER) => wrong(
                name.span(),
                "`localpeer` is ignored: the -L option already sets the name".to_owned(),
                "'localpeer' ignored since it is already set by using the '-L' command line argument."
                    .to_owned(),
            ),
            (Some(_), None) => Ok(()),
        };
    }
    let Some(variable) = variable.filter(|_| sets) else { return Ok(()) };
    if variable.contains('=') {
        let text = format!("'{name}' failed on variable '{variable}' : Invalid argument.");
        return wrong(variable.span(), "a variable name cannot contain `=`".to_owned(), text);
    }
    if words.get(1).is_none_or(|value| value.is_empty()) {
        let at = words.get(1).map_or_else(|| statement.end(), |word| word.span());
        let text = format!("'{name}' expects environment variable value for '{variable}'.");
        return wrong(at, format!("`{name}` expects a value for `{variable}`"), text);
    }
    match words.get(2) {
        None => Ok(()),
        Some(more) => {
            let text = format!("'{name}' cannot handle unexpected argument '{more}'.");
            let message = Diagnostic::alert(format!("`{name}` takes one value, `{more}` is unexpected"));
            Err(message.at(more.span()).help("put a value with spaces in quotes").haproxy(text))
        }
    }
}
