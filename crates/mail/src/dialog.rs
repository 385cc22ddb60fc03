//! The dialogue with a mail server (RFC 5321), without a socket or a clock.

use std::fmt;

use crate::Letter;

/// The maximum length of a reply in bytes. A longer one ends the dialogue (RFC 5321 section 4.5.3.1.5 allows 512 bytes for a line,
/// and multi-line replies are short).
const LONGEST_REPLY: usize = 8192;

/// Why a letter was not accepted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// The server sent a reply that differs from the expected one.
    Reply(Box<str>),
    /// The server's reply is not SMTP, or too long.
    NoReply,
    /// The server closed the connection.
    Closed,
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Reply(line) => write!(f, "it answered \"{line}\""),
            Self::NoReply => f.write_str("it does not use SMTP"),
            Self::Closed => f.write_str("it closed the connection"),
        }
    }
}

impl std::error::Error for Refusal {}

/// The reply expected next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum DialogStep {
    Greeting,
    Hello,
    From,
    /// The reply to that recipient.
    To(usize),
    Data,
    Message,
    Quit,
    Over,
}

/// A dialogue that delivers one letter.
#[derive(Debug)]
pub struct Dialog<'a> {
    letter: &'a Letter,
    step: DialogStep,
    received: Vec<u8>,
    output: String,
}

impl<'a> Dialog<'a> {
    /// Starts a dialogue: the server greets first.
    pub fn new(letter: &'a Letter) -> Self {
        Self { letter, step: DialogStep::Greeting, received: Vec::new(), output: String::new() }
    }

    /// Returns the bytes to send now; empty while a reply is expected.
    pub fn take_output(&mut self) -> String {
        std::mem::take(&mut self.output)
    }

    /// Returns whether the server has accepted the letter. The rest of the dialogue does not matter then.
    pub fn is_delivered(&self) -> bool {
        matches!(self.step, DialogStep::Quit | DialogStep::Over)
    }

    /// Returns whether the dialogue is over.
    pub fn is_over(&self) -> bool {
        self.step == DialogStep::Over
    }

    /// Processes bytes from the server.
    ///
    /// # Errors
    /// The reply is not the expected one.
    pub fn receive(&mut self, bytes: &[u8]) -> Result<(), Refusal> {
        self.received.extend_from_slice(bytes);
        let mut begin = 0;
        while let Some(end) = memchr::memchr(b'\n', &self.received[begin..]) {
            if self.is_delivered() {
                // The server has the letter, so this reply does not matter.
                self.step = DialogStep::Over;
                break;
            }
            let line = self.received[begin..begin + end].trim_ascii_end().to_owned();
            begin += end + 1;
            if is_last(&line)? {
                self.advance(&line)?;
            }
        }
        self.received.drain(..begin);
        match self.received.len() > LONGEST_REPLY {
            true if self.is_delivered() => self.step = DialogStep::Over,
            true => return Err(Refusal::NoReply),
            false => {}
        }
        Ok(())
    }

    /// Processes a reply, given its last line.
    fn advance(&mut self, line: &[u8]) -> Result<(), Refusal> {
        let Letter { from, hello, .. } = self.letter;
        let recipient = |at: usize| match self.letter.recipients().nth(at) {
            Some(to) => (DialogStep::To(at), format!("RCPT TO:<{to}>\r\n")),
            None => (DialogStep::Data, "DATA\r\n".to_owned()),
        };
        let (wanted, next, command): (&[u8], _, _) = match self.step {
            DialogStep::Greeting => (b"220", DialogStep::Hello, format!("HELO {hello}\r\n")),
            DialogStep::Hello => (b"250", DialogStep::From, format!("MAIL FROM:<{from}>\r\n")),
            DialogStep::From => {
                let (next, command) = recipient(0);
                (b"250", next, command)
            }
            // Reply 251: the server forwards the letter (RFC 5321 section 4.2.3).
            DialogStep::To(at) => {
                let (next, command) = recipient(at + 1);
                (b"25", next, command)
            }
            DialogStep::Data => (b"354", DialogStep::Message, self.letter.message()),
            DialogStep::Message => (b"250", DialogStep::Quit, "QUIT\r\n".to_owned()),
            DialogStep::Quit | DialogStep::Over => (b"", DialogStep::Over, String::new()),
        };
        if !line.starts_with(wanted) {
            let shown = String::from_utf8_lossy(&line[..line.len().min(200)]);
            return Err(Refusal::Reply(shown.escape_debug().to_string().into()));
        }
        self.step = next;
        self.output.push_str(&command);
        Ok(())
    }
}

/// Returns whether a line is the last of its reply: the code is followed by a space or nothing.
fn is_last(line: &[u8]) -> Result<bool, Refusal> {
    if line.len() < 3 || !line[..3].iter().all(u8::is_ascii_digit) {
        return Err(Refusal::NoReply);
    }
    match line.get(3) {
        None | Some(b' ') => Ok(true),
        Some(b'-') => Ok(false),
        Some(_) => Err(Refusal::NoReply),
    }
}

#[cfg(test)]
mod tests {
    use super::{Dialog, Refusal};
    use crate::Letter;

    fn letter() -> Letter {
        Letter::new("from@a.test", "to@b.test", "host", "Server b/s is DOWN.")
    }

    #[test]
    fn dialogue_delivers_a_letter() {
        let letter = letter();
        let mut dialog = Dialog::new(&letter);
        let mut said = Vec::new();
        for reply in
            ["220-two\r\n220 lines\r\n", "250 ok\r\n", "250 ok\r\n", "251 passed on\r\n", "354 go\r\n"]
        {
            // The reply may be split anywhere.
            for byte in reply.as_bytes() {
                dialog.receive(&[*byte]).expect("it is what comes next");
            }
            said.push(dialog.take_output());
        }
        assert_eq!(
            said[..4],
            ["HELO host\r\n", "MAIL FROM:<from@a.test>\r\n", "RCPT TO:<to@b.test>\r\n", "DATA\r\n"]
        );
        let message = &said[4];
        assert!(message.starts_with("From: from@a.test\r\nTo: to@b.test\r\nDate: "), "{message}");
        assert!(
            message.ends_with(
                "\r\nSubject: [HAProxy Alert] Server b/s is DOWN\r\n\r\nServer b/s is DOWN\r\n.\r\n"
            ),
            "{message}"
        );
        assert!(!dialog.is_delivered());
        dialog.receive(b"250 queued\r\n").expect("it was taken");
        assert!(dialog.is_delivered() && !dialog.is_over());
        assert_eq!(dialog.take_output(), "QUIT\r\n");
        dialog.receive(b"500 whatever\r\n").expect("nobody minds any more");
        assert!(dialog.is_over());
    }

    #[test]
    fn each_recipient_gets_its_own_rcpt_command() {
        let letter = Letter::new("from@a.test", "to@b.test, to@c.test,to@d.test", "host", "text");
        let mut dialog = Dialog::new(&letter);
        dialog.receive(b"220\r\n250\r\n250\r\n").expect("it is what comes next");
        dialog.take_output();
        let mut said = Vec::new();
        for reply in [&b"250\r\n"[..], b"251\r\n", b"250\r\n"] {
            dialog.receive(reply).expect("it is what comes next");
            said.push(dialog.take_output());
        }
        assert_eq!(said, ["RCPT TO:<to@c.test>\r\n", "RCPT TO:<to@d.test>\r\n", "DATA\r\n"]);
        assert!(letter.message().contains("\r\nTo: to@b.test, to@c.test,to@d.test\r\n"));
    }

    #[test]
    fn replies_after_acceptance_do_not_matter() {
        let taken = "220\r\n250\r\n250\r\n250\r\n354\r\n250\r\n";
        for last in ["221 bye\r\n250\r\nmore\r\n", "hello\r\n", "\r\n", &"2".repeat(10_000)] {
            let letter = letter();
            let mut dialog = Dialog::new(&letter);
            assert_eq!(dialog.receive(taken.as_bytes()), Ok(()));
            assert_eq!(dialog.receive(last.as_bytes()), Ok(()), "{}", &last[..last.len().min(40)]);
            assert!(dialog.is_over());
            let mut at_once = Dialog::new(&letter);
            assert_eq!(at_once.receive(format!("{taken}{last}").as_bytes()), Ok(()));
        }
    }

    #[test]
    fn unexpected_replies_end_the_dialogue() {
        let refused = |text: &str| Err(Refusal::Reply(text.into()));
        for (said, wanted) in [
            ("554 go away\r\n".to_owned(), refused("554 go away")),
            ("220 hi\r\n550 no\r\n".to_owned(), refused("550 no")),
            ("421\r\n".to_owned(), refused("421")),
            ("hello\r\n".to_owned(), Err(Refusal::NoReply)),
            ("22\r\n".to_owned(), Err(Refusal::NoReply)),
            ("220x\r\n".to_owned(), Err(Refusal::NoReply)),
            ("2".repeat(10_000), Err(Refusal::NoReply)),
            ("\u{1b}[31m220 \r\n".to_owned(), Err(Refusal::NoReply)),
            ("220-\r\n".repeat(10_000), Ok(())),
        ] {
            let letter = letter();
            let mut dialog = Dialog::new(&letter);
            assert_eq!(dialog.receive(said.as_bytes()), wanted, "{}", &said[..said.len().min(40)]);
        }
    }
}
