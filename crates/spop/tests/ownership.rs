//! Every answer reaches the query to which it belongs, in whatever order queries are sent, answered, read and cancelled.

use proptest::prelude::*;
use spop::{Config, Connection, Event, Frame, Key, kind};

/// A step of the clients, of the caller of a connection or of the agent. Indexes are taken modulo the
/// number of candidates.
#[derive(Debug, Clone)]
enum Step {
    /// A client sends a query on a connection.
    Ask(usize),
    /// The agent acknowledges a notification, in frames that arrive in pieces of that size.
    Answer(usize, usize, usize),
    /// The agent repeats an acknowledgement that it sent before.
    Repeat(usize, usize),
    /// A client reads its answer, if it has arrived.
    Read(usize),
    /// A client abandons its query, whether the answer has arrived or not.
    Cancel(usize),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let any = || any::<prop::sample::Index>().prop_map(|index| index.index(64));
    let step = prop_oneof![
        4 => any().prop_map(Step::Ask),
        4 => (any(), any(), 1..40_usize).prop_map(|(on, which, size)| Step::Answer(on, which, size)),
        1 => (any(), any()).prop_map(|(on, which)| Step::Repeat(on, which)),
        3 => any().prop_map(Step::Read),
        1 => any().prop_map(Step::Cancel),
    ];
    prop::collection::vec(step, 1..200)
}

const HELLO: &[u8] =
    b"\x07version\x08\x032.0\x0emax-frame-size\x03\xfc\xf0\x06\x0ccapabilities\x08\x0apipelining";

/// A connection with the caller's table and its agent.
struct Side {
    connection: Connection,
    /// The answers that have arrived and were not read, by slot.
    table: Vec<Option<Vec<u8>>>,
    /// Notifications that the agent has not acknowledged: stream and payload.
    open: Vec<(u64, Vec<u8>)>,
    /// Notifications that it has acknowledged.
    done: Vec<(u64, Vec<u8>)>,
}

impl Side {
    fn new(pipelining: bool, most: u16, engine: usize) -> Self {
        let engine = format!("engine-{engine}").into();
        let config = Config { frame_size: 16_380, pipelining, most, engine };
        let (table, open, done) = Default::default();
        Self { connection: Connection::new(config), table, open, done }
    }

    /// Passes the connection's output to the agent.
    fn send(&mut self) {
        let mut rest = self.connection.output();
        while let Some((length, behind)) = rest.split_first_chunk::<4>() {
            let (frame, behind) = behind.split_at(u32::from_be_bytes(*length) as usize);
            let frame = Frame::read(frame).expect("a frame");
            if frame.kind == kind::NOTIFY {
                self.open.push((frame.stream, frame.payload.to_vec()));
            }
            rest = behind;
        }
        self.connection.sent(self.connection.pending());
    }

    /// Passes a frame in pieces to the connection, and stores the answers in the table.
    fn receive(&mut self, kind: u8, stream: u64, payload: &[u8], size: usize) {
        let mut bytes = Vec::new();
        let frame = u64::from(kind == kind::ACK);
        Frame { kind, flags: 1, stream, frame, payload }.write(&mut bytes);
        for mut piece in bytes.chunks(size) {
            loop {
                let (used, event) = self.connection.receive(piece).expect("a frame that is valid");
                piece = &piece[used..];
                match event {
                    Some(Event::Ack { key }) => {
                        self.table[key.index()] = Some(self.connection.payload().to_vec());
                    }
                    Some(_) => {}
                    None => break,
                }
            }
        }
        self.send();
    }

    fn greet(&mut self) {
        self.receive(kind::AGENT_HELLO, 0, HELLO, usize::MAX);
    }
}

/// A waiting client: the connection, its query, and the expected answer.
type Waiting = (usize, Key, Vec<u8>);

fn ask(sides: &mut [Side], on: usize, waiting: &mut Vec<Waiting>, count: &mut u32) {
    *count += 1;
    let own = count.to_be_bytes().to_vec();
    let Ok(key) = sides[on].connection.ask(&own) else { return };
    let others = waiting.iter().filter(|(other, ..)| *other == on);
    assert!(others.clone().all(|(_, other, _)| other.index() != key.index()), "a place of its own");
    let table = &mut sides[on].table;
    table.resize(table.len().max(key.index() + 1), None);
    table[key.index()] = None;
    waiting.push((on, key, own));
    sides[on].send();
}

fn answer(side: &mut Side, which: usize, size: usize) {
    if !side.open.is_empty() {
        let (stream, payload) = side.open.remove(which % side.open.len());
        side.receive(kind::ACK, stream, &payload, size);
        side.done.push((stream, payload));
    }
}

/// Reads the answer of a waiting client; returns whether it had arrived.
fn read(sides: &mut [Side], waiting: &mut Vec<Waiting>, which: usize) -> bool {
    let (on, key, own) = &waiting[which];
    let Some(answer) = sides[*on].table[key.index()].take() else { return false };
    assert_eq!(&answer, own, "the answer to another question");
    sides[*on].connection.release(*key);
    waiting.remove(which);
    true
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn every_answer_reaches_its_own_query(
        steps in steps(),
        kinds in prop::collection::vec((any::<bool>(), 1..20_u16, any::<bool>()), 1..4),
    ) {
        let mut sides: Vec<Side> = Vec::new();
        for (number, (pipelining, most, early)) in kinds.iter().enumerate() {
            let mut side = Side::new(*pipelining, *most, number);
            if *early {
                side.greet();
            }
            sides.push(side);
        }
        let (mut waiting, mut count, number) = (Vec::new(), 0, sides.len());
        for step in steps {
            match step {
                Step::Ask(on) => ask(&mut sides, on % number, &mut waiting, &mut count),
                Step::Answer(on, which, size) => answer(&mut sides[on % number], which, size),
                Step::Repeat(on, which) => {
                    let side = &mut sides[on % number];
                    if let Some((stream, payload)) = side.done.get(which % side.done.len().max(1)).cloned() {
                        side.receive(kind::ACK, stream, &payload, usize::MAX);
                    }
                }
                Step::Read(which) if !waiting.is_empty() => {
                    let which = which % waiting.len();
                    read(&mut sides, &mut waiting, which);
                }
                Step::Cancel(which) if !waiting.is_empty() => {
                    let (on, key, _) = waiting.remove(which % waiting.len());
                    sides[on].table[key.index()] = None;
                    sides[on].connection.release(key);
                }
                Step::Read(_) | Step::Cancel(_) => {}
            }
        }
        for (side, (.., early)) in sides.iter_mut().zip(&kinds) {
            if !early {
                side.greet();
            }
            while !side.open.is_empty() {
                answer(side, 0, usize::MAX);
            }
        }
        while !waiting.is_empty() {
            assert!(read(&mut sides, &mut waiting, 0), "every question that is waited for is answered");
        }
        for side in &sides {
            assert_eq!((side.connection.live(), side.connection.held()), (0, 0));
        }
    }
}
