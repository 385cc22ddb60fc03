//! Messages on standard error.

use std::fmt::Display;

/// The importance of a message.
#[derive(Debug, Clone, Copy)]
pub(crate) enum MessageLevel {
    Notice,
    Warning,
    Alert,
}

/// Prints a message in the format of the proxy's messages.
pub(crate) fn report(level: MessageLevel, text: impl Display) {
    let level = match level {
        MessageLevel::Notice => "[NOTICE]  ",
        MessageLevel::Warning => "[WARNING] ",
        MessageLevel::Alert => "[ALERT]   ",
    };
    let text = text.to_string();
    eprintln!("{level} ({}) : {}", std::process::id(), text.trim_end());
}

/// Prints a notice.
pub(crate) fn notice(text: impl Display) {
    report(MessageLevel::Notice, text);
}

/// Prints a warning.
pub(crate) fn warning(text: impl Display) {
    report(MessageLevel::Warning, text);
}

/// Prints an alert.
pub(crate) fn alert(text: impl Display) {
    report(MessageLevel::Alert, text);
}
