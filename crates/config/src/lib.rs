//! Keyword tables, and the resolution of the draft into the plan.
//!
//! The draft contains the words and their locations. Resolving replaces every name with an index or a shared object and compiles
//! every expression. After that nothing is validated and no name is looked up again. Called by the binary at startup, at reload and
//! for `-c`.

#![forbid(unsafe_code)]

pub mod draft;
pub mod dynamic;
mod engine_file;
mod find;
pub mod partial;
mod read;
mod resolve;
mod surface;
mod system;
pub mod tables;

use std::path::PathBuf;

use diag::{Diagnostics, FileId, SourceMap};
use plan::Plan;
use sample::pattern::PatternSets;
use syntax::{Environment, ProgramFacts};

pub use draft::Draft;
pub use draft::keyword;
pub use resolve::Setting;
pub use resolve::runtime_defaults::shown;
use resolve::runtime_scope::Around;
pub use tls::openssl_version;

/// The environment in which a configuration is read.
#[derive(Debug, Clone, Default)]
pub struct Boot {
    /// Facts about the program for conditions.
    pub facts: ProgramFacts,
    /// The environment before the first line.
    pub environment: Environment,
    /// Command line settings.
    pub setting: Setting,
}

/// The result of reading a configuration.
#[derive(Debug)]
pub struct Loaded {
    /// The plan; `None` if there were errors.
    pub plan: Option<Plan>,
    /// Every message, in the order of discovery.
    pub diagnostics: Diagnostics,
    /// The texts to which the locations in messages refer.
    pub sources: SourceMap,
}

/// Reads files and directories, and resolves their contents.
pub fn load(paths: &[PathBuf], boot: &Boot) -> Loaded {
    let mut sources = SourceMap::new();
    match syntax::load(&mut sources, paths) {
        Ok(files) => load_sources(sources, files, boot),
        Err(errors) => {
            let mut diagnostics = Diagnostics::new();
            errors.into_iter().for_each(|error| diagnostics.push(error));
            Loaded { plan: None, diagnostics, sources }
        }
    }
}

/// Resolves one text, for tests and tools.
pub fn load_text(name: &str, text: &str, boot: &Boot) -> Loaded {
    let mut sources = SourceMap::new();
    let file = sources.add(name, text);
    load_sources(sources, vec![file], boot)
}

/// Resolves texts that were already read.
pub fn load_sources(sources: SourceMap, files: Vec<FileId>, boot: &Boot) -> Loaded {
    load_all(sources, files, boot, Beside::Nothing)
}

/// Resolves texts to a plan that replaces `plan`, which is in use: proxies, servers, tables and rings present in both are shared.
/// Changes affect them immediately, so use [`load_sources`] first to check that the texts are valid.
pub fn load_after(sources: SourceMap, files: Vec<FileId>, boot: &Boot, plan: &Plan) -> Loaded {
    load_all(sources, files, boot, Beside::After(plan))
}

/// The relation to an existing plan.
#[derive(Clone, Copy)]
enum Beside<'a> {
    /// There is no plan yet.
    Nothing,
    /// The new text extends this plan.
    Within(&'a Around<'a>),
    /// The new plan replaces this one.
    After(&'a Plan),
}

/// Resolves a text that extends a plan in use: process-wide settings remain as that plan set them. `patterns` are the current
/// lists.
fn load_within(name: &str, text: &str, plan: &Plan, patterns: &PatternSets) -> Loaded {
    let mut sources = SourceMap::new();
    let file = sources.add(name, text);
    let mut boot = Boot::default();
    for (name, value) in &plan.environment {
        boot.environment.set(name, value);
    }
    load_all(sources, vec![file], &boot, Beside::Within(&Around::new(plan, patterns)))
}

fn load_all(sources: SourceMap, files: Vec<FileId>, boot: &Boot, beside: Beside<'_>) -> Loaded {
    let mut diagnostics = Diagnostics::new();
    let mut environment = boot.environment.clone();
    preset_formats(&mut environment);
    let mut draft = read::read(&sources, files, &boot.facts, environment, &mut diagnostics);
    let mut sources = sources;
    let (around, previous) = match beside {
        Beside::Nothing => (None, None),
        Beside::Within(around) => (Some(around), None),
        Beside::After(plan) => (None, Some(plan)),
    };
    let (mut plan, seen) = base::seen_files::during(|| {
        engine_file::read(&mut draft, &mut sources, &boot.facts, &mut diagnostics);
        resolve::resolve(&draft, &sources, &boot.setting, around, previous, &mut diagnostics)
    });
    if let (Some(plan), None) = (&mut plan, around) {
        plan.sectioned = partial::divide(&draft, &sources, plan, seen);
    }
    if !boot.setting.diagnostics {
        diagnostics.drop_advice();
    }
    Loaded { plan, diagnostics, sources }
}

/// The default log formats, which configurations can refer to (manual, section 2.3).
fn preset_formats(environment: &mut Environment) {
    use sample::format;
    environment.set("HAPROXY_HTTP_LOG_FMT", format::HTTP_LOG);
    environment.set("HAPROXY_HTTP_CLF_LOG_FMT", format::CLF_LOG);
    environment.set("HAPROXY_HTTPS_LOG_FMT", format::HTTPS_LOG);
    environment.set("HAPROXY_TCP_LOG_FMT", format::TCP_LOG);
    environment.set("HAPROXY_TCP_CLF_LOG_FMT", format::TCP_CLF_LOG);
    environment.set("HAPROXY_KEYLOG_FC_LOG_FMT", &format::keylog("fc"));
    environment.set("HAPROXY_KEYLOG_BC_LOG_FMT", &format::keylog("bc"));
}
