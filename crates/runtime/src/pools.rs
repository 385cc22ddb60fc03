//! The contents of the calling worker's pools, for `show pools`: buffers, and pools registered by other crates. The counts are
//! updated when memory is allocated and freed, not on every use.

use std::cell::RefCell;

use crate::buffer;
pub use crate::buffer::Pool;

type Look = Box<dyn Fn() -> Pool>;

thread_local! {
    static REGISTERED: RefCell<Vec<Look>> = const { RefCell::new(Vec::new()) };
}

/// Registers a pool of the calling worker with [`list`].
pub fn register(look: impl Fn() -> Pool + 'static) {
    REGISTERED.with_borrow_mut(|registered| registered.push(Box::new(look)));
}

/// The pools of the calling worker.
pub fn list() -> Vec<Pool> {
    let mut pools = buffer::pools().to_vec();
    REGISTERED.with_borrow(|registered| pools.extend(registered.iter().map(|look| look())));
    pools
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Buffer;

    #[test]
    fn allocated_and_free_buffers_are_counted() {
        let small =
            || list().into_iter().find(|pool| pool.name == "buffer").map(|pool| (pool.allocated, pool.free));
        assert_eq!(small(), Some((0, 0)));
        let held = [Buffer::small(), Buffer::small()];
        let large = Buffer::large();
        assert_eq!(small(), Some((2, 0)));
        drop(held);
        assert_eq!(small(), Some((2, 2)));
        let again = Buffer::small();
        assert_eq!(small(), Some((2, 1)));
        drop((large, again));
        drop(Buffer::sized(100));
        assert_eq!(small(), Some((2, 2)));
        register(|| Pool { name: "other", size: 8, allocated: 3, free: 1 });
        assert_eq!(list().last().map(|pool| pool.name), Some("other"));
    }
}
