//! The environment that configurations read and, through `setenv` and similar keywords, change (manual, section 2.3).
//!
//! This is a value rather than the process's own environment, so that a configuration can be checked without side effects, and two
//! can be read at once. The program applies the result to the processes that it starts.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;

use base::raw::text_of;

/// Variables by name. Bytes that are not UTF-8 are represented as in [`base::raw`].
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Environment {
    variables: BTreeMap<Box<str>, Box<str>>,
    given: BTreeSet<&'static str>,
}

impl Environment {
    /// Returns an empty environment.
    pub fn new() -> Self {
        Self::default()
    }

    /// Returns the process's own environment.
    pub fn from_process() -> Self {
        let text = |word: &OsStr| text_of(word.as_bytes()).into_owned();
        std::env::vars_os().map(|(name, value)| (text(&name), text(&value))).collect()
    }

    /// Returns the value of a variable.
    pub fn get(&self, name: &str) -> Option<&str> {
        self.variables.get(name).map(AsRef::as_ref)
    }

    /// `setenv`: sets the variable whether it exists or not.
    pub fn set(&mut self, name: &str, value: &str) {
        self.variables.insert(name.into(), value.into());
    }

    /// Sets a variable from the command line. This value takes precedence over keywords that set the variable as a side effect.
    pub fn give(&mut self, name: &'static str, value: &str) {
        self.set(name, value);
        self.given.insert(name);
    }

    /// Returns whether the command line has set the variable.
    pub fn is_given(&self, name: &str) -> bool {
        self.given.contains(name)
    }

    /// `presetenv`: sets the variable unless it exists.
    pub fn preset(&mut self, name: &str, value: &str) {
        self.variables.entry(name.into()).or_insert_with(|| value.into());
    }

    /// `unsetenv`: removes the variable.
    pub fn unset(&mut self, name: &str) {
        self.variables.remove(name);
    }

    /// `resetenv`: removes every variable except those in `keep`.
    pub fn reset(&mut self, keep: &[&str]) {
        self.variables.retain(|name, _| keep.contains(&&**name));
    }

    /// Iterates over all variables, by name in byte order.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        self.variables.iter().map(|(name, value)| (&**name, &**value))
    }

    /// Expands `$NAME` and `${NAME}` anywhere in `text`. Addresses and file names get this expansion in addition to that of quoted
    /// words, for compatibility with old configurations. An unknown variable expands to nothing.
    pub fn expand(&self, text: &str) -> String {
        let mut out = String::with_capacity(text.len());
        let mut rest = text;
        while let Some(dollar) = rest.find('$') {
            out.push_str(&rest[..dollar]);
            let after = &rest[dollar + 1..];
            let braced = after.strip_prefix('{');
            let name_from = braced.unwrap_or(after);
            let length =
                name_from.bytes().take_while(|byte| byte.is_ascii_alphanumeric() || *byte == b'_').count();
            let closes = braced.is_none() || name_from[length..].starts_with('}');
            if length == 0 || !closes {
                out.push('$');
                rest = after;
                continue;
            }
            out.push_str(self.get(&name_from[..length]).unwrap_or(""));
            rest = &name_from[length + usize::from(braced.is_some())..];
        }
        out.push_str(rest);
        out
    }
}

impl<N: AsRef<str>, V: AsRef<str>> FromIterator<(N, V)> for Environment {
    fn from_iter<I: IntoIterator<Item = (N, V)>>(variables: I) -> Self {
        let variables =
            variables.into_iter().map(|(name, value)| (name.as_ref().into(), value.as_ref().into()));
        Self { variables: variables.collect(), given: BTreeSet::new() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keywords_change_the_environment_as_documented() {
        let mut environment: Environment = [("A", "1"), ("B", "2"), ("C", "3")].into_iter().collect();
        environment.set("A", "one");
        environment.preset("A", "two");
        environment.preset("D", "4");
        environment.unset("B");
        let now: Vec<_> = environment.iter().collect();
        assert_eq!(now, [("A", "one"), ("C", "3"), ("D", "4")]);
        environment.reset(&["C", "X"]);
        assert_eq!(environment.iter().collect::<Vec<_>>(), [("C", "3")]);
    }

    #[test]
    fn variables_in_addresses_expand_without_quotes() {
        let environment: Environment = [("HOST", "h"), ("PORT_1", "80")].into_iter().collect();
        let cases = [
            ("fd@${HOST}", "fd@h"),
            ("$HOST:${PORT_1}", "h:80"),
            ("$HOST$HOST", "hh"),
            ("${NONE}:1", ":1"),
            ("a$", "a$"),
            ("a${", "a${"),
            ("a${HOST", "a${HOST"),
            ("plain", "plain"),
        ];
        for (text, expected) in cases {
            assert_eq!(environment.expand(text), expected, "{text}");
        }
    }
}
