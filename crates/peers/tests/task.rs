//! Sections running on a runtime, over real sockets.

mod memory;

use std::future::{Future, poll_fn};
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::rc::Rc;
use std::time::Duration;

use memory::{Memory, counters, section};
use net::{Dial, Listener, Stream, Target};
use peers::{Group, Making, ResyncStage, SectionMailbox, SectionSettings, Ways};
use runtime::timer;

/// Timeout for expected events.
const PATIENCE: Duration = Duration::from_secs(60);

const NAMES: [&str; 3] = ["A", "B", "C"];

struct Plain(Vec<SocketAddr>);

impl Ways for Plain {
    fn connect(&self, peer: usize) -> Making {
        let address = self.0[peer];
        Box::pin(async move { Dial::default().connect(&Target::Ip(address)).await })
    }
}

fn run<F: Future>(future: F) -> F::Output {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_io().build_local(Default::default());
    runtime.expect("a runtime").block_on(async {
        tokio::task::spawn_local(timer::drive(timer::Alarm::new().expect("a timer")));
        future.await
    })
}

fn listening() -> (TcpListener, SocketAddr) {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("there are ports");
    let address = listener.local_addr().expect("it is bound");
    (listener, address)
}

fn desk(
    own: usize,
    listener: TcpListener,
    places: &[SocketAddr],
    process: u32,
    successor: bool,
) -> Rc<SectionMailbox<Memory>> {
    let section = section(NAMES[own], &NAMES, vec![counters("t", 0)]);
    let memory = Memory::new(&section.tables);
    let settings = SectionSettings {
        section,
        shards: 0,
        parts: Box::default(),
        process,
        successor,
        seed: u64::from(process),
    };
    let mut listener = Listener::from_fd(listener.into()).expect("it listens");
    let group = Group::new(settings, base::clock::now_ms());
    let desk = SectionMailbox::begin(group, memory, Plain(places.to_vec()));
    let serving = desk.clone();
    tokio::task::spawn_local(async move {
        loop {
            let accepted = poll_fn(|context| listener.poll_accept(context)).await.expect("it accepts");
            let stream = Stream::from_fd(accepted.socket, true);
            tokio::task::spawn_local(serving.clone().serve(stream, Vec::new()));
        }
    });
    desk
}

fn change(desk: &SectionMailbox<Memory>, prefix: &str, count: u64) {
    desk.with(|_, memory| {
        (0..count).for_each(|number| memory.count(0, format!("{prefix}{number}").as_bytes(), number, 0))
    });
    desk.wake();
}

fn entries(desk: &SectionMailbox<Memory>) -> usize {
    desk.with(|_, memory| memory.tables[0].entries.len())
}

async fn until(what: &str, is_so: impl Fn() -> bool) {
    let waits = async {
        while !is_so() {
            timer::sleep(Duration::from_millis(2)).await;
        }
    };
    assert!(timer::timeout(PATIENCE, waits).await.is_ok(), "{what}: never");
}

#[test]
fn three_sections_share_their_changes() {
    run(async {
        let (listeners, places): (Vec<_>, Vec<_>) = (0..3).map(|_| listening()).unzip();
        let desks: Vec<_> = listeners
            .into_iter()
            .enumerate()
            .map(|(own, listener)| desk(own, listener, &places, own as u32 + 1, false))
            .collect();
        desks.iter().zip(NAMES).for_each(|(desk, name)| change(desk, name, 5000));
        until("everything everywhere", || desks.iter().all(|desk| entries(desk) == 15_000)).await;
        change(&desks[1], "more", 1);
        until("one more everywhere", || desks.iter().all(|desk| entries(desk) == 15_001)).await;
        let contents: Vec<_> = desks.iter().map(|desk| desk.with(|_, memory| memory.contents())).collect();
        assert!(contents[0] == contents[1] && contents[1] == contents[2]);
    });
}

#[test]
fn a_stopping_process_teaches_its_successor() {
    run(async {
        let (listener, place) = listening();
        let nowhere = listening().1;
        let places = [place, nowhere, nowhere];
        let old = desk(0, listener.try_clone().expect("a descriptor"), &places, 1, false);
        change(&old, "k", 20_000);
        // The process no longer accepts, because the listening socket belongs to the successor.
        let new_place = listening();
        let places = [new_place.1, nowhere, nowhere];
        let old = {
            let memory = old.with(|_, memory| std::mem::replace(memory, Memory::new(&[])));
            let section = section("A", &NAMES, vec![counters("t", 0)]);
            let settings = SectionSettings {
                section,
                shards: 0,
                parts: Box::default(),
                process: 1,
                successor: false,
                seed: 1,
            };
            let group = Group::new(settings, base::clock::now_ms());
            SectionMailbox::begin(group, memory, Plain(places.to_vec()))
        };
        until("it knows everything", || old.with(|group, _| group.stage() == ResyncStage::Finished)).await;
        let new = desk(0, new_place.0, &places, 2, true);
        old.drained();
        old.stop(5).await;
        until("the successor knows everything", || {
            new.with(|group, _| group.stage() == ResyncStage::Finished) && entries(&new) == 20_000
        })
        .await;
    });
}

#[test]
fn unknown_connections_are_closed_without_harm() {
    use std::io::{Read, Write};
    run(async {
        let (listener, place) = listening();
        let nowhere = listening().1;
        let _desk = desk(0, listener, &[place, nowhere, nowhere], 1, false);
        let asked = tokio::task::spawn_blocking(move || {
            let mut answers = Vec::new();
            let greetings: [&[u8]; 3] =
                [b"GET / HTTP/1.1\r\n\r\n", b"HAProxyS 2.1\nX\n", b"HAProxyS 2.1\nA\nB 1 1\n\x0a\x84\x00"];
            for greeting in greetings {
                let mut stream = std::net::TcpStream::connect(place).expect("it listens");
                stream.set_read_timeout(Some(PATIENCE)).expect("there are limits");
                stream.write_all(greeting).expect("it reads");
                let mut answer = Vec::new();
                // A reset also ends the connection.
                let _ = stream.read_to_end(&mut answer);
                answers.push(answer);
            }
            answers
        });
        let answers = asked.await.expect("it does not panic");
        assert_eq!((&answers[0][..], &answers[1][..]), (&b"501\n"[..], &b"503\n"[..]));
        assert!(answers[2].starts_with(b"200\n") && answers[2].ends_with(&[1, 0]), "{:?}", answers[2]);
    });
}
