//! Parses received HTTP/1 streams so that two of them can be compared: field names in lower case, bodies decoded, and invalid data
//! unchanged. Used for both sides by [`crate::exchanges::act`].

use crate::exchanges::case::quoted;

/// The direction of a stream.
#[derive(Clone, Copy)]
pub(crate) enum Direction<'a> {
    Requests,
    /// Responses to requests with these methods.
    Responses(&'a [String]),
}

/// Names in lower case and values.
type Fields = Vec<(String, String)>;

/// For bodies of at least this size, the amount that arrives before a truncation depends on the kernel's buffers.
const LARGE: usize = 100_000;

/// How a body ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Framing {
    Nothing,
    Length(usize),
    Chunked,
    Close,
}

#[derive(Debug)]
pub(crate) struct Message {
    start: String,
    fields: Fields,
    framing: Framing,
    body: Vec<u8>,
    trailers: Fields,
    /// It was received completely.
    pub(crate) is_whole: bool,
}

/// A stream received so far.
#[derive(Debug, Default)]
pub(crate) struct Stream {
    /// A PROXY header without the ports, which differ between connections.
    introduction: Option<String>,
    pub(crate) messages: Vec<Message>,
    /// Data after the messages: a tunnel, half a head, garbage.
    rest: Vec<u8>,
    /// How many more bytes are needed at least before another message begins or is complete.
    pub(crate) lacks: usize,
}

impl Message {
    fn value(&self, name: &str) -> Option<&str> {
        self.fields.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str())
    }

    pub(crate) fn method(&self) -> String {
        self.start.split(' ').next().unwrap_or_default().to_owned()
    }

    fn status(&self) -> u16 {
        self.start.split(' ').nth(1).and_then(|word| word.parse().ok()).unwrap_or(0)
    }

    pub(crate) fn is_interim(&self) -> bool {
        (100..200).contains(&self.status()) && self.status() != 101
    }

    fn framing(&self, direction: Direction<'_>, method: &str) -> Framing {
        let is_response = matches!(direction, Direction::Responses(_));
        let status = self.status();
        let connects = method == "CONNECT" && (200..300).contains(&status);
        if is_response && (method == "HEAD" || status < 200 || status == 204 || status == 304 || connects) {
            return Framing::Nothing;
        }
        if self.value("transfer-encoding").is_some_and(|value| value.to_lowercase().ends_with("chunked")) {
            return Framing::Chunked;
        }
        match self.value("content-length").and_then(|value| value.trim().parse().ok()) {
            Some(length) => Framing::Length(length),
            None if is_response => Framing::Close,
            None => Framing::Nothing,
        }
    }

    /// Returns lines that describe the message. Dates are left out, because the two programs run at different times.
    fn lines(&self) -> Vec<String> {
        let field = |(name, value): &(String, String)| match name.as_str() {
            "date" => "date: (any)".to_owned(),
            _ => format!("{name}: {value}"),
        };
        let mut lines = vec![self.start.clone()];
        // The order of fields with different names is irrelevant (RFC 9110 section 5.3), and the programs add their own in
        // different places.
        let mut fields: Vec<_> = self.fields.iter().collect();
        fields.sort_by(|(one, _), (other, _)| one.cmp(other));
        lines.extend(fields.into_iter().map(field));
        if !self.is_whole && matches!(self.framing, Framing::Length(LARGE..)) {
            lines.push(format!("({:?}) a part", self.framing));
        } else if self.framing != Framing::Nothing {
            lines.push(format!("({:?}) {} {}", self.framing, self.body.len(), quoted(&self.body)));
        }
        lines.extend(self.trailers.iter().map(|pair| format!("(trailer) {}", field(pair))));
        if !self.is_whole {
            lines.push("(cut off)".into());
        }
        lines
    }
}

impl Stream {
    /// Returns the number of complete final messages.
    pub(crate) fn whole(&self) -> usize {
        self.messages.iter().filter(|message| message.is_whole && !message.is_interim()).count()
    }

    pub(crate) fn lines(&self) -> Vec<String> {
        let mut lines: Vec<String> = self.introduction.iter().cloned().collect();
        lines.extend(self.messages.iter().flat_map(Message::lines));
        if !self.rest.is_empty() {
            lines.push(format!("(then) {} {}", self.rest.len(), quoted(&self.rest)));
        }
        lines
    }
}

/// Splits off the first line, without its end.
fn line(bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    let end = memchr::memchr(b'\n', bytes)?;
    let line = &bytes[..end];
    Some((line.strip_suffix(b"\r").unwrap_or(line), &bytes[end + 1..]))
}

fn text(bytes: &[u8]) -> String {
    bytes.escape_ascii().to_string().replace("\\\"", "\"").replace("\\'", "'")
}

/// Parses fields up to the empty line; returns the rest as well.
fn fields(mut bytes: &[u8]) -> Option<(Fields, &[u8])> {
    let mut fields = Vec::new();
    loop {
        let (one, rest) = line(bytes)?;
        bytes = rest;
        if one.is_empty() {
            return Some((fields, bytes));
        }
        let colon = memchr::memchr(b':', one).unwrap_or(one.len());
        let value = one.get(colon + 1..).unwrap_or_default().trim_ascii();
        fields.push((text(&one[..colon]).to_lowercase(), text(value)));
    }
}

/// Decodes a chunked body: returns its data, and once it is complete its trailers and the rest.
fn chunks(mut bytes: &[u8]) -> (Vec<u8>, Option<(Fields, &[u8])>) {
    let mut body = Vec::new();
    loop {
        let Some((size, rest)) = line(bytes) else { return (body, None) };
        let digits = size.split(|byte| *byte == b';').next().unwrap_or_default().trim_ascii();
        let size = str::from_utf8(digits).ok().and_then(|digits| usize::from_str_radix(digits, 16).ok());
        match size {
            None => return (body, None),
            Some(0) => return (body, fields(rest)),
            Some(size) => {
                body.extend_from_slice(&rest[..size.min(rest.len())]);
                if rest.len() < size + 2 {
                    return (body, None);
                }
                bytes = &rest[size + 2..];
            }
        }
    }
}

/// Splits off a PROXY header of version 1 or 2.
fn introduction(bytes: &[u8]) -> (Option<String>, &[u8]) {
    if bytes.starts_with(b"PROXY ")
        && let Some((first, rest)) = line(bytes)
    {
        let words = text(first).split(' ').take(4).collect::<Vec<_>>().join(" ");
        return (Some(words), rest);
    }
    if bytes.starts_with(b"\r\n\r\n\0\r\nQUIT\n") && bytes.len() >= 16 {
        let length = 16 + usize::from(u16::from_be_bytes([bytes[14], bytes[15]]));
        let (header, rest) = bytes.split_at(length.min(bytes.len()));
        return (Some(format!("PROXY v2 {}", header[12..].len())), rest);
    }
    (None, bytes)
}

/// Parses a stream. `has_ended` means that no more data can arrive.
pub(crate) fn parse(mut bytes: &[u8], direction: Direction<'_>, has_ended: bool) -> Stream {
    let mut stream = Stream::default();
    (stream.introduction, bytes) = introduction(bytes);
    let mut finals = 0;
    while let Some((start, rest)) = line(bytes) {
        let is_message = match direction {
            Direction::Requests => text(start).contains(" HTTP/1."),
            Direction::Responses(_) => start.starts_with(b"HTTP/1."),
        };
        let Some((fields, rest)) = fields(rest).filter(|_| is_message) else { break };
        let empty = Message {
            start: text(start),
            fields,
            framing: Framing::Nothing,
            body: Vec::new(),
            trailers: Vec::new(),
            is_whole: true,
        };
        let method = match direction {
            Direction::Requests => empty.method(),
            Direction::Responses(methods) => methods.get(finals).cloned().unwrap_or_default(),
        };
        let mut message = Message { framing: empty.framing(direction, &method), ..empty };
        bytes = rest;
        match message.framing {
            Framing::Nothing => {}
            Framing::Length(length) => {
                let (body, rest) = bytes.split_at(length.min(bytes.len()));
                message.body = body.to_vec();
                message.is_whole = body.len() == length;
                stream.lacks = length - body.len();
                bytes = rest;
            }
            Framing::Chunked => {
                let (body, end) = chunks(bytes);
                message.body = body;
                message.is_whole = end.is_some();
                let (trailers, rest) = end.unwrap_or_default();
                (message.trailers, bytes) = (trailers, rest);
            }
            Framing::Close => {
                message.body = std::mem::take(&mut bytes).to_vec();
                message.is_whole = has_ended;
            }
        }
        finals += usize::from(!message.is_interim());
        // A request that does not follow a CONNECT is recognized as such. This parser does not treat tunnelled data as a message.
        let connects = method == "CONNECT" && (200..300).contains(&message.status());
        let switches = (message.status() == 101 || connects) && matches!(direction, Direction::Responses(_));
        stream.messages.push(message);
        if switches {
            break;
        }
    }
    stream.rest = bytes.to_vec();
    stream
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn streams_are_split_into_messages() {
        let methods = ["GET".to_owned(), "HEAD".to_owned()];
        let bytes = b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n\
            2\r\nab\r\n0\r\nX: y\r\n\r\nHTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\nHTTP/1.1 200 OK\r\n\r\nrest";
        let stream = parse(bytes, Direction::Responses(&methods), true);
        assert_eq!(stream.whole(), 3);
        assert_eq!(stream.messages[1].body, b"ab");
        assert_eq!(stream.messages[1].trailers, [("x".to_owned(), "y".to_owned())]);
        assert_eq!(stream.messages[3].body, b"rest");
        let cut = parse(b"GET / HTTP/1.1\r\ncontent-length: 4\r\n\r\nab", Direction::Requests, true);
        assert_eq!((cut.whole(), cut.lines().last().map(String::as_str)), (0, Some("(cut off)")));
        assert_eq!(cut.lacks, 2);
    }
}
