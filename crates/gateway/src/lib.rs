//! The Gateway API as configuration text: objects of an API server go in, and the text, its files and the objects' statuses come out.
//!
//! [`translate`] is a pure function without I/O and without a clock. Equal objects give equal output.

#![forbid(unsafe_code)]

mod addresses;
pub mod api;
mod durations;
mod objects;
mod output;
mod settings;
mod status;
mod text;
mod translate;

pub use objects::{Key, Objects};
pub use output::{ObjectEvent as Event, Output, StatusUpdate};
pub use settings::{ListenAddress, Settings};
pub use translate::{endpoints_section, translate};
