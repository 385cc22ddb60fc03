//! Log lines, their destinations, and traces.

mod destinations;
mod halog;
mod lines;
mod timing;
mod traces;
