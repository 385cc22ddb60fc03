//! Thousands of small configurations and their verdicts. If `HAPROXY` names a HAProxy 3.5, the recorded verdicts of HAProxy are
//! checked against it.

use std::path::PathBuf;

use weir_tests::Haproxy;
use weir_tests::verdicts::{Case, Fate, ask_all, ask_weir, cases};

/// Returns the results that differ from the recorded ones, one line each.
fn wrong<'a>(
    cases: &'a [Case],
    answers: &[(Fate, String)],
    recorded: impl Fn(&'a Case) -> (Fate, Option<&'a str>),
) -> Vec<String> {
    let mut wrong = Vec::new();
    for (case, (fate, messages)) in cases.iter().zip(answers) {
        let (expected, says) = recorded(case);
        if *fate != expected {
            wrong.push(format!("{}: {fate:?} instead of {expected:?}: {messages}", case.place));
        } else if let Some(text) = says.filter(|text| !messages.contains(text)) {
            wrong.push(format!("{}: does not say `{text}`: {messages}", case.place));
        }
    }
    wrong
}

#[test]
fn configurations_get_their_recorded_verdicts() {
    let (cases, files) = cases();
    assert!(files >= 10 && cases.len() > 2_500, "{} cases in {files} files", cases.len());
    let wrong = wrong(&cases, &ask_weir(&cases), |case| {
        (case.fate, case.says.as_ref().map(|(text, _)| text.as_str()))
    });
    assert!(wrong.is_empty(), "{} of {}:\n{}", wrong.len(), cases.len(), wrong.join("\n"));
}

#[test]
fn haproxy_gives_its_recorded_verdicts() {
    let Some(program) = std::env::var_os("HAPROXY").map(PathBuf::from) else { return };
    if Haproxy::version() != (3, 5) {
        return;
    }
    let (cases, _) = cases();
    let wrong = wrong(&cases, &ask_all(&program, &cases), |case| {
        (case.haproxy, case.says.as_ref().filter(|(_, both)| *both).map(|(text, _)| text.as_str()))
    });
    assert!(wrong.is_empty(), "{} of {}:\n{}", wrong.len(), cases.len(), wrong.join("\n"));
}
