//! Taking listening sockets over from a running process (`-x`, management manual, 3).

use std::io;
use std::path::Path;

use crate::listeners::Inherited;

/// Asks the process behind the runtime socket at `path` for its listening sockets.
pub(crate) fn receive(path: &Path) -> io::Result<Inherited> {
    let _ = path;
    Err(io::Error::new(io::ErrorKind::Unsupported, "taking sockets over is not supported yet"))
}
