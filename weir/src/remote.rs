//! `weir diff -f FILE --socket SOCKET`: shows what a configuration would change in a running process. That process determines the
//! differences.

use std::io::{IsTerminal, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::process::ExitCode;

use base::raw::{bytes_of, text_of};

use crate::messages;

const USAGE: &str = "\
Usage: weir diff -f FILE [-f ...] --socket SOCKET [--json]

Shows what loading the configuration in FILE would change in the process with
that runtime socket (level admin). The exit status is 0 if nothing would change,
1 if something would, and 2 if the configuration cannot be used.
";

/// Runs the command, or `None` if the arguments are not this command.
pub(crate) fn run(words: &[String]) -> Option<ExitCode> {
    (words.first()? == "diff").then(|| match ask(&words[1..]) {
        Ok((text, code)) => {
            messages::output(&text);
            ExitCode::from(code)
        }
        Err(error) => {
            eprintln!("{error}");
            ExitCode::from(2)
        }
    })
}

fn ask(words: &[String]) -> Result<(String, u8), String> {
    let (mut files, mut socket, mut json) = (Vec::new(), None, false);
    let mut words = words.iter();
    while let Some(word) = words.next() {
        let mut value = || words.next().map(PathBuf::from).ok_or_else(|| USAGE.to_owned());
        match word.as_str() {
            "-f" | "--config" => files.push(value()?),
            "--socket" => socket = Some(value()?),
            "--json" => json = true,
            _ => return Err(USAGE.to_owned()),
        }
    }
    let socket = socket.filter(|_| !files.is_empty()).ok_or(USAGE)?;
    let mut text = String::new();
    for file in &files {
        let shown = file.display();
        let content = std::fs::read(file).map_err(|error| format!("cannot read {shown}: {error}"))?;
        text += &format!("{FILE_MARK}{shown}\n{}\n", text_of(&content));
    }
    let colours = std::io::stdout().is_terminal() && std::env::var_os("NO_COLOR").is_none();
    let form = match (json, colours) {
        (true, _) => " json",
        (false, true) => " colour",
        (false, false) => "",
    };
    let answer = converse(&socket, form, &text)
        .map_err(|error| format!("cannot query the process on {}: {error}", socket.display()))?;
    let answer = answer.trim_end().to_owned() + "\n";
    let says_nothing = answer == "nothing has changed\n" || answer == "[]\n";
    let is_difference = says_nothing || answer.ends_with("nothing else\n") || answer.starts_with('[');
    if !is_difference {
        return Err(answer);
    }
    Ok((answer, u8::from(!says_nothing)))
}

/// Begins the comment that names the file of the lines below it.
const FILE_MARK: &str = "#@file ";

/// Splits a payload into its files, each with its name and text, so that messages name them. Text without a mark is
/// one file, `the payload`.
pub(crate) fn files_of_payload(text: &str) -> Vec<(&str, &str)> {
    let Some(mut rest) = text.strip_prefix(FILE_MARK) else { return vec![("the payload", text)] };
    let mut files = Vec::new();
    loop {
        let (name, content) = rest.split_once('\n').unwrap_or((rest, ""));
        // The mark only counts at the beginning of a line.
        let end = content
            .match_indices(FILE_MARK)
            .map(|(at, _)| at)
            .find(|&at| at == 0 || content.as_bytes()[at - 1] == b'\n');
        files.push((name, &content[..end.unwrap_or(content.len())]));
        match end {
            Some(end) => rest = &content[end + FILE_MARK.len()..],
            None => return files,
        }
    }
}

/// Sends the configuration as a payload. An empty line would end the payload, so empty lines become comments.
fn converse(socket: &std::path::Path, form: &str, text: &str) -> std::io::Result<String> {
    let mut stream = UnixStream::connect(socket)?;
    let mut sent = format!("reload dry-run{form} <<\n");
    for line in text.lines() {
        sent.push_str(if line.trim().is_empty() { "#" } else { line });
        sent.push('\n');
    }
    sent.push('\n');
    stream.write_all(&bytes_of(&sent))?;
    stream.shutdown(std::net::Shutdown::Write)?;
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer)?;
    Ok(text_of(&answer).into_owned())
}

#[cfg(test)]
mod tests {
    use super::files_of_payload;

    #[test]
    fn payloads_are_split_at_file_marks() {
        let cases: [(&str, &[(&str, &str)]); 5] = [
            ("", &[("the payload", "")]),
            ("global\n#@file a\n", &[("the payload", "global\n#@file a\n")]),
            ("#@file a.cfg\nglobal\n", &[("a.cfg", "global\n")]),
            ("#@file a\nx #@file b\n#@file c d\ny\n", &[("a", "x #@file b\n"), ("c d", "y\n")]),
            ("#@file a\n#@file b", &[("a", ""), ("b", "")]),
        ];
        for (text, expected) in cases {
            assert_eq!(files_of_payload(text), expected, "{text:?}");
        }
    }
}
