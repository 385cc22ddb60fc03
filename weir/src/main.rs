//! The `weir` binary: arguments, boot, signals, hand-over of sockets.
#![forbid(unsafe_code)]

fn main() {}
