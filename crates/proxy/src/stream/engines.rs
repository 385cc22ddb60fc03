//! What the engines of FastCGI and of the protocol of agents have alike: streams end without a reason,
//! and the output is in one piece. Each method is the engine's own of that name.

use sample::StreamFacts;

use super::{Buffered, Protocol, Reset};

/// `$id` is the number that a key goes by, `$open` tells how many streams there are; `$more` is what
/// this engine alone has.
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
                StreamFacts { id: key.$id(), open, most, reset: None }
            }

            fn shrink(&mut self) {
                self.shrink();
            }

            $($more)*
        }

        impl Buffered for $engine {
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
    };
}

without_codes!(fcgi::Connection, fcgi::Key, id, streams, {
    fn consume(&mut self, key: fcgi::Key, count: usize) {
        self.consume(key, count);
    }
});
without_codes!(spop::Connection, spop::Key, stream, live, {});
