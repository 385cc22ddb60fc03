//! The cost of sharing: a counter, a locked list and a listening socket, used by all threads, by groups of threads, and by each
//! thread for itself, with a model for more threads than the machine has; then the cost of tracking in stick tables.
//!
//!     weir-bench contention [THREADS]
//!
//! Called by `bench/threads.sh`. Prints Markdown; nothing is asserted.

mod tables;

use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Barrier, Mutex};
use std::time::{Duration, Instant};

use runtime::shard::Padded;

const TIME: Duration = Duration::from_millis(300);

/// Runs `work` on `threads` threads for [`TIME`]. Returns the number of operations of all threads and their total waiting time, as
/// measured by `work`.
fn measure(threads: usize, work: impl Fn(usize, &AtomicBool) -> (u64, Duration) + Sync) -> (u64, Duration) {
    let (stop, start) = (AtomicBool::new(false), Barrier::new(threads + 1));
    std::thread::scope(|scope| {
        let running: Vec<_> = (0..threads)
            .map(|thread| {
                let (stop, start, work) = (&stop, &start, &work);
                scope.spawn(move || {
                    start.wait();
                    work(thread, stop)
                })
            })
            .collect();
        start.wait();
        std::thread::sleep(TIME);
        stop.store(true, Relaxed);
        running
            .into_iter()
            .map(|thread| thread.join().expect("a thread ends"))
            .fold((0, Duration::ZERO), |(operations, waited), (more, longer)| {
                (operations + more, waited + longer)
            })
    })
}

/// Returns the nanoseconds between two operations on the same counter when `threads` threads share `things`.
fn counters<T: AsRef<AtomicU64> + Sync>(threads: usize, things: &[T]) -> f64 {
    let (operations, _) = measure(threads, |thread, stop| {
        let own = things[thread % things.len()].as_ref();
        let mut count = 0;
        while !stop.load(Relaxed) {
            for _ in 0..64 {
                own.fetch_add(1, Relaxed);
            }
            count += 64;
        }
        (count, Duration::ZERO)
    });
    TIME.as_nanos() as f64 / operations as f64
}

/// Returns the nanoseconds that a cache line takes from one core to another: two threads write it in turn. The result is the best
/// of many short rounds, because other work on the cores can only make a round longer.
fn transfer() -> f64 {
    const TURNS: u64 = 2_000;
    let round = || {
        let turn = Padded(AtomicU64::new(0));
        let (turn, start) = (&turn.0, &Barrier::new(2));
        let play = move |own: u64| {
            start.wait();
            let began = Instant::now();
            let mut next = own;
            while next < TURNS {
                if turn.load(Relaxed) == next {
                    turn.store(next + 1, Relaxed);
                    next += 2;
                }
                std::hint::spin_loop();
            }
            began.elapsed()
        };
        std::thread::scope(|scope| {
            let other = scope.spawn(move || play(1));
            let time = play(0);
            other.join().map_or(time, |other| other.max(time))
        })
    };
    (0..50).map(|_| round().as_nanos() as f64 / TURNS as f64).fold(f64::INFINITY, f64::min)
}

struct Own(Padded<AtomicU64>);

impl AsRef<AtomicU64> for Own {
    fn as_ref(&self) -> &AtomicU64 {
        &self.0.0
    }
}

/// Different counters on one cache line.
struct Close(AtomicU64);

impl AsRef<AtomicU64> for Close {
    fn as_ref(&self) -> &AtomicU64 {
        &self.0
    }
}

/// Returns the nanoseconds per pop and push on a locked list, and the share of time spent waiting for the lock.
fn lists(threads: usize, count: usize) -> (f64, f64) {
    let lists: Vec<Padded<Mutex<Vec<u64>>>> =
        (0..count).map(|_| Padded(Mutex::new((0..1024).collect()))).collect();
    let (operations, waited) = measure(threads, |thread, stop| {
        let list = &lists[thread % count].0;
        let (mut count, mut waited) = (0, Duration::ZERO);
        while !stop.load(Relaxed) {
            let before = Instant::now();
            let mut locked = list.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
            waited += before.elapsed();
            if let Some(one) = locked.pop() {
                locked.push(one);
            }
            drop(locked);
            count += 1;
        }
        (count, waited)
    });
    let all = TIME.as_nanos() as f64 * threads as f64;
    (TIME.as_nanos() as f64 / operations as f64, waited.as_nanos() as f64 / all)
}

/// Returns the connections per second that `threads` threads accept from `sockets` listeners of one address, while two threads
/// connect.
fn listeners(threads: usize, sockets: usize) -> f64 {
    let socket = |address: SocketAddr| {
        let socket = socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::STREAM, None)?;
        socket.set_reuse_port(true)?;
        socket.bind(&address.into())?;
        socket.listen(1024)?;
        socket.set_nonblocking(true)?;
        std::io::Result::Ok(TcpListener::from(socket))
    };
    let first = socket((Ipv4Addr::LOCALHOST, 0).into()).expect("a port of the loopback interface");
    let address = first.local_addr().expect("a bound socket has an address");
    let more = (1..sockets).map(|_| socket(address).expect("another socket of the same port"));
    let all: Vec<TcpListener> = std::iter::once(first).chain(more).collect();
    let ended = Arc::new(AtomicBool::new(false));
    let clients: Vec<_> = (0..2)
        .map(|_| {
            let ended = ended.clone();
            std::thread::spawn(move || {
                while !ended.load(Relaxed) {
                    if let Ok(stream) = TcpStream::connect(address) {
                        // A reset avoids ports in TIME_WAIT.
                        let _ = socket2::SockRef::from(&stream).set_linger(Some(Duration::ZERO));
                    }
                }
            })
        })
        .collect();
    let (accepted, _) = measure(threads, |thread, stop| {
        let own = &all[thread % sockets];
        let mut count = 0;
        while !stop.load(Relaxed) {
            match own.accept() {
                Ok(_) => count += 1,
                Err(_) => std::thread::yield_now(),
            }
        }
        (count, Duration::ZERO)
    });
    ended.store(true, Relaxed);
    for client in clients {
        let _ = client.join();
    }
    accepted as f64 / TIME.as_secs_f64()
}

/// Prints the tables.
pub(crate) fn run(words: &[String]) {
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let threads = words.first().and_then(|word| word.parse().ok()).unwrap_or(cores.max(2));
    println!("{threads} threads on {cores} cores\n");
    println!(
        "| shared by all threads of a group | groups | ns for each operation on all threads | waiting for the lock |"
    );
    println!("| --- | --: | --: | --: |");
    let mut groups = 1;
    while groups <= threads {
        let own: Vec<Own> = (0..groups).map(|_| Own(Padded::default())).collect();
        let each = counters(threads, &own);
        println!("| a counter | {groups} | {each:.2} | |");
        let (each, waited) = lists(threads, groups);
        println!("| a list and its lock | {groups} | {each:.1} | {:.0} % |", waited * 100.0);
        println!("| a listening socket | {groups} | {:.0} | |", 1e9 / listeners(threads, groups));
        groups *= 2;
    }
    let close: Vec<Close> = (0..threads).map(|_| Close(AtomicU64::new(0))).collect();
    println!(
        "| counters of their own on one cache line (false sharing) | {threads} | {:.2} | |",
        counters(threads, &close)
    );
    model(transfer());
    println!();
    tables::run(threads);
}

/// Prints the most requests per second that one cache line permits. The number of threads does not change this limit; groups
/// multiply it. `line` is the time between writes to it by different cores.
fn model(line: f64) {
    // Whether groups have separate lines: a rotation belongs to a group, but a server's count is global.
    const WRITES: [(&str, f64, &str, f64); 2] = [
        ("roundrobin, static-rr", 1.0, "backend and group", 4.0),
        ("leastconn, first, random, peak-ewma, hash-balance-factor", 2.0, "server", 1.0),
    ];
    println!(
        "\nA line that several cores write passes {line:.1} ns from write to write. With the writes that a warm request makes"
    );
    println!(
        "(counted by `crates/proxy/tests/shared_writes.rs`, the same for any number of threads), that line lets through at most\n"
    );
    println!(
        "| balance | shared writes a request | of one line for each | requests/s and line | with four groups |"
    );
    println!("| --- | --: | --- | --: | --: |");
    println!("| source, uri, hash, random(1) | 0 | | | |");
    for (name, writes, of, lines) in WRITES {
        let most = 1e3 / (line * writes);
        println!("| {name} | {writes} | {of} | {most:.1} M | {:.1} M |", most * lines);
    }
}
