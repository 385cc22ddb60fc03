//! Builds response heads from an application's output (RFC 3875, 6): header fields as in HTTP, with `Status` instead of the status
//! line.

use http::{BodyLength, ErrorKind, Head, KnownName, Method, Name, ParseError, ParseOptions, ParseStatus};

/// The status line, which applications omit.
const STATUS_LINE: &[u8] = b"HTTP/1.1 200 OK\r\n";

/// A head that is being collected.
#[derive(Debug, Default)]
pub(crate) struct Gathered {
    text: Vec<u8>,
    pub(crate) head: Head,
}

impl Gathered {
    /// Clears the buffer; its memory is kept unless it is large.
    pub(crate) fn clear(&mut self) {
        self.text.clear();
        self.text.shrink_to(4096);
        self.head.clear();
        self.head.shrink(4096);
    }

    /// Takes more output. Once the head is complete, returns how many bytes of `piece` follow it.
    pub(crate) fn take(&mut self, piece: &[u8], options: &ParseOptions) -> Result<Option<usize>, ErrorKind> {
        if self.text.is_empty() {
            self.text.extend_from_slice(STATUS_LINE);
        }
        let most = options.max_bytes + STATUS_LINE.len();
        let taken = &piece[..piece.len().min((most + 1).saturating_sub(self.text.len()))];
        self.text.extend_from_slice(taken);
        let options = ParseOptions { max_bytes: most, ..*options };
        match http::parse_response(&self.text, &mut self.head, &options) {
            Ok(ParseStatus::Complete { len }) => Ok(Some(self.text.len() - len + piece.len() - taken.len())),
            Ok(ParseStatus::Partial) if self.text.len() > most => Err(ErrorKind::HeadTooLarge),
            Ok(ParseStatus::Partial) => Ok(None),
            Err(ParseError { kind, .. }) => Err(kind),
        }
    }
}

/// Sets the status from the fields and returns how the body ends. A Content-Length is that of the body. This crate decodes
/// chunked bodies.
///
/// # Errors
/// The status is invalid, or that of an interim response.
pub(crate) fn finish(head: &mut Head, method: Method) -> Result<BodyLength, ErrorKind> {
    let status = Name::new(b"status");
    let status_line = head.get_all(&status).last().map(<[u8]>::to_vec);
    if let Some(status_line) = status_line {
        let (code, reason) = parse_status(&status_line).ok_or(ErrorKind::StatusCode)?;
        head.remove_all(&status);
        head.set_status(code, Some(reason).filter(|reason| !reason.is_empty()));
    } else if head.get_known(KnownName::Location).is_some() {
        head.set_status(302, None);
    }
    if let Some(coding) = head.get_known(KnownName::TransferEncoding)
        && !coding.eq_ignore_ascii_case(b"chunked")
    {
        return Err(ErrorKind::TransferCoding);
    }
    let length = head.response_body(method);
    head.remove_known(KnownName::TransferEncoding);
    Ok(length)
}

/// Parses the value of `Status`: three digits and a reason.
fn parse_status(value: &[u8]) -> Option<(u16, &[u8])> {
    let value = value.trim_ascii();
    let (code, reason) = value.split_at_checked(3)?;
    if !code.iter().all(u8::is_ascii_digit) || reason.first().is_some_and(|byte| *byte != b' ') {
        return None;
    }
    let code = code.iter().fold(0, |code, digit| code * 10 + u16::from(digit - b'0'));
    (code >= 200).then(|| (code, reason.trim_ascii()))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the status line, the fields, the body length and how many bytes of the body were included.
    fn parsed(text: &str) -> Result<(u16, String, BodyLength, usize), ErrorKind> {
        let mut gathered = Gathered::default();
        let rest = gathered.take(text.as_bytes(), &ParseOptions::default())?.expect("a whole head");
        let length = finish(&mut gathered.head, Method::Get)?;
        let head = &gathered.head;
        Ok((head.status(), String::from_utf8_lossy(head.reason()).into_owned(), length, rest))
    }

    #[test]
    fn status_comes_from_the_fields() {
        let ends = BodyLength::UntilClose;
        for (text, status, reason, length, rest) in [
            ("X: 1\r\n\r\nbody", 200, "OK", ends, 4),
            ("\r\nbody", 200, "OK", ends, 4),
            ("\n", 200, "OK", ends, 0),
            ("Status: 404 Not There\r\n\r\n", 404, "Not There", ends, 0),
            ("status:  404\n\nx", 404, "Not Found", ends, 1),
            ("Status: 404\r\nStatus: 403 Later\r\n\r\n", 403, "Later", ends, 0),
            ("Location: /x\r\n\r\n", 302, "Found", ends, 0),
            ("Location: /x\r\nStatus: 201 Made\r\n\r\n", 201, "Made", ends, 0),
            ("Content-Length: 7\r\n\r\n", 200, "OK", BodyLength::Length(7), 0),
            ("Status: 304 x\r\nContent-Length: 7\r\n\r\n", 304, "x", BodyLength::None, 0),
            ("Transfer-Encoding: chunked\r\n\r\n", 200, "OK", BodyLength::Chunked, 0),
        ] {
            assert_eq!(parsed(text), Ok((status, reason.to_owned(), length, rest)), "{text:?}");
        }
    }

    #[test]
    fn invalid_responses_are_refused() {
        for text in [
            "HTTP/1.1 200 OK\r\n\r\n",
            "no field\r\n\r\n",
            "Status: abc\r\n\r\n",
            "Status: 2000\r\n\r\n",
            "Status: 20\r\n\r\n",
            "Status: 101 Switching\r\n\r\n",
            "Status: 100 Continue\r\n\r\n",
            "Transfer-Encoding: gzip\r\n\r\n",
            "Content-Length: 1\r\nContent-Length: 2\r\n\r\n",
        ] {
            assert!(parsed(text).is_err(), "{text:?}");
        }
    }

    #[test]
    fn heads_split_at_any_byte_are_parsed() {
        let text = b"Status: 404 Gone\r\nX: 1\r\n\r\nbody";
        for cut in 1..text.len() - 4 {
            let mut gathered = Gathered::default();
            let options = ParseOptions::default();
            assert_eq!(gathered.take(&text[..cut], &options), Ok(None), "cut at {cut}");
            assert_eq!(gathered.take(&text[cut..], &options), Ok(Some(4)), "cut at {cut}");
        }
    }

    #[test]
    fn endless_heads_are_refused() {
        let (mut gathered, options) =
            (Gathered::default(), ParseOptions { max_bytes: 1000, ..Default::default() });
        let outcome =
            (0..200).map(|_| gathered.take(b"X: 0123456789\r\n", &options)).find(|it| *it != Ok(None));
        assert!(matches!(outcome, Some(Err(_))), "{outcome:?}");
        assert!(gathered.text.len() < 1100);
    }
}
