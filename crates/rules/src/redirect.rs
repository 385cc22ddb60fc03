//! Redirects (configuration manual, 4.2 `redirect` and 4.4 `redirect`).

use diag::Diagnostic;
use http::{Head, KnownName, uri};
use sample::format::{Format, FormatFor};
use sample::{Env, Scope, Scratch, Word, Words};

/// How the location is built.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum LocationForm {
    Location,
    Prefix,
    Scheme,
}

/// A compiled redirect.
#[derive(Debug)]
pub struct Redirect {
    form: LocationForm,
    text: Format,
    code: u16,
    drop_query: bool,
    append_slash: bool,
    ignore_empty: bool,
    keep_query: bool,
    cookie: Option<Cookie>,
}

#[derive(Debug)]
enum Cookie {
    Text(Box<[u8]>),
    Format(Format),
}

const CODES: [u16; 5] = [301, 302, 303, 307, 308];

impl Redirect {
    /// Whether the redirect specifies the whole location.
    pub(crate) fn is_location(&self) -> bool {
        self.form == LocationForm::Location
    }

    /// Compiles the words after `redirect`. The proxy keyword takes plain text, the rule (`formats`) log formats.
    ///
    /// # Errors
    /// An unknown form, code or option, or a missing target.
    pub fn compile(words: &mut Words<'_>, scope: &Scope<'_>, formats: bool) -> Result<Self, Diagnostic> {
        let start = words.span();
        let (mut target, mut code, mut cookie) = (None, 302, None);
        let (mut drop_query, mut append_slash, mut ignore_empty, mut keep_query) =
            (false, false, false, false);
        while let Some(word) = words.peek() {
            if matches!(word.text, "if" | "unless") {
                break;
            }
            words.next();
            match word.text {
                "location" => target = Some((LocationForm::Location, need(words, "a location")?)),
                "prefix" => target = Some((LocationForm::Prefix, need(words, "a prefix")?)),
                "scheme" => target = Some((LocationForm::Scheme, need(words, "a scheme")?)),
                "code" => {
                    let word = need(words, "a code")?;
                    code = word.text.parse().ok().filter(|code| CODES.contains(code)).ok_or_else(|| {
                        Diagnostic::alert(format!(
                            "invalid redirect code `{}`: use 301, 302, 303, 307 or 308",
                            word.text
                        ))
                        .at(word.span)
                    })?;
                }
                "drop-query" => drop_query = true,
                "append-slash" => append_slash = true,
                "ignore-empty" => ignore_empty = true,
                "keep-query" => keep_query = true,
                "set-cookie" => {
                    let word = need(words, "a cookie")?;
                    cookie = Some(Cookie::Text([&word.bytes()[..], b"; path=/;"].concat().into()));
                }
                "set-cookie-fmt" => {
                    let word = need(words, "a cookie")?;
                    cookie = Some(Cookie::Format(Format::compile(
                        word.text,
                        word.span,
                        scope,
                        FormatFor::Header,
                    )?));
                }
                "clear-cookie" => {
                    let word = need(words, "a cookie")?;
                    cookie = Some(Cookie::Text([&word.bytes()[..], b"; path=/; Max-Age=0;"].concat().into()));
                }
                _ => return Err(unknown(word)),
            }
        }
        let Some((form, word)) = target else {
            return Err(Diagnostic::alert("a redirect needs `location`, `prefix` or `scheme`").at(start));
        };
        let text = if formats {
            Format::compile(word.text, word.span, scope, FormatFor::Uri)?
        } else {
            Format::constant(&word.bytes())
        };
        Ok(Self { form, text, code, drop_query, append_slash, ignore_empty, keep_query, cookie })
    }

    /// Whether the rule may be skipped (`ignore-empty`).
    pub(crate) fn may_pass(&self) -> bool {
        self.ignore_empty
    }

    /// Whether building the response has side effects.
    pub(crate) fn has_side_effects(&self) -> bool {
        let of_cookie = matches!(&self.cookie, Some(Cookie::Format(format)) if format.has_side_effects());
        self.text.has_side_effects() || of_cookie
    }

    /// Whether the rule is skipped because the location is empty (`ignore-empty`).
    pub(crate) fn is_void(&self, env: &Env<'_>) -> bool {
        if !self.ignore_empty || self.form != LocationForm::Location {
            return false;
        }
        let mut location = Scratch::new();
        self.text.render(env, &mut location);
        location.is_empty()
    }

    /// Builds the response.
    pub(crate) fn render(&self, env: &Env<'_>, head: &mut Head) {
        let mut location = Scratch::new();
        let request = env.transaction.map(|transaction| &transaction.request);
        let target = request.map_or(&b"/"[..], |request| request.target());
        let parts = uri::split(target);
        match self.form {
            LocationForm::Location => {
                self.text.render(env, &mut location);
                if let Some(query) = parts.query().filter(|query| self.keep_query && !query.is_empty()) {
                    let joint = if location.contains(&b'?') { b'&' } else { b'?' };
                    location.push(joint);
                    location.extend_from_slice(query);
                }
            }
            LocationForm::Prefix => {
                self.text.render(env, &mut location);
                if **location == *b"/" {
                    location.clear();
                }
                self.push_path(&parts, &mut location);
            }
            LocationForm::Scheme => {
                self.text.render(env, &mut location);
                location.extend_from_slice(b"://");
                let host = request.and_then(|request| request.get_known(KnownName::Host));
                location.extend_from_slice(host.unwrap_or_default());
                self.push_path(&parts, &mut location);
            }
        }
        head.clear();
        head.start_response(self.code, None);
        head.set_content_length(0);
        head.append(b"location", &location);
        if matches!(self.code, 302 | 303 | 307) {
            head.append(b"cache-control", b"no-cache");
        }
        match &self.cookie {
            None => {}
            Some(Cookie::Text(text)) => {
                head.append(b"set-cookie", text);
            }
            Some(Cookie::Format(format)) => {
                let mut value = Scratch::new();
                format.render(env, &mut value);
                value.extend_from_slice(b"; path=/;");
                head.append(b"set-cookie", &value);
            }
        }
    }

    fn push_path(&self, parts: &uri::Split<'_>, location: &mut Vec<u8>) {
        let path = parts.path().filter(|path| !path.is_empty() && *path != b"*").unwrap_or(b"/");
        location.extend_from_slice(path);
        if let Some(query) = parts.query().filter(|_| !self.drop_query) {
            location.push(b'?');
            location.extend_from_slice(query);
        }
        // Added even after a query, as in HAProxy, because the option is meant to be combined with `drop-query`.
        if self.append_slash && location.last() != Some(&b'/') {
            location.push(b'/');
        }
    }
}

fn need<'w>(words: &mut Words<'w>, what: &str) -> Result<Word<'w>, Diagnostic> {
    let span = words.span();
    words.next().ok_or_else(|| Diagnostic::alert(format!("the redirect requires {what}")).at(span))
}

fn unknown(word: Word<'_>) -> Diagnostic {
    let known = [
        "location",
        "prefix",
        "scheme",
        "code",
        "drop-query",
        "append-slash",
        "ignore-empty",
        "keep-query",
        "set-cookie",
        "set-cookie-fmt",
        "clear-cookie",
        "if",
        "unless",
    ];
    Diagnostic::alert(format!("unknown redirect option `{}`", word.text))
        .at(word.span)
        .did_you_mean(diag::suggest(word.text, known))
}
