//! What FastCGI has beside what all protocols have whose connections carry many streams: requests
//! that begin with parameters, and responses that are none.

use std::rc::Rc;

use fcgi::{Broken, Key, OpenError, Parameters};
use http::{Head, Method};

use super::{Messages, NoHead, Reset};

/// The engine.
pub(crate) type Engine = fcgi::Connection;
/// What the requests of one connection share.
pub(crate) type Connection = super::Connection<Engine>;
/// A request. Dropping it aborts what is still open of it.
pub(crate) type Stream = super::Stream<Engine>;
/// What comes in for a request.
pub(crate) type Incoming = super::Incoming<Engine>;

impl Messages for Engine {
    fn head_mut(&mut self) -> &mut Head {
        self.head_mut()
    }

    fn send_data(&mut self, key: Key, data: &[u8], ends: bool) -> usize {
        self.send_data(key, data, ends)
    }

    fn next_writable(&mut self) -> Option<Key> {
        self.next_writable()
    }

    fn takes_heads(&self) -> bool {
        // Parameters are bounded by the application's own limit on requests at once.
        true
    }
}

impl Connection {
    /// There will be no more of a response. Of one that is malformed nothing is good that was not
    /// taken yet.
    pub(crate) fn put_broken(&self, key: Key, how: Broken) {
        self.with_place(key, |place| {
            let why = match how {
                Broken::Cut => NoHead::Cut,
                Broken::Refused => NoHead::Refused,
                Broken::Malformed(kind) => {
                    place.close();
                    NoHead::Malformed(kind)
                }
            };
            place.put_reset(Reset::Internal, why);
        });
    }
}

impl Stream {
    /// Begins a request; with `ends` it has no body.
    ///
    /// # Errors
    /// There is no place for it any more.
    pub(crate) fn open(
        connection: &Rc<Connection>,
        parameters: &Parameters,
        method: Method,
        ends: bool,
    ) -> Result<Self, OpenError> {
        let key = connection.engine.borrow_mut().open(parameters, method, ends)?;
        connection.touch();
        Ok(Self::begin(connection.clone(), key, ends))
    }

    /// The length of the body, where all of it has come.
    pub(crate) fn whole_length(&self) -> Option<u64> {
        let here = self.received().len() as u64;
        self.incoming.with(|place| place.whole_length()).map(|rest| here + rest)
    }
}
