//! The copies of one request (`http-request mirror`). `serve::mirror` makes them.

use std::rc::Rc;

use crate::flow::Tap;

/// The copies that rules requested.
#[derive(Debug, Default)]
pub(crate) struct Mirrors {
    /// The indexes of the backends to which copies will be sent.
    pub(crate) targets: Vec<usize>,
    /// Taps that copy the body while it is received.
    pub(crate) taps: Vec<Rc<Tap>>,
}
