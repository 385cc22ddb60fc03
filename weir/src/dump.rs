//! `-dC`: prints the configuration as it was read, without comments, with conditions and variables resolved.

use diag::{Diagnostics, SourceMap};
use syntax::{Line, Reader, Word};

use crate::args::Args;
use crate::check;
use crate::messages::say;

/// Prints every line that counts. Errors are left to the reading that follows.
pub(crate) fn print(args: &Args) {
    let mut sources = SourceMap::new();
    let Ok(files) = syntax::load(&mut sources, &args.files) else { return };
    let boot = check::boot(args);
    let mut reader = Reader::new(&sources, files, &boot.facts, boot.environment);
    let (mut line, mut diagnostics) = (Line::default(), Diagnostics::new());
    while reader.next_line(&mut line, &mut diagnostics) {
        let words: Vec<String> = line.words.iter().map(quoted).collect();
        let section = config::draft::section_names().any(|name| line.words[0] == name);
        if section {
            let name = line.words.get(1).unwrap_or(&line.words[0]);
            reader.set_section(name);
        } else if let ("setenv", [_, name, value, ..]) = (line.words[0].as_str(), line.words.as_slice()) {
            reader.environment.set(name, value);
        }
        say(format_args!("{}{}", if section { "" } else { "\t" }, words.join(" ")));
    }
}

/// A word so that it reads back as it is.
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
