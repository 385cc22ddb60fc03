//! What checks make of what servers and agents say, without a connection: for the fuzz targets
//! `check_answer`, `check_protocols` and `agent_line`.

use std::sync::Arc;

use state::Process;

use crate::agent::Report;
use crate::answer::CheckAnswer;
use crate::check_env::CheckEnv;
use crate::protocol::{self, AnswerReading};

/// What a check has of an answer of HTTP/1.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TrialAnswer {
    /// The status of its head, where that came whole.
    pub status: Option<u16>,
    /// What is kept of its body.
    pub body: Vec<u8>,
    /// Whether it cannot be understood.
    pub is_broken: bool,
    /// Whether nothing more of it is waited for.
    pub is_complete: bool,
}

/// Reads the answer to a request of `method` that comes in these pieces and, with `ends`, then ends. No more
/// than `limit` bytes of head and body are kept.
pub fn http_answer<'b>(
    method: &str,
    pieces: impl IntoIterator<Item = &'b [u8]>,
    ends: bool,
    limit: usize,
) -> TrialAnswer {
    let mut facts = CheckEnv::of(&Arc::new(Process::default()), Default::default());
    let mut answer = CheckAnswer::new(method, limit);
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

/// What a reader of a protocol says: nothing while more must come, then the status of the check with a code
/// and what is told.
pub type TrialVerdict = Option<(&'static str, i32, Vec<u8>)>;

/// A reader of all that came so far.
pub type TrialReader = fn(&[u8]) -> TrialVerdict;

/// The readers of greetings and logins of MySQL, of LDAP's answer to a bind, and of an agent's hello (SPOE).
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

/// The words of an agent's line that are understood, and the first that is not.
pub fn agent_line(line: &str) -> (Vec<&str>, Option<&str>) {
    let Report { weight, maxconn, admin, state, unknown, .. } = Report::parse(line);
    ([weight, maxconn, admin, state].into_iter().flatten().collect(), unknown)
}
