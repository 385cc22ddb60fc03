//! What FastCGI has beside what all protocols have whose connections carry many streams: requests
//! that begin with parameters, and responses that are none.

use std::rc::Rc;

use fcgi::{Broken, Key, OpenError, Parameters};
use h2::Code;
use http::{Head, Method};
use sample::StreamFacts;

use super::{Buffered, Messages, NoHead, Protocol};

/// The engine.
pub(crate) type Engine = fcgi::Connection;
/// What the requests of one connection share.
pub(crate) type Connection = super::Connection<Engine>;
/// A request. Dropping it aborts what is still open of it.
pub(crate) type Stream = super::Stream<Engine>;
/// What comes in for a request.
pub(crate) type Incoming = super::Incoming<Engine>;

impl Protocol for Engine {
    type Key = Key;

    fn place(key: Key) -> usize {
        key.index()
    }

    fn free(&self) -> usize {
        self.free()
    }

    fn consume(&mut self, key: Key, count: usize) {
        self.consume(key, count);
    }

    /// There are no codes.
    fn release(&mut self, key: Key, _: Option<Code>) {
        self.release(key);
    }

    /// Nothing tells of a reset.
    fn facts(&self, key: Key, _: Option<Code>) -> StreamFacts {
        let number = |count: usize| u32::try_from(count).unwrap_or(u32::MAX);
        StreamFacts { id: key.id(), open: number(self.streams()), most: number(self.most()), reset: None }
    }

    fn shrink(&mut self) {
        self.shrink();
    }
}

impl Buffered for Engine {
    fn output(&self) -> &[u8] {
        self.output()
    }

    fn sent(&mut self, count: usize) {
        self.sent(count);
    }

    fn pending(&self) -> usize {
        self.pending()
    }
}

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
            place.put_reset(Code::InternalError, why);
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
