//! Configurations with their expected verdicts, read from the files in `tests/verdicts`. Used by `tests/verdicts.rs`.
//!
//! A file is a list of frames and cases. The lines of a frame begin with `|`; one of them is `@`, which stands for the lines of a
//! case. A case is a line that begins with its verdict; `+` continues it. It may be followed by part of the expected message
//! (`says:`; `weir says:` if HAProxy's wording differs), and by HAProxy's verdict if that differs (`haproxy: <verdict>, <reason>`).

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::{program, scratch, workspace};

/// The verdict on a configuration.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fate {
    /// No message.
    Accepted,
    /// At least one warning.
    Warned,
    /// Exit code 1.
    Refused,
    /// A signal or another exit code.
    Crashed,
}

impl Fate {
    fn parse(text: &str) -> Option<Self> {
        Some(match text {
            "accepted" => Self::Accepted,
            "warned" => Self::Warned,
            "refused" => Self::Refused,
            "crashed" => Self::Crashed,
            _ => return None,
        })
    }
}

/// A configuration with its expected verdict.
#[derive(Debug)]
pub struct Case {
    /// The file and line of the case.
    pub place: String,
    /// The whole configuration.
    pub text: String,
    /// Weir's verdict.
    pub fate: Fate,
    /// A part of Weir's messages, and whether HAProxy's messages contain it too.
    pub says: Option<(String, bool)>,
    /// HAProxy's verdict.
    pub haproxy: Fate,
}

/// Returns all cases of the files in `tests/verdicts`, and the number of files.
pub fn cases() -> (Vec<Case>, usize) {
    let directory = workspace().join("tests/verdicts");
    let entries = std::fs::read_dir(&directory).expect("tests/verdicts is there");
    let mut files: Vec<PathBuf> = entries.filter_map(|entry| Some(entry.ok()?.path())).collect();
    files.retain(|path| path.extension().is_some_and(|end| end == "txt"));
    files.sort();
    (files.iter().flat_map(|file| read(file)).collect(), files.len())
}

fn read(file: &Path) -> Vec<Case> {
    let text = std::fs::read_to_string(file).expect("a file of cases");
    let name = file.file_name().unwrap_or_default().to_string_lossy();
    let mut frame = String::new();
    let mut cases: Vec<(String, Case)> = Vec::new();
    for (number, line) in text.lines().enumerate() {
        let place = format!("{name}:{}", number + 1);
        let current = cases.last_mut();
        if line == "frame" {
            frame.clear();
        } else if let Some(line) = line.strip_prefix("| ").or(line.strip_prefix('|')) {
            frame.push_str(line);
            frame.push('\n');
        } else if let Some(more) = line.strip_prefix("+ ").or(line.strip_prefix('+')) {
            let (_, case) = current.unwrap_or_else(|| panic!("{place}: no case goes on here"));
            case.text.push('\n');
            case.text.push_str(more);
        } else if let Some(note) = line.strip_prefix("         ") {
            let (_, case) = current.unwrap_or_else(|| panic!("{place}: this belongs to no case"));
            annotate(case, note).unwrap_or_else(|| panic!("{place}: not understood: {note}"));
        } else if !line.is_empty() && !line.starts_with('#') {
            let (fate, rest) = line.split_at(line.len().min(9));
            let fate = Fate::parse(fate.trim_end()).unwrap_or_else(|| panic!("{place}: no verdict: {line}"));
            let case = Case { place, text: rest.to_owned(), fate, says: None, haproxy: fate };
            cases.push((frame.clone(), case));
        }
    }
    cases.into_iter().map(|(frame, case)| Case { text: framed(&frame, &case.text), ..case }).collect()
}

fn annotate(case: &mut Case, note: &str) -> Option<()> {
    let (kind, text) = note.split_once(": ")?;
    match kind {
        "says" => case.says = Some((text.to_owned(), true)),
        "weir says" => case.says = Some((text.to_owned(), false)),
        "haproxy" => {
            let (fate, reason) = text.split_once(", ")?;
            case.haproxy = Fate::parse(fate).filter(|_| !reason.is_empty())?;
        }
        _ => return None,
    }
    Some(())
}

fn framed(frame: &str, lines: &str) -> String {
    let mut text = String::new();
    for line in frame.lines() {
        match line.strip_suffix('@') {
            Some(indent) if indent.trim().is_empty() => {
                for own in lines.split('\n') {
                    text.push_str(&format!("{indent}{own}\n"));
                }
            }
            _ => text.push_str(&format!("{line}\n")),
        }
    }
    text
}

/// Runs a program on every case, two at a time; returns the verdict and the messages of each.
pub fn ask_all(program: &Path, cases: &[Case]) -> Vec<(Fate, String)> {
    let directory = scratch("verdicts");
    for entry in
        std::fs::read_dir(workspace().join("tests/verdicts/files")).expect("files of cases").flatten()
    {
        std::fs::copy(entry.path(), directory.join(entry.file_name())).expect("the directory takes files");
    }
    let next = AtomicUsize::new(0);
    let ask = || {
        let numbers = std::iter::from_fn(|| Some(next.fetch_add(1, Ordering::Relaxed)));
        let mine = numbers.map_while(|number| Some((number, cases.get(number)?)));
        mine.map(|(number, case)| (number, check(program, &directory, number, &case.text)))
            .collect::<Vec<_>>()
    };
    let mut answers = std::thread::scope(|scope| {
        let threads = [scope.spawn(ask), scope.spawn(ask)];
        threads.into_iter().flat_map(|thread| thread.join().expect("no case panics")).collect::<Vec<_>>()
    });
    answers.sort_by_key(|(number, _)| *number);
    answers.into_iter().map(|(_, answer)| answer).collect()
}

fn check(program: &Path, directory: &Path, number: usize, text: &str) -> (Fate, String) {
    let file = directory.join(format!("{number}.cfg"));
    std::fs::write(&file, text).expect("the directory takes files");
    let output = Command::new(program)
        .args(["-c", "-f"])
        .arg(&file)
        .current_dir(directory)
        .env("HOME", "/root")
        .env_remove("NOSUCH")
        .stdin(Stdio::null())
        .output()
        .expect("the program runs");
    let messages = String::from_utf8_lossy(&output.stderr).into_owned();
    let fate = match output.status.code() {
        Some(0) if messages.contains("[WARNING]") => Fate::Warned,
        Some(0) => Fate::Accepted,
        Some(1) => Fate::Refused,
        _ => Fate::Crashed,
    };
    (fate, messages)
}

/// Runs Weir on every case.
pub fn ask_weir(cases: &[Case]) -> Vec<(Fate, String)> {
    ask_all(program(), cases)
}
