//! Parses a line of the runtime socket. Commands are separated by `;` and words by spaces, `\` is the escape character, and `<<`
//! at the end announces a payload (management manual, 9.3).

/// One command's words.
pub(crate) type Words = Vec<String>;

/// A parsed line.
#[derive(Debug, PartialEq, Eq, Default)]
pub(crate) struct CommandLine {
    /// The commands, in order. Empty ones are included, and each is answered by an empty line.
    pub(crate) commands: Vec<Words>,
    /// The line that ends the last command's payload, if it has a payload; an empty text stands for an empty line.
    pub(crate) payload_end: Option<String>,
}

/// The maximum length of the pattern after `<<`.
const MAX_PATTERN: usize = 64;

/// Parses a line. A carriage return at the end is treated as an additional empty command, as in HAProxy.
pub(crate) fn parse(line: &str) -> CommandLine {
    let line = line.strip_suffix('\n').unwrap_or(line);
    let (line, returned) = line.strip_suffix('\r').map_or((line, false), |line| (line, true));
    let (line, payload_end) = split_payload(line);
    let mut commands = Vec::new();
    let (mut words, mut word): (Words, Option<String>) = (Words::new(), None);
    let mut characters = line.chars();
    while let Some(c) = characters.next() {
        match c {
            '\\' => word.get_or_insert_default().extend(characters.next()),
            ' ' | '\t' => words.extend(word.take()),
            ';' => {
                words.extend(word.take());
                commands.push(std::mem::take(&mut words));
            }
            c => word.get_or_insert_default().push(c),
        }
    }
    words.extend(word);
    commands.push(words);
    if returned && payload_end.is_none() {
        commands.push(Words::new());
    }
    CommandLine { commands, payload_end }
}

/// Splits ` <<pattern` off the end: it must follow a blank, and the pattern must be short and without blanks.
fn split_payload(line: &str) -> (&str, Option<String>) {
    match line.rfind("<<") {
        Some(at) => {
            let (before, pattern) = (&line[..at], &line[at + 2..]);
            let apart = before.is_empty() || before.ends_with([' ', '\t']);
            let fits = pattern.len() <= MAX_PATTERN && !pattern.contains([' ', '\t', ';']);
            if apart && fits { (before, Some(pattern.to_owned())) } else { (line, None) }
        }
        None => (line, None),
    }
}

#[cfg(test)]
#[allow(clippy::type_complexity, reason = "a table of cases")]
mod tests {
    use super::*;

    #[test]
    fn lines_split_into_commands_words_and_payload() {
        #[rustfmt::skip]
        let cases: &[(&str, &[&[&str]], Option<&str>)] = &[
            ("show info",               &[&["show", "info"]],                         None),
            (" show\tinfo ;; quit\r\n", &[&["show", "info"], &[], &["quit"], &[]],    None),
            ("set map m k a\\;b\\ c",   &[&["set", "map", "m", "k", "a;b c"]],        None),
            ("add map m <<",            &[&["add", "map", "m"]],                      Some("")),
            ("x;add map m <<%EOF%",     &[&["x"], &["add", "map", "m"]],              Some("%EOF%")),
            ("add map m<<",             &[&["add", "map", "m<<"]],                    None),
            ("a << b",                  &[&["a", "<<", "b"]],                         None),
            ("",                        &[&[]],                                       None),
            ("x;\n",                    &[&["x"], &[]],                               None),
            ("a \\",                    &[&["a", ""]],                                None),
        ];
        for (line, commands, payload) in cases {
            let parsed = parse(line);
            assert_eq!(parsed.commands, *commands, "{line:?}");
            assert_eq!(parsed.payload_end.as_deref(), *payload, "{line:?}");
        }
    }
}
