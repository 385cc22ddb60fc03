//! A caller with its engine: it follows the plans and checks everything that arrives.

use std::collections::HashMap;
use std::sync::Arc;

use bytes::Bytes;
use fields::Scheme;
use h3::{Code, Config, Connection, H3Event, RequestKey, ResetBy, Role};
use http::Head;

use super::{Fate, Plan, World, byte};
use crate::common::{CLIENT, SERVER, tell};

/// A stream from its caller's view.
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
    side: usize,
    pub(crate) engine: Connection,
    flows: HashMap<RequestKey, Flow>,
    pub(crate) progress: usize,
}

impl End {
    pub(crate) fn new(role: Role, config: &Arc<Config>) -> End {
        let side = if role == Role::Client { CLIENT } else { SERVER };
        End { role, side, engine: Connection::new(role, config), flows: HashMap::new(), progress: 0 }
    }

    pub(crate) fn request(&mut self, world: &mut World, plan: Plan) {
        let mut head = Head::new();
        head.start_request(if plan.is_head { b"HEAD" } else { b"POST" }, b"/a/path");
        head.append(b"host", b"example.com");
        head.append(b"user-agent", b"an agent that is always the same");
        head.append(b"x-number", (world.plans.len() % 7).to_string().as_bytes());
        if let Some(priority) = plan.priority {
            head.append(b"priority", priority);
        }
        if plan.says_length && !plan.is_head {
            head.append(b"content-length", plan.lengths[0].to_string().as_bytes());
        }
        let end = plan.is_head || (plan.lengths[0] == 0 && !plan.trailers[0] && world.rng.bool());
        let opened = self.engine.open_request(&mut world.wire.side(self.side), &head, Scheme::Https, end);
        let Ok(key) = opened else { return };
        world.plans.insert(key.id(), (plan.clone(), Fate::Open));
        let mut flow = Flow::new(plan);
        (flow.is_begun, flow.is_sent) = (true, end);
        self.flows.insert(key, flow);
        self.send(world, key);
    }

    /// Sends as much as possible of a stream's message.
    fn send(&mut self, world: &mut World, key: RequestKey) {
        let side = self.side;
        let Some(flow) = self.flows.get_mut(&key) else { return };
        if flow.is_sent || !flow.is_begun {
            return;
        }
        let length = flow.plan.lengths[side];
        let piece = match world.rng.u8(..3) {
            0 => length - flow.sent,
            _ => (length - flow.sent).min(world.rng.usize(1..20_000)),
        };
        let body: Vec<u8> = (flow.sent..flow.sent + piece).map(|at| byte(key.id(), side, at)).collect();
        let ends = flow.sent + piece == length && !flow.plan.trailers[side];
        let streams = &mut world.wire.side(side);
        let count = if world.rng.bool() {
            self.engine.send_data(streams, key, &body, ends)
        } else if self.engine.is_blocked(key) {
            return;
        } else {
            self.engine.send_bytes(streams, key, Bytes::from(body), ends);
            piece
        };
        flow.sent += count;
        self.progress += count;
        if flow.sent == length {
            if flow.plan.trailers[side] {
                let mut trailers = Head::new();
                trailers.append(b"x-trailer", b"value");
                self.engine.send_trailers(streams, key, &trailers);
            } else if !ends || count < piece {
                self.engine.send_data(streams, key, b"", true);
            }
            flow.is_sent = true;
            self.progress += 1;
            self.finish(world, key);
        } else if count == piece {
            // More data is available; no event will trigger sending it.
            self.send(world, key);
        }
    }

    fn respond(&mut self, world: &mut World, key: RequestKey) {
        let side = self.side;
        let Some(flow) = self.flows.get_mut(&key) else { return };
        let streams = &mut world.wire.side(side);
        let mut head = Head::new();
        for _ in 0..flow.plan.interim {
            head.start_response(103, None);
            head.append(b"link", b"</a>");
            self.engine.send_head(streams, key, &head, false);
        }
        head.start_response(200, None);
        head.append(b"server", b"a server");
        head.append(b"x-always", b"a value that is always the same");
        if flow.plan.says_length {
            head.append(b"content-length", flow.plan.lengths[1].to_string().as_bytes());
        }
        let end = flow.plan.is_head || (flow.plan.lengths[1] == 0 && !flow.plan.trailers[1]);
        self.engine.send_head(streams, key, &head, end);
        (flow.is_begun, flow.is_sent) = (true, end);
        if end { self.finish(world, key) } else { self.send(world, key) }
    }

    /// Serves writable streams, consumes bodies, and sends late responses.
    pub(crate) fn work(&mut self, world: &mut World) {
        let mut keys: Vec<RequestKey> = self.flows.keys().copied().collect();
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
        self.engine.begin_turn(true);
        for report in std::mem::take(&mut world.wire.reports[self.side]) {
            tell(&mut self.engine, report);
        }
        let mut most = if world.is_draining { usize::MAX } else { world.rng.usize(..20) };
        while most > 0 {
            let event = self.engine.next(&mut world.wire.side(self.side)).expect("the other side is right");
            self.engine.check_invariants();
            let Some(event) = event else { break };
            self.progress += 1;
            most -= 1;
            self.told(world, event);
        }
        while let Some(key) = self.engine.next_writable() {
            self.send(world, key);
        }
    }

    fn told(&mut self, world: &mut World, event: H3Event) {
        match event {
            H3Event::Head { key, end, .. } => self.head(world, key, end),
            H3Event::Data { key, bytes, end } => self.body(world, key, &bytes, end),
            H3Event::End { key } => self.body(world, key, &[], true),
            H3Event::Trailers { key } => {
                let head = self.engine.head_mut();
                assert_eq!(head.fields().next(), Some((&b"x-trailer"[..], &b"value"[..])));
                self.received(world, key, true);
            }
            H3Event::Reset { key, code, by } => {
                self.flows.remove(&key).expect("a stream that is known");
                assert!(!matches!(by, ResetBy::Us(_)), "{code:?} {by:?}");
                self.fate(world, key, Fate::Cancelled);
                self.engine.release(&mut world.wire.side(self.side), key, None);
            }
            H3Event::Refused { code, .. } => assert_eq!(code, Code::RequestRejected),
            H3Event::Goaway { .. } | H3Event::Settings => {}
        }
    }

    fn head(&mut self, world: &mut World, key: RequestKey, end: bool) {
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

    fn body(&mut self, world: &mut World, key: RequestKey, bytes: &[u8], end: bool) {
        let direction = 1 - self.side;
        let flow = self.flows.get_mut(&key).expect("a stream that is known");
        for (at, got) in bytes.iter().enumerate() {
            assert_eq!(*got, byte(key.id(), direction, flow.received + at));
        }
        flow.received += bytes.len();
        flow.unconsumed += bytes.len();
        assert!(flow.unconsumed <= self.engine.config().window, "more than the window");
        if end {
            self.received(world, key, false);
        }
    }

    /// Checks a complete message of the peer.
    fn received(&mut self, world: &mut World, key: RequestKey, trailers: bool) {
        let direction = 1 - self.side;
        let flow = self.flows.get_mut(&key).expect("a stream that is known");
        assert_eq!(flow.received, flow.plan.lengths[direction]);
        assert_eq!(trailers, flow.plan.trailers[direction]);
        assert!(direction == 0 || flow.interim == flow.plan.interim);
        flow.is_received = true;
        self.progress += 1;
        self.finish(world, key);
    }

    fn finish(&mut self, world: &mut World, key: RequestKey) {
        let Some(flow) = self.flows.get(&key) else { return };
        // A server may lose interest in the rest of a request after responding.
        let bored = self.role == Role::Server && !world.is_draining && world.rng.u8(..4) == 0;
        if flow.is_sent && (flow.is_received || bored) {
            self.flows.remove(&key);
            self.fate(world, key, Fate::Whole);
            self.engine.release(&mut world.wire.side(self.side), key, None);
        }
    }

    fn fate(&self, world: &mut World, key: RequestKey, fate: Fate) {
        if self.role == Role::Client {
            world.plans.get_mut(&key.id()).expect("every stream has a plan").1 = fate;
        }
    }

    pub(crate) fn cancel(&mut self, world: &mut World) {
        let mut keys: Vec<RequestKey> = self.flows.keys().copied().collect();
        keys.sort_by_key(|key| key.id());
        if keys.is_empty() {
            return;
        }
        let key = keys[world.rng.usize(..keys.len())];
        self.flows.remove(&key);
        let streams = &mut world.wire.side(self.side);
        if world.rng.bool() {
            self.engine.reset(streams, key, Code::RequestCancelled);
        }
        let code = world.rng.bool().then_some(Code::InternalError);
        self.engine.release(streams, key, code);
        self.fate(world, key, Fate::Cancelled);
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
