//! Letters: their text and recipients.

use jiff::Zoned;
use jiff::fmt::rfc2822;

/// The maximum length of a letter's text in bytes, because lines of a message must be shorter than 1,000 (RFC 5322 section 2.1.1).
const LONGEST: usize = 900;

/// A letter about a server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Letter {
    /// The sender (`email-alert from`).
    pub from: Box<str>,
    /// The recipients (`email-alert to`): addresses separated by commas.
    pub to: Box<str>,
    /// The name sent in HELO (`email-alert myhostname`).
    pub hello: Box<str>,
    /// The text, used as subject and body.
    text: Box<str>,
    /// The date of the letter.
    date: Box<str>,
}

impl Letter {
    /// Returns a letter with `text`, dated now. The text may contain anything that a server or a peer sent. Every byte that is not
    /// printable ASCII becomes a question mark, so the text cannot end the line.
    pub fn new(from: &str, to: &str, hello: &str, text: &str) -> Self {
        let date = rfc2822::to_string(&Zoned::now()).unwrap_or_default();
        let is_shown = |character: &char| *character == ' ' || character.is_ascii_graphic();
        let shown = text.chars().map(|character| if is_shown(&character) { character } else { '?' });
        let text: String = shown.take(LONGEST).collect();
        Self {
            from: from.into(),
            to: to.into(),
            hello: hello.into(),
            text: text.trim_end_matches('.').into(),
            date: date.into(),
        }
    }

    /// Returns the addresses in `to`.
    pub(crate) fn recipients(&self) -> impl Iterator<Item = &str> {
        self.to.split(',').map(|address| address.trim_matches(' '))
    }

    /// Returns the message with its terminator, as it is sent (RFC 5321 section 4.5.2).
    pub(crate) fn message(&self) -> String {
        let Self { from, to, text, date, .. } = self;
        let stuffing = if text.starts_with('.') { "." } else { "" };
        format!(
            "From: {from}\r\nTo: {to}\r\nDate: {date}\r\nSubject: [HAProxy Alert] {text}\r\n\r\n\
             {stuffing}{text}\r\n.\r\n"
        )
    }
}

#[cfg(test)]
mod tests {
    use super::Letter;

    #[test]
    fn text_cannot_end_a_line_or_the_message() {
        let letter = Letter::new("a@b", "c@d", "host", ".\r\n.\r\nRCPT TO:<x>\0é\u{1b}..");
        let message = letter.message();
        assert!(message.ends_with("\r\n\r\n..??.??RCPT TO:<x>???\r\n.\r\n"), "{message}");
        assert_eq!(message.lines().count(), 7);
        assert!(message.lines().all(|line| line.is_ascii()));
    }

    #[test]
    fn long_text_is_truncated() {
        let message = Letter::new("a", "b", "c", &"x".repeat(100_000)).message();
        assert!(message.lines().all(|line| line.len() < 998));
    }
}
