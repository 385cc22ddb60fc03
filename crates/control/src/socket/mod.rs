//! The runtime socket itself: a connection, its lines, and the table of commands.

pub(crate) mod line;
pub mod master;
pub mod session;
pub(crate) mod table;
