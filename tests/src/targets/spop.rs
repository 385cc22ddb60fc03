//! The fuzz target for the crate `spop`: frames from agents.

use spop::{Actions, Closed, Config, Connection, Event, Key, Status};

/// Up to this length, all piece lengths are tried.
const SHORT: usize = 128;

/// The maximum frame size.
const MOST: u32 = 2000;

/// An event.
#[derive(Debug, PartialEq, Eq)]
enum Told {
    Answer(Key, Vec<u8>),
    Other(Event),
    Closed(Status),
}

/// Passes frames in pieces of `cut` bytes to a connection with one query, and two more once the agent allows that.
fn told(bytes: &[u8], cut: usize) -> Vec<Told> {
    let config = Config { frame_size: MOST, pipelining: true, most: 3, engine: "fuzz".into() };
    let mut connection = Connection::new(config);
    let mut keys = vec![connection.ask(b"\x01q\x00").expect("there is room for one")];
    let mut all = Vec::new();
    'pieces: for piece in bytes.chunks(cut) {
        let mut piece = piece;
        loop {
            let (used, event) = match connection.receive(piece) {
                Ok(told) => told,
                Err(Closed) => {
                    all.push(Told::Closed(connection.status()));
                    break 'pieces;
                }
            };
            piece = &piece[used..];
            let payload = connection.payload();
            assert!(payload.len() <= MOST as usize, "no more than a frame has");
            let actions = Actions::of(payload).count();
            assert!(actions <= payload.len() / 4, "{actions} actions of {} bytes", payload.len());
            match event {
                Some(Event::Ack { key }) => all.push(Told::Answer(key, payload.to_vec())),
                Some(Event::Ready) => {
                    keys.extend((0..2).filter_map(|_| connection.ask(b"\x01r\x00").ok()));
                    all.push(Told::Other(Event::Ready));
                }
                Some(other) => all.push(Told::Other(other)),
                None => break,
            }
        }
    }
    let answered =
        all.iter().filter(|told| !matches!(told, Told::Other(Event::Ready) | Told::Closed(_))).count();
    assert_eq!(connection.live() + answered, keys.len(), "a question is answered once");
    keys.into_iter().for_each(|key| connection.release(key));
    assert_eq!(connection.live(), 0);
    all
}

/// Checks that an agent's frames have the same result however they are split, and leave no state behind. The first byte is the
/// piece length if the input is longer than [`SHORT`].
pub fn spop_frames(bytes: &[u8]) {
    let Some((cut, bytes)) = bytes.split_first() else { return };
    let whole = told(bytes, bytes.len().max(1));
    let cut = usize::from(*cut).max(1);
    let cuts = if bytes.len() <= SHORT { 1..bytes.len() } else { cut..cut + 1 };
    for cut in cuts {
        assert_eq!(told(bytes, cut), whole, "pieces of {cut}");
    }
}
