//! Orders against scripted servers.

use std::collections::VecDeque;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use tls::keygen::{self, Curve, NewKey};

use super::*;

/// A server with scripted responses that records its requests.
#[derive(Default)]
struct Server {
    script: VecDeque<Answer>,
    asked: Vec<(String, Value, Value)>,
}

fn json_answer(status: u16, body: &Value) -> Answer {
    Answer { status, nonce: Some("n2".into()), body: body.to_string().into_bytes(), ..Answer::default() }
}

fn problem(status: u16, kind: &str, detail: &str) -> Answer {
    json_answer(status, &json!({"type": format!("urn:ietf:params:acme:error:{kind}"), "detail": detail}))
}

fn located(mut answer: Answer, place: &str) -> Answer {
    answer.location = Some(format!("https://ca.test/{place}"));
    answer
}

fn directory() -> Answer {
    let url = |path: &str| format!("https://ca.test/{path}");
    let body = json!({"newNonce": url("nonce"), "newAccount": url("account"), "newOrder": url("order")});
    Answer { nonce: None, ..json_answer(200, &body) }
}

fn nonce() -> Answer {
    Answer { status: 200, nonce: Some("n1".into()), ..Answer::default() }
}

fn account() -> Answer {
    located(json_answer(200, &json!({"status": "valid"})), "account/1")
}

fn order(status: &str) -> Answer {
    let mut body = json!({"status": status, "finalize": "https://ca.test/finalize",
        "authorizations": ["https://ca.test/authz/1"]});
    if status == "valid" {
        body["certificate"] = json!("https://ca.test/cert");
    }
    located(json_answer(201, &body), "order/1")
}

fn authorization(status: &str) -> Answer {
    let mut challenge = json!({"type": "http-01", "url": "https://ca.test/chall/1", "token": "t0"});
    if status == "invalid" {
        challenge["error"] = json!({"type": "urn:ietf:params:acme:error:unauthorized", "detail": "not here"});
    }
    let identifier = json!({"type": "dns", "value": "a.test"});
    json_answer(200, &json!({"status": status, "identifier": identifier, "challenges": [challenge]}))
}

fn certificate() -> Answer {
    let body = b"-----BEGIN CERTIFICATE-----\nAQ==\n-----END CERTIFICATE-----\n".to_vec();
    Answer { status: 200, body, ..Answer::default() }
}

fn engine() -> Engine {
    let key = keygen::key(NewKey::Ecdsa(Curve::P256)).expect("a key");
    let key = AccountKey::from_pkcs8(key.pkcs8()).expect("a key of an account");
    let wanted = Wanted {
        directory: "https://ca.test/dir".into(),
        contact: Some("me@a.test".into()),
        eab: None,
        profile: Some("short".into()),
        challenge: Challenge::Http,
        domains: vec!["a.test".into()],
        addresses: Vec::new(),
        csr: vec![1, 2, 3],
    };
    Engine::new(wanted, Rc::new(key))
}

impl Server {
    fn new(script: impl IntoIterator<Item = Answer>) -> Self {
        Self { script: script.into_iter().collect(), asked: Vec::new() }
    }

    /// Serves an order until it or the script ends; waiting takes no time.
    fn serve(&mut self, engine: &mut Engine) -> Next {
        let mut now = 0;
        loop {
            match engine.next(now) {
                Next::Ask(ask) => {
                    let decoded = |part: &Value| {
                        let bytes =
                            URL_SAFE_NO_PAD.decode(part.as_str().unwrap_or_default()).expect("base64url");
                        serde_json::from_slice(&bytes).unwrap_or(Value::Null)
                    };
                    let body: Value = serde_json::from_slice(&ask.body).unwrap_or(Value::Null);
                    self.asked.push((
                        format!("{} {}", ask.method, ask.url),
                        decoded(&body["protected"]),
                        decoded(&body["payload"]),
                    ));
                    match self.script.pop_front() {
                        Some(answer) => engine.answered(answer, now),
                        None => engine.unanswered("no connection", now),
                    }
                }
                Next::Wait(until) => {
                    assert!(until > now && until < now + 10_000_000, "it does not wait for ever");
                    now = until;
                }
                Next::Meet => engine.challenges_ready(),
                end => return end,
            }
        }
    }

    fn asked(&self) -> Vec<&str> {
        self.asked.iter().map(|(line, _, _)| line.trim_start_matches("POST https://ca.test/")).collect()
    }
}

fn failure(end: Next) -> Failure {
    match end {
        Next::Failed(failure) => failure,
        other => panic!("it does not fail: {other:?}"),
    }
}

fn whole() -> Vec<Answer> {
    vec![
        directory(),
        nonce(),
        account(),
        order("pending"),
        authorization("pending"),
        json_answer(200, &json!({"status": "pending"})),
        authorization("pending"),
        authorization("valid"),
        order("ready"),
        order("processing"),
        order("valid"),
        certificate(),
    ]
}

#[test]
fn a_certificate_is_ordered() {
    let mut server = Server::new(whole());
    let mut engine = engine();
    assert!(matches!(server.serve(&mut engine), Next::Issued(chain) if chain.starts_with(b"-----BEGIN")));
    assert_eq!(
        server.asked(),
        [
            "GET https://ca.test/dir",
            "HEAD https://ca.test/nonce",
            "account",
            "order",
            "authz/1",
            "chall/1",
            "authz/1",
            "authz/1",
            "order/1",
            "finalize",
            "order/1",
            "cert"
        ]
    );
    let (_, header, payload) = &server.asked[2];
    assert_eq!((&header["nonce"], &payload["onlyReturnExisting"]), (&json!("n1"), &json!(true)));
    assert!(header["jwk"].is_object() && header["kid"].is_null());
    let (_, header, payload) = &server.asked[3];
    assert_eq!((&header["kid"], &payload["profile"]), (&json!("https://ca.test/account/1"), &json!("short")));
    assert_eq!(payload["identifiers"], json!([{"type": "dns", "value": "a.test"}]));
    assert_eq!(server.asked[9].2, json!({"csr": "AQID"}));
}

#[test]
fn missing_accounts_are_created() {
    let mut script = whole();
    script.insert(2, problem(400, "accountDoesNotExist", "who?"));
    let mut server = Server::new(script);
    let mut engine = engine();
    engine.wanted.eab =
        Some(Eab { key_id: "k".into(), mac_key: [1; 32].into(), algorithm: plan::acme::MacAlgorithm::Hs256 });
    assert!(matches!(server.serve(&mut engine), Next::Issued(_)));
    let (_, _, payload) = &server.asked[3];
    assert_eq!(payload["contact"], json!(["mailto:me@a.test"]));
    assert!(payload["externalAccountBinding"]["signature"].is_string());
    assert!(server.asked[2].2["externalAccountBinding"].is_null(), "asking for an account needs no binding");
}

#[test]
fn rejected_nonces_are_replaced() {
    let mut script = whole();
    script.insert(3, problem(400, "badNonce", "old"));
    script.insert(3, problem(400, "badNonce", "old"));
    let mut server = Server::new(script);
    assert!(matches!(server.serve(&mut engine()), Next::Issued(_)));
    // Many requests may need a second attempt: a pending order is still polled often enough.
    let mut script = whole();
    let checks = (0..30).flat_map(|_| [problem(400, "badNonce", "old"), order("processing")]);
    script.splice(9..9, checks);
    assert!(matches!(Server::new(script).serve(&mut engine()), Next::Issued(_)));
    // But not indefinitely.
    let script = [directory(), nonce()].into_iter().chain((0..50).map(|_| problem(400, "badNonce", "old")));
    let mut server = Server::new(script);
    assert!(failure(server.serve(&mut engine())).text.contains("badNonce"));
    assert_eq!(server.asked.len(), 2 + 11);
}

#[test]
fn failed_challenges_end_the_order_with_the_servers_text() {
    let mut script = whole();
    script[7] = authorization("invalid");
    let failed = failure(Server::new(script).serve(&mut engine()));
    let text =
        "challenge error: \"not here\" (urn:ietf:params:acme:error:unauthorized) (HTTP status code 200)";
    assert_eq!(failed.text, text);
}

#[test]
fn rate_limits_end_the_order_with_a_pause() {
    let mut limited = problem(429, "rateLimited", "too many certificates already issued");
    limited.retry_after = Some(Duration::from_secs(3600));
    let script = [directory(), nonce(), account(), limited];
    let failed = failure(Server::new(script).serve(&mut engine()));
    assert_eq!(failed.retry_after, Some(Duration::from_secs(3600)));
    assert!(failed.text.contains("too many certificates already issued"), "{}", failed.text);
}

#[test]
fn busy_or_missing_servers_are_retried_a_few_times() {
    let mut script = whole();
    let busy = Answer { status: 503, retry_after: Some(Duration::from_secs(7)), ..nonce() };
    script.insert(4, busy);
    let mut engine_of_busy = engine();
    assert!(matches!(Server::new(script).serve(&mut engine_of_busy), Next::Issued(_)));
    let note = engine_of_busy.take_note().expect("it was noted");
    assert!(note.contains("retrying in 7s (1/5 retries)"), "{note}");
    let mut server = Server::new([directory()]);
    let failed = failure(server.serve(&mut engine()));
    assert_eq!(failed.text, "no connection when getting a nonce");
    assert_eq!(server.asked.len(), 1 + 5);
}

#[test]
fn authorizations_that_are_valid_need_no_challenge() {
    let mut script = whole();
    script[4] = authorization("valid");
    script.drain(5..8);
    let mut server = Server::new(script);
    assert!(matches!(server.serve(&mut engine()), Next::Issued(_)));
    assert!(!server.asked().contains(&"chall/1"));
}

#[test]
fn endless_orders_are_aborted() {
    let mut script = whole();
    script.truncate(8);
    script.extend((0..100).map(|_| order("pending")));
    let failed = failure(Server::new(script).serve(&mut engine()));
    assert_eq!(failed.text, "the server did not finish checking the order in time");
}

#[test]
fn malformed_or_foreign_responses_end_the_order() {
    for (at, answer, why) in [
        (0, json_answer(200, &json!({"newNonce": "file:///etc"})), "invalid URL"),
        (2, json_answer(201, &json!({})), "missing Location header"),
        (3, located(json_answer(201, &json!({"status": "pending"})), "order/1"), "missing URL"),
        (
            4,
            json_answer(200, &json!({"status": "pending", "identifier": {"type": "dns", "value": "b.test"}})),
            "unexpected authorization",
        ),
        (
            4,
            json_answer(
                200,
                &json!({"status": "pending", "identifier": {"type": "dns", "value": "a.test"},
                    "challenges": [{"type": "dns-01", "url": "https://ca.test/c", "token": "t"}]}),
            ),
            "offers no http-01 challenge for a.test",
        ),
        (
            4,
            json_answer(
                200,
                &json!({"status": "pending", "identifier": {"type": "dns", "value": "a.test"},
                    "challenges": [{"type": "http-01", "url": "https://ca.test/c", "token": "../x"}]}),
            ),
            "invalid token",
        ),
        (11, Answer { status: 200, body: b"<html>".to_vec(), ..Answer::default() }, "no certificate"),
    ] {
        let mut script = whole();
        script[at] = answer;
        let failed = failure(Server::new(script).serve(&mut engine()));
        assert!(failed.text.contains(why), "{why}: {}", failed.text);
    }
}

#[test]
fn wildcards_are_authorized_by_their_base_name() {
    let mut engine = engine();
    engine.wanted.domains = vec!["*.a.test".into()];
    let read = |is_wildcard: bool| {
        let body = json!({"status": "pending", "wildcard": is_wildcard,
            "identifier": {"type": "dns", "value": "a.test"}, "challenges": []});
        crate::answers::Authorization::parse(body.to_string().as_bytes(), "dns-01").expect("it can be read")
    };
    assert!(engine.is_ours(&read(true)) && !engine.is_ours(&read(false)));
}
