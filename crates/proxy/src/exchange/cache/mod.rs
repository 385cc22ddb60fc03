//! The use of caches by one exchange (configuration manual, 6). The store itself is in the crate `cache`. The hooks, in the order
//! in which a request reaches them:
//!
//! | point | function |
//! | --- | --- |
//! | request head | [`lookup::look_up`] (`cache-use`), then [`lookup::read`] for a file and [`lookup::wait`] for another request; [`lookup::has_found`] after the rules |
//! | before connect | [`validation::ask`] makes the request conditional |
//! | response head | [`validation::validate`], [`validation::helps`], [`keep::store`] (`cache-store`) |
//! | body | [`keep::filter`], the filter that stores the body |
//! | end | [`keep::complete`]; [`keep::pass`] if there is nothing to store |
//!
//! `serve::cache` delivers stored responses. [`cacheability`] determines whether external caches may store a response (`option
//! checkcache`, `cookie … nocache`).

pub(crate) mod cacheability;
pub(crate) mod keep;
pub(crate) mod lookup;
pub(super) mod state;
pub(crate) mod validation;
