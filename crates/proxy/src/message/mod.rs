//! The transfer of messages: receives and forwards the request, receives and forwards the response, and then keeps or closes the
//! connections.

pub(crate) mod compression;
pub(crate) mod conclude;
mod deadlines;
pub(crate) mod download;
pub(crate) mod fastcgi;
pub(crate) mod fields;
mod framing;
pub(crate) mod inspect;
pub(crate) mod lua;
pub(crate) mod request;
pub(crate) mod response;
pub(crate) mod splice;
pub(crate) mod upload;
pub(crate) mod wanted;
pub(crate) mod websocket;
