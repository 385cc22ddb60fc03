//! The outcome of a check, for statistics, logs and the server's state.

use std::io;
use std::time::Duration;

/// Whether a check is a success or a failure of the server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CheckVerdict {
    /// For.
    Passed,
    /// For, but the server gets no new sessions (404 with `disable-on-404`).
    Conditional,
    /// Against.
    Failed,
}

/// The outcome of a check.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CheckOutcome {
    /// The status, such as `L4OK` or `L7STS`: a name in [`state::server::CHECK_STATUSES`].
    pub status: &'static str,
    /// A number from the server or the program: an HTTP or SMTP status, an exit status. Only for statuses that have one.
    pub code: Option<i32>,
    /// A description for people; possibly empty, at most [`MAX_INFO`] bytes.
    pub info: String,
    /// The effect of the check on the server.
    pub verdict: CheckVerdict,
    /// How long the check took.
    pub duration: Duration,
}

/// The maximum length of a description.
const MAX_INFO: usize = 127;

impl CheckOutcome {
    /// Creates an outcome. `code` is stored if `status` has a code.
    pub(crate) fn new(status: &'static str, code: i32, info: impl AsRef<[u8]>) -> Self {
        let verdict = match status {
            "L4OK" | "L6OK" | "L7OK" | "PROCOK" => CheckVerdict::Passed,
            "L7OKC" => CheckVerdict::Conditional,
            _ => CheckVerdict::Failed,
        };
        let tells = matches!(status, "L7OK" | "L7OKC" | "L7STS" | "PROCOK" | "PROCERR" | "PROCTOUT");
        let info = info.as_ref();
        // Only up to the first NUL, which terminates texts in some protocols.
        let length = info.iter().position(|byte| *byte == 0).unwrap_or(info.len()).min(MAX_INFO);
        let info = String::from_utf8_lossy(&info[..length]).into_owned();
        Self { status, code: tells.then_some(code), info, verdict, duration: Duration::ZERO }
    }
}

/// Returns the kernel's message, without the number that Rust adds.
pub(crate) fn error_text(error: &io::Error) -> String {
    let text = error.to_string();
    text.split(" (os error").next().unwrap_or_default().to_owned()
}

/// Returns why a connection failed: HAProxy's name for the system's error, with the system's message.
pub(crate) fn connection_error(error: &io::Error) -> String {
    let text = error_text(error);
    if error.raw_os_error().is_none() {
        return text;
    }
    let name = match error.kind() {
        io::ErrorKind::ConnectionRefused => "ECONNREFUSED",
        io::ErrorKind::ConnectionReset => "ECONNRESET",
        io::ErrorKind::HostUnreachable => "EHOSTUNREACH",
        io::ErrorKind::BrokenPipe => "EPIPE",
        // The system reported this before anything was sent.
        io::ErrorKind::NetworkUnreachable => return format!("General socket error ({text})"),
        io::ErrorKind::AddrInUse => "EADDRINUSE",
        io::ErrorKind::AddrNotAvailable => "EADDRNOTAVAIL",
        io::ErrorKind::PermissionDenied => "EACCES",
        _ => return text,
    };
    format!("{name} returned by OS ({text})")
}
