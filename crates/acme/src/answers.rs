//! Parses an authority's responses (RFC 8555, 7.1) with limits on everything: a text that is too long, or a list with too many
//! entries, is an error just like a missing value.

use serde_json::Value;

/// The maximum length of a URL.
const URL_MAX: usize = 2048;
/// The maximum length of a challenge token, nonce or name.
const WORD_MAX: usize = 256;
/// The maximum number of authorizations in an order, and of challenges in an authorization.
const LIST_MAX: usize = 200;
/// The maximum length of a problem's text in messages.
const TEXT_MAX: usize = 400;

/// The reason why a response cannot be used.
pub(crate) type Malformed = &'static str;

/// The endpoint URLs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct AcmeDirectory {
    pub(crate) new_nonce: String,
    pub(crate) new_account: String,
    pub(crate) new_order: String,
}

/// The state of an order or an authorization.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum OrderState {
    Pending,
    Ready,
    Processing,
    Valid,
    /// Invalid, revoked, expired, deactivated.
    Over,
}

/// An order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Ordered {
    pub(crate) status: OrderState,
    pub(crate) authorizations: Vec<String>,
    pub(crate) finalize: String,
    pub(crate) certificate: Option<String>,
    pub(crate) problem: Option<Problem>,
}

/// An authorization with the selected challenge.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Authorization {
    pub(crate) status: OrderState,
    pub(crate) name: String,
    pub(crate) is_address: bool,
    pub(crate) is_wildcard: bool,
    pub(crate) challenge: Option<Challenge>,
    /// The problem of the first challenge that has one.
    pub(crate) problem: Option<Problem>,
}

/// A challenge.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Challenge {
    pub(crate) url: String,
    /// The token; empty if the challenge type has none.
    pub(crate) token: String,
    /// `issuer-domain-names` of dns-persist-01.
    pub(crate) issuers: Vec<String>,
    pub(crate) status: Option<OrderState>,
}

/// An error in the authority's words (RFC 7807).
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Problem {
    pub(crate) kind: String,
    pub(crate) detail: String,
}

impl Problem {
    /// Parses the problem in a response; empty if it is not JSON.
    pub(crate) fn of(body: &[u8]) -> Self {
        serde_json::from_slice::<Value>(body).map(|value| Self::from_value(&value)).unwrap_or_default()
    }

    fn from_value(value: &Value) -> Self {
        let kind = printable(value["type"].as_str().unwrap_or_default());
        let mut detail = printable(value["detail"].as_str().unwrap_or_default());
        // Problems with individual names of an order.
        for one in value["subproblems"].as_array().into_iter().flatten().take(3) {
            let name = printable(one["identifier"]["value"].as_str().unwrap_or_default());
            let own = printable(one["detail"].as_str().unwrap_or_default());
            detail.push_str(&format!("; {name}: {own}"));
        }
        Self { kind, detail }
    }

    /// Whether the problem is of this type, such as `badNonce`.
    pub(crate) fn is(&self, kind: &str) -> bool {
        self.kind.strip_prefix("urn:ietf:params:acme:error:") == Some(kind)
    }
}

/// Makes a text suitable for a log line.
fn printable(text: &str) -> String {
    text.chars().take(TEXT_MAX).map(|one| if one.is_control() { ' ' } else { one }).collect()
}

fn parse(body: &[u8]) -> Result<Value, Malformed> {
    serde_json::from_slice(body).map_err(|_| "not JSON")
}

/// Validates a URL: it must not contain any character that has another meaning in a request.
pub(crate) fn url(text: &str) -> Result<String, Malformed> {
    let fits = text.len() <= URL_MAX && (text.starts_with("https://") || text.starts_with("http://"));
    let is_clean = text.bytes().all(|byte| byte.is_ascii_graphic());
    if fits && is_clean { Ok(text.to_owned()) } else { Err("invalid URL") }
}

fn url_in(value: &Value) -> Result<String, Malformed> {
    url(value.as_str().ok_or("missing URL")?)
}

/// Validates a nonce or token: only base64url is allowed, because these are used in paths and maps.
pub(crate) fn word(text: &str) -> Result<String, Malformed> {
    let fits = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_');
    if text.is_empty() || text.len() > WORD_MAX || !text.bytes().all(fits) {
        return Err("invalid token");
    }
    Ok(text.to_owned())
}

fn status(value: &Value) -> Result<OrderState, Malformed> {
    Ok(match value["status"].as_str() {
        Some("pending") => OrderState::Pending,
        Some("ready") => OrderState::Ready,
        Some("processing") => OrderState::Processing,
        Some("valid") => OrderState::Valid,
        Some("invalid" | "revoked" | "expired" | "deactivated") => OrderState::Over,
        _ => return Err("invalid status"),
    })
}

impl AcmeDirectory {
    pub(crate) fn parse(body: &[u8]) -> Result<Self, Malformed> {
        let value = parse(body)?;
        Ok(Self {
            new_nonce: url_in(&value["newNonce"])?,
            new_account: url_in(&value["newAccount"])?,
            new_order: url_in(&value["newOrder"])?,
        })
    }
}

impl Ordered {
    pub(crate) fn parse(body: &[u8]) -> Result<Self, Malformed> {
        let value = parse(body)?;
        let all = value["authorizations"].as_array().map_or(&[][..], Vec::as_slice);
        if all.len() > LIST_MAX {
            return Err("too many authorizations");
        }
        Ok(Self {
            status: status(&value)?,
            authorizations: all.iter().map(url_in).collect::<Result<_, _>>()?,
            finalize: url_in(&value["finalize"])?,
            certificate: match &value["certificate"] {
                Value::Null => None,
                own => Some(url_in(own)?),
            },
            problem: value["error"].is_object().then(|| Problem::from_value(&value["error"])),
        })
    }
}

impl Authorization {
    /// Parses an authorization, with the challenge of that type.
    pub(crate) fn parse(body: &[u8], kind: &str) -> Result<Self, Malformed> {
        let value = parse(body)?;
        let identifier = &value["identifier"];
        let name = identifier["value"].as_str().filter(|name| name.len() <= 253).ok_or("missing name")?;
        if !name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-._:*".contains(&byte)) {
            return Err("invalid name");
        }
        let all = value["challenges"].as_array().map_or(&[][..], Vec::as_slice);
        if all.len() > LIST_MAX {
            return Err("too many challenges");
        }
        let found = all.iter().find(|one| one["type"] == kind);
        let failed = found.into_iter().chain(all).find(|one| one["error"].is_object());
        Ok(Self {
            status: status(&value)?,
            name: name.to_ascii_lowercase(),
            is_address: identifier["type"] == "ip",
            is_wildcard: value["wildcard"] == true,
            challenge: found.map(challenge).transpose()?,
            problem: failed.map(|one| Problem::from_value(&one["error"])),
        })
    }
}

fn challenge(value: &Value) -> Result<Challenge, Malformed> {
    let token = match &value["token"] {
        Value::Null => String::new(),
        own => word(own.as_str().unwrap_or_default())?,
    };
    let issuers = value["issuer-domain-names"].as_array().map_or(&[][..], Vec::as_slice);
    let issuers = issuers.iter().take(10).filter_map(Value::as_str).map(printable).collect();
    Ok(Challenge { url: url_in(&value["url"])?, token, issuers, status: status(value).ok() })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn responses_are_parsed() {
        let body = br#"{"status":"pending","identifier":{"type":"dns","value":"A.test"},"wildcard":true,
            "challenges":[{"type":"http-01","url":"https://a.test/h","token":"h"},
            {"type":"dns-01","url":"https://a.test/d","token":"d_-1","error":{"type":"t","detail":"x\ny"}}]}"#;
        let read = Authorization::parse(body, "dns-01").expect("it can be read");
        assert_eq!((&*read.name, read.is_wildcard, read.status), ("a.test", true, OrderState::Pending));
        assert_eq!(read.challenge.map(|one| one.token), Some("d_-1".to_owned()));
        assert_eq!(read.problem, Some(Problem { kind: "t".into(), detail: "x y".into() }));
        assert_eq!(Authorization::parse(body, "tls-alpn-01").expect("it can be read").challenge, None);
    }

    #[test]
    fn text_unsafe_in_paths_headers_or_logs_is_refused() {
        for text in ["", "a/b", "a.b", "a b", "../x", "a\n", &"a".repeat(257)] {
            assert!(word(text).is_err(), "{text}");
        }
        for text in
            ["", "ftp://a", "https://a b", "https://a\r\nX: y", &format!("https://{}", "a".repeat(3000))]
        {
            assert!(url(text).is_err(), "{text}");
        }
        let many = vec!["\"https://a.test/\""; 300].join(",");
        let body = format!(r#"{{"status":"ready","finalize":"https://a.test/f","authorizations":[{many}]}}"#);
        assert_eq!(Ordered::parse(body.as_bytes()), Err("too many authorizations"));
        let problem = Problem::of(format!(r#"{{"detail":"{}"}}"#, "x".repeat(5000)).as_bytes());
        assert_eq!(problem.detail.len(), TEXT_MAX);
    }

    proptest! {
        #[test]
        fn arbitrary_responses_do_not_panic(body in "\\PC{0,200}") {
            let body = body.as_bytes();
            let _ = (AcmeDirectory::parse(body), Ordered::parse(body), Authorization::parse(body, "http-01"));
            let _ = Problem::of(body);
        }
    }
}
