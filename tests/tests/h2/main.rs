//! HTTP/2 on both sides, and gRPC over it.

mod backpressure;
mod clients;
mod connections;
mod floods;
mod grpc;
mod limits;
mod logs;
mod messages;
