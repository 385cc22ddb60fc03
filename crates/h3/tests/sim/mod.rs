//! The simulation: the plans of both callers, and the scheduler.

mod end;

use std::collections::BTreeMap;
use std::sync::Arc;

use h3::{Config, Role};

use crate::common::{CLIENT, SERVER, Wire};
use end::End;

/// The planned messages of a stream; both callers know them.
#[derive(Debug, Clone)]
pub(crate) struct Plan {
    pub(crate) is_head: bool,
    pub(crate) says_length: bool,
    /// The length of each body, request first.
    pub(crate) lengths: [usize; 2],
    pub(crate) trailers: [bool; 2],
    pub(crate) interim: usize,
    pub(crate) priority: Option<&'static [u8]>,
    /// The server responds before it has the whole request.
    pub(crate) is_early: bool,
}

/// The outcome of a stream from the client's view.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Fate {
    Open,
    Whole,
    Cancelled,
}

/// The state shared by both callers.
pub(crate) struct World {
    pub(crate) rng: fastrand::Rng,
    pub(crate) wire: Wire,
    pub(crate) plans: BTreeMap<u64, (Plan, Fate)>,
    /// The longest body: small windows take many steps.
    longest: usize,
    /// Nothing more is started or cancelled.
    pub(crate) is_draining: bool,
}

pub(crate) struct Simulation {
    world: World,
    client: End,
    server: End,
    steps: usize,
}

/// The expected byte of a body at an offset.
pub(crate) fn byte(id: u64, direction: usize, offset: usize) -> u8 {
    (id as usize * 131 + direction * 77 + offset * 7 + (offset >> 8)) as u8
}

impl World {
    fn plan(&mut self) -> Plan {
        let rng = &mut self.rng;
        let longest = self.longest;
        let mut length = || match rng.u8(..6) {
            0 => 0,
            1 => rng.usize(..10),
            2 => rng.usize(..100_000).min(longest),
            _ => rng.usize(..8000).min(longest),
        };
        let lengths = [length(), length()];
        let is_head = rng.u8(..8) == 0;
        let priorities: [Option<&[u8]>; 6] =
            [None, None, Some(b"u=0"), Some(b"u=6, i"), Some(b"i"), Some(b"u=3")];
        Plan {
            is_head,
            says_length: rng.bool(),
            lengths: if is_head { [0, 0] } else { lengths },
            trailers: [!is_head && rng.u8(..4) == 0, !is_head && rng.u8(..4) == 0],
            interim: rng.usize(..8) / 6,
            priority: priorities[rng.usize(..priorities.len())],
            is_early: rng.u8(..3) == 0,
        }
    }

    /// Delivers a piece of one direction of a stream.
    fn deliver(&mut self) {
        let count = self.wire.pipes.len();
        // Recent streams have most of the traffic.
        let nth = if self.rng.bool() {
            count - 1 - self.rng.usize(..count.min(8))
        } else {
            self.rng.usize(..count)
        };
        let Some((&(id, writer), _)) = self.wire.pipes.iter().nth(nth) else { return };
        let most = match self.rng.u8(..4) {
            0 => 1,
            1 => self.rng.usize(..20),
            _ => self.rng.usize(..20_000),
        };
        self.wire.deliver(id, writer, most);
    }
}

fn config(rng: &mut fastrand::Rng) -> Arc<Config> {
    let config = Config {
        window: [65_536, 1, 100, 16_384][rng.usize(..4)],
        max_concurrent_streams: [100, 1, 3, 10][rng.usize(..4)],
        table_capacity: [0, 4096, 0, 100, 65_536][rng.usize(..5)],
        blocked_streams: [0, 0, 3, 100][rng.usize(..4)],
        encoder_capacity: [0, 4096, 200][rng.usize(..3)],
        huffman: rng.bool(),
        ..Config::default()
    };
    Arc::new(config)
}

impl Simulation {
    pub(crate) fn new(seed: u64) -> Simulation {
        let mut rng = fastrand::Rng::with_seed(seed);
        let (client, server) = (config(&mut rng), config(&mut rng));
        let steps = rng.usize(20..400);
        let window = [1 << 20, 65_536, 3000, 100, 7][rng.usize(..5)];
        let most = client.max_concurrent_streams.min(server.max_concurrent_streams) as usize;
        let smallest = window.min(client.window).min(server.window);
        let mut world = World {
            rng,
            wire: Wire::new(window, most),
            plans: BTreeMap::new(),
            longest: smallest * 30,
            is_draining: false,
        };
        let (mut client, mut server) = (End::new(Role::Client, &client), End::new(Role::Server, &server));
        client.engine.start(&mut world.wire.side(CLIENT));
        server.engine.start(&mut world.wire.side(SERVER));
        Simulation { world, client, server, steps }
    }

    /// Runs the simulation; returns the number of complete exchanges.
    pub(crate) fn run(mut self) -> usize {
        for _ in 0..self.steps {
            self.step();
        }
        self.world.is_draining = true;
        let mut quiet = 0;
        while quiet < 3 {
            let before = self.progress();
            for _ in 0..20 {
                self.step();
            }
            self.flush();
            quiet = if self.progress() == before { quiet + 1 } else { 0 };
        }
        self.judge()
    }

    fn progress(&self) -> usize {
        self.world.wire.progress + self.client.progress + self.server.progress
    }

    fn step(&mut self) {
        let Simulation { world, client, server, .. } = self;
        match world.rng.u8(..12) {
            0 | 1 if !world.is_draining && client.engine.free() > 0 => {
                let plan = world.plan();
                client.request(world, plan);
            }
            2..=5 => {
                for _ in 0..world.rng.usize(..8) {
                    world.deliver();
                }
            }
            6 | 7 => client.read(world),
            8 | 9 => server.read(world),
            10 => {
                client.work(world);
                server.work(world);
            }
            11 if !world.is_draining && world.rng.u8(..30) == 0 => {
                server.engine.shutdown(&mut world.wire.side(SERVER));
            }
            11 if !world.is_draining && world.rng.u8(..4) == 0 => {
                if world.rng.bool() {
                    client.cancel(world)
                } else {
                    server.cancel(world)
                }
            }
            11 => client.rest(world),
            _ => {}
        }
        client.engine.check_invariants();
        server.engine.check_invariants();
    }

    /// Delivers everything in transit.
    fn flush(&mut self) {
        let Simulation { world, client, server, .. } = self;
        client.work(world);
        server.work(world);
        world.wire.deliver_all();
        client.read(world);
        server.read(world);
    }

    fn judge(self) -> usize {
        let mut whole = 0;
        for (id, (plan, fate)) in &self.world.plans {
            assert_ne!(*fate, Fate::Open, "stream {id} is stuck: {plan:?}");
            whole += usize::from(*fate == Fate::Whole);
        }
        for end in [&self.client, &self.server] {
            assert_eq!(end.engine.streams(), 0, "a stream is left over");
            assert_eq!((end.engine.pending(), end.engine.has_writable()), (0, false));
        }
        whole
    }
}
