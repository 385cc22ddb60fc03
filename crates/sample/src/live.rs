//! Expressions that are compiled and evaluated immediately, for the runtime socket (`set var`). Called only by `control`.

use std::cell::RefCell;
use std::sync::Arc;

use diag::Span;
use state::{Mode, Process, Proxy};

use crate::env::Env;
use crate::expression::Expression;
use crate::format::{Format, FormatFor};
use crate::named_acls::Acls;
use crate::place::Place;
use crate::scope::{Names, Scope};
use crate::value::Value;
use crate::vars::Variables;
use crate::word_cursor::{Word, Words};

/// Name lookup at run time, at which only variables can be named.
struct Nameless;

impl Names for Nameless {
    fn predicate(
        &self,
        names: Vec<String>,
        scope: &Scope<'_>,
    ) -> Result<Box<dyn crate::named_acls::Predicate>, String> {
        Ok(Box::new(crate::Condition::of_names(names.into_iter(), scope)?))
    }

    fn backend(&self, _: &str) -> Option<Arc<Proxy>> {
        None
    }
    fn frontend(&self, _: &str) -> Option<Arc<Proxy>> {
        None
    }
}

/// The notation of the value in `set var`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Written {
    /// As an expression: a fetch and its converters.
    Expression,
    /// As a format.
    Format,
}

/// Sets the process variable `name` (with `proc.`) to the value of `words`. If the expression has no value, nothing changes.
/// Returns an error message if the name or the words are invalid.
pub fn set_variable(
    process: &Process,
    now_ms: u64,
    name: &str,
    written: Written,
    words: &[String],
) -> Result<(), String> {
    if !name.starts_with("proc.") {
        return Err(format!("cannot set variable '{name}', only scope 'proc' is permitted here."));
    }
    let (variables, patterns, acls) = (RefCell::<Variables>::default(), RefCell::default(), Acls::new());
    let variable = variables.borrow_mut().resolve(name)?;
    let nowhere = Span::default();
    let scope = Scope {
        names: &Nameless,
        variables: &variables,
        patterns: &patterns,
        acls: &acls,
        proxy: None,
        mode: Mode::Tcp,
        place: Place::Command,
        inherited: false,
    };
    let env = Env::new(process, now_ms);
    let list: Vec<Word<'_>> = words.iter().map(|text| Word { text, span: nowhere }).collect();
    match written {
        Written::Format => {
            let text = words.first().map_or("", String::as_str);
            let format =
                Format::compile(text, nowhere, &scope, FormatFor::Text).map_err(|error| error.message)?;
            let mut made = Vec::new();
            format.render(&env, &mut made);
            variable.set(&env, &Value::str(&made));
        }
        Written::Expression => {
            let mut words = Words::new(&list, nowhere);
            let expression = Expression::compile(&mut words, &scope).map_err(|error| error.message)?;
            if let Some(extra) = words.peek() {
                return Err(format!("unexpected argument '{}'", extra.text));
            }
            if let Some(value) = expression.eval(&env) {
                variable.set(&env, &value);
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::vars::find_process_variable;

    #[test]
    fn only_process_variables_are_set_from_process_data() {
        let process = Process::default();
        let set = |name: &str, written, text: &str| {
            let words: Vec<String> = text.split(' ').map(str::to_owned).collect();
            set_variable(&process, 0, name, written, &words)
        };
        assert_eq!(set("proc.live_a", Written::Expression, "int(4),add(1)"), Ok(()));
        assert_eq!(set("proc.live_b", Written::Format, "<%[var(proc.live_a)]>"), Ok(()));
        let text = |name: &str| {
            let mut text = Vec::new();
            find_process_variable(name).unwrap().get().unwrap().write_text(&mut text);
            String::from_utf8(text).unwrap()
        };
        assert_eq!((text("live_a"), text("live_b")), ("5".into(), "<5>".into()));
        for (name, text) in [
            ("txn.a", "int(1)"),
            ("proc.live_c", "path"),
            ("proc.live_c", "int(1) int(2)"),
            ("proc.", "int(1)"),
        ] {
            assert!(set(name, Written::Expression, text).is_err(), "{name} {text}");
        }
    }
}
