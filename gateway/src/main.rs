//! `weir-gateway`: configures Weir from the Gateway API and Ingress objects of a Kubernetes cluster.
//!
//! One thread runs all tasks: a watch for each kind of objects ([`watch`]), the main loop ([`controller`]), the writer of statuses
//! ([`publish`]), the leader election ([`lease`]) and the listener for health and metrics ([`serve`]). The proxy is another process,
//! which is either a child ([`supervise`]) or was started otherwise.
#![forbid(unsafe_code)]

mod access;
mod api;
mod apply;
mod args;
mod controller;
mod kinds;
mod lease;
mod map_changes;
mod measures;
mod publish;
mod report;
mod runtime_socket;
mod serve;
mod status;
mod store;
mod supervise;
mod watch;

use std::io;
use std::process::ExitCode;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Duration;

use gateway_model::{Objects, Settings, translate};
use runtime::timer;
use signal_hook::consts::{SIGINT, SIGTERM};
use tokio::io::AsyncReadExt;

use access::ServerAccess;
use api::ApiClient;
use apply::{Applier, CONFIGURATION};
use args::{GatewayAction, GatewayArgs, ProxyChoice};
use controller::Controller;
use kinds::KINDS;
use lease::LeaderElection;
use measures::Measures;
use publish::Publisher;
use report::{alert, notice};
use runtime_socket::RuntimeSocket;
use serve::HealthServer;
use store::ObjectStore;
use supervise::Supervisor;
use watch::KindWatcher;

fn main() -> ExitCode {
    let action = args::parse(std::env::args_os().skip(1));
    let args = match action {
        Ok(GatewayAction::Run(args)) => args,
        Ok(GatewayAction::Help) => {
            print!("{}", args::HELP);
            return ExitCode::SUCCESS;
        }
        Ok(GatewayAction::Version) => {
            println!("weir-gateway {}", env!("CARGO_PKG_VERSION"));
            return ExitCode::SUCCESS;
        }
        Err(error) => {
            alert(format!("{error}."));
            return ExitCode::from(2);
        }
    };
    match start(*args) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            alert(format!("{error}."));
            ExitCode::FAILURE
        }
    }
}

/// Runs the tasks on a separate thread, until a signal ends them.
fn start(args: GatewayArgs) -> Result<(), String> {
    base::clock::start();
    let access = ServerAccess::new(&args)?;
    std::fs::create_dir_all(&args.directory)
        .map_err(|error| format!("cannot create {}: {error}", args.directory.display()))?;
    let has_failed = Arc::new(AtomicBool::new(false));
    let failed = has_failed.clone();
    let main = move || async move {
        if let Err(error) = run(args, access).await {
            alert(format!("{error}."));
            failed.store(true, Relaxed);
        }
    };
    let thread = runtime::worker::spawn_aside("weir/gateway", main).map_err(|error| error.to_string())?;
    match (thread.join(), has_failed.load(Relaxed)) {
        (Ok(()), false) => Ok(()),
        _ => Err("the controller has ended".to_owned()),
    }
}

async fn run(args: GatewayArgs, access: ServerAccess) -> Result<(), String> {
    let mut signals = signals().map_err(|error| format!("cannot handle signals: {error}"))?;
    let args = Rc::new(args);
    let measures = Rc::new(Measures::default());
    let store = Rc::new(ObjectStore::default());
    let socket = RuntimeSocket::new(match &args.proxy {
        ProxyChoice::Run(_) => args.directory.join("weir.sock"),
        ProxyChoice::Socket(socket) => socket.clone(),
    });
    let listener = args.http.map(HealthServer::bind).transpose()?;
    notice(format!("version {} watches {}.", env!("CARGO_PKG_VERSION"), access.base()));
    let client = Rc::new(ApiClient::new(access));
    let base = settings(&args, &socket);
    let mut applier = Applier::new(args.directory.clone(), socket.clone(), measures.clone());
    let initial = translate(&Objects::default(), &base);
    // The last configuration of an earlier process serves until the API server has been read.
    if applier.on_disk().is_none() {
        applier
            .prepare(&initial)
            .map_err(|error| format!("cannot write {}: {error}", args.directory.display()))?;
    }
    let supervisor = match &args.proxy {
        ProxyChoice::Run(program) => {
            let file = args.directory.join(CONFIGURATION);
            Some(Supervisor::new(program.clone(), file, initial.config.clone(), measures.clone()))
        }
        ProxyChoice::Socket(_) => None,
    };
    if let Some(supervisor) = &supervisor {
        tokio::task::spawn_local(supervisor.clone().run());
    }
    let kinds = KINDS.iter().filter(|kind| !kind.is_ingress || args.ingress_controller.is_some());
    let mut count = 0;
    for kind in kinds {
        count += 1;
        let (client, store, measures) = (client.clone(), store.clone(), measures.clone());
        tokio::task::spawn_local(KindWatcher { client, store, measures, kind }.run());
    }
    let publisher = Publisher::new(client.clone(), store.clone(), measures.clone(), args.controller.clone());
    tokio::task::spawn_local(publisher.clone().run());
    let identity = lease::identity();
    elect(&args, &client, &measures, &publisher, identity.clone());
    if let Some(listener) = listener {
        let server = Rc::new(HealthServer { measures: measures.clone(), socket });
        tokio::task::spawn_local(server.run(listener));
    }
    let controller = Controller {
        args: args.clone(),
        base,
        store,
        measures: measures.clone(),
        publisher,
        applier,
        supervisor: supervisor.clone(),
        kinds: count,
        accepted: Objects::default(),
        changed: Default::default(),
        unsettled: Default::default(),
        refused: Default::default(),
    };
    let main = tokio::task::spawn_local(controller.run());
    let _ = signals.read_u8().await;
    stop(&args, &measures, supervisor).await;
    main.abort();
    if measures.is_leader.get() && args.elects_leader {
        let _ = timer::timeout(Duration::from_secs(2), lease::release(&client, &identity)).await;
    }
    Ok(())
}

/// The settings that do not change while the process runs.
fn settings(args: &GatewayArgs, socket: &RuntimeSocket) -> Settings {
    let mut settings = Settings {
        controller_name: args.controller.clone(),
        directory: args.directory.display().to_string(),
        global: vec![format!("stats socket {} level admin mode 660", socket.path().display())],
        ..Settings::default()
    };
    if let Some(controller) = &args.ingress_controller {
        settings.ingress_controller.clone_from(controller);
    }
    settings
}

fn elect(
    args: &GatewayArgs,
    client: &Rc<ApiClient>,
    measures: &Rc<Measures>,
    publisher: &Rc<Publisher>,
    identity: String,
) {
    if !args.elects_leader {
        measures.is_leader.set(true);
        return;
    }
    let publisher = publisher.clone();
    let election = LeaderElection::new(client.clone(), measures.clone(), identity);
    tokio::task::spawn_local(election.run(move || publisher.due.notify_one()));
}

/// Makes the process unready, and ends the proxy once load balancers have noticed.
async fn stop(args: &GatewayArgs, measures: &Measures, supervisor: Option<Rc<Supervisor>>) {
    notice("stopping.");
    measures.is_ready.set(false);
    if let Some(supervisor) = supervisor {
        timer::sleep(args.drain_delay).await;
        supervisor.stop(args.drain).await;
    }
}

/// Returns a stream with a byte for each signal that ends the process.
fn signals() -> io::Result<tokio::net::UnixStream> {
    let (read, write) = std::os::unix::net::UnixStream::pair()?;
    for signal in [SIGINT, SIGTERM] {
        signal_hook::low_level::pipe::register(signal, write.try_clone()?)?;
    }
    read.set_nonblocking(true)?;
    tokio::net::UnixStream::from_std(read)
}
