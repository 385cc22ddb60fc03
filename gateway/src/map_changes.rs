//! The commands that bring a map in the proxy to new contents.

use std::collections::BTreeMap;

/// The most entries that are changed by commands. A reload is faster than more of them.
const MOST: usize = 200;

/// Returns the commands from the contents `old` of a map to `new`; `None` if it must be read again.
pub(crate) fn commands(file: &str, old: &[u8], new: &[u8]) -> Option<Vec<String>> {
    let (old, new) = (entries(old)?, entries(new)?);
    let mut commands = Vec::new();
    for (key, value) in &new {
        match old.get(key) {
            Some(known) if known == value => {}
            Some(_) => commands.push(format!("set map {file} {key} {value}")),
            None => commands.push(format!("add map {file} {key} {value}")),
        }
    }
    let removed = old.keys().filter(|key| !new.contains_key(*key));
    commands.extend(removed.map(|key| format!("del map {file} {key}")));
    (commands.len() <= MOST && commands.iter().all(|command| is_plain(command))).then_some(commands)
}

/// The entries of a map; `None` if a key occurs twice or a line has no value.
fn entries(bytes: &[u8]) -> Option<BTreeMap<&str, &str>> {
    let mut entries = BTreeMap::new();
    for line in std::str::from_utf8(bytes).ok()?.lines() {
        let (key, value) = line.split_once(' ')?;
        if entries.insert(key, value).is_some() {
            return None;
        }
    }
    Some(entries)
}

/// Whether a command has no character with a special meaning on the runtime socket.
fn is_plain(command: &str) -> bool {
    // Commands have four or five words.
    let words = command.split(' ').count();
    (4..=5).contains(&words)
        && !command.contains("<<")
        && !command.contains(" #")
        && command.bytes().all(|byte| byte.is_ascii_graphic() && !b"\\;\"'".contains(&byte) || byte == b' ')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_differences_are_sent() {
        let commands = commands("/m", b"a/ x\nb/ prefix:b/\nc/ z\n", b"a/ x\nb/ y\nd/ z\n");
        let expected = ["set map /m b/ y", "add map /m d/ z", "del map /m c/"];
        assert_eq!(commands.expect("plain entries"), expected);
        assert_eq!(super::commands("/m", b"a x\n", b"a x\n"), Some(Vec::new()));
    }

    #[test]
    fn contents_that_commands_cannot_express_are_read_again() {
        for new in
            ["a;b x\n", "a\\b x\n", "a x\na y\n", "a\n", "#a x\n", "a x y\n", "'a x\n", "a<<b x\n", "é x\n"]
        {
            assert_eq!(commands("/m", b"", new.as_bytes()), None, "{new}");
        }
        let many: String = (0..=MOST).map(|number| format!("{number} x\n")).collect();
        assert_eq!(commands("/m", b"", many.as_bytes()), None);
    }
}
