//! Fuzz targets for responses to the process itself: from name servers, mail servers, CAs, checked servers and their agents.

use acme::fuzzing::AuthorityAnswer;
use health::fuzzing::{READERS, TrialAnswer, agent_line as read_line, http_answer};
use http::{BodyLength, Head, Method, Name, ParseOptions, ParseStatus};
use mail::{Dialog, Letter, Refusal};
use resolvers::fuzzing::read_answer;

/// Checks that a DNS answer yields records of the queried type or nothing. The queried name is the first line of the input, or a
/// default.
pub fn dns_answer(bytes: &[u8]) {
    let (name, bytes) = match memchr::memchr(b'\n', bytes) {
        Some(at) if at < 64 => (String::from_utf8_lossy(&bytes[..at]).into_owned(), &bytes[at + 1..]),
        _ => ("a.b".to_owned(), bytes),
    };
    let found = read_answer(bytes, &name);
    // Only one type was queried.
    assert!(found.iter().flatten().count() <= 1, "{found:?}");
    for records in found.iter().flatten() {
        // A record has at least eleven bytes.
        assert!(!records.is_empty() && records.len() <= bytes.len() / 11, "{found:?}");
    }
    let [v4, v6, services] = &found;
    let is = |text: &String, v4: bool| text.parse().is_ok_and(|ip: std::net::IpAddr| ip.is_ipv4() == v4);
    assert!(v4.iter().flatten().all(|text| is(text, true)));
    assert!(v6.iter().flatten().all(|text| is(text, false)));
    assert!(services.iter().flatten().all(|text| !text.starts_with(':')));
}

/// Checks that a dialogue with a mail server has the same result however its replies are split, and sends only the commands of this
/// side. The first byte is the piece length.
pub fn mail_replies(bytes: &[u8]) {
    let Some((cut, bytes)) = bytes.split_first() else { return };
    let letter = Letter::new("from@a.test", "to@b.test", "host", "Server b/s is DOWN.");
    let whole = talk(&letter, bytes, bytes.len().max(1));
    // The maximum reply length depends on buffering.
    if bytes.len() < 8000 {
        assert_eq!(whole, talk(&letter, bytes, usize::from(*cut).max(1)));
    }
    let (said, _, outcome) = whole;
    assert!(said.len() < 1000, "{said}");
    assert!(!matches!(outcome, Err(Refusal::Closed)));
}

/// Returns the sent text, whether the letter was delivered, and how the dialogue ended.
fn talk(letter: &Letter, bytes: &[u8], cut: usize) -> (String, bool, Result<(), Refusal>) {
    let mut dialog = Dialog::new(letter);
    let mut said = String::new();
    let mut outcome = Ok(());
    for piece in bytes.chunks(cut) {
        outcome = dialog.receive(piece);
        said.push_str(&dialog.take_output());
        if outcome.is_err() || dialog.is_over() {
            break;
        }
    }
    (said, dialog.is_delivered(), outcome)
}

/// Checks that a certificate order ends, whatever the CA answers, after few requests to valid URLs; and that values used in paths
/// have no special characters. The input is a sequence of HTTP/1 responses.
pub fn acme_answers(mut bytes: &[u8]) {
    let mut answers = Vec::new();
    while let Some((answer, rest)) = received(bytes) {
        answers.push(answer);
        bytes = rest;
    }
    let Ok(ordered) = acme::fuzzing::order(&answers) else { return };
    // At most five attempts without an answer can follow.
    assert!(ordered.asked.len() <= answers.len() + 6, "{ordered:?}");
    for url in &ordered.asked {
        assert!(httpclient::Url::parse(url).is_ok() || url.starts_with("http"), "{url}");
        assert!(url.bytes().all(|byte| byte.is_ascii_graphic()), "{url}");
    }
    for (name, token) in &ordered.met {
        assert!(matches!(&**name, "a.test" | "b.test"), "{name}");
        let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_".contains(&byte);
        assert!(!token.is_empty() && token.bytes().all(is_plain), "{token}");
    }
    match &ordered.outcome {
        Ok(chain) => assert!(chain.starts_with(b"-----BEGIN CERTIFICATE-----")),
        Err(text) => assert!(!text.contains(['\r', '\n']), "{text:?}"),
    }
}

/// Returns the response at the start of `bytes`, and the rest.
fn received(bytes: &[u8]) -> Option<(AuthorityAnswer, &[u8])> {
    let mut head = Head::new();
    let Ok(ParseStatus::Complete { len }) = http::parse_response(bytes, &mut head, &ParseOptions::default())
    else {
        return None;
    };
    let rest = &bytes[len..];
    let length = match head.response_body(Method::Post) {
        BodyLength::Length(length) => usize::try_from(length).ok()?.min(rest.len()),
        _ => 0,
    };
    let (body, rest) = rest.split_at(length);
    let field = |name: &'static [u8]| {
        head.get(&Name::new(name)).map(|text| String::from_utf8_lossy(text).into_owned())
    };
    let answer = AuthorityAnswer {
        status: head.status(),
        nonce: field(b"replay-nonce"),
        location: field(b"location"),
        retry_after: field(b"retry-after"),
        body: body.to_vec(),
    };
    Some((answer, rest))
}

/// Checks that an agent's line consists of known words, each as written, or is refused.
pub fn agent_line(bytes: &[u8]) {
    let line = String::from_utf8_lossy(bytes);
    let (words, unknown) = read_line(&line);
    let known = line.split('#').next().unwrap_or_default().to_ascii_lowercase();
    for word in words.into_iter().chain(unknown) {
        assert!(known.contains(&word.to_ascii_lowercase()), "{word} in {line}");
        assert!(!word.contains([' ', '\t', ',']), "{word}");
    }
}

/// Checks that the verdict of a non-HTTP protocol check does not change with further bytes.
pub fn check_protocols(bytes: &[u8]) {
    for (number, read) in READERS.iter().enumerate() {
        let first = (0..=bytes.len()).find_map(|end| Some((end, read(&bytes[..end])?)));
        match first {
            // A MySQL error is evaluated up to the end of its packet, which is then complete.
            Some((end, verdict)) => {
                assert_eq!(read(bytes), Some(verdict), "reader {number} has decided after {end}");
            }
            None => assert_eq!(read(bytes), None, "reader {number}"),
        }
    }
}

/// Checks that a check's response has the same result however it is split, and that no more is kept than requested. The first byte
/// is the piece length, the second selects the method and whether the connection ends.
pub fn check_answer(bytes: &[u8]) {
    const LIMIT: usize = 512;
    let [cut, choice, bytes @ ..] = bytes else { return };
    let method = ["GET", "HEAD", "OPTIONS", "POST"][usize::from(choice >> 1 & 3)];
    let ends = choice & 1 != 0;
    let whole = http_answer(method, [bytes], ends, LIMIT);
    let cut = http_answer(method, bytes.chunks(usize::from(*cut).max(1)), ends, LIMIT);
    assert!(whole.body.len() <= LIMIT && cut.body.len() <= LIMIT);
    assert!(whole.status.is_none_or(|status| status == 101 || status >= 200), "{whole:?}");
    if bytes.len() < LIMIT {
        // Bytes after an error may have been treated as a body before it was detected.
        let settled =
            |seen: TrialAnswer| if seen.is_broken { TrialAnswer { body: Vec::new(), ..seen } } else { seen };
        assert_eq!(settled(whole), settled(cut));
    }
}
