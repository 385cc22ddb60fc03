//! Evaluates responses of servers and agents without a connection: for the fuzz targets `check_answer`, `check_protocols` and
//! `agent_line`.

use std::sync::Arc;

use state::Process;

use crate::agent::Report;
use crate::answer::CheckAnswer;
use crate::check_env::CheckEnv;
use crate::protocol::{self, AnswerReading};

/// The result of parsing an HTTP/1 response.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TrialAnswer {
    /// The status, if the head is complete.
    pub status: Option<u16>,
    /// The part of the body that was kept.
    pub body: Vec<u8>,
    /// Whether the response is malformed.
    pub is_broken: bool,
    /// Whether the response is complete.
    pub is_complete: bool,
}

/// Parses the response to a `method` request from these pieces. `ends` means that the connection ends afterwards. At most `limit`
/// bytes of head and body are kept.
pub fn http_answer<'b>(
    method: &str,
    pieces: impl IntoIterator<Item = &'b [u8]>,
    ends: bool,
    limit: usize,
) -> TrialAnswer {
    let mut facts = CheckEnv::of(&Arc::new(Process::default()), Default::default());
    let mut answer = CheckAnswer::new(method.as_bytes(), limit);
    for piece in pieces {
        if answer.is_complete(&facts) {
            break;
        }
        answer.raw.extend_from_slice(piece);
        answer.advance(&mut facts);
    }
    if ends {
        answer.end();
        answer.advance(&mut facts);
    }
    TrialAnswer {
        status: answer.has_head().then(|| facts.transaction.response.status()),
        body: std::mem::take(&mut facts.received),
        is_broken: answer.is_broken(),
        is_complete: answer.is_complete(&facts),
    }
}

/// A protocol reader's verdict: `None` while more data is needed, otherwise the check status, a code and the message.
pub type TrialVerdict = Option<(&'static str, i32, Vec<u8>)>;

/// A protocol reader, given all data so far.
pub type TrialReader = fn(&[u8]) -> TrialVerdict;

/// The readers for MySQL greetings and logins, LDAP bind responses, and SPOE agent hellos.
pub const READERS: [TrialReader; 4] = [
    |bytes| verdict(protocol::mysql(bytes, false)),
    |bytes| verdict(protocol::mysql(bytes, true)),
    |bytes| verdict(protocol::ldap_bind(bytes)),
    |bytes| verdict(protocol::spop_hello(bytes)),
];

fn verdict(reading: AnswerReading<'_>) -> TrialVerdict {
    match reading {
        AnswerReading::Short => None,
        AnswerReading::Good(told) => Some(("L7OK", 0, told.to_vec())),
        AnswerReading::Bad(status, code, told) => Some((status, code, told.to_vec())),
    }
}

/// Returns the known words of an agent's line, and the first unknown one.
pub fn agent_line(line: &str) -> (Vec<&str>, Option<&str>) {
    let Report { weight, maxconn, admin, state, unknown, .. } = Report::parse(line);
    ([weight, maxconn, admin, state].into_iter().flatten().collect(), unknown)
}
