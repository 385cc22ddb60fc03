//! The parameters set by the rules of a FastCGI application. `message::fastcgi` runs the rules.

use fcgi::ParamValue;

/// The parameters set by rules.
#[derive(Debug, Default)]
pub(crate) struct FcgiParams {
    /// The parameters, with unique names.
    pub(crate) set: Vec<ParamValue>,
    /// Fields that are passed although they are hidden by default.
    pub(crate) passed: Vec<Box<[u8]>>,
}

impl FcgiParams {
    /// Adds a parameter. If several rules set the same name, the last one applies.
    pub(crate) fn set(&mut self, value: ParamValue) {
        match self.set.iter_mut().find(|other| other.name == value.name) {
            Some(other) => *other = value,
            None => self.set.push(value),
        }
    }
}
