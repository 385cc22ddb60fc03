//! An order driven by given responses, for the fuzz target `acme_answers`.

use std::rc::Rc;

use plan::acme::Challenge;
use tls::keygen::{self, Curve, NewKey};

use crate::engine::{Answer, Engine, Next, Wanted};
use crate::jws::AccountKey;
use crate::task::pause_of;

/// A response of the authority.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct AuthorityAnswer {
    /// The status code.
    pub status: u16,
    /// `Replay-Nonce`.
    pub nonce: Option<String>,
    /// `Location`.
    pub location: Option<String>,
    /// `Retry-After`.
    pub retry_after: Option<String>,
    /// The body.
    pub body: Vec<u8>,
}

/// The outcome of an order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ordered {
    /// The URLs of the requests, in order.
    pub asked: Vec<String>,
    /// The names of the challenges to set up, with their tokens.
    pub met: Vec<(String, String)>,
    /// The issued chain, or the reason for failure.
    pub outcome: Result<Vec<u8>, String>,
}

/// Orders a certificate for `a.test` and `*.b.test` from an authority that gives these responses and no others. Waiting takes no
/// time.
///
/// # Errors
/// Key generation failed.
pub fn order(answers: &[AuthorityAnswer]) -> Result<Ordered, String> {
    let wanted = Wanted {
        directory: "https://ca.test/dir".into(),
        contact: Some("me@a.test".into()),
        eab: None,
        profile: None,
        challenge: Challenge::Http,
        domains: vec!["a.test".into(), "*.b.test".into()],
        addresses: Vec::new(),
        csr: vec![1, 2, 3],
    };
    let mut engine = Engine::new(wanted, account_key()?);
    let (mut now, mut answers) = (0, answers.iter());
    let (mut asked, mut met) = (Vec::new(), Vec::new());
    let outcome = loop {
        match engine.next(now) {
            Next::Ask(ask) => {
                asked.push(ask.url);
                match answers.next() {
                    Some(received) => engine.answered(answer(received), now),
                    None => engine.unanswered("no connection", now),
                }
            }
            Next::Wait(until) => now = until,
            Next::Meet => {
                met.extend(engine.to_meet().map(|one| (one.name.clone(), one.token.clone())));
                engine.challenges_ready();
            }
            Next::Issued(chain) => break Ok(chain),
            Next::Failed(failure) => break Err(failure.text),
        }
        let _ = engine.take_note();
    };
    Ok(Ordered { asked, met, outcome })
}

fn account_key() -> Result<Rc<AccountKey>, String> {
    thread_local! {
        static KEY: Result<Rc<AccountKey>, String> = keygen::key(NewKey::Ecdsa(Curve::P256))
            .and_then(|key| AccountKey::from_pkcs8(key.pkcs8()).map_err(str::to_owned))
            .map(Rc::new);
    }
    KEY.with(Clone::clone)
}

fn answer(received: &AuthorityAnswer) -> Answer {
    let AuthorityAnswer { status, nonce, location, retry_after, body } = received.clone();
    Answer { status, nonce, location, retry_after: retry_after.as_deref().and_then(pause_of), body }
}
