use std::collections::HashMap;

use proptest::prelude::*;

use super::*;

const LIMITS: SessionLimits =
    SessionLimits { after_request: 100, after_response: 50, requests: None, responses: None };

fn key(client: u16) -> SessionKey {
    SessionKey { source: ([127, 0, 0, 1], client).into(), destination: None }
}

#[test]
fn a_client_keeps_its_session_until_it_is_idle() {
    let mut table = SessionTable::default();
    let id = table.insert(key(1), (), 0, &LIMITS);
    table.request(id, (1, 10), 0, &LIMITS);
    table.request(id, (2, 20), 90, &LIMITS);
    assert_eq!(table.find(&key(1)), Some(id));
    assert_eq!(table.find(&key(2)), None);
    assert_eq!(table.expired(100, &LIMITS), None);
    assert_eq!(table.next_due(), Some(190));
    table.response(id, (1, 5), 120, &LIMITS);
    assert_eq!(table.expired(169, &LIMITS), None);
    assert_eq!(table.expired(190, &LIMITS), Some(id));
    let session = table.remove(id).expect("it is there");
    assert_eq!((session.requests, session.bytes_in, session.responses, session.bytes_out), (3, 30, 1, 5));
    assert_eq!(table.find(&key(1)), None);
    assert!(table.is_empty() && table.remove(id).is_none());
}

#[test]
fn a_session_is_complete_when_each_datagram_is_answered() {
    let limits = SessionLimits { requests: Some(2), responses: Some(2), ..LIMITS };
    let mut table = SessionTable::default();
    let id = table.insert(key(1), (), 0, &limits);
    assert_eq!(table.request(id, (1, 1), 0, &limits), Progress::Open);
    assert_eq!(table.response(id, (2, 2), 0, &limits), Progress::Open);
    assert_eq!(table.find(&key(1)), Some(id));
    assert_eq!(table.request(id, (1, 1), 0, &limits), Progress::Open);
    // The client's next datagram belongs to another session, while the answers to this one are outstanding.
    assert_eq!(table.find(&key(1)), None);
    let other = table.insert(key(1), (), 0, &limits);
    assert_eq!(table.response(id, (1, 1), 0, &limits), Progress::Open);
    assert_eq!(table.response(id, (1, 1), 0, &limits), Progress::Complete);
    table.remove(id);
    assert_eq!(table.find(&key(1)), Some(other));
}

#[test]
fn without_expected_responses_a_session_ends_with_its_last_request() {
    let limits = SessionLimits { requests: Some(1), responses: Some(0), ..LIMITS };
    let mut table = SessionTable::default();
    let id = table.insert(key(1), (), 0, &limits);
    assert_eq!(table.request(id, (1, 1), 0, &limits), Progress::Complete);
}

#[test]
fn other_limits_apply_to_sessions_in_progress() {
    let mut table = SessionTable::default();
    let id = table.insert(key(1), (), 0, &LIMITS);
    let shorter = SessionLimits { after_request: 10, ..LIMITS };
    table.renew(&shorter);
    assert_eq!(table.next_due(), Some(10));
    assert_eq!(table.expired(10, &shorter), Some(id));
}

#[test]
fn an_adopted_session_continues() {
    let (mut old, mut new) = (SessionTable::default(), SessionTable::default());
    let id = old.insert(key(1), 'a', 0, &LIMITS);
    old.request(id, (1, 7), 30, &LIMITS);
    let session = old.remove(id).expect("it is there");
    let id = new.adopt(UdpSession { is_listed: true, ..session }, &LIMITS);
    assert_eq!(new.find(&key(1)), Some(id));
    assert_eq!(new.next_due(), Some(130));
    assert_eq!(new.get(id).map(|own| (own.data, own.bytes_in)), Some(('a', 7)));
}

#[test]
fn an_identity_survives_the_kernel() {
    let id = SessionId { slot: 7, turn: u32::MAX };
    assert_eq!(SessionId::from_bits(id.to_bits()), id);
}

#[test]
fn completed_sessions_do_not_accumulate_deadlines() {
    let mut table = SessionTable::default();
    let kept: Vec<SessionId> = (0..10).map(|client| table.insert(key(client), (), 0, &LIMITS)).collect();
    for client in 0..20_000 {
        let id = table.insert(key(10 + client), (), 1, &LIMITS);
        assert!(table.remove(id).is_some());
        assert!(table.due.len() <= 2 * table.len() + SPARE_DEADLINES, "{}", table.due.len());
    }
    // The others still expire.
    let mut expired: Vec<SessionId> = Vec::new();
    while let Some(id) = table.expired(100, &LIMITS) {
        table.remove(id);
        expired.push(id);
    }
    expired.sort();
    assert_eq!(expired, kept);
}

proptest! {
    /// Compares the table with a map from clients to sessions.
    #[test]
    fn sessions_are_found_as_in_a_model(steps in prop::collection::vec((0u8..4, 0u16..8, 0u64..40), 1..300)) {
        let limits = SessionLimits { requests: Some(3), responses: Some(1), ..LIMITS };
        let mut table = SessionTable::default();
        let mut model: HashMap<u16, SessionId> = HashMap::new();
        let (mut now, mut alive) = (0, HashMap::new());
        for (step, client, passed) in steps {
            now += passed;
            while let Some(id) = table.expired(now, &limits) {
                let session = table.remove(id).expect("an expired session exists");
                prop_assert!(session.deadline(&limits) <= now);
                model.retain(|_, own| *own != id);
                prop_assert!(alive.remove(&id.to_bits()).is_some());
            }
            prop_assert_eq!(table.find(&key(client)), model.get(&client).copied());
            let id = match model.get(&client) {
                Some(id) => *id,
                None => {
                    let id = table.insert(key(client), client, now, &limits);
                    prop_assert!(alive.insert(id.to_bits(), client).is_none(), "identities are not reused");
                    model.insert(client, id);
                    id
                }
            };
            let progress = match step {
                0 | 1 => table.request(id, (1, 1), now, &limits),
                2 => table.response(id, (1, 1), now, &limits),
                _ => Progress::Complete,
            };
            if table.get(id).is_some_and(|session| session.room(&limits) == 0) {
                model.remove(&client);
            }
            if progress == Progress::Complete {
                prop_assert_eq!(table.remove(id).map(|session| session.data), Some(client));
                model.retain(|_, own| *own != id);
                alive.remove(&id.to_bits());
            }
            prop_assert_eq!(table.len(), alive.len());
        }
    }
}
