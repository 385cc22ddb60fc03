//! What the rules of a FastCGI application said of a request. They are run in `message::fastcgi`.

use fcgi::ParamValue;

/// What rules say of a request's parameters.
#[derive(Debug, Default)]
pub(crate) struct FcgiParams {
    /// Parameters, no two of one name.
    pub(crate) set: Vec<ParamValue>,
    /// Fields that are passed although they are hidden.
    pub(crate) passed: Vec<Box<[u8]>>,
}

impl FcgiParams {
    /// Of several rules for one name the last counts.
    pub(crate) fn set(&mut self, value: ParamValue) {
        match self.set.iter_mut().find(|other| other.name == value.name) {
            Some(other) => *other = value,
            None => self.set.push(value),
        }
    }
}
