//! A caller with its engine, which follows the plans and checks everything that arrives.

use std::collections::HashMap;
use std::io::IoSlice;
use std::sync::Arc;

use fields::Scheme;
use h2::{By, Code, Config, Connection, Event, Role, StreamKey};
use http::Head;

use super::{Fate, Plan, World, byte};

/// A stream from the caller's perspective.
#[derive(Debug)]
struct Flow {
    plan: Plan,
    sent: usize,
    /// Our message was passed to the engine completely.
    is_sent: bool,
    /// Our final head was sent.
    is_begun: bool,
    received: usize,
    is_received: bool,
    has_head: bool,
    interim: usize,
    unconsumed: usize,
}

pub(crate) struct End {
    role: Role,
    pub(crate) engine: Connection<Vec<u8>>,
    /// Bytes in transit to this side.
    pub(crate) wire: Vec<u8>,
    /// Bytes read but not consumed.
    inbox: Vec<u8>,
    flows: HashMap<StreamKey, Flow>,
    pub(crate) progress: usize,
}

impl End {
    pub(crate) fn new(role: Role, config: &Arc<Config>) -> End {
        let engine = Connection::new(role, config);
        End { role, engine, wire: Vec::new(), inbox: Vec::new(), flows: HashMap::new(), progress: 0 }
    }

    /// The direction of a plan that this side sends.
    fn out(&self) -> usize {
        usize::from(self.role == Role::Server)
    }

    pub(crate) fn send_out(&mut self, wire: &mut Vec<u8>, most: usize) {
        let mut most = most;
        while most > 0 && self.engine.pending() > 0 {
            let mut slices = [IoSlice::new(&[]); 5];
            let filled = self.engine.output(&mut slices);
            let bytes: Vec<u8> = slices[..filled].iter().flat_map(|slice| slice.to_vec()).collect();
            let count = bytes.len().min(most);
            wire.extend_from_slice(&bytes[..count]);
            self.engine.sent(count);
            self.progress += count;
            most -= count;
        }
    }

    pub(crate) fn request(&mut self, world: &mut World, plan: Plan) {
        let mut head = Head::new();
        head.start_request(if plan.is_head { b"HEAD" } else { b"POST" }, b"/a/path");
        head.append(b"host", b"example.com");
        head.append(b"x-number", world.plans.len().to_string().as_bytes());
        if let Some(priority) = plan.priority {
            head.append(b"priority", priority);
        }
        if plan.says_length && !plan.is_head {
            head.append(b"content-length", plan.lengths[0].to_string().as_bytes());
        }
        let end = plan.is_head || (plan.lengths[0] == 0 && !plan.trailers[0] && world.rng.bool());
        let key = self.engine.open(&head, Scheme::Https, end).expect("one is free");
        world.plans.insert(key.id(), (plan.clone(), Fate::Open));
        let mut flow = Flow::new(plan);
        (flow.is_begun, flow.is_sent) = (true, end);
        self.flows.insert(key, flow);
        self.send(world, key);
    }

    /// Sends as much as possible of a stream's message.
    fn send(&mut self, world: &mut World, key: StreamKey) {
        let out = self.out();
        let Some(flow) = self.flows.get_mut(&key) else { return };
        if flow.is_sent || !flow.is_begun {
            return;
        }
        let length = flow.plan.lengths[out];
        let piece = match world.rng.u8(..3) {
            0 => length - flow.sent,
            _ => (length - flow.sent).min(world.rng.usize(1..20_000)),
        };
        let body: Vec<u8> = (flow.sent..flow.sent + piece).map(|at| byte(key.id(), out, at)).collect();
        let ends = flow.sent + piece == length && !flow.plan.trailers[out];
        let count = if world.rng.bool() {
            self.engine.send_data(key, &body, ends)
        } else {
            match self.engine.send_owned(key, body, 0..piece, ends) {
                Ok(()) => piece,
                Err((_, rest)) => piece - rest.len(),
            }
        };
        flow.sent += count;
        self.progress += count;
        if flow.sent == length {
            if flow.plan.trailers[out] {
                let mut trailers = Head::new();
                trailers.append(b"x-trailer", b"value");
                self.engine.send_trailers(key, &trailers);
            } else if !ends || count < piece {
                self.engine.send_data(key, b"", true);
            }
            flow.is_sent = true;
            self.progress += 1;
            self.finish(world, key);
        } else if count == piece {
            // More data is available; no event will trigger sending it.
            self.send(world, key);
        }
    }

    fn respond(&mut self, world: &mut World, key: StreamKey) {
        let Some(flow) = self.flows.get_mut(&key) else { return };
        let mut head = Head::new();
        for _ in 0..flow.plan.interim {
            head.start_response(103, None);
            head.append(b"link", b"</a>");
            self.engine.send_head(key, &head, false);
        }
        head.start_response(200, None);
        head.append(b"server", b"a server");
        if flow.plan.says_length {
            head.append(b"content-length", flow.plan.lengths[1].to_string().as_bytes());
        }
        let end = flow.plan.is_head || (flow.plan.lengths[1] == 0 && !flow.plan.trailers[1]);
        self.engine.send_head(key, &head, end);
        (flow.is_begun, flow.is_sent) = (true, end);
        if end { self.finish(world, key) } else { self.send(world, key) }
    }

    /// Serves writable streams, consumes bodies, and sends late responses.
    pub(crate) fn work(&mut self, world: &mut World) {
        let mut keys: Vec<StreamKey> = self.flows.keys().copied().collect();
        keys.sort_by_key(|key| key.id());
        for key in keys {
            let flow = self.flows.get_mut(&key).expect("just listed");
            let count = if world.is_draining { flow.unconsumed } else { world.rng.usize(..=flow.unconsumed) };
            flow.unconsumed -= count;
            self.engine.consume(key, count);
            let may_begin = flow.is_received || flow.plan.is_early;
            if self.role == Role::Server && !flow.is_begun && may_begin {
                self.respond(world, key);
            }
        }
        while let Some(key) = self.engine.next_writable() {
            self.send(world, key);
        }
    }

    pub(crate) fn read(&mut self, world: &mut World) {
        let most = if world.is_draining { usize::MAX } else { world.rng.usize(..30_000) };
        let count = most.min(self.wire.len());
        self.inbox.extend(self.wire.drain(..count));
        self.engine.begin_turn(true);
        let inbox = std::mem::take(&mut self.inbox);
        let mut rest = &inbox[..];
        loop {
            let (taken, event) = self.engine.receive(rest).expect("the other side is right");
            self.engine.check_invariants();
            self.progress += taken;
            if let Some(event) = event {
                self.told(world, rest, event);
                rest = &rest[taken..];
                continue;
            }
            rest = &rest[taken..];
            break;
        }
        self.inbox = rest.to_vec();
    }

    fn told(&mut self, world: &mut World, input: &[u8], event: Event) {
        match event {
            Event::Head { key, end, .. } => self.head(world, key, end),
            Event::Data { key, range, end } => self.body(world, key, &input[range], end),
            Event::End { key } => self.body(world, key, &[], true),
            Event::Trailers { key } => {
                let head = self.engine.head_mut();
                assert_eq!(head.fields().next(), Some((&b"x-trailer"[..], &b"value"[..])));
                self.received(world, key, true);
            }
            Event::Reset { key, code, by } => {
                let flow = self.flows.remove(&key).expect("a stream that is known");
                assert!(!matches!(by, By::Us(_)), "{code:?} {by:?}");
                let is_whole = self.role == Role::Client && flow.is_received && code == Code::NoError;
                self.fate(world, key, if is_whole { Fate::Whole } else { Fate::Cancelled });
                self.engine.release(key);
            }
            Event::Refused { code, .. } => assert_eq!(code, Code::RefusedStream),
            Event::Goaway { code, .. } => assert_eq!(code, Code::NoError),
            Event::Settings | Event::Pong => {}
        }
    }

    fn head(&mut self, world: &mut World, key: StreamKey, end: bool) {
        let status = self.engine.head_mut().status();
        if self.role == Role::Server {
            let plan = world.plans[&key.id()].0.clone();
            self.flows.insert(key, Flow::new(plan));
        }
        let flow = self.flows.get_mut(&key).expect("a stream that is known");
        assert!(!flow.has_head);
        if status == 103 {
            flow.interim += 1;
            return;
        }
        flow.has_head = true;
        if end {
            self.received(world, key, false);
        }
        if self.role == Role::Server && world.rng.bool() {
            let flow = &self.flows[&key];
            if flow.plan.is_early || end {
                self.respond(world, key);
            }
        }
    }

    fn body(&mut self, world: &mut World, key: StreamKey, bytes: &[u8], end: bool) {
        let direction = 1 - self.out();
        let flow = self.flows.get_mut(&key).expect("a stream that is known");
        for (at, got) in bytes.iter().enumerate() {
            assert_eq!(*got, byte(key.id(), direction, flow.received + at));
        }
        flow.received += bytes.len();
        flow.unconsumed += bytes.len();
        if end {
            self.received(world, key, false);
        }
    }

    /// Checks a complete message of the peer.
    fn received(&mut self, world: &mut World, key: StreamKey, trailers: bool) {
        let direction = 1 - self.out();
        let flow = self.flows.get_mut(&key).expect("a stream that is known");
        assert_eq!(flow.received, flow.plan.lengths[direction]);
        assert_eq!(trailers, flow.plan.trailers[direction]);
        assert!(direction == 0 || flow.interim == flow.plan.interim);
        flow.is_received = true;
        self.progress += 1;
        self.finish(world, key);
    }

    fn finish(&mut self, world: &mut World, key: StreamKey) {
        let Some(flow) = self.flows.get(&key) else { return };
        // A server may lose interest in the rest of a request after responding.
        let bored = self.role == Role::Server && !world.is_draining && world.rng.u8(..4) == 0;
        if flow.is_sent && (flow.is_received || bored) {
            self.flows.remove(&key);
            self.fate(world, key, Fate::Whole);
            self.engine.release(key);
        }
    }

    fn fate(&self, world: &mut World, key: StreamKey, fate: Fate) {
        if self.role == Role::Client {
            world.plans.get_mut(&key.id()).expect("every stream has a plan").1 = fate;
        }
    }

    pub(crate) fn cancel(&mut self, world: &mut World) {
        let mut keys: Vec<StreamKey> = self.flows.keys().copied().collect();
        keys.sort_by_key(|key| key.id());
        if keys.is_empty() {
            return;
        }
        let key = keys[world.rng.usize(..keys.len())];
        self.flows.remove(&key);
        if world.rng.bool() {
            self.engine.reset(key, Code::Cancel);
        }
        self.fate(world, key, Fate::Cancelled);
        self.engine.release(key);
    }

    /// Occasionally shrinks memory.
    pub(crate) fn rest(&mut self, world: &mut World) {
        if self.flows.is_empty() && world.rng.bool() {
            self.engine.shrink();
        }
    }
}

impl Flow {
    fn new(plan: Plan) -> Flow {
        Flow {
            plan,
            sent: 0,
            is_sent: false,
            is_begun: false,
            received: 0,
            is_received: false,
            has_head: false,
            interim: 0,
            unconsumed: 0,
        }
    }
}
