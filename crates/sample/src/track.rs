//! Counting in tracked stick table entries (`track-sc0` …; configuration manual, 4.3 and 7.3), and table keys.
//!
//! A request's own trackers take precedence. For counters that the request does not use, those of its connection apply. Rules start
//! tracking, request processing counts (`proxy`), and expressions read.

use std::net::IpAddr;

use state::table::{EntryValues, KeyType};

use crate::env::Env;
use crate::session::Session;
pub use crate::table_field::{Element, increment, tag};
use crate::tracked::HeldEntries;
pub use crate::tracked::{CountedEvent, DEFAULT_COUNTERS, MOST_COUNTERS, Trackers, count};
use crate::value::{Type, Value};

/// Counts `event` in every entry that a request or its connection tracks.
#[inline]
pub fn note(session: &Session, of_request: &Trackers, event: CountedEvent, now_ms: u64) {
    let of_session = session.trackers();
    if of_request.is_unused() && of_session.is_none() {
        return;
    }
    note_in(of_session, of_request, event, now_ms);
}

/// Counts a request in every entry that the request or its connection tracks, after the frontend's content rules have accepted it.
/// [`Trackers::count_request`] counts it in entries that are tracked later.
#[inline]
pub fn note_request(session: &Session, of_request: &mut Trackers, now_ms: u64) {
    let of_session = session.trackers();
    if of_request.is_unused() && of_session.is_none() {
        return;
    }
    note_request_in(of_session, of_request, now_ms);
}

#[inline(never)]
fn note_request_in(of_session: Option<&HeldEntries>, of_request: &mut Trackers, now_ms: u64) {
    if let Some(of_session) = of_session.and_then(|held| held.try_borrow().ok()) {
        let others = (0..of_session.len()).filter(|number| of_request.get(*number).is_none());
        others
            .filter_map(|number| of_session.get(number))
            .for_each(|view| count(view, CountedEvent::Request, now_ms));
    }
    of_request.count_request(now_ms);
}

#[inline(never)]
fn note_in(of_session: Option<&HeldEntries>, of_request: &Trackers, event: CountedEvent, now_ms: u64) {
    let of_session = of_session.and_then(|held| held.try_borrow().ok());
    let most = of_request.len().max(of_session.as_ref().map_or(0, |held| held.len()));
    for number in 0..most {
        let own = of_request.get(number);
        if let Some(view) = own.or_else(|| of_session.as_ref()?.get(number)) {
            count(view, event, now_ms);
        }
    }
}

/// Passes the entry that counter `number` tracks to `look`: the request's, otherwise the connection's.
pub fn with<R>(env: &Env<'_>, number: usize, look: impl FnOnce(EntryValues<'_>) -> R) -> Option<R> {
    if let Some(view) = env.transaction.and_then(|transaction| transaction.trackers.get(number)) {
        return Some(look(view));
    }
    let held = env.session?.trackers()?.try_borrow().ok()?;
    held.get(number).map(look)
}

/// The type to which a table's keys are cast.
pub fn key_type(kind: KeyType) -> Type {
    match kind {
        KeyType::Ip4 => Type::Ip4,
        KeyType::Ip6 => Type::Ip6,
        KeyType::Int => Type::Int,
        KeyType::Str => Type::Str,
        KeyType::Bin => Type::Bin,
    }
}

/// Converts `value` to a table key and passes it to `look`, or `None` if the value is not a valid key.
pub fn with_key<R>(value: Value<'_>, kind: KeyType, look: impl FnOnce(&[u8]) -> R) -> Option<R> {
    Some(match kind {
        // A text must be an address of the table's own family.
        KeyType::Ip4 => match (&value, value.to_addr()?) {
            (Value::Str(_), IpAddr::V6(_)) => return None,
            _ => look(&value.to_ip4()?.octets()),
        },
        KeyType::Ip6 => match (&value, value.to_addr()?) {
            (Value::Str(_), IpAddr::V4(_)) => return None,
            _ => look(&value.to_ip6()?.octets()),
        },
        KeyType::Int => look(&(value.to_int()? as u32).to_be_bytes()),
        KeyType::Str => look(&value.into_str()?),
        KeyType::Bin => look(&value.into_bin()?),
    })
}

/// Converts a key back to a value.
pub fn value_of_key<'a>(kind: KeyType, key: crate::value::Scratch) -> Option<Value<'a>> {
    Some(match kind {
        KeyType::Ip4 => Value::Ip4(<[u8; 4]>::try_from(&key[..]).ok()?.into()),
        KeyType::Ip6 => Value::Ip6(<[u8; 16]>::try_from(&key[..]).ok()?.into()),
        KeyType::Int => Value::Int(u32::from_be_bytes(<[u8; 4]>::try_from(&key[..]).ok()?).into()),
        KeyType::Str => Value::made(key),
        KeyType::Bin => Value::Bin(key.into()),
    })
}
