//! HTTP/2 frames and floods, shared by load generators and tests.

#![forbid(unsafe_code)]

pub mod floods;
pub mod frames;
