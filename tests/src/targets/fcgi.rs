//! The fuzz target for the crate `fcgi`: output of applications.

use fcgi::{Broken, Config, Connection, Event, Parameters};
use http::{Method, ParseOptions};

/// Maximum length of an application's message in the log.
const MESSAGE_MOST: usize = 8 * 1024;

/// Up to this length, all piece lengths are tried.
const SHORT: usize = 128;

/// An event of one request.
#[derive(Debug, PartialEq, Eq)]
enum Told {
    Status(u32, u16),
    Body(u32, Vec<u8>),
    Other(Event),
    Closed,
}

/// Passes records in pieces of `cut` bytes to a connection with two requests.
fn told(bytes: &[u8], cut: usize) -> Vec<Told> {
    let mut connection = Connection::new(Config {
        keeps: true,
        multiplexes: true,
        most: 2,
        asks: false,
        wants_messages: true,
        head: ParseOptions { max_bytes: 2000, ..ParseOptions::default() },
    });
    let keys = [(); 2]
        .map(|()| connection.open(&Parameters::new(100), Method::Get, true).expect("there are two places"));
    let all = receive(&mut connection, bytes, cut);
    assert!(connection.message().len() <= MESSAGE_MOST);
    keys.into_iter().for_each(|key| connection.release(key));
    assert!(connection.is_forgotten() && !connection.must_drain());
    all
}

fn receive(connection: &mut Connection, bytes: &[u8], cut: usize) -> Vec<Told> {
    let (mut all, mut input) = (Vec::new(), Vec::new());
    for piece in bytes.chunks(cut) {
        input.extend_from_slice(piece);
        loop {
            let Ok((used, event)) = connection.receive(&input) else {
                all.push(Told::Closed);
                return all;
            };
            match event {
                Some(Event::Head { key }) => all.push(Told::Status(key.id(), connection.head_mut().status())),
                Some(Event::Data { key, range }) => {
                    let data = &input[range];
                    all.push(Told::Body(key.id(), data.to_vec()));
                    connection.consume(key, data.len());
                }
                Some(event) => all.push(Told::Other(event)),
                None => {
                    input.drain(..used);
                    break;
                }
            }
            input.drain(..used);
        }
    }
    all
}

/// Joins pieces of a body, and drops bodies of malformed responses, because it depends on the pieces how much of these arrives
/// before the error is found.
fn settled(all: Vec<Told>) -> Vec<Told> {
    let malformed: Vec<u32> = all
        .iter()
        .filter_map(|told| match told {
            Told::Other(Event::Broken { key, how: Broken::Malformed(_) }) => Some(key.id()),
            _ => None,
        })
        .collect();
    let counts = |told: &Told| !matches!(told, Told::Body(id, _) if malformed.contains(id));
    let mut settled = Vec::new();
    for told in all.into_iter().filter(counts) {
        match (settled.last_mut(), told) {
            (Some(Told::Body(id, before)), Told::Body(other, data)) if *id == other => before.extend(data),
            (_, told) => settled.push(told),
        }
    }
    settled
}

/// Checks that an application's output has the same result however it is split, and leaves no state behind. The first byte is the
/// piece length if the input is longer than [`SHORT`].
pub fn fcgi_records(bytes: &[u8]) {
    let Some((cut, bytes)) = bytes.split_first() else { return };
    let whole = settled(told(bytes, bytes.len().max(1)));
    let cut = usize::from(*cut).max(1);
    let cuts = if bytes.len() <= SHORT { 1..bytes.len() } else { cut..cut + 1 };
    for cut in cuts {
        assert_eq!(settled(told(bytes, cut)), whole, "pieces of {cut}");
    }
}
