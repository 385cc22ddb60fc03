//! Code blocks of a page.

/// The content of a block, from its info string.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum BlockKind {
    /// A whole configuration.
    Configuration,
    /// Sections of a configuration, or lines of the section with this name.
    Fragment(Option<String>),
    /// Commands to run, with their output.
    Console,
    /// Commands of which only the syntax is checked, after `$ `.
    RootConsole,
    /// A shell script of which only the syntax is checked.
    Script,
    /// Anything else.
    Other,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Block {
    pub(crate) kind: BlockKind,
    /// The number of the line with the opening fence.
    pub(crate) line: usize,
    /// The file to write the text to before the commands of the page run.
    pub(crate) file: Option<String>,
    pub(crate) text: String,
}

/// All blocks of a page, in order.
///
/// # Errors
/// `line: message` if an info string is unknown, a block has no end, or code is marked by indentation.
pub(crate) fn blocks(markdown: &str) -> Result<Vec<Block>, String> {
    let mut found: Vec<Block> = Vec::new();
    // The indentation of the open block.
    let mut open: Option<usize> = None;
    let (mut is_list, mut was_blank) = (false, true);
    for (number, line) in (1..).zip(markdown.lines()) {
        let text = line.trim_start();
        let indent = line.len() - text.len();
        match (text.strip_prefix("```"), open, found.last_mut()) {
            (Some(info), None, _) => {
                found.push(block(info.trim(), number).map_err(|error| format!("{number}: {error}"))?);
                open = Some(indent);
            }
            (Some(""), Some(_), _) => open = None,
            (_, Some(indent), Some(block)) => {
                block.text.push_str(line.get(indent..).unwrap_or_default());
                block.text.push('\n');
            }
            _ => {
                if indent == 0 && !text.is_empty() {
                    is_list = text.starts_with(['-', '*']) || text.starts_with(|c: char| c.is_ascii_digit());
                }
                if indent >= 4 && was_blank && !is_list && !text.is_empty() {
                    return Err(format!("{number}: code needs a fence and an info string"));
                }
            }
        }
        was_blank = text.is_empty();
    }
    match (open, found.last()) {
        (Some(_), Some(block)) => Err(format!("{}: the block has no end", block.line)),
        _ => Ok(found),
    }
}

fn block(info: &str, line: usize) -> Result<Block, String> {
    let mut words: Vec<&str> = info.split_whitespace().collect();
    let mut take = |key: &str| {
        let at = words.iter().position(|word| word.starts_with(key))?;
        Some(words.remove(at)[key.len()..].to_owned())
    };
    let (file, section) = (take("file="), take("in="));
    let kind = match words.as_slice() {
        ["haproxy"] => BlockKind::Configuration,
        ["haproxy", "fragment"] => BlockKind::Fragment(section),
        ["console"] => BlockKind::Console,
        ["console", "root"] => BlockKind::RootConsole,
        ["sh"] => BlockKind::Script,
        ["text" | "json" | "yaml" | "ini" | "lua" | "diff"] => BlockKind::Other,
        _ => return Err(format!("unknown info string `{info}`")),
    };
    Ok(Block { kind, line, file, text: String::new() })
}

/// A command of a console block, with the output that the page shows for it.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Command {
    pub(crate) line: usize,
    pub(crate) text: String,
    pub(crate) output: Vec<String>,
}

/// The commands of a console block. A line after `> ` continues the command before it.
pub(crate) fn commands(block: &Block) -> Vec<Command> {
    let mut found: Vec<Command> = Vec::new();
    for (line, text) in (block.line + 1..).zip(block.text.lines()) {
        if let Some(text) = text.strip_prefix("$ ") {
            found.push(Command { line, text: text.to_owned(), output: Vec::new() });
        } else if let Some(command) = found.last_mut() {
            match text.strip_prefix("> ") {
                Some(rest) if command.output.is_empty() => {
                    command.text.push('\n');
                    command.text.push_str(rest);
                }
                _ => command.output.push(text.to_owned()),
            }
        }
    }
    found
}

#[test]
fn blocks_have_their_kind_line_and_text() {
    let found =
        blocks("a\n```haproxy file=a.cfg\nglobal\n```\n- b\n\n  ```console\n  $ c\n  d\n  ```\n").unwrap();
    assert_eq!(found[0].kind, BlockKind::Configuration);
    assert_eq!((found[0].line, found[0].file.as_deref(), &*found[0].text), (2, Some("a.cfg"), "global\n"));
    assert_eq!((&found[1].kind, found[1].line, &*found[1].text), (&BlockKind::Console, 7, "$ c\nd\n"));
    let fragment = blocks("```haproxy fragment in=backend\n```\n").unwrap();
    assert_eq!(fragment[0].kind, BlockKind::Fragment(Some("backend".to_owned())));
}

#[test]
fn blocks_without_a_known_info_string_are_refused() {
    for text in ["```\na\n```\n", "```bash\n```\n", "a\n\n    code\n", "```text\nwithout an end\n"] {
        assert!(blocks(text).is_err(), "{text}");
    }
    assert!(blocks("- a\n\n    continues\n").is_ok());
}

#[test]
fn commands_have_their_output() {
    let block = &blocks("```console\n$ a \\\n> b\nc\n\n$ d\n```\n").unwrap()[0];
    let found = commands(block);
    assert_eq!((found[0].line, &*found[0].text), (2, "a \\\nb"));
    assert_eq!(found[0].output, ["c", ""]);
    assert_eq!((found[1].line, &*found[1].text, found[1].output.len()), (6, "d", 0));
}
