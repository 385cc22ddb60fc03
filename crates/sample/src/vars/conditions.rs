//! Conditions of `set-var` (manual, 4.4 `set-var`) under which a variable is set.

use super::Var;
use crate::env::Env;
use crate::value::Value;

/// A condition of `set-var` (`set-var(txn.x,ifnotexists)` …).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum SetIf {
    Exists,
    NotExists,
    Empty,
    NotEmpty,
    Set,
    NotSet,
    Greater,
    Less,
}

/// The conditions by name. The index in this table is the bit in [`SetConditions`].
const TABLE: &[(&str, SetIf)] = &[
    ("ifexists", SetIf::Exists),
    ("ifnotexists", SetIf::NotExists),
    ("ifempty", SetIf::Empty),
    ("ifnotempty", SetIf::NotEmpty),
    ("ifset", SetIf::Set),
    ("ifnotset", SetIf::NotSet),
    ("ifgt", SetIf::Greater),
    ("iflt", SetIf::Less),
];

/// The conditions of one `set-var`, one bit each. All of them must be met.
#[derive(Clone, Copy, Debug, Default)]
pub struct SetConditions(u8);

impl SetConditions {
    /// Adds the condition named `text`. An empty name, as after a trailing comma, is ignored.
    pub fn add(&mut self, text: &str) -> Result<(), String> {
        if text.is_empty() {
            return Ok(());
        }
        let Some(bit) = TABLE.iter().position(|(name, _)| *name == text) else {
            return Err(format!(
                "unknown condition `{text}` of set-var; use ifexists, ifnotexists, ifempty, ifnotempty, ifset, ifnotset, ifgt or iflt"
            ));
        };
        self.0 |= 1 << bit;
        Ok(())
    }

    /// Whether `var` may be set to `value`.
    #[inline]
    pub fn allow(self, env: &Env<'_>, var: &Var, value: &Value<'_>) -> bool {
        self.0 == 0 || self.hold(env, var, value)
    }

    fn hold(self, env: &Env<'_>, var: &Var, value: &Value<'_>) -> bool {
        let old = var.get(env);
        let number = |value: &Value<'_>| match value {
            Value::Int(number) => Some(*number),
            _ => None,
        };
        let both = number(value).zip(old.as_ref().and_then(number));
        let holds = |condition| match condition {
            SetIf::Exists => old.is_some() || matches!(var, Var::Process(_)),
            SetIf::NotExists => old.is_none() && !matches!(var, Var::Process(_)),
            SetIf::Empty => value.bytes().is_some_and(<[u8]>::is_empty),
            SetIf::NotEmpty => !value.bytes().is_some_and(<[u8]>::is_empty),
            SetIf::Set => old.is_some(),
            SetIf::NotSet => old.is_none(),
            // Values that cannot be compared meet the condition, as in the manual.
            SetIf::Greater => both.is_none_or(|(new, old)| old > new),
            SetIf::Less => both.is_none_or(|(new, old)| old < new),
        };
        TABLE.iter().enumerate().all(|(bit, (_, condition))| self.0 & 1 << bit == 0 || holds(*condition))
    }
}
