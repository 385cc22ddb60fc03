//! The copies of one request (`http-request mirror`). `serve::mirror` makes them.

use std::rc::Rc;

use crate::flow::Tap;

/// The copies that rules asked for.
#[derive(Debug, Default)]
pub(crate) struct Mirrors {
    /// The indexes of the backends that get a copy, until it is made.
    pub(crate) targets: Vec<usize>,
    /// The copies' readers of a body that is still being received.
    pub(crate) taps: Vec<Rc<Tap>>,
}
