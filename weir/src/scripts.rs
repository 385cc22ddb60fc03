//! Services of the process for scripts: tasks, sockets, HTTP requests, logs.
//!
//! Connections belong to the worker of the call that opened them.

use std::cell::RefCell;
use std::collections::HashMap;
use std::future::poll_fn;
use std::net::SocketAddr;
use std::sync::{Arc, Weak};
use std::time::Duration;

use base::raw::text_of;
use lua::{Bridge, CallStep, RunningCall, ScriptRequest, ScriptTask, SocketOp, SocketWork, Wait, WaitAnswer};
use net::{Dial, Stream, Target};
use proxy::Shared;
use proxy::shared::Performed;
use runtime::timer;
use sample::Env;
use state::statistic::{Statistic, StatisticOwner};
use tls::Keep;
use tokio::task::AbortHandle;

use crate::checks;

/// Default connect timeout.
const CONNECT: Duration = Duration::from_secs(5);

/// The maximum number of bytes received in one call.
const MOST: usize = 64 << 20;

/// A connection of a script.
struct ScriptConnection {
    stream: Stream,
    /// Received but not consumed.
    input: Vec<u8>,
    /// Whether the peer has closed its side.
    is_ended: bool,
    /// Dropped when no script holds the connection any more.
    held: Weak<()>,
}

thread_local! {
    /// The connections of the calling worker.
    static OPEN: RefCell<HashMap<u64, ScriptConnection>> = RefCell::default();
    /// The tasks that scripts have spawned on it since the workers started.
    static SPAWNED: RefCell<Vec<AbortHandle>> = RefCell::default();
}

/// Performs the operation that a script waits for.
pub(crate) fn perform(
    settings: Arc<httpclient::ClientSettings>,
    runtime: Arc<control::Runtime>,
    wait: Wait,
) -> Performed {
    Box::pin(async move {
        match wait {
            Wait::Sleep(ms) => timer::sleep(Duration::from_millis(ms)).await,
            Wait::Change(signal, seen, time) => {
                let given = poll_fn(|context| signal.poll_given(seen, context));
                match time {
                    None => given.await,
                    // The script checks the result itself.
                    Some(ms) => drop(timer::timeout(Duration::from_millis(ms), given).await),
                }
            }
            Wait::Socket(op) => return socket(&settings, op).await,
            Wait::Ask(ask) => return self::ask(&settings, *ask).await,
            Wait::Command(words, payload) => {
                let outcome = match control::command(&runtime, &words, payload.as_deref()) {
                    control::Ran::Done(outcome) => outcome,
                    control::Ran::Later(rest) => rest.await,
                };
                return outcome
                    .err()
                    .map_or(WaitAnswer::Nothing, |why| WaitAnswer::Text(why.trim_end().into()));
            }
            // Only requests wait for these, and the proxy handles them.
            Wait::Start | Wait::Flush | Wait::Input(_) | Wait::End | Wait::Turn | Wait::Again(_) => {
                tokio::task::yield_now().await
            }
        }
        WaitAnswer::Nothing
    })
}

/// Sends a script's HTTP request.
async fn ask(settings: &httpclient::ClientSettings, ask: ScriptRequest) -> WaitAnswer {
    let failed =
        |error: &dyn std::fmt::Display| WaitAnswer::Response(0, error.to_string(), Vec::new(), Vec::new());
    let mut own = settings.clone();
    own.max_body = MOST;
    if let Some(timeout) = ask.timeout {
        own.idle_timeout = timeout;
    }
    let url = match httpclient::Url::parse(&ask.url) {
        Ok(url) => url,
        Err(error) => return failed(&error),
    };
    own.connect_to = match ask.destination.as_deref().map(|text| destination(text, url.port)) {
        Some(None) => return failed(&"the destination is not an address"),
        other => other.flatten(),
    };
    let request = httpclient::Request { method: ask.method, url, headers: ask.headers, body: ask.body };
    match httpclient::send(&own, &request).await {
        Ok(response) => {
            WaitAnswer::Response(response.status, response.reason, response.headers, response.body)
        }
        Err(error) => failed(&error),
    }
}

/// Parses a destination: a path, an address with a port, an address, or a local port.
fn destination(text: &str, port: u16) -> Option<Target> {
    if let Some(path) = text.strip_prefix("unix@").or_else(|| text.starts_with('/').then_some(text)) {
        return Some(Target::Unix(path.into()));
    }
    let text = text.trim_start_matches("ipv4@").trim_start_matches("ipv6@");
    if let Ok(port) = text.parse::<u16>() {
        return Some(Target::Ip(SocketAddr::from(([127, 0, 0, 1], port))));
    }
    let address = text.parse().ok().or_else(|| text.parse().ok().map(|ip| SocketAddr::new(ip, port)));
    address.map(Target::Ip)
}

/// Performs a socket operation of a script.
async fn socket(settings: &httpclient::ClientSettings, op: SocketOp) -> WaitAnswer {
    if matches!(op.what, SocketWork::Connect | SocketWork::ConnectTls) {
        return connect(settings, op).await;
    }
    // During the operation the connection is not in the table, so that no other call uses it.
    let Some(mut open) = OPEN.with_borrow_mut(|all| all.remove(&op.number)) else {
        return WaitAnswer::Failed("connection closed.".to_owned());
    };
    let answer = match op.what {
        SocketWork::Send => limited(op.timeout, send(&mut open, &op.text)).await,
        SocketWork::Receive => limited(op.timeout, receive(&mut open, &op.text)).await,
        SocketWork::Peer => named(open.stream.peer()),
        SocketWork::Name => named(open.stream.local()),
        SocketWork::Close | SocketWork::Connect | SocketWork::ConnectTls => {
            open.stream.close();
            return WaitAnswer::Number(1);
        }
    };
    OPEN.with_borrow_mut(|all| all.insert(op.number, open));
    answer
}

async fn limited(timeout: Option<Duration>, what: impl Future<Output = WaitAnswer>) -> WaitAnswer {
    match timeout {
        None => what.await,
        Some(time) => {
            timer::timeout(time, what).await.unwrap_or_else(|_| WaitAnswer::Failed("timeout".to_owned()))
        }
    }
}

fn named(address: Option<SocketAddr>) -> WaitAnswer {
    address.map_or_else(
        || WaitAnswer::Failed("not an address".to_owned()),
        |address| WaitAnswer::Text(address.to_string().into()),
    )
}

/// Opens a connection, plain or with TLS. As in HAProxy, certificates of these servers are not verified.
async fn connect(settings: &httpclient::ClientSettings, op: SocketOp) -> WaitAnswer {
    let text = String::from_utf8_lossy(&op.text).into_owned();
    let address = match address(settings, &text, op.port).await {
        Ok(address) => address,
        Err(error) => return WaitAnswer::Failed(error),
    };
    let is_tls = op.what == SocketWork::ConnectTls;
    let connecting = async {
        let made = Dial::default().connect(&Target::Ip(address)).await;
        let mut stream = made.map_err(|error| error.to_string())?;
        if is_tls {
            let connector = unjudged().ok_or("TLS is not available")?;
            stream.connect_tls(&connector, None, Keep::default()).map_err(|error| error.to_string())?;
            poll_fn(|context| stream.poll_handshake(context)).await.map_err(|error| error.to_string())?;
        }
        Ok::<_, String>(stream)
    };
    match timer::timeout(op.timeout.unwrap_or(CONNECT), connecting).await {
        Ok(Ok(stream)) => {
            OPEN.with_borrow_mut(|all| {
                all.retain(|_, open| open.held.strong_count() > 0);
                let open = ScriptConnection { stream, input: Vec::new(), is_ended: false, held: op.held };
                all.insert(op.number, open)
            });
            WaitAnswer::Number(1)
        }
        Ok(Err(error)) => WaitAnswer::Failed(error),
        Err(_) => WaitAnswer::Failed("timeout".to_owned()),
    }
}

/// Returns a TLS connector that does not verify servers.
fn unjudged() -> Option<Arc<tls::Connector>> {
    static MADE: std::sync::OnceLock<Option<Arc<tls::Connector>>> = std::sync::OnceLock::new();
    MADE.get_or_init(|| tls::Connector::new(&tls::Connecting::default()).ok().map(Arc::new)).clone()
}

async fn address(
    settings: &httpclient::ClientSettings,
    text: &str,
    port: Option<u16>,
) -> Result<SocketAddr, String> {
    let text = text.trim_start_matches("ipv4@").trim_start_matches("ipv6@");
    if let (Ok(address), None) = (text.parse::<SocketAddr>(), port) {
        return Ok(address);
    }
    let (host, port) = match (port, text.rsplit_once(':')) {
        (Some(port), _) => (text, port),
        (None, Some((host, port))) => {
            (host, port.parse().map_err(|_| format!("`{port}` is not a valid port"))?)
        }
        (None, None) => return Err("missing port".to_owned()),
    };
    if let Ok(ip) = host.trim_matches(['[', ']']).parse() {
        return Ok(SocketAddr::new(ip, port));
    }
    let found = settings.names.address(host).await.map_err(|error| error.to_string())?;
    Ok(SocketAddr::new(found, port))
}

async fn send(open: &mut ScriptConnection, data: &[u8]) -> WaitAnswer {
    let mut at = 0;
    while at < data.len() {
        match poll_fn(|context| open.stream.poll_write(context, &data[at..])).await {
            Ok(n) if n > 0 => at += n,
            _ => return WaitAnswer::Failed("connection closed.".to_owned()),
        }
    }
    let _ = poll_fn(|context| open.stream.poll_flush(context)).await;
    open.stream.push();
    WaitAnswer::Number(at as i64)
}

/// Receives a line (`*l`), everything up to the end (`*a`), or a number of bytes.
async fn receive(open: &mut ScriptConnection, pattern: &[u8]) -> WaitAnswer {
    let wanted = std::str::from_utf8(pattern).ok().and_then(|text| text.parse::<usize>().ok());
    loop {
        let input = &mut open.input;
        let found = match (wanted, pattern) {
            (Some(wanted), _) if input.len() >= wanted => Some(input.drain(..wanted).collect()),
            (None, b"*l") => input.iter().position(|byte| *byte == b'\n').map(|end| {
                let mut line: Vec<u8> = input.drain(..=end).collect();
                line.pop();
                if line.last() == Some(&b'\r') {
                    line.pop();
                }
                line
            }),
            _ => None,
        };
        if let Some(found) = found {
            return WaitAnswer::Text(found);
        }
        if open.is_ended || input.len() >= MOST {
            let rest = std::mem::take(input);
            return match rest.is_empty() {
                true => WaitAnswer::Failed("connection closed.".to_owned()),
                false => WaitAnswer::Text(rest),
            };
        }
        let mut room = [0; 16 * 1024];
        match poll_fn(|context| open.stream.poll_read(context, &mut room)).await {
            Ok(n) if n > 0 => open.input.extend_from_slice(&room[..n]),
            _ => open.is_ended = true,
        }
    }
}

/// The bridge of tasks, which makes only the process visible.
struct OfProcess(Arc<Shared>);

impl Bridge for OfProcess {
    fn view(&self, look: &mut dyn FnMut(&Env<'_>)) {
        look(&Env::new(&self.0.process, timer::now_ms()));
    }

    fn log(&self, level: u8, text: &[u8]) -> bool {
        log(&self.0, level, text)
    }
}

fn log(shared: &Shared, level: u8, text: &[u8]) -> bool {
    if shared.plan.global.loggers.is_empty() {
        return false;
    }
    checks::log_global(shared, level, &text_of(text));
    true
}

/// The process as seen by scripts.
pub(crate) struct ProcessHost(pub(crate) Weak<Shared>, pub(crate) Arc<control::Runtime>);

impl lua::ScriptHost for ProcessHost {
    fn log(&self, level: u8, text: &[u8]) -> bool {
        self.0.upgrade().is_some_and(|shared| log(&shared, level, text))
    }

    fn report(&self, backend: &state::Proxy, level: u8, text: &str) {
        self.1.report(backend, level, text);
    }

    fn statistics(&self, whose: StatisticOwner<'_>) -> Vec<(&'static str, Statistic)> {
        statistics::by_name(&self.1.statistics, whose)
    }

    fn spawn(&self, task: ScriptTask) {
        if let Some(shared) = self.0.upgrade() {
            let spawned = tokio::task::spawn_local(run(shared, task)).abort_handle();
            SPAWNED.with_borrow_mut(|all| {
                all.retain(|task| !task.is_finished());
                all.push(spawned);
            });
        }
    }

    fn machine(&self) -> String {
        crate::emails::machine()
    }

    fn command(&self, words: &[String]) -> Result<String, String> {
        match control::command(&self.1, words, None) {
            control::Ran::Done(outcome) => outcome,
            control::Ran::Later(rest) => {
                tokio::task::spawn_local(rest);
                Ok(String::new())
            }
        }
    }
}

/// The maximum size of the answer to a command from a script.
const LONGEST_ANSWER: usize = 1 << 20;

/// The bridge of a command, with the connection that it answers.
struct OfCommand {
    shared: Arc<Shared>,
    output: RefCell<Vec<u8>>,
}

impl Bridge for OfCommand {
    fn view(&self, look: &mut dyn FnMut(&Env<'_>)) {
        look(&Env::new(&self.shared.process, timer::now_ms()));
    }

    fn send(&self, bytes: &[u8]) -> Option<bool> {
        let mut output = self.output.borrow_mut();
        output.extend_from_slice(bytes);
        (output.len() <= LONGEST_ANSWER).then_some(false)
    }

    fn log(&self, level: u8, text: &[u8]) -> bool {
        log(&self.shared, level, text)
    }
}

/// Runtime socket commands that scripts have registered.
pub(crate) struct Commands(pub(crate) Weak<Shared>);

impl control::Scripts for Commands {
    fn run(&self, words: &[String]) -> Option<control::Answered> {
        let shared = self.0.upgrade()?;
        let command = shared.plan.lua.as_ref()?.command(words)?.clone();
        let args = words.to_vec();
        Some(Box::pin(async move {
            let bridge = OfCommand { shared: shared.clone(), output: RefCell::default() };
            go_on(&shared, &bridge, command.begin(&bridge, &args), "command").await;
            text_of(&bridge.output.into_inner()).into_owned()
        }))
    }

    fn usages(&self) -> Vec<(String, String)> {
        let shared = self.0.upgrade();
        shared.and_then(|shared| Some(shared.plan.lua.as_ref()?.usages())).unwrap_or_default()
    }
}

/// Stops the tasks that scripts have spawned on the calling worker.
pub(crate) fn stop() {
    SPAWNED.take().iter().for_each(AbortHandle::abort);
}

/// Starts the tasks of the calling worker.
pub(crate) fn start(shared: &Arc<Shared>, worker: usize) -> Vec<AbortHandle> {
    let Some(program) = &shared.plan.lua else { return Vec::new() };
    program
        .tasks(worker)
        .into_iter()
        .map(|task| tokio::task::spawn_local(run(shared.clone(), task)).abort_handle())
        .collect()
}

/// Runs a task to its end.
async fn run(shared: Arc<Shared>, task: ScriptTask) {
    let bridge = OfProcess(shared.clone());
    go_on(&shared, &bridge, task.begin(&bridge), "task").await;
    task.end();
}

/// Runs a started call to its end; logs a failure under the name `what`.
async fn go_on(shared: &Shared, bridge: &dyn Bridge, begun: (RunningCall, CallStep), what: &str) {
    let (mut running, mut step) = begun;
    loop {
        match step {
            CallStep::Done(_) => return,
            CallStep::Failed(failure) => {
                return running.log(bridge, &format!("Lua {what}: {}.", failure.text()));
            }
            CallStep::Wait(wait) => {
                let answer = (shared.services.perform)(wait).await;
                step = running.resume(bridge, answer);
            }
        }
    }
}
