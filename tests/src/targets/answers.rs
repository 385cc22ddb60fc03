//! Targets of what others answer to the process itself: name servers, mail servers, authorities, checked
//! servers and their agents.

use acme::fuzzing::AuthorityAnswer;
use health::fuzzing::{READERS, TrialAnswer, agent_line as read_line, http_answer};
use http::{BodyLength, Head, Method, Name, ParseOptions, ParseStatus};
use mail::{Dialog, Letter, Refusal};
use resolvers::fuzzing::read_answer;

/// An answer of a name server gives records of the type that was asked for, or nothing. Asked is for a name
/// or for the one that stands before a line's end.
pub fn dns_answer(bytes: &[u8]) {
    let (name, bytes) = match memchr::memchr(b'\n', bytes) {
        Some(at) if at < 64 => (String::from_utf8_lossy(&bytes[..at]).into_owned(), &bytes[at + 1..]),
        _ => ("a.b".to_owned(), bytes),
    };
    let found = read_answer(bytes, &name);
    // One type was asked for, whatever there is.
    assert!(found.iter().flatten().count() <= 1, "{found:?}");
    for records in found.iter().flatten() {
        // A record takes eleven bytes at least.
        assert!(!records.is_empty() && records.len() <= bytes.len() / 11, "{found:?}");
    }
    let [v4, v6, services] = &found;
    let is = |text: &String, v4: bool| text.parse().is_ok_and(|ip: std::net::IpAddr| ip.is_ipv4() == v4);
    assert!(v4.iter().flatten().all(|text| is(text, true)));
    assert!(v6.iter().flatten().all(|text| is(text, false)));
    assert!(services.iter().flatten().all(|text| !text.starts_with(':')));
}

/// A conversation with a mail server comes to the same however its replies are cut, and nothing is said that
/// was not written here. The first byte is the length of the pieces.
pub fn mail_replies(bytes: &[u8]) {
    let Some((cut, bytes)) = bytes.split_first() else { return };
    let letter = Letter::new("from@a.test", "to@b.test", "host", "Server b/s is DOWN.");
    let whole = talk(&letter, bytes, bytes.len().max(1));
    // The longest reply counts from where the rest is kept.
    if bytes.len() < 8000 {
        assert_eq!(whole, talk(&letter, bytes, usize::from(*cut).max(1)));
    }
    let (said, _, outcome) = whole;
    assert!(said.len() < 1000, "{said}");
    assert!(!matches!(outcome, Err(Refusal::Closed)));
}

/// What is said, whether the letter was taken, and how it ended.
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

/// An order of a certificate ends, whatever an authority answers, after few requests to places that can be
/// asked; what gets into paths has no character that means something there. The input are responses of
/// HTTP/1, one behind the other.
pub fn acme_answers(mut bytes: &[u8]) {
    let mut answers = Vec::new();
    while let Some((answer, rest)) = received(bytes) {
        answers.push(answer);
        bytes = rest;
    }
    let Ok(ordered) = acme::fuzzing::order(&answers) else { return };
    // Five tries without an answer are the most that follow.
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

/// The response at the start of `bytes`, and what follows it.
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

/// What an agent says has words that are understood, each as it was written, or one that is not.
pub fn agent_line(bytes: &[u8]) {
    let line = String::from_utf8_lossy(bytes);
    let (words, unknown) = read_line(&line);
    let known = line.split('#').next().unwrap_or_default().to_ascii_lowercase();
    for word in words.into_iter().chain(unknown) {
        assert!(known.contains(&word.to_ascii_lowercase()), "{word} in {line}");
        assert!(!word.contains([' ', '\t', ',']), "{word}");
    }
}

/// What a reader of another protocol than HTTP has decided does not change with what follows.
pub fn check_protocols(bytes: &[u8]) {
    for (number, read) in READERS.iter().enumerate() {
        let first = (0..=bytes.len()).find_map(|end| Some((end, read(&bytes[..end])?)));
        match first {
            // An error of MySQL is told as far as its packet, which is whole by then.
            Some((end, verdict)) => {
                assert_eq!(read(bytes), Some(verdict), "reader {number} has decided after {end}");
            }
            None => assert_eq!(read(bytes), None, "reader {number}"),
        }
    }
}

/// An answer to a check comes to the same however it is cut, and no more of it is kept than was asked for.
/// The first byte is the length of the pieces, the second chooses the method and whether the connection ends.
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
        // What follows what is broken may have been taken as a body before.
        let settled =
            |seen: TrialAnswer| if seen.is_broken { TrialAnswer { body: Vec::new(), ..seen } } else { seen };
        assert_eq!(settled(whole), settled(cut));
    }
}
