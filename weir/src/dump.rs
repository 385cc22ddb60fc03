//! `-dC`: prints the configuration without comments and with conditions and variables resolved. If a key is given, private data
//! is hashed, so that the output can be shown to others (management manual, section 3).

use control::anonymous::Anonymous;
use diag::{Diagnostics, SourceMap};
use syntax::{Line, Reader, Word};

use crate::args::CommandLineArgs;
use crate::check;
use crate::messages::say;

/// How a word is shown when a key hides private data.
#[derive(Clone, Copy)]
enum WordMask {
    Plain,
    /// `ID(hash)`.
    Name,
    /// `PATH(hash)`.
    Path,
    /// The hash alone.
    Secret,
    Address,
}

/// How a statement is shown: its keyword, the arguments, and whether `[...]` marks omitted ones.
type StatementDump = (&'static str, &'static [WordMask], bool);

/// The statements that are not shown in three words; a second keyword follows a space.
#[rustfmt::skip]
const ROWS: &[StatementDump] = {
    use WordMask::{Address, Name, Path, Plain, Secret};
    &[
        ("anonkey",             &[],              true),
        ("maxconn",             &[Plain],         false),
        ("stats timeout",       &[Plain],         false),
        ("stats maxconn",       &[Plain],         false),
        ("stats socket",        &[Address],       true),
        ("stats auth",          &[Secret],        false),
        ("timeout",             &[Plain, Plain],  false),
        ("mode",                &[Plain],         false),
        ("user",                &[Name],          true),
        ("bind",                &[Address],       true),
        ("server",              &[Name, Address], true),
        ("redirect prefix",     &[Path],          true),
        ("redirect location",   &[Path],          true),
        ("acl",                 &[Name, Plain],   true),
        ("log global",          &[],              true),
        ("log",                 &[Address],       true),
        ("peer",                &[Name, Address], true),
        ("use_backend",         &[Name],          true),
        ("default_backend",     &[Name],          false),
        ("source",              &[Address],       true),
        ("nameserver",          &[Name, Address], true),
        ("http-request",        &[Plain],         true),
        ("http-response",       &[Plain],         true),
        ("http-after-response", &[Plain],         true),
        ("filter",              &[Plain],         true),
        ("errorfile",           &[Plain, Path],   false),
        ("cookie",              &[Name, Plain],   true),
    ]
};

/// Returns a line with names, addresses and secrets hashed.
fn hidden(words: &[Word], section: bool, with: Anonymous) -> String {
    let second = words.get(1).map_or("", |word| word.as_str());
    let named = |row: &&StatementDump| match row.0.split_once(' ') {
        Some((first, next)) => words[0] == *first && second == next,
        None => words[0] == *row.0,
    };
    const OTHERS: StatementDump = ("", &[WordMask::Plain, WordMask::Plain], true);
    const SECTION: StatementDump = ("", &[WordMask::Name], false);
    let (keyword, shown, more) =
        if section { SECTION } else { ROWS.iter().find(named).copied().unwrap_or(OTHERS) };
    let begin = 1 + keyword.matches(' ').count();
    let mut out: Vec<String> = words[..begin].iter().map(quoted).collect();
    for (word, shown) in words[begin..].iter().zip(shown) {
        out.push(match shown {
            WordMask::Plain => quoted(word),
            WordMask::Name => format!("ID({})", with.word(word)),
            WordMask::Path => format!("PATH({})", with.word(word)),
            WordMask::Secret => with.word(word).into_owned(),
            WordMask::Address => with.address(word).into_owned(),
        });
    }
    if more && words.len() > begin + shown.len() {
        out.push("[...]".to_owned());
    }
    out.join(" ")
}

/// Prints every active line, with hashes unless the key is 0. Errors are reported later, when the configuration is read for use.
pub(crate) fn print(args: &CommandLineArgs, key: u32) {
    let mut sources = SourceMap::new();
    let Ok(files) = args.sources(&mut sources) else { return };
    let boot = check::boot(args);
    let mut reader = Reader::new(&sources, files, &boot.facts, boot.environment);
    let (mut line, mut diagnostics) = (Line::default(), Diagnostics::new());
    while reader.next_line(&mut line, &mut diagnostics) {
        let section = config::draft::section_names().any(|name| line.words[0] == name);
        if section {
            let name = line.words.get(1).unwrap_or(&line.words[0]);
            reader.set_section(name);
        } else if let ("setenv", [_, name, value, ..]) = (line.words[0].as_str(), line.words.as_slice()) {
            reader.environment.set(name, value);
        }
        let text = match key {
            0 => line.words.iter().map(quoted).collect::<Vec<_>>().join(" "),
            key => hidden(&line.words, section, Anonymous::with_key(key)),
        };
        say(format_args!("{}{text}", if section { "" } else { "\t" }));
    }
}

/// Quotes a word if needed, so that it reads back unchanged.
fn quoted(word: &Word) -> String {
    let plain = |byte: u8| byte.is_ascii_graphic() && !matches!(byte, b'"' | b'\'' | b'\\' | b'#' | b'$');
    if !word.is_empty() && word.bytes().iter().all(|byte| plain(*byte)) {
        return word.to_string();
    }
    let mut out = String::from("\"");
    for byte in word.bytes().iter() {
        match byte {
            b'"' | b'\\' | b'$' => out.extend(['\\', *byte as char]),
            b'\n' => out.push_str("\\n"),
            b' '..=b'~' => out.push(*byte as char),
            other => out.push_str(&format!("\\x{other:02x}")),
        }
    }
    out + "\""
}
