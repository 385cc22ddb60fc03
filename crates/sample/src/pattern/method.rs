//! The match methods (manual, 7.1.1 and `-m`): their names and input types.

use crate::value::Type;

/// A match method (`-m`).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[allow(missing_docs)]
pub enum MatchMethod {
    Found,
    Bool,
    Int,
    Ip,
    Bin,
    Len,
    Str,
    Sub,
    Reg,
    Beg,
    End,
    Dir,
    Dom,
}

/// Name, method, and the type to which a value is cast before it is compared.
const METHODS: &[(&str, MatchMethod, Type)] = &[
    ("found", MatchMethod::Found, Type::Any),
    ("bool", MatchMethod::Bool, Type::Bool),
    ("int", MatchMethod::Int, Type::Int),
    ("ip", MatchMethod::Ip, Type::Addr),
    ("bin", MatchMethod::Bin, Type::Bin),
    ("len", MatchMethod::Len, Type::Str),
    ("str", MatchMethod::Str, Type::Str),
    ("sub", MatchMethod::Sub, Type::Str),
    ("reg", MatchMethod::Reg, Type::Str),
    ("beg", MatchMethod::Beg, Type::Str),
    ("end", MatchMethod::End, Type::Str),
    ("dir", MatchMethod::Dir, Type::Str),
    ("dom", MatchMethod::Dom, Type::Str),
];

impl MatchMethod {
    /// The method of that name.
    pub fn parse(name: &str) -> Option<Self> {
        METHODS.iter().find(|row| row.0 == name).map(|row| row.1)
    }

    /// The name of the method.
    pub fn name(self) -> &'static str {
        METHODS.iter().find(|row| row.1 == self).map_or("", |row| row.0)
    }

    /// All names, for messages.
    pub fn names() -> impl Iterator<Item = &'static str> {
        METHODS.iter().map(|row| row.0)
    }

    /// The method that a type implies, or `None` if `-m` is required.
    pub fn implied_by(kind: Type) -> Option<Self> {
        match kind {
            Type::Bool => Some(Self::Bool),
            Type::Int => Some(Self::Int),
            Type::Addr | Type::Ip4 | Type::Ip6 => Some(Self::Ip),
            Type::Str | Type::Method => Some(Self::Str),
            Type::Bin | Type::Any | Type::Same => None,
        }
    }

    /// The type a value is cast to.
    pub fn expects(self) -> Type {
        METHODS.iter().find(|row| row.1 == self).map_or(Type::Any, |row| row.2)
    }

    /// Whether patterns may follow.
    pub fn takes_patterns(self) -> bool {
        !matches!(self, Self::Found | Self::Bool)
    }
}
