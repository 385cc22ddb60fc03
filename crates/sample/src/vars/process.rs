//! Process-wide variables (`proc.`). Each has a lock; all workers and the runtime socket read and write them.

use std::collections::HashMap;
use std::sync::{Arc, LazyLock, RwLock};

use crate::limits::{ENTRY, count_all, limits, size_of};
use crate::value::{Scratch, Value};

/// A process-wide variable.
#[derive(Debug, Default)]
pub struct ProcessVariable {
    value: RwLock<Option<ProcessValue>>,
}

/// The value of a process-wide variable.
#[derive(Clone, Debug)]
enum ProcessValue {
    Plain(Plain),
    Str(Vec<u8>),
    Bin(Vec<u8>),
    Method(Vec<u8>),
}

#[derive(Clone, Copy, Debug)]
enum Plain {
    Bool(bool),
    Int(i64),
    Ip(std::net::IpAddr),
}

impl ProcessValue {
    fn new(value: &Value<'_>) -> Self {
        match value {
            Value::Bool(value) => Self::Plain(Plain::Bool(*value)),
            Value::Int(value) => Self::Plain(Plain::Int(*value)),
            Value::Ip4(address) => Self::Plain(Plain::Ip((*address).into())),
            Value::Ip6(address) => Self::Plain(Plain::Ip((*address).into())),
            Value::Str(bytes) => Self::Str(bytes.to_vec()),
            Value::Bin(bytes) => Self::Bin(bytes.to_vec()),
            Value::Method(bytes) => Self::Method(bytes.to_vec()),
        }
    }

    /// Overwrites `slot`. The memory is reused if the kind does not change.
    fn store(slot: &mut Option<Self>, value: &Value<'_>) {
        match (slot, value) {
            (Some(Self::Str(old)), Value::Str(new)) | (Some(Self::Bin(old)), Value::Bin(new)) => {
                old.clear();
                old.extend_from_slice(new);
            }
            (slot, value) => *slot = Some(Self::new(value)),
        }
    }

    /// The accounted size for the limits of `tune.vars.*-max-size`.
    fn size(&self) -> usize {
        ENTRY
            + match self {
                Self::Plain(_) => 0,
                Self::Str(bytes) | Self::Bin(bytes) | Self::Method(bytes) => bytes.len(),
            }
    }

    fn get(&self) -> Value<'static> {
        match self {
            Self::Plain(Plain::Bool(value)) => Value::Bool(*value),
            Self::Plain(Plain::Int(value)) => Value::Int(*value),
            Self::Plain(Plain::Ip(address)) => Value::ip(*address),
            Self::Str(bytes) => Value::Str(Scratch::copy(bytes).into()),
            Self::Bin(bytes) => Value::Bin(Scratch::copy(bytes).into()),
            Self::Method(bytes) => Value::Method(Scratch::copy(bytes).into()),
        }
    }
}

impl ProcessVariable {
    /// The current value.
    pub fn get(&self) -> Option<Value<'static>> {
        self.value.read().unwrap_or_else(|poisoned| poisoned.into_inner()).as_ref().map(ProcessValue::get)
    }

    /// Sets the value.
    pub fn set(&self, value: &Value<'_>) {
        let mut slot = self.value.write().unwrap_or_else(|poisoned| poisoned.into_inner());
        if limits().is_some() {
            count_all(slot.as_ref().map_or(0, ProcessValue::size), size_of(value));
        }
        ProcessValue::store(&mut slot, value);
    }

    /// Unsets the value.
    pub fn unset(&self) {
        let mut slot = self.value.write().unwrap_or_else(|poisoned| poisoned.into_inner());
        if limits().is_some() {
            count_all(slot.as_ref().map_or(0, ProcessValue::size), 0);
        }
        *slot = None;
    }

    /// The accounted size for the limits.
    pub(super) fn size(&self) -> usize {
        self.value
            .read()
            .unwrap_or_else(|poisoned| poisoned.into_inner())
            .as_ref()
            .map_or(0, ProcessValue::size)
    }
}

static PROCESS: LazyLock<RwLock<HashMap<Box<str>, Arc<ProcessVariable>>>> = LazyLock::new(RwLock::default);

/// The process-wide variable `name` (without `proc.`), created if necessary.
pub fn process_variable(name: &str) -> Arc<ProcessVariable> {
    let mut all = PROCESS.write().unwrap_or_else(|poisoned| poisoned.into_inner());
    Arc::clone(all.entry(name.into()).or_default())
}

/// The process-wide variable `name`, if it was ever named (`get var`).
pub fn find_process_variable(name: &str) -> Option<Arc<ProcessVariable>> {
    PROCESS.read().unwrap_or_else(|poisoned| poisoned.into_inner()).get(name).cloned()
}

/// The process-wide variables named so far, sorted by name.
pub fn process_variables() -> Vec<(Box<str>, Arc<ProcessVariable>)> {
    let all = PROCESS.read().unwrap_or_else(|poisoned| poisoned.into_inner());
    let mut list: Vec<_> = all.iter().map(|(name, value)| (name.clone(), Arc::clone(value))).collect();
    list.sort_by(|left, right| left.0.cmp(&right.0));
    list
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn process_variables_are_shared_by_name() {
        process_variable("shared_by_name").set(&Value::Int(4));
        let again = process_variable("shared_by_name");
        assert!(matches!(again.get(), Some(Value::Int(4))));
        again.unset();
        assert!(again.get().is_none());
    }
}
