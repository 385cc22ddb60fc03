//! Tests of whole checks, written as configurations, against servers in this process on ports chosen by the kernel.

mod answers;
mod hostile;
mod states;

use std::cell::RefCell;
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use config::Boot;
use diag::SourceMap;
use state::Process;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;

use crate::{CheckOutcome, Checks};

/// Runs `test` like a worker: with one thread, local tasks, and the worker's timers.
pub(crate) fn worker<T>(test: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_io().build().unwrap();
    tokio::task::LocalSet::new().block_on(&runtime, async {
        tokio::task::spawn_local(runtime::timer::drive(runtime::timer::Alarm::new().unwrap()));
        runtime::timer::timeout(Duration::from_secs(20), test).await.expect("done in time")
    })
}

/// The data received by a server, one text per connection.
type Heard = Rc<RefCell<Vec<String>>>;

/// Starts a server that reads once and answers each connection with `answer`, or not at all.
async fn fake(answer: Option<&'static [u8]>) -> (SocketAddr, Heard) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let heard = Heard::default();
    let list = heard.clone();
    tokio::task::spawn_local(async move {
        loop {
            let (mut socket, _) = listener.accept().await.unwrap();
            let list = list.clone();
            tokio::task::spawn_local(async move {
                let mut room = [0; 4096];
                let read = socket.read(&mut room).await.unwrap_or(0);
                list.borrow_mut().push(String::from_utf8_lossy(&room[..read]).into_owned());
                match answer {
                    Some(answer) => {
                        let _ = socket.write_all(answer).await;
                    }
                    // Sends no response, and waits until the other side closes.
                    None => while !matches!(socket.read(&mut room).await, Ok(0) | Err(_)) {},
                }
            });
        }
    });
    (address, heard)
}

/// Starts a server that sends `answer` at once, ignores its input, and closes when the other side does.
async fn greeter(answer: &'static [u8]) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::task::spawn_local(async move {
        loop {
            let (mut socket, _) = listener.accept().await.unwrap();
            tokio::task::spawn_local(async move {
                let _ = socket.write_all(answer).await;
                let mut room = [0; 4096];
                while !matches!(socket.read(&mut room).await, Ok(0) | Err(_)) {}
            });
        }
    });
    address
}

/// Returns an address without a listener.
fn nobody() -> SocketAddr {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    listener.local_addr().unwrap()
}

/// The messages reported: level and text.
#[derive(Clone, Default)]
struct Told(Arc<Mutex<Vec<(u8, String)>>>);

impl Told {
    fn take(&self) -> Vec<(u8, String)> {
        std::mem::take(&mut *self.0.lock().unwrap())
    }

    fn texts(&self) -> Vec<String> {
        self.take().into_iter().map(|(_, text)| text).collect()
    }
}

/// Loads the checks of a configuration.
fn load(text: &str) -> (Checks, Told) {
    let mut sources = SourceMap::new();
    let file = sources.add("test.cfg", text);
    let loaded = config::load_sources(sources, vec![file], &Boot::default());
    let shown: Vec<_> = loaded
        .diagnostics
        .iter()
        .map(|diagnostic| diag::render::line(diagnostic, &loaded.sources, 1))
        .collect();
    let plan = loaded.plan.unwrap_or_else(|| panic!("{text}\n{}", shown.concat()));
    let told = Told::default();
    let list = told.clone();
    let notify = move |_: &state::Proxy, level: u8, text: &str| {
        list.0.lock().unwrap().push((level, text.to_owned()));
    };
    (Checks::new(&plan, Arc::new(Process::default()), Arc::new(notify), None), told)
}

/// Loads a backend `be` with the server `s1` at `address`, with check settings `lines`; `more` are parameters of the server.
fn backend(lines: &str, address: SocketAddr, more: &str) -> (Checks, Told) {
    load(&format!(
        "global\n node n1\nbackend be\n timeout check 100ms\n timeout connect 1s\n {lines}\n server s1 {address} check inter 300ms fastinter 5ms downinter 5ms rise 2 fall 3 {more}\n"
    ))
}

/// Runs the check once.
async fn once(checks: &Checks) -> CheckOutcome {
    checks.subjects[0].check(&checks.context, |outcome| outcome).await
}

/// Returns the reported parts of an outcome.
fn told(outcome: &CheckOutcome) -> (&'static str, Option<i32>, &str) {
    (outcome.status, outcome.code, &outcome.info)
}

/// Waits until `done`, letting other tasks run.
async fn until(done: impl Fn() -> bool) {
    while !done() {
        runtime::timer::sleep(Duration::from_millis(1)).await;
    }
}
