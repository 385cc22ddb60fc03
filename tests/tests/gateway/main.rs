//! The configuration that the Gateway API's objects become, in a running program.

mod authorization;
mod golden;
mod requests;
mod scale;
mod scene;
