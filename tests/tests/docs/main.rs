//! The documentation: its configurations are valid, and its commands print what the pages show.
//!
//! Every code block in `README.md` and `docs/*.md` has one of these info strings:
//!
//! - `haproxy`: a whole configuration, checked with `weir -c`. `haproxy file=NAME` also writes it where
//!   the commands of the page find it.
//! - `haproxy fragment`: some sections of one. `haproxy fragment in=frontend`: lines of that section.
//! - `console`: commands after `$ ` and their output. They run in order, in one shell for each page.
//!   `…` in the output matches any text; a line with only `…` matches any number of lines.
//! - `console root`: commands that need root, systemd or a package. Only their syntax is checked, as
//!   for `sh`.
//! - `text`, `text file=NAME`, `json`, `yaml`, `ini`, `lua`, `diff`: not checked.
//!
//! A block inside an HTML comment is a setup step: readers do not see it, but it runs. Ports and paths
//! such as `/etc/weir` are replaced by free ports and paths below a directory of the page.

mod api;
mod api_scene;
mod check;
mod compare;
mod console;
mod metrics;
mod page;
mod substitute;

use std::path::PathBuf;

use page::{Block, BlockKind};
use weir_tests::workspace;

/// Pages that are generated. They show no commands of a shell; `api` runs those of the runtime API.
const GENERATED: [&str; 4] = ["compatibility.md", "keywords.md", "metrics-list.md", "runtime-api.md"];

macro_rules! pages {
    ($($name:ident $path:literal)*) => {
        /// Pages with commands to run. Each is a test, so that they run in parallel.
        const WITH_COMMANDS: &[&str] = &[$($path),*];

        $(
            #[test]
            fn $name() {
                console::run(&read($path));
            }
        )*
    };
}

pages! {
    beyond_haproxy "docs/beyond-haproxy.md"
    find_the_cause "docs/find-the-cause.md"
    getting_started "docs/getting-started.md"
    logs "docs/logs.md"
    metrics_page "docs/metrics.md"
    migrate "docs/migrate.md"
    opentelemetry "docs/opentelemetry.md"
    operate "docs/operate.md"
    runtime_socket "docs/runtime-socket.md"
    test_server "docs/test-server.md"
    tls "docs/tls.md"
    troubleshooting "docs/troubleshooting.md"
}

/// A page by its path from the root of the workspace.
struct Page {
    path: String,
    blocks: Vec<Block>,
}

fn read(path: &str) -> Page {
    let text = std::fs::read_to_string(workspace().join(path)).expect("the page is readable");
    let blocks = page::blocks(&text).unwrap_or_else(|error| panic!("{path}:{error}"));
    Page { path: path.to_owned(), blocks }
}

/// The paths of all pages, from the root of the workspace.
fn paths() -> Vec<String> {
    let folder = workspace().join("docs");
    let entries = std::fs::read_dir(folder).expect("the folder is readable");
    let files = entries.filter_map(|entry| Some(PathBuf::from(entry.ok()?.file_name())));
    let names = files.filter(|file| file.extension().is_some_and(|extension| extension == "md"));
    let names = names.filter_map(|file| Some(file.to_str()?.to_owned()));
    let mut paths: Vec<String> =
        names.filter(|name| !GENERATED.contains(&name.as_str())).map(|name| format!("docs/{name}")).collect();
    paths.push("README.md".to_owned());
    paths.sort();
    paths
}

#[test]
fn configurations_on_pages_are_valid() {
    let faults: Vec<String> = paths().iter().flat_map(|path| check::configurations(&read(path))).collect();
    assert!(faults.is_empty(), "\n{}", faults.join("\n"));
}

#[test]
fn commands_that_are_not_run_have_valid_syntax() {
    let faults: Vec<String> = paths().iter().flat_map(|path| check::scripts(&read(path))).collect();
    assert!(faults.is_empty(), "\n{}", faults.join("\n"));
}

#[test]
fn every_page_with_commands_is_run() {
    let has_commands = |path: &String| {
        let page = read(path);
        page.blocks.iter().any(|block| block.kind == BlockKind::Console)
    };
    let found: Vec<String> = paths().into_iter().filter(has_commands).collect();
    let mut listed = WITH_COMMANDS.to_vec();
    listed.sort_unstable();
    assert_eq!(found, listed, "add the page to `pages!`");
}

#[test]
fn the_index_links_every_page_and_recipe() {
    let folder = workspace().join("docs");
    let index = std::fs::read_to_string(folder.join("README.md")).expect("the index is readable");
    let files = |folder: PathBuf, extension: &str| {
        let entries = std::fs::read_dir(folder).expect("the folder is readable");
        let names = entries.filter_map(|entry| entry.ok()?.file_name().into_string().ok());
        names.filter(|name| name.ends_with(extension) && name != "README.md").collect::<Vec<_>>()
    };
    let pages = files(folder.clone(), ".md").into_iter();
    let recipes = files(folder.join("recipes"), ".cfg").into_iter().map(|name| format!("recipes/{name}"));
    let missing: Vec<String> =
        pages.chain(recipes).filter(|path| !index.contains(&format!("]({path})"))).collect();
    assert!(missing.is_empty(), "not linked from docs/README.md: {missing:?}");
}
