//! An HTTP client for requests of the process itself: one request, one response, one connection (manual, 3.10). HTTP/1.1, and HTTP/2
//! for gRPC.
//!
//! [`send`] runs as a local task of a worker. It resolves the name, connects, uses TLS if the URL is `https`, and returns the
//! complete response or an error, within the limits of [`ClientSettings`]; [`stream`] returns the body as it arrives. It follows no
//! redirects and does not reuse connections. [`call`] makes a unary gRPC call in the same way. A [`KeptConnection`] sends requests
//! and calls on a connection that it keeps.

#![forbid(unsafe_code)]

mod error;
mod exchange;
mod grpc;
mod kept;
mod message;
mod names;
mod read;
mod settings;
mod stream;
mod url;

pub use error::{Error, ErrorKind};
pub use exchange::send;
pub use grpc::{GrpcReply, GrpcRequest, call};
pub use kept::KeptConnection;
pub use message::{Request, Response};
pub use names::Names;
pub use settings::{ClientSettings, Secure};
pub use stream::{ResponseStream, stream};
pub use url::{Url, UrlError, UrlHost};
