//! What is written, and to whom.

use jiff::Zoned;
use jiff::fmt::rfc2822;

/// The longest text that is told in a letter, in bytes: lines of a message must be shorter than
/// 1,000 (RFC 5322 section 2.1.1).
const LONGEST: usize = 900;

/// A letter about a server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Letter {
    /// Who writes (`email-alert from`).
    pub from: Box<str>,
    /// To whom (`email-alert to`): addresses between commas.
    pub to: Box<str>,
    /// How the mail server is greeted (`email-alert myhostname`).
    pub hello: Box<str>,
    /// What is told: the subject, and the text too.
    text: Box<str>,
    /// When it was told.
    date: Box<str>,
}

impl Letter {
    /// A letter that tells `text` now. What a server or a peer put into the text can be anything:
    /// what is not a printable character of ASCII becomes a question mark, so that it ends no line.
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

    /// The addresses in `to`.
    pub(crate) fn recipients(&self) -> impl Iterator<Item = &str> {
        self.to.split(',').map(|address| address.trim_matches(' '))
    }

    /// The message with its end, as it is sent (RFC 5321 section 4.5.2).
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
    fn no_text_ends_a_line_or_the_message() {
        let letter = Letter::new("a@b", "c@d", "host", ".\r\n.\r\nRCPT TO:<x>\0é\u{1b}..");
        let message = letter.message();
        assert!(message.ends_with("\r\n\r\n..??.??RCPT TO:<x>???\r\n.\r\n"), "{message}");
        assert_eq!(message.lines().count(), 7);
        assert!(message.lines().all(|line| line.is_ascii()));
    }

    #[test]
    fn a_long_text_is_cut() {
        let message = Letter::new("a", "b", "c", &"x".repeat(100_000)).message();
        assert!(message.lines().all(|line| line.len() < 998));
    }
}
