//! The use of caches by one exchange (configuration manual, 6); the crate `cache` is the store. The hooks, in the order of a
//! request:
//!
//! | point | function |
//! | --- | --- |
//! | request head | [`lookup::look_up`] (`cache-use`), then [`lookup::read`] for a file and [`lookup::wait`] for another request; [`lookup::has_found`] after the rules |
//! | before connect | [`validation::ask`] makes the request conditional |
//! | response head | [`validation::validate`], [`validation::helps`], [`keep::store`] (`cache-store`) |
//! | body | [`keep::filter`], the filter that stores the body |
//! | end | [`keep::complete`]; [`keep::pass`] if there is nothing to store |
//!
//! `serve::cache` delivers stored responses. [`cacheability`] determines whether a response may be stored by external caches
//! (`option checkcache`, `cookie … nocache`).

pub(crate) mod cacheability;
pub(crate) mod keep;
pub(crate) mod lookup;
pub(super) mod state;
pub(crate) mod validation;
