//! The code shared by the FastCGI and SPOP engines, in which streams end without a reason and the output is a single slice. Each
//! method calls the engine's method with the same name.

use std::io;
use std::task::{Context, Poll};

use sample::StreamFacts;

use super::{Protocol, Reset, SocketOutput};

/// `$id` converts a key to its number, and `$open` returns the number of streams. `$more` contains methods that are specific to
/// the engine.
macro_rules! without_codes {
    ($engine:ty, $key:ty, $id:ident, $open:ident, { $($more:tt)* }) => {
        impl Protocol for $engine {
            type Key = $key;

            fn place(key: $key) -> usize {
                key.index()
            }

            fn free(&self) -> usize {
                self.free()
            }

            fn release(&mut self, key: $key, _: Option<Reset>) {
                self.release(key);
            }

            fn facts(&self, key: $key, _: Option<Reset>) -> StreamFacts {
                let number = |count: usize| u32::try_from(count).unwrap_or(u32::MAX);
                let (open, most) = (number(self.$open()), number(self.most()));
                StreamFacts { major: Self::HTTP_MAJOR, id: key.$id().into(), open, most, reset: None }
            }

            fn shrink(&mut self) {
                self.shrink();
            }

            $($more)*
        }

        impl SocketOutput for $engine {
            fn send(&mut self, socket: &mut net::Stream, context: &mut Context<'_>) -> io::Result<bool> {
                let mut wrote = false;
                while !self.output().is_empty() {
                    match socket.poll_write(context, self.output()) {
                        Poll::Pending => return Ok(wrote),
                        Poll::Ready(Ok(n)) if n > 0 => {
                            self.sent(n);
                            wrote = true;
                        }
                        Poll::Ready(_) => {
                            // The bytes that the server sent before it closed are read first.
                            let left = self.pending();
                            self.sent(left);
                            return Ok(wrote);
                        }
                    }
                }
                match socket.poll_flush(context) {
                    Poll::Ready(flushed) => flushed.map(|()| wrote),
                    Poll::Pending => Ok(wrote),
                }
            }
        }
    };
}

without_codes!(fcgi::Connection, fcgi::StreamKey, id, streams, {
    fn consume(&mut self, key: fcgi::StreamKey, count: usize) {
        self.consume(key, count);
    }
});
without_codes!(spop::Connection, spop::Key, stream, live, {});
