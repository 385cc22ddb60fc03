//! Actions, with which agents answer (SPOE, 3.4).

use crate::data::{Data, read_text};

/// The scope of a variable.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Scope {
    /// The process.
    Process,
    /// The session.
    Session,
    /// The transaction.
    Transaction,
    /// The processing of the request.
    Request,
    /// The processing of the response.
    Response,
}

/// An action.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Action<'a> {
    /// Sets a variable.
    Set {
        /// The scope of the variable.
        scope: Scope,
        /// The name of the variable, without the prefix of the engine.
        name: &'a [u8],
        /// The value of the variable.
        value: Data<'a>,
    },
    /// Unsets a variable.
    Unset {
        /// The scope of the variable.
        scope: Scope,
        /// The name of the variable, without the prefix of the engine.
        name: &'a [u8],
    },
}

/// The actions of one answer, in order. Iteration ends before the first invalid one.
#[derive(Debug, Clone, Copy)]
pub struct Actions<'a>(&'a [u8]);

const SET: u8 = 1;
const UNSET: u8 = 2;

impl<'a> Actions<'a> {
    /// Returns the actions in a payload.
    #[must_use]
    pub fn of(payload: &'a [u8]) -> Self {
        Self(payload)
    }

    fn read(bytes: &mut &'a [u8]) -> Option<Action<'a>> {
        let ([kind, count, scope], rest) = bytes.split_first_chunk()?;
        *bytes = rest;
        let scope = match scope {
            0 => Scope::Process,
            1 => Scope::Session,
            2 => Scope::Transaction,
            3 => Scope::Request,
            4 => Scope::Response,
            _ => return None,
        };
        match (*kind, *count) {
            (SET, 3) => {
                let name = read_text(bytes)?;
                Some(Action::Set { scope, name, value: Data::read(bytes)? })
            }
            (UNSET, 2) => Some(Action::Unset { scope, name: read_text(bytes)? }),
            _ => None,
        }
    }
}

impl<'a> Iterator for Actions<'a> {
    type Item = Action<'a>;

    fn next(&mut self) -> Option<Action<'a>> {
        let action = Self::read(&mut self.0);
        if action.is_none() {
            self.0 = &[];
        }
        action
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn actions_are_read_up_to_the_first_invalid_one() {
        let set = Action::Set { scope: Scope::Transaction, name: b"a", value: Data::Int(7) };
        let unset = Action::Unset { scope: Scope::Response, name: b"bc" };
        let good = b"\x01\x03\x02\x01a\x04\x07\x02\x02\x04\x02bc";
        assert_eq!(Actions::of(good).collect::<Vec<_>>(), [set, unset]);
        let wrong: [&[u8]; 6] = [
            b"\x03\x02\x01\x01a",
            b"\x01\x02\x01\x01a\x00",
            b"\x02\x02\x05\x01a",
            b"\x02\x02\x01\x09a",
            b"\x01\x03\x01\x01a\x0f",
            b"\x01",
        ];
        for tail in wrong {
            let all = [&good[..], tail, b"\x02\x02\x01\x01x"].concat();
            assert_eq!(Actions::of(&all).collect::<Vec<_>>(), [set, unset], "{}", tail.escape_ascii());
        }
    }
}
