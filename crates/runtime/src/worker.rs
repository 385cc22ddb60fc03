//! Worker threads and their mailboxes.
//!
//! Work moves between workers only as a message: a closure posted into the mailbox of one worker and run
//! there as a turn of its own.

use std::io;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::thread::JoinHandle;

use tokio::runtime::{Builder, LocalOptions};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

use crate::shard::{self, Padded};
use crate::timer;

/// What a mailbox takes: run once, on the worker's thread.
pub type Message = Box<dyn FnOnce() + Send>;

struct Mailboxes {
    senders: Vec<UnboundedSender<Message>>,
    /// Connections each worker serves. Written by the worker itself and by those who hand it a connection.
    connections: Vec<Padded<AtomicUsize>>,
}

static MAILBOXES: OnceLock<Mailboxes> = OnceLock::new();

/// The receiving ends of all mailboxes, to be handed to [`spawn`] in order.
pub struct Inboxes(std::vec::IntoIter<UnboundedReceiver<Message>>);

/// Makes `count` mailboxes. Called once at boot; a second call fails.
pub fn prepare(count: usize) -> io::Result<Inboxes> {
    shard::set_workers(count);
    timer::epoch();
    let (senders, receivers): (Vec<_>, Vec<_>) = (0..count).map(|_| unbounded_channel()).unzip();
    let connections = (0..count).map(|_| Padded(AtomicUsize::new(0))).collect();
    MAILBOXES
        .set(Mailboxes { senders, connections })
        .map_err(|_| io::Error::other("the workers were already prepared"))?;
    Ok(Inboxes(receivers.into_iter()))
}

/// Posts `message` to worker `index`; says whether that worker still listens.
pub fn post(index: usize, message: impl FnOnce() + Send + 'static) -> bool {
    MAILBOXES
        .get()
        .and_then(|boxes| boxes.senders.get(index))
        .is_some_and(|sender| sender.send(Box::new(message)).is_ok())
}

/// Connections that worker `index` serves.
pub fn connections(index: usize) -> usize {
    MAILBOXES.get().map_or(0, |boxes| boxes.connections[index].0.load(Relaxed))
}

/// Counts a connection of worker `index` for as long as it lives.
#[derive(Debug)]
pub struct Load(u32);

impl Load {
    /// Counts one more connection for worker `index`, at once, so that the next choice sees it.
    pub fn add(index: usize) -> Self {
        if let Some(boxes) = MAILBOXES.get() {
            boxes.connections[index].0.fetch_add(1, Relaxed);
        }
        Self(index as u32)
    }
}

impl Drop for Load {
    fn drop(&mut self) {
        if let Some(boxes) = MAILBOXES.get() {
            boxes.connections[self.0 as usize].0.fetch_sub(1, Relaxed);
        }
    }
}

impl Inboxes {
    /// Starts the next worker: a thread named `weir/INDEX` that runs `main` and its mailbox until `main` ends.
    pub fn spawn<F, Fut>(&mut self, index: usize, main: F) -> io::Result<JoinHandle<()>>
    where
        F: FnOnce() -> Fut + Send + 'static,
        Fut: Future<Output = ()> + 'static,
    {
        let inbox = self.0.next().ok_or_else(|| io::Error::other("every worker was already started"))?;
        std::thread::Builder::new().name(format!("weir/{index}")).spawn(move || {
            shard::enter_worker(index);
            if let Err(error) = run(inbox, main) {
                eprintln!("worker {index}: {error}");
            }
        })
    }
}

fn run<F, Fut>(mut inbox: UnboundedReceiver<Message>, main: F) -> io::Result<()>
where
    F: FnOnce() -> Fut,
    Fut: Future<Output = ()> + 'static,
{
    let runtime = Builder::new_current_thread()
        .enable_all()
        .max_blocking_threads(4)
        .event_interval(61)
        .build_local(LocalOptions::default())?;
    runtime.block_on(async move {
        tokio::task::spawn_local(timer::drive());
        tokio::task::spawn_local(async move {
            while let Some(message) = inbox.recv().await {
                message();
            }
        });
        main().await;
    });
    Ok(())
}
