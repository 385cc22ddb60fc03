//! Response bodies: caches, compression, filters.

mod collapsed;
mod compression;
mod compression_bodies;
mod disk;
mod filter_order;
mod filters;
mod storing;
mod validation;
