//! The examples of `docs/runtime-api.md`: their commands give these answers.
//!
//! In the files of `docs/runtime-api`, a command line follows `> `, the lines of its payload follow `+ `, and the answer ends with
//! an empty line. `…` matches any text, as in pages. In a command, `0x…` is the address of the waiting request and `@!…` the PID of
//! the worker. Each file runs in order, in a new process. Lines before a command can be:
//!
//! - `# payload FILE`: sends this file of the scene as the payload, instead of the lines shown.
//! - `# request PATH`: requests a path first.
//! - `# change OLD => NEW`: replaces a text in the configuration file first.

use std::io::{Read, Write};
use std::net::Shutdown;
use std::os::unix::net::UnixStream;

use weir_tests::{PATIENCE, eventually, workspace};

use crate::api_scene::Scene;
use crate::compare::is_like;

/// Commands that are repeated until the answer is as expected, because they show something that takes time.
const REPEATABLE: [&str; 4] = ["acme ", "get ", "show ", "@1 show "];

#[derive(Debug, Default)]
struct Example {
    line: usize,
    command: String,
    payload: Vec<String>,
    answer: Vec<String>,
    /// The lines before it, without `# `.
    before: Vec<String>,
}

fn examples(text: &str) -> Vec<Example> {
    let mut found: Vec<Example> = Vec::new();
    let (mut before, mut is_open) = (Vec::new(), false);
    for (line, text) in (1..).zip(text.lines()) {
        if let Some(command) = text.strip_prefix("> ") {
            let before = std::mem::take(&mut before);
            found.push(Example { line, command: command.to_owned(), before, ..Example::default() });
            is_open = true;
            continue;
        }
        match found.last_mut().filter(|_| is_open) {
            _ if text.is_empty() => is_open = false,
            Some(example) => match text.strip_prefix("+ ") {
                Some(payload) => example.payload.push(payload.to_owned()),
                None => example.answer.push(text.to_owned()),
            },
            None => before.extend(text.strip_prefix("# ").map(str::to_owned)),
        }
    }
    found
}

/// Runs the examples of a file.
fn run(name: &str) {
    let path = format!("docs/runtime-api/{name}.txt");
    let text = std::fs::read_to_string(workspace().join(&path)).expect("the file is readable");
    let scene = Scene::start(name == "master", name == "peers");
    let mut faults = Vec::new();
    for example in examples(&text) {
        if let Some(fault) = fault(&scene, &example) {
            faults.push(format!("{path}:{}: {fault}", example.line));
        }
    }
    assert!(faults.is_empty(), "\n{}\n{}", faults.join("\n"), scene.messages());
}

/// The difference between an answer and the example.
fn fault(scene: &Scene, example: &Example) -> Option<String> {
    let mut payload = example.payload.clone();
    for line in &example.before {
        match line.split_once(' ') {
            Some(("payload", file)) => payload = scene.file(file).lines().map(str::to_owned).collect(),
            Some(("request", path)) => scene.request(path),
            Some(("change", change)) => {
                let (old, new) = change.split_once(" => ").expect("`# change OLD => NEW`");
                scene.change(old, new);
            }
            // A comment.
            _ => {}
        }
    }
    let is_repeatable =
        !example.answer.is_empty() && REPEATABLE.iter().any(|start| example.command.starts_with(start));
    let mut answer = String::new();
    let mut is_as_shown = || {
        answer = ask(scene, &example.command, &payload);
        is_like(&example.answer, &answer.lines().collect::<Vec<_>>())
    };
    let passes = if is_repeatable { eventually(is_as_shown) } else { is_as_shown() };
    let expected = example.answer.join("\n");
    (!passes).then(|| format!("`{}` answered\n{answer}\ninstead of\n{expected}\n", example.command))
}

/// The answer to a command, with the ports and paths of the page.
fn ask(scene: &Scene, command: &str, payload: &[String]) -> String {
    let mut text = scene.complete(command);
    text.push('\n');
    for line in payload {
        text.push_str(&scene.complete(line));
        text.push('\n');
    }
    if !payload.is_empty() {
        // The end of the payload.
        text.push('\n');
    }
    let mut stream = UnixStream::connect(scene.socket()).expect("the socket takes connections");
    stream.set_read_timeout(Some(PATIENCE)).expect("a socket takes a timeout");
    stream.write_all(text.as_bytes()).expect("the socket takes a command");
    // Ends sessions that `prompt` keeps open.
    let _ = stream.shutdown(Shutdown::Write);
    let mut answer = Vec::new();
    let _ = stream.read_to_end(&mut answer);
    scene.revert(&String::from_utf8_lossy(&answer))
}

macro_rules! files {
    ($($name:ident)*) => {
        /// The files with examples. Each is a test, so that they run in parallel.
        const FILES: &[&str] = &[$(stringify!($name)),*];

        $(
            #[test]
            fn $name() {
                run(stringify!($name));
            }
        )*
    };
}

files! {
    caches certificates debugging master patterns peers process servers session statistics streams tables
}

#[test]
fn every_file_of_examples_is_run() {
    let entries = std::fs::read_dir(workspace().join("docs/runtime-api")).expect("the folder is readable");
    let names = entries.filter_map(|entry| entry.ok()?.file_name().into_string().ok());
    let mut found: Vec<String> =
        names.filter_map(|name| Some(name.strip_suffix(".txt")?.to_owned())).collect();
    found.sort();
    assert_eq!(found, FILES);
}

#[test]
fn examples_have_payloads_answers_and_preparations() {
    let found = examples("# payload a.pem\n> set a <<\n+ b\n+ …\nDone.\n\n> quit\n");
    let [first, second] = found.as_slice() else { panic!("{found:?}") };
    assert_eq!((first.line, &*first.command), (2, "set a <<"));
    assert_eq!(
        (first.payload.len(), &*first.answer, &*first.before),
        (2, &["Done.".to_owned()][..], &["payload a.pem".to_owned()][..])
    );
    assert!(second.answer.is_empty() && second.before.is_empty());
}
