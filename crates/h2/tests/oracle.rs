//! Tests the engine against hyper's HTTP/2 over an in-memory pipe: bodies are echoed in both directions, with trailers, on many
//! concurrent streams, and are much larger than the windows.

use std::collections::{HashMap, VecDeque};
use std::io::IoSlice;
use std::sync::Arc;

use bytes::Bytes;
use fields::Scheme;
use h2::{Config, Connection, Event, Role, StreamKey};
use http::Head;
use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream, duplex};

const STREAMS: usize = 40;

fn body(number: usize) -> Vec<u8> {
    let length = [0, 1, 100, 20_000, 70_000, 400_000][number % 6];
    (0..length).map(|at| (at * 7 + number * 31 + (at >> 8)) as u8).collect()
}

/// Our side of the pipe.
struct Ours {
    engine: Connection<Vec<u8>>,
    pipe: DuplexStream,
    inbox: Vec<u8>,
}

impl Ours {
    fn new(role: Role, pipe: DuplexStream) -> Ours {
        Ours { engine: Connection::new(role, &Arc::new(Config::default())), pipe, inbox: Vec::new() }
    }

    async fn send(&mut self) {
        while self.engine.pending() > 0 {
            let mut slices = [IoSlice::new(&[]); 16];
            let filled = self.engine.output(&mut slices);
            let bytes: Vec<u8> = slices[..filled].iter().flat_map(|slice| slice.to_vec()).collect();
            // The part that the peer does not accept now is sent after its next read.
            let sent = tokio::select! {
                biased;
                sent = self.pipe.write(&bytes) => sent.expect("the pipe is open"),
                () = tokio::task::yield_now() => 0,
            };
            self.engine.sent(sent);
            if sent == 0 {
                return;
            }
        }
    }

    /// One read; copies of body bytes are included. `None` at the end.
    async fn read(&mut self) -> Option<Vec<(Event, Vec<u8>)>> {
        let mut buffer = [0; 16_384];
        let count = tokio::select! {
            count = self.pipe.read(&mut buffer) => count.expect("the pipe is open"),
            () = tokio::task::yield_now(), if self.engine.pending() > 0 => return Some(Vec::new()),
        };
        if count == 0 {
            return None;
        }
        self.inbox.extend_from_slice(&buffer[..count]);
        self.engine.begin_turn(true);
        let (mut at, mut events) = (0, Vec::new());
        loop {
            let (taken, event) = self.engine.receive(&self.inbox[at..]).expect("hyper is right");
            self.engine.check_invariants();
            let Some(event) = event else {
                self.inbox.drain(..at + taken);
                return Some(events);
            };
            if let Event::Head { .. } = event {
                let head = self.engine.head_mut();
                assert!(head.status() == 200 || head.target() == b"https://example.com/echo");
            }
            let bytes = match &event {
                Event::Data { range, .. } => self.inbox[at..][range.clone()].to_vec(),
                _ => Vec::new(),
            };
            at += taken;
            events.push((event, bytes));
        }
    }
}

/// An outgoing body.
#[derive(Default)]
struct Outgoing {
    waiting: VecDeque<Vec<u8>>,
    ended: bool,
    trailers: bool,
}

impl Outgoing {
    fn push(&mut self, engine: &mut Connection<Vec<u8>>, key: StreamKey) {
        while let Some(data) = self.waiting.pop_front() {
            let (length, end) = (data.len(), self.ended && !self.trailers && self.waiting.is_empty());
            if let Err((data, range)) = engine.send_owned(key, data, 0..length, end) {
                engine.consume(key, range.start);
                self.waiting.push_front(data[range].to_vec());
                return;
            }
            engine.consume(key, length);
            self.ended &= !end;
        }
        if std::mem::take(&mut self.ended) {
            let mut trailers = Head::new();
            trailers.append(b"x-trailer", b"value");
            match self.trailers {
                true => engine.send_trailers(key, &trailers),
                false => drop(engine.send_data(key, b"", true)),
            }
        }
    }
}

/// Echoes everything until the peer closes.
async fn serve(pipe: DuplexStream) {
    let mut ours = Ours::new(Role::Server, pipe);
    let mut flows: HashMap<StreamKey, Outgoing> = HashMap::new();
    loop {
        ours.send().await;
        let Some(events) = ours.read().await else { return };
        for (event, bytes) in events {
            let engine = &mut ours.engine;
            let (key, end) = match event {
                Event::Head { key, end, .. } => {
                    let mut head = Head::new();
                    head.start_response(200, None);
                    engine.send_head(key, &head, false);
                    flows.insert(key, Outgoing { trailers: key.id() % 4 == 1, ..Outgoing::default() });
                    (key, end)
                }
                Event::Data { key, end, .. } => (key, end),
                Event::End { key } | Event::Trailers { key } => (key, true),
                Event::Settings | Event::Goaway { .. } => continue,
                other => panic!("{other:?}"),
            };
            let flow = flows.get_mut(&key).expect("it has begun");
            flow.waiting.extend(Some(bytes).filter(|bytes| !bytes.is_empty()));
            flow.ended |= end;
            flow.push(engine, key);
        }
        while let Some(key) = ours.engine.next_writable() {
            flows.get_mut(&key).expect("it waits").push(&mut ours.engine, key);
        }
        let sent: Vec<StreamKey> = flows.keys().copied().filter(|key| ours.engine.is_sent(*key)).collect();
        for key in sent {
            flows.remove(&key);
            ours.engine.release(key);
        }
    }
}

/// Sends a body within the window that hyper reports, and ends the stream.
async fn pour(mut stream: hyper_h2::SendStream<Bytes>, mut data: Bytes, trailers: bool) {
    while !data.is_empty() {
        stream.reserve_capacity(data.len());
        let capacity = std::future::poll_fn(|context| stream.poll_capacity(context)).await;
        let capacity = capacity.expect("the stream is open").expect("there is room");
        stream.send_data(data.split_to(capacity.min(data.len())), false).expect("the stream is open");
    }
    if trailers {
        let mut map = hyper_http::HeaderMap::new();
        map.insert("x-trailer", hyper_http::HeaderValue::from_static("value"));
        stream.send_trailers(map).expect("the stream is open");
    } else {
        stream.send_data(Bytes::new(), true).expect("the stream is open");
    }
}

async fn drink(mut body: hyper_h2::RecvStream) -> (Vec<u8>, bool) {
    let mut all = Vec::new();
    while let Some(data) = body.data().await {
        let data = data.expect("the stream is whole");
        body.flow_control().release_capacity(data.len()).expect("it was received");
        all.extend_from_slice(&data);
    }
    let trailers = body.trailers().await.expect("the stream is whole");
    (all, trailers.is_some())
}

#[tokio::test(flavor = "current_thread")]
async fn hyper_clients_are_served() {
    let (near, far) = duplex(20_000);
    let local = tokio::task::LocalSet::new();
    local.spawn_local(serve(near));
    local
        .run_until(async {
            let (client, connection) = hyper_h2::client::handshake(far).await.expect("a handshake");
            tokio::task::spawn_local(async move { connection.await.expect("we are right") });
            let mut client = client.ready().await.expect("ready");
            let mut tasks = Vec::new();
            for number in 0..STREAMS {
                let uri = "https://example.com/echo";
                let request = hyper_http::Request::post(uri).header("x-number", number).body(());
                let (answer, stream) =
                    client.send_request(request.expect("a request"), false).expect("a stream");
                client = client.ready().await.expect("ready");
                tasks.push(tokio::task::spawn_local(async move {
                    tokio::task::spawn_local(pour(stream, body(number).into(), number % 3 == 0));
                    let answer = answer.await.expect("an answer");
                    assert_eq!(answer.status(), 200);
                    let (got, trailers) = drink(answer.into_body()).await;
                    assert!(got == body(number), "the body of {number}");
                    assert_eq!(trailers, (2 * number + 1) % 4 == 1);
                }));
            }
            for task in tasks {
                task.await.expect("it is whole");
            }
        })
        .await;
}

async fn serve_by_hyper(pipe: DuplexStream) {
    let mut connection = hyper_h2::server::handshake(pipe).await.expect("a handshake");
    while let Some(request) = connection.accept().await {
        let (request, mut respond) = request.expect("we are right");
        tokio::task::spawn_local(async move {
            assert_eq!(request.uri().path(), "/echo");
            let stream = respond.send_response(hyper_http::Response::new(()), false).expect("it is open");
            let (data, trailers) = drink(request.into_body()).await;
            pour(stream, data.into(), trailers).await;
        });
    }
}

#[tokio::test(flavor = "current_thread")]
async fn hyper_servers_respond() {
    let (near, far) = duplex(20_000);
    let local = tokio::task::LocalSet::new();
    local.spawn_local(serve_by_hyper(far));
    local.run_until(ask(near)).await;
}

async fn ask(pipe: DuplexStream) {
    let mut ours = Ours::new(Role::Client, pipe);
    let mut request = Head::new();
    request.start_request(b"POST", b"/echo");
    request.append(b"host", b"example.com");
    let mut flows: HashMap<StreamKey, (usize, Outgoing, Vec<u8>)> = HashMap::new();
    let mut whole = 0;
    for number in 0..STREAMS {
        let key = ours.engine.open(&request, Scheme::Https, false).expect("a stream");
        let waiting = body(number).chunks(30_000).map(<[u8]>::to_vec).collect();
        let mut flow = Outgoing { waiting, ended: true, trailers: number % 3 == 0 };
        flow.push(&mut ours.engine, key);
        flows.insert(key, (number, flow, Vec::new()));
    }
    while whole < STREAMS {
        ours.send().await;
        for (event, bytes) in ours.read().await.expect("hyper stays") {
            let (key, end, trailers) = match event {
                Event::Head { key, end, .. } | Event::Data { key, end, .. } => (key, end, false),
                Event::End { key } => (key, true, false),
                Event::Trailers { key } => (key, true, true),
                Event::Settings => continue,
                other => panic!("{other:?}"),
            };
            let (number, _, got) = flows.get_mut(&key).expect("it has begun");
            ours.engine.consume(key, bytes.len());
            got.extend_from_slice(&bytes);
            if end {
                assert!(*got == body(*number), "the body of {number}");
                assert_eq!(trailers, *number % 3 == 0);
                flows.remove(&key);
                ours.engine.release(key);
                whole += 1;
            }
        }
        while let Some(key) = ours.engine.next_writable() {
            if let Some((_, flow, _)) = flows.get_mut(&key) {
                flow.push(&mut ours.engine, key);
            }
        }
    }
}
