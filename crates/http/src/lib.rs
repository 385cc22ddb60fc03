//! Message heads and bodies, the HTTP/1 codec, cookies and URIs. No I/O.

#![forbid(unsafe_code)]
