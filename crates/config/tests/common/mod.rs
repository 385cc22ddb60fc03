//! Helpers of the tests in this folder: loading a text and listing its messages.
#![allow(dead_code)]

use config::{Boot, Loaded};
use diag::SourceMap;
use plan::Plan;

/// Loads a text as `test.cfg`.
pub(crate) fn load(text: &str) -> Loaded {
    let mut sources = SourceMap::new();
    let file = sources.add("test.cfg", text);
    config::load_sources(sources, vec![file], &boot())
}

/// Loads a text as `test.cfg` after a file with the timeouts that HAProxy otherwise warns about.
pub(crate) fn load_quietly(text: &str) -> Loaded {
    let mut sources = SourceMap::new();
    let files = vec![sources.add("first.cfg", QUIET), sources.add("test.cfg", text)];
    config::load_sources(sources, files, &boot())
}

fn boot() -> Boot {
    let mut boot = Boot::default();
    boot.facts.version = "3.5-dev5".parse().unwrap_or_default();
    boot.environment.set("PORT", "8080");
    boot.setting.diagnostics = true;
    boot
}

/// The plan of a valid text.
pub(crate) fn plan(text: &str) -> Plan {
    let loaded = load(text);
    let shown = lines(&loaded);
    loaded.plan.unwrap_or_else(|| panic!("{text}\n{shown:#?}"))
}

/// All messages except advice caused by [`load_quietly`] and by incomplete configurations.
fn told(loaded: &Loaded) -> impl Iterator<Item = &diag::Diagnostic> {
    const INCOMPLETE: [&str; 5] = [
        "`global` section after other sections",
        "is never used",
        "so each request fails with status 503",
        "so each connection is closed",
        "is bound twice",
    ];
    loaded.diagnostics.iter().filter(|one| !INCOMPLETE.iter().any(|end| one.message.ends_with(end)))
}

/// The messages in HAProxy's form, without severity, process and file.
pub(crate) fn lines(loaded: &Loaded) -> Vec<String> {
    let shown = told(loaded).map(|diagnostic| {
        let line = diag::render::line(diagnostic, &loaded.sources, 1);
        let line = line.trim_end().replacen(" : ", " ", 1).replacen(" config : ", " ", 1);
        let line = line.replace("parsing [test.cfg:", "[");
        line.split_whitespace().collect::<Vec<_>>().join(" ").replace("(1) ", "")
    });
    shown.collect()
}

/// The messages with the position of their first underlined byte, as `line:column text`.
pub(crate) fn places(loaded: &Loaded) -> Vec<String> {
    let shown = told(loaded).map(|diagnostic| {
        let place = diagnostic.span.map(|span| loaded.sources.position(span));
        let place = place.map_or(String::new(), |place| format!("{}:{} ", place.line, place.column));
        let label = diagnostic.label.as_deref().map_or(String::new(), |label| format!(" ({label})"));
        format!("{place}{}{label}", diagnostic.message)
    });
    shown.collect()
}

/// Timeouts that avoid HAProxy's warnings.
pub(crate) const QUIET: &str = "defaults\n timeout client 5s\n timeout connect 5s\n timeout server 5s\n";
