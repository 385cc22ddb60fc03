//! Answers that rules and error pages give: status, headers, body (configuration manual, 4.2
//! `http-error`, 4.4 `return`, `deny`).

use std::sync::Arc;

use diag::{Diagnostic, suggest};
use http::{Head, ParseOptions, ParseStatus, parse_response};
use sample::format::{Format, FormatFor};
use sample::{Env, Scope, Scratch, Word, Words};

use crate::redirect::Redirect;

/// An answer.
#[derive(Debug)]
pub struct Reply {
    /// Its status.
    pub status: u16,
    /// What it consists of.
    pub content: Content,
}

/// What an answer consists of.
#[derive(Debug)]
pub enum Content {
    /// The page that the proxy gives for the status.
    Page,
    /// Nothing but the status.
    Bare,
    /// Not even that: the connection just ends (an empty error file).
    Nothing,
    /// A whole message, from an error file.
    Message(Arc<Page>),
    /// Headers and a body.
    Made {
        /// `content-type`.
        content_type: Option<Box<str>>,
        /// Fields.
        headers: Vec<(Box<[u8]>, Format)>,
        /// The body.
        body: ReplyBody,
    },
    /// A redirect.
    Redirect(Arc<Redirect>),
    /// The page of the status, asking for a user and password.
    Challenge(Box<str>),
}

/// The body of an answer.
#[derive(Debug)]
pub enum ReplyBody {
    /// None.
    Empty,
    /// These bytes.
    Bytes(Arc<[u8]>),
    /// Made at run time.
    Format(Format),
}

/// A header line: name and value.
pub(crate) type ReplyField = (Box<[u8]>, Box<[u8]>);

/// A whole message read from a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Page {
    /// Its status.
    pub status: u16,
    /// Its reason.
    pub reason: Box<[u8]>,
    /// Whether it is a message of HTTP/1.0.
    pub is_old: bool,
    /// Whether its connection ends with it: it says so, or tells no length.
    pub closes: bool,
    /// Its fields, but for `Connection`.
    pub headers: Vec<ReplyField>,
    /// Its body.
    pub body: Box<[u8]>,
}

impl Page {
    /// Reads a message as error files hold it.
    ///
    /// # Errors
    /// HAProxy's description of the fault.
    pub fn parse(bytes: &[u8]) -> Result<Self, String> {
        let mut head = Head::new();
        let options = ParseOptions { max_bytes: usize::MAX, relaxed: true, ..ParseOptions::default() };
        match parse_response(bytes, &mut head, &options) {
            Ok(ParseStatus::Complete { len }) => {
                let (announced, payload) = (head.content_length(), bytes.len() - len);
                if head.response_body(http::Method::Get) == http::BodyLength::Chunked {
                    return Err("chunk-encoded payload not supported".into());
                }
                if let Some(announced) = announced.filter(|announced| *announced != payload as u64) {
                    return Err(format!(
                        "payload size does not match the announced content-length ({payload} != {announced})"
                    ));
                }
                let kept = |name: &[u8]| !name.eq_ignore_ascii_case(b"connection");
                let fields = head.fields().filter(|(name, _)| kept(name));
                Ok(Self {
                    status: head.status(),
                    reason: head.reason().into(),
                    is_old: !head.version().is_11_or_above(),
                    closes: announced.is_none() || head.has_close(),
                    headers: fields.map(|(name, value)| (name.into(), value.into())).collect(),
                    body: bytes[len..].into(),
                })
            }
            // HAProxy's number for a head without an empty line after it.
            Ok(ParseStatus::Partial) => Err("unable to parse headers (error offset: -2)".into()),
            Err(error) => Err(format!("unable to parse headers (error offset: {})", error.offset)),
        }
    }
}

/// The statuses that error pages exist for.
pub(crate) fn has_page(status: u16) -> bool {
    http::status::error_message(status).is_some()
}

impl Reply {
    /// The page of a status.
    pub fn page(status: u16) -> Self {
        Self { status, content: Content::Page }
    }

    /// The message of an error file for `status`; an empty file means that nothing is sent.
    ///
    /// # Errors
    /// A malformed message; the error names the file `path` and has no place.
    pub fn raw(status: u16, bytes: &[u8], path: &str) -> Result<Self, Diagnostic> {
        if bytes.is_empty() {
            return Ok(Self { status, content: Content::Nothing });
        }
        let page = Page::parse(bytes).map_err(|error| {
            Diagnostic::alert(format!("`{path}` is not an HTTP response: {error}"))
                .label("an error file holds a status line, headers, an empty line and the body")
                .haproxy(format!("'{path}': {error}"))
        })?;
        Ok(Self { status, content: Content::Message(Arc::new(page)) })
    }

    /// A redirect to a fixed place (`errorloc`).
    pub fn location(code: u16, url: &str) -> Self {
        let headers = vec![
            (b"location"[..].into(), Format::constant(url.as_bytes())),
            (b"cache-control"[..].into(), Format::constant(b"no-cache")),
        ];
        Self { status: code, content: Content::Made { content_type: None, headers, body: ReplyBody::Empty } }
    }

    /// Compiles the words behind `http-error`.
    ///
    /// # Errors
    /// As [`compile`](Self::compile); the status is mandatory, and one that has an error page.
    pub fn compile_error(words: &mut Words<'_>, scope: &Scope<'_>) -> Result<Self, Diagnostic> {
        let start = words.span();
        let mut parser = ReplyParser::new(words, scope);
        let source = parser.read()?;
        let Some((status, span)) = parser.status else {
            return Err(Diagnostic::alert("`http-error` needs `status <code>`").at(start));
        };
        if !has_page(status) {
            return Err(Diagnostic::alert(format!("there is no error page for status {status}")).at(span));
        }
        if let Some(word) = parser.words.peek() {
            let error =
                Diagnostic::alert(format!("`http-error` has no use for `{}`", word.text)).at(word.span);
            return Err(error.did_you_mean(suggest(word.text, WORDS)));
        }
        parser.build(source, status, true)
    }

    /// The status, if the answer is nothing but the page of it.
    pub fn bare_status(&self) -> Option<u16> {
        match self.content {
            Content::Page => Some(self.status),
            _ => None,
        }
    }

    /// Compiles the words that describe an answer, up to the condition. `refusal`s without content
    /// show the page of their status; others only the status.
    ///
    /// # Errors
    /// An unknown word, a status that goes not with what is said, a file that cannot be read.
    pub fn compile(
        words: &mut Words<'_>,
        scope: &Scope<'_>,
        default: u16,
        refusal: bool,
    ) -> Result<Self, Diagnostic> {
        let mut parser = ReplyParser::new(words, scope);
        let source = parser.read()?;
        parser.build(source, default, refusal)
    }

    /// Makes the answer: the head into `head`, the body onto `body`.
    pub fn render(&self, env: &Env<'_>, head: &mut Head, body: &mut Vec<u8>) {
        match &self.content {
            Content::Page | Content::Challenge(_) => page(self.status, head, body),
            Content::Nothing => head.clear(),
            Content::Bare => {
                head.start_response(self.status, None);
                head.set_content_length(0);
            }
            Content::Message(page) => {
                head.start_response(page.status, Some(&page.reason));
                head.set_speaker(page.is_old, page.closes);
                for (name, value) in &page.headers {
                    head.append(name, value);
                }
                body.extend_from_slice(&page.body);
            }
            Content::Made { content_type, headers, body: source } => {
                match source {
                    ReplyBody::Empty => {}
                    ReplyBody::Bytes(bytes) => body.extend_from_slice(bytes),
                    ReplyBody::Format(format) => format.render(env, body),
                }
                head.start_response(self.status, None);
                let mut value = Scratch::new();
                for (name, format) in headers {
                    value.clear();
                    format.render(env, &mut value);
                    // A header without a value is left out, as HAProxy does here and nowhere else.
                    if !value.is_empty() {
                        head.append(name, &value);
                    }
                }
                head.set_content_length(body.len() as u64);
                if let Some(content_type) = content_type.as_ref().filter(|_| !body.is_empty()) {
                    head.append(b"content-type", content_type.as_bytes());
                }
            }
            Content::Redirect(redirect) => {
                redirect.render(env, head);
            }
        }
        if let Content::Challenge(realm) = &self.content {
            challenge(self.status, realm, head);
        }
    }
}

/// The built-in page of a status.
fn page(status: u16, head: &mut Head, body: &mut Vec<u8>) {
    match http::status::error_message(status) {
        Some(message) => message.response(head, body),
        None => {
            head.start_response(status, None);
            head.set_content_length(0);
        }
    }
}

/// Asks for a user and password in `realm`: on any answer, in the header that goes with its status.
pub fn challenge(status: u16, realm: &str, head: &mut Head) {
    let name: &[u8] = if status == 407 { b"proxy-authenticate" } else { b"www-authenticate" };
    let value = format!("Basic realm=\"{realm}\"");
    head.set(&http::Name::new(name), value.as_bytes());
}

enum ReplySource<'w> {
    None,
    DefaultErrorfiles,
    Message(Arc<[u8]>, Word<'w>),
    Errorfiles(sample::scope::HttpErrors, Word<'w>),
    Body(ReplyBody),
}

struct ReplyParser<'c, 'w, 's> {
    words: &'c mut Words<'w>,
    scope: &'c Scope<'s>,
    status: Option<(u16, diag::Span)>,
    content_type: Option<Box<str>>,
    headers: Vec<(Box<[u8]>, Format)>,
    /// Whether any word but the old `deny_status` was given.
    own_words: bool,
}

/// The words that describe a reply.
pub(crate) const WORDS: [&str; 11] = [
    "status",
    "deny_status",
    "content-type",
    "default-errorfiles",
    "errorfile",
    "errorfiles",
    "file",
    "lf-file",
    "string",
    "lf-string",
    "hdr",
];

impl<'c, 'w, 's> ReplyParser<'c, 'w, 's> {
    fn need(&mut self, after: &str, what: &str) -> Result<Word<'w>, Diagnostic> {
        let span = self.words.span();
        self.words.next().ok_or_else(|| Diagnostic::alert(format!("`{after}` needs {what}")).at(span))
    }

    fn read(&mut self) -> Result<ReplySource<'w>, Diagnostic> {
        let mut source = ReplySource::None;
        while let Some(word) = self.words.peek() {
            // Another word is an error in the rule, not in the reply.
            if !WORDS.contains(&word.text) {
                break;
            }
            self.words.next();
            self.own_words |= word.text != "deny_status";
            if !matches!(source, ReplySource::None)
                && matches!(
                    word.text,
                    "default-errorfiles"
                        | "errorfile"
                        | "errorfiles"
                        | "file"
                        | "lf-file"
                        | "string"
                        | "lf-string"
                )
            {
                return Err(
                    Diagnostic::alert(format!("`{}`: the content was already said", word.text)).at(word.span)
                );
            }
            match word.text {
                "status" | "deny_status" => {
                    let number = self.need(word.text, "a code")?;
                    let status = number.text.parse().ok().filter(|status| (200..=599).contains(status));
                    let status = status.ok_or_else(|| {
                        let code = number.text.parse::<i64>().unwrap_or(0);
                        Diagnostic::alert(format!("`{}` is not a status between 200 and 599", number.text))
                            .at(number.span)
                            .haproxy(format!("Unexpected status code '{code}'"))
                    })?;
                    self.status = Some((status, number.span));
                }
                "content-type" => self.content_type = Some(self.need(word.text, "a type")?.text.into()),
                "default-errorfiles" => source = ReplySource::DefaultErrorfiles,
                "errorfile" => {
                    let file = self.need(word.text, "a file")?;
                    let bytes = self.file(file)?;
                    source = ReplySource::Message(bytes.into(), file);
                }
                "errorfiles" => {
                    let name = self.need(word.text, "the name of an http-errors section")?;
                    let section = self.scope.names.http_errors(name.text).ok_or_else(|| {
                        Diagnostic::alert(format!("unknown http-errors section `{}`", name.text))
                            .at(name.span)
                    })?;
                    source = ReplySource::Errorfiles(section, name);
                }
                "file" => {
                    let file = self.need(word.text, "a file")?;
                    source = ReplySource::Body(ReplyBody::Bytes(self.file(file)?.into()));
                }
                "lf-file" => {
                    let file = self.need(word.text, "a file")?;
                    let text = String::from_utf8(self.file(file)?).map_err(|_| {
                        Diagnostic::alert(format!("`{}` is no text", file.text)).at(file.span)
                    })?;
                    source = ReplySource::Body(ReplyBody::Format(Format::compile(
                        &text,
                        file.span,
                        self.scope,
                        FormatFor::Body,
                    )?));
                }
                "string" => {
                    let text = self.need(word.text, "a text")?;
                    source = ReplySource::Body(ReplyBody::Bytes(base::raw::bytes_of(text.text).into()));
                }
                "lf-string" => {
                    let text = self.need(word.text, "a format")?;
                    source = ReplySource::Body(ReplyBody::Format(Format::compile(
                        text.text,
                        text.span,
                        self.scope,
                        FormatFor::Body,
                    )?));
                }
                "hdr" => {
                    let name = self.need(word.text, "a header name")?;
                    let value = self.need(word.text, "a value")?;
                    let format = Format::compile(value.text, value.span, self.scope, FormatFor::Header)?;
                    self.headers.push((name.text.as_bytes().into(), format));
                }
                _ => break,
            }
        }
        Ok(source)
    }

    fn new(words: &'c mut Words<'w>, scope: &'c Scope<'s>) -> Self {
        Self { words, scope, status: None, content_type: None, headers: Vec::new(), own_words: false }
    }

    fn file(&self, file: Word<'_>) -> Result<Vec<u8>, Diagnostic> {
        self.scope.names.read_file(file.text).map_err(|error| {
            let why = base::file::why_no_file(&error);
            Diagnostic::alert(format!("cannot read `{}`: {error}", file.text))
                .at(file.span)
                .haproxy(format!("error opening file '{}'{why}", file.text))
        })
    }

    fn with_page(&self, default: u16) -> Result<u16, Diagnostic> {
        match self.status {
            None => Ok(default),
            Some((status, _)) if has_page(status) => Ok(status),
            Some((status, span)) => {
                Err(Diagnostic::alert(format!("there is no error page for status {status}")).at(span))
            }
        }
    }

    fn build(self, source: ReplySource<'w>, default: u16, refusal: bool) -> Result<Reply, Diagnostic> {
        let status = self.status.map_or(default, |(status, _)| status);
        let content = match source {
            ReplySource::None if !self.headers.is_empty() => {
                Content::Made { content_type: None, headers: self.headers, body: ReplyBody::Empty }
            }
            // A refusal without words of its own, or with the old `deny_status` only, is the page
            // of its status.
            ReplySource::None if refusal && !self.own_words && has_page(status) => Content::Page,
            ReplySource::None if refusal && !self.own_words => {
                return Ok(Reply::page(self.with_page(default)?));
            }
            ReplySource::None => {
                if let Some(content_type) = &self.content_type {
                    self.scope.names.warn(
                        Diagnostic::warning(format!("`content-type {content_type}` is ignored: there is no body"))
                            .at(self.words.end())
                            .haproxy(format!(
                                "content-type '{content_type}' ignored by the http reply because neither errorfile nor payload defined."
                            )),
                    );
                }
                Content::Bare
            }
            ReplySource::DefaultErrorfiles => return Ok(Reply::page(self.with_page(default)?)),
            ReplySource::Message(bytes, file) => {
                let status = self.with_page(default)?;
                return Reply::raw(status, &bytes, file.text).map_err(|error| error.at(file.span));
            }
            ReplySource::Errorfiles(section, name) => {
                let status = self.with_page(default)?;
                let Some((_, bytes)) = section.iter().find(|(code, _)| *code == status) else {
                    return Ok(Reply { status, content: Content::Bare });
                };
                return Reply::raw(status, bytes, name.text).map_err(|error| error.at(name.span));
            }
            ReplySource::Body(body) => {
                let needs_type = match &body {
                    ReplyBody::Empty => false,
                    ReplyBody::Bytes(bytes) => !bytes.is_empty(),
                    ReplyBody::Format(_) => true,
                };
                if needs_type && self.content_type.is_none() {
                    return Err(Diagnostic::alert("a body needs its `content-type`").at(self.words.end()));
                }
                Content::Made { content_type: self.content_type, headers: self.headers, body }
            }
        };
        Ok(Reply { status, content })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_file_is_taken_apart() {
        let page = Page::parse(b"HTTP/1.0 503 Gone away\r\nContent-Length: 3\r\nX: y\r\n\r\nbye").unwrap();
        assert_eq!((page.status, &*page.reason, &*page.body), (503, &b"Gone away"[..], &b"bye"[..]));
        let fields = [("Content-Length", "3"), ("X", "y")];
        let kept: Vec<(&[u8], &[u8])> =
            page.headers.iter().map(|(name, value)| (&**name, &**value)).collect();
        assert_eq!(kept, fields.map(|(name, value)| (name.as_bytes(), value.as_bytes())));
        assert_eq!((page.is_old, page.closes), (true, false));
        let closing =
            Page::parse(b"HTTP/1.1 503 Gone\r\nConnection: close\r\nContent-Length: 0\r\n\r\n").unwrap();
        assert_eq!((closing.is_old, closing.closes, closing.headers.len()), (false, true, 1));
        assert!(Page::parse(b"HTTP/1.1 503 Gone\r\nContent-Length: 4\r\n\r\nbye").is_err());
        assert!(Page::parse(b"HTTP/1.1 503 Gone\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n").is_err());
        let bare_line_feeds = Page::parse(b"HTTP/1.0 503 Gone\nX: y\n\nbye").unwrap();
        assert_eq!((&*bare_line_feeds.body, bare_line_feeds.closes), (&b"bye"[..], true));
        assert!(Page::parse(b"hello").is_err());
    }
}
