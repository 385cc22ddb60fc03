//! The controller against a small API server, with a real proxy: changes reach the traffic, and outages and errors do not.

mod api_server;
mod authorization;
mod changes;
mod failures;
mod figures;
mod scene;
