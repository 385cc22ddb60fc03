//! Fetches for the current state of frontends, backends, servers and listeners (manual, 7.3.2 and 7.3.3).

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use runtime::Local;
use state::counters::current;
use state::{Listener, Proxy, Server};

use super::{Cursor, Fetch, row};
use crate::args::{ArgKind, Args, arg};
use crate::env::Env;
use crate::place::Columns;
use crate::transaction::TimeoutSlot;
use crate::value::{Type, Value};

#[rustfmt::skip]
pub(super) static FETCHES: &[Fetch] = &[
    //  name                  arguments              gives       where              description
    row("avg_queue",          &[arg(ArgKind::Backend)], Type::Int,  Columns::INTERNAL, "queued requests per usable server",              avg_queue),
    row("be_conn",            &[arg(ArgKind::Backend)], Type::Int,  Columns::INTERNAL, "current connections of a backend",               be_conn),
    row("be_conn_free",       &[arg(ArgKind::Backend)], Type::Int,  Columns::INTERNAL, "free connection slots of a backend, -1 for no limit", be_conn_free),
    row("be_id",              &[],                   Type::Int,  Columns::BACKEND,  "numeric identifier of the backend",              be_id),
    row("be_name",            &[],                   Type::Str,  Columns::BACKEND,  "name of the backend",                            be_name),
    row("be_sess_rate",       &[arg(ArgKind::Backend)], Type::Int,  Columns::INTERNAL, "sessions per second of a backend",               be_sess_rate),
    row("connslots",          &[arg(ArgKind::Backend)], Type::Int,  Columns::INTERNAL, "free connection and queue slots of a backend, -1 for no limit", connslots),
    row("dst_conn",           &[],                   Type::Int,  Columns::FRONTEND, "current connections of the listener",            dst_conn),
    row("fcgi.docroot",       &[],                   Type::Str,  Columns::REQUEST,  "script directory of the backend's FastCGI application", fcgi_docroot),
    row("fcgi.index",         &[],                   Type::Str,  Columns::REQUEST,  "index script of the backend's FastCGI application", fcgi_index),
    row("fe_conn",            &[arg(ArgKind::Frontend)],Type::Int,  Columns::INTERNAL, "current connections of a frontend",              fe_conn),
    row("fe_id",              &[],                   Type::Int,  Columns::FRONTEND, "numeric identifier of the frontend",             fe_id),
    row("fe_name",            &[],                   Type::Str,  Columns::FRONTEND, "name of the frontend",                           fe_name),
    row("fe_req_rate",        &[arg(ArgKind::Frontend)],Type::Int,  Columns::INTERNAL, "requests per second of a frontend",              fe_req_rate),
    row("fe_sess_rate",       &[arg(ArgKind::Frontend)],Type::Int,  Columns::INTERNAL, "sessions per second of a frontend",              fe_sess_rate),
    row("nbsrv",              &[arg(ArgKind::Backend)], Type::Int,  Columns::INTERNAL, "number of usable servers of a backend",          nbsrv),
    row("queue",              &[arg(ArgKind::Backend)], Type::Int,  Columns::INTERNAL, "queued requests of a backend and its servers",   queue),
    row("so_id",              &[],                   Type::Int,  Columns::FRONTEND, "numeric identifier of the listener",             so_id),
    row("so_name",            &[],                   Type::Str,  Columns::FRONTEND, "name of the listener",                           so_name),
    row("spoe.engine-id",     &[],                   Type::Str,  Columns::INTERNAL, "identifier of the SPOE engine that queries the agents", engine_id),
    row("srv_conn",           &[arg(ArgKind::Server)],  Type::Int,  Columns::INTERNAL, "current requests of a server",                   srv_conn),
    row("srv_conn_free",      &[arg(ArgKind::Server)],  Type::Int,  Columns::INTERNAL, "free connection slots of a server, -1 for no limit", srv_conn_free),
    row("srv_id",             &[],                   Type::Int,  Columns::SERVER,   "numeric identifier of the selected server",      srv_id),
    row("srv_is_up",          &[arg(ArgKind::Server)],  Type::Bool, Columns::INTERNAL, "whether a server is up",                         srv_is_up),
    row("srv_iweight",        &[arg(ArgKind::Server)],  Type::Int,  Columns::INTERNAL, "initial weight of a server",                     srv_iweight),
    row("srv_name",           &[],                   Type::Str,  Columns::SERVER,   "name of the selected server",                    srv_name),
    row("srv_queue",          &[arg(ArgKind::Server)],  Type::Int,  Columns::INTERNAL, "queued requests of a server",                    srv_queue),
    row("srv_sess_rate",      &[arg(ArgKind::Server)],  Type::Int,  Columns::INTERNAL, "requests per second of a server",                srv_sess_rate),
    row("srv_uweight",        &[arg(ArgKind::Server)],  Type::Int,  Columns::INTERNAL, "user-defined weight of a server",                srv_uweight),
    row("srv_weight",         &[arg(ArgKind::Server)],  Type::Int,  Columns::INTERNAL, "effective weight of a server",                   srv_weight),
    row("cur_client_timeout", &[],                   Type::Int,  Columns::FRONTEND, "client timeout of this stream, in ms",           cur_client_timeout),
    row("cur_connect_timeout",&[],                   Type::Int,  Columns::BACKEND,  "its connect timeout",                            cur_connect_timeout),
    row("cur_queue_timeout",  &[],                   Type::Int,  Columns::BACKEND,  "its queue timeout",                              cur_queue_timeout),
    row("cur_server_timeout", &[],                   Type::Int,  Columns::BACKEND,  "its server timeout",                             cur_server_timeout),
    row("cur_tarpit_timeout", &[],                   Type::Int,  Columns::CLIENT,   "its tarpit timeout",                             cur_tarpit_timeout),
    row("cur_tunnel_timeout", &[],                   Type::Int,  Columns::BACKEND,  "its tunnel timeout",                             cur_tunnel_timeout),
    row("cur_max_retries",    &[],                   Type::Int,  Columns::BACKEND,  "maximum number of connection retries",           cur_max_retries),
    row("fe_client_timeout",  &[],                   Type::Int,  Columns::FRONTEND, "client timeout of the frontend, in ms",          fe_client_timeout),
    row("fe_tarpit_timeout",  &[],                   Type::Int,  Columns::FRONTEND, "tarpit timeout of the frontend",                 fe_tarpit_timeout),
    row("fe_defbe",           &[],                   Type::Str,  Columns::FRONTEND, "default backend of the frontend",                fe_defbe),
    row("be_connect_timeout", &[],                   Type::Int,  Columns::BACKEND,  "connect timeout of the backend",                 be_connect_timeout),
    row("be_queue_timeout",   &[],                   Type::Int,  Columns::BACKEND,  "its queue timeout",                              be_queue_timeout),
    row("be_server_timeout",  &[],                   Type::Int,  Columns::BACKEND,  "its server timeout",                             be_server_timeout),
    row("be_tarpit_timeout",  &[],                   Type::Int,  Columns::BACKEND,  "its tarpit timeout",                             be_tarpit_timeout),
    row("be_tunnel_timeout",  &[],                   Type::Int,  Columns::BACKEND,  "its tunnel timeout",                             be_tunnel_timeout),
    row("be_max_retries",     &[],                   Type::Int,  Columns::BACKEND,  "maximum number of connection retries of the backend", be_max_retries),
];

fn int<'a>(value: impl Into<i64>) -> Option<Value<'a>> {
    Some(Value::Int(value.into()))
}

/// The stream's backend. As in HAProxy, this is the frontend itself until a backend is chosen.
pub(crate) fn backend<'a>(env: &'a Env<'a>) -> Option<&'a Arc<Proxy>> {
    let chosen = env.transaction.and_then(|transaction| transaction.backend.as_ref());
    chosen.or_else(|| env.session.map(|session| &session.frontend)).map(Local::shared)
}

/// A backend's current requests, active and queued.
pub(crate) fn backend_connections(proxy: &Proxy) -> u64 {
    current(&proxy.backend, |counters| counters.traffic.sessions.get())
}

/// The number of usable servers in rotation. If no active server is usable, the number of usable backups.
fn usable(proxy: &Proxy) -> u32 {
    match proxy.usable() {
        (0, backup) => backup,
        (active, _) => active,
    }
}

fn queued(proxy: &Proxy) -> u32 {
    proxy.queue.len() + proxy.servers.load().iter().map(|server| server.queue.len()).sum::<u32>()
}

fn avg_queue<'a>(_: &'a Env<'a>, args: &'a Args, _: &mut Cursor) -> Option<Value<'a>> {
    let proxy = args.proxy(0)?;
    let (queued, servers) = (queued(proxy), usable(proxy));
    int(if servers == 0 { queued * 256 } else { queued.div_ceil(servers) })
}

fn be_conn<'a>(_: &'a Env<'a>, args: &'a Args, _: &mut Cursor) -> Option<Value<'a>> {
    int(backend_connections(args.proxy(0)?) as i64)
}

/// Sums `left` over the usable servers; -1 if one of them is unlimited.
fn sum_left(proxy: &Proxy, left: impl Fn(&Server) -> Option<i64>) -> i64 {
    let servers = proxy.servers.load();
    let sum =
        servers.iter().filter(|server| server.is_up()).try_fold(0, |sum, server| Some(sum + left(server)?));
    sum.unwrap_or(-1)
}

fn places_left(server: &Server) -> Option<i64> {
    let limit = i64::from(server.maxconn.load(Relaxed));
    (limit > 0).then(|| (limit - i64::from(server.serving())).max(0))
}

fn be_conn_free<'a>(_: &'a Env<'a>, args: &'a Args, _: &mut Cursor) -> Option<Value<'a>> {
    int(sum_left(args.proxy(0)?, places_left))
}

fn connslots<'a>(_: &'a Env<'a>, args: &'a Args, _: &mut Cursor) -> Option<Value<'a>> {
    int(sum_left(args.proxy(0)?, |server| {
        let places = places_left(server)?;
        let room = i64::from(server.maxqueue).checked_sub(i64::from(server.queue.len()))?;
        (server.maxqueue > 0).then(|| places + room.max(0))
    }))
}

fn be_id<'a>(env: &'a Env<'a>, _: &'a Args, _: &mut Cursor) -> Option<Value<'a>> {
    int(backend(env)?.id)
}

fn be_name<'a>(env: &'a Env<'a>, _: &'a Args, _: &mut Cursor) -> Option<Value<'a>> {
    Some(Value::str(backend(env)?.name.as_bytes()))
}

fn be_sess_rate<'a>(env: &'a Env<'a>, args: &'a Args, _: &mut Cursor) -> Option<Value<'a>> {
    let counters = args.proxy(0)?.backend.all();
    int(counters.map(|one| one.traffic.session_rate.per_second(env.now_ms)).sum::<u32>())
}

fn dst_conn<'a>(env: &'a Env<'a>, _: &'a Args, _: &mut Cursor) -> Option<Value<'a>> {
    int(listener(env)?.connections.load(Relaxed))
}

fn fe_conn<'a>(_: &'a Env<'a>, args: &'a Args, _: &mut Cursor) -> Option<Value<'a>> {
    int(args.proxy(0)?.connections.load(Relaxed))
}

fn fe_id<'a>(env: &'a Env<'a>, _: &'a Args, _: &mut Cursor) -> Option<Value<'a>> {
    // Proxies without a configured number have -1, as in HAProxy.
    int(env.session?.frontend.id.cast_signed())
}

fn fe_name<'a>(env: &'a Env<'a>, _: &'a Args, _: &mut Cursor) -> Option<Value<'a>> {
    Some(Value::str(env.session?.frontend.name.as_bytes()))
}

fn fe_req_rate<'a>(env: &'a Env<'a>, args: &'a Args, _: &mut Cursor) -> Option<Value<'a>> {
    int(args.proxy(0)?.frontend.all().map(|one| one.request_rate.per_second(env.now_ms)).sum::<u32>())
}

fn fe_sess_rate<'a>(env: &'a Env<'a>, args: &'a Args, _: &mut Cursor) -> Option<Value<'a>> {
    let counters = args.proxy(0)?.frontend.all();
    int(counters.map(|one| one.traffic.session_rate.per_second(env.now_ms)).sum::<u32>())
}

fn nbsrv<'a>(_: &'a Env<'a>, args: &'a Args, _: &mut Cursor) -> Option<Value<'a>> {
    int(usable(args.proxy(0)?))
}

fn queue<'a>(_: &'a Env<'a>, args: &'a Args, _: &mut Cursor) -> Option<Value<'a>> {
    int(queued(args.proxy(0)?))
}

fn so_id<'a>(env: &'a Env<'a>, _: &'a Args, _: &mut Cursor) -> Option<Value<'a>> {
    int(listener(env)?.id)
}

fn so_name<'a>(env: &'a Env<'a>, _: &'a Args, _: &mut Cursor) -> Option<Value<'a>> {
    Some(Value::str(listener(env)?.given_name()?.as_bytes()))
}

/// The listener that accepted the session, if any.
fn listener<'a>(env: &'a Env<'a>) -> Option<&'a Listener> {
    env.session.map(|session| &*session.listener).filter(|listener| !listener.is_placeholder())
}

/// The SPOE `engine-id` (SPOE specification, 3.2.4).
fn engine_id<'a>(env: &'a Env<'a>, _: &'a Args, _: &mut Cursor) -> Option<Value<'a>> {
    Some(Value::str(env.session?.frontend.engine_id.get()?.as_bytes()))
}

fn srv_conn<'a>(_: &'a Env<'a>, args: &'a Args, _: &mut Cursor) -> Option<Value<'a>> {
    int(args.server(0)?.serving())
}

fn srv_conn_free<'a>(_: &'a Env<'a>, args: &'a Args, _: &mut Cursor) -> Option<Value<'a>> {
    int(places_left(&*args.server(0)?).unwrap_or(-1))
}

fn srv_id<'a>(env: &'a Env<'a>, _: &'a Args, _: &mut Cursor) -> Option<Value<'a>> {
    int(env.transaction?.server.as_ref()?.id)
}

fn srv_is_up<'a>(_: &'a Env<'a>, args: &'a Args, _: &mut Cursor) -> Option<Value<'a>> {
    Some(Value::Bool(args.server(0)?.is_up()))
}

fn srv_iweight<'a>(_: &'a Env<'a>, args: &'a Args, _: &mut Cursor) -> Option<Value<'a>> {
    int(args.server(0)?.initial_weight())
}

fn srv_name<'a>(env: &'a Env<'a>, _: &'a Args, _: &mut Cursor) -> Option<Value<'a>> {
    Some(Value::str(env.transaction?.server.as_ref()?.name.as_bytes()))
}

fn srv_queue<'a>(_: &'a Env<'a>, args: &'a Args, _: &mut Cursor) -> Option<Value<'a>> {
    int(args.server(0)?.queue.len())
}

fn srv_sess_rate<'a>(env: &'a Env<'a>, args: &'a Args, _: &mut Cursor) -> Option<Value<'a>> {
    let server = args.server(0)?;
    int(server.counters.all().map(|one| one.traffic.session_rate.per_second(env.now_ms)).sum::<u32>())
}

fn srv_uweight<'a>(_: &'a Env<'a>, args: &'a Args, _: &mut Cursor) -> Option<Value<'a>> {
    int(args.server(0)?.user_weight())
}

fn srv_weight<'a>(_: &'a Env<'a>, args: &'a Args, _: &mut Cursor) -> Option<Value<'a>> {
    int(args.server(0)?.effective_weight())
}

/// The timeout that a rule set for this stream, otherwise that of its proxy.
fn timeout<'a>(env: &'a Env<'a>, slot: TimeoutSlot) -> Option<Value<'a>> {
    let changed = env.transaction.and_then(|transaction| transaction.timeouts[slot as usize]);
    let of_client = matches!(slot, TimeoutSlot::Client);
    changed.map(|ms| Value::Int(i64::from(ms))).or_else(|| match of_client {
        true => frontend_timeout(env, slot),
        false => backend_timeout(env, slot),
    })
}

fn frontend_timeout<'a>(env: &'a Env<'a>, slot: TimeoutSlot) -> Option<Value<'a>> {
    int(env.session?.frontend.timeouts.get(slot as usize)?.load(Relaxed))
}

fn backend_timeout<'a>(env: &'a Env<'a>, slot: TimeoutSlot) -> Option<Value<'a>> {
    int(backend(env)?.timeouts.get(slot as usize)?.load(Relaxed))
}

fn cur_client_timeout<'a>(env: &'a Env<'a>, _: &'a Args, _: &mut Cursor) -> Option<Value<'a>> {
    timeout(env, TimeoutSlot::Client)
}

fn cur_connect_timeout<'a>(env: &'a Env<'a>, _: &'a Args, _: &mut Cursor) -> Option<Value<'a>> {
    timeout(env, TimeoutSlot::Connect)
}

fn cur_queue_timeout<'a>(env: &'a Env<'a>, _: &'a Args, _: &mut Cursor) -> Option<Value<'a>> {
    timeout(env, TimeoutSlot::Queue)
}

fn cur_server_timeout<'a>(env: &'a Env<'a>, _: &'a Args, _: &mut Cursor) -> Option<Value<'a>> {
    timeout(env, TimeoutSlot::Server)
}

fn cur_tarpit_timeout<'a>(env: &'a Env<'a>, _: &'a Args, _: &mut Cursor) -> Option<Value<'a>> {
    timeout(env, TimeoutSlot::Tarpit)
}

fn cur_tunnel_timeout<'a>(env: &'a Env<'a>, _: &'a Args, _: &mut Cursor) -> Option<Value<'a>> {
    timeout(env, TimeoutSlot::Tunnel)
}

fn cur_max_retries<'a>(env: &'a Env<'a>, _: &'a Args, _: &mut Cursor) -> Option<Value<'a>> {
    match env.transaction?.max_retries {
        Some(retries) => int(retries),
        None => int(backend(env)?.retries.load(Relaxed)),
    }
}

fn fe_client_timeout<'a>(env: &'a Env<'a>, _: &'a Args, _: &mut Cursor) -> Option<Value<'a>> {
    frontend_timeout(env, TimeoutSlot::Client)
}

fn fe_tarpit_timeout<'a>(env: &'a Env<'a>, _: &'a Args, _: &mut Cursor) -> Option<Value<'a>> {
    frontend_timeout(env, TimeoutSlot::Tarpit)
}

fn fe_defbe<'a>(env: &'a Env<'a>, _: &'a Args, _: &mut Cursor) -> Option<Value<'a>> {
    let name = env.session?.frontend.default_backend.load_full()?;
    Some(Value::Str(crate::value::Scratch::copy(name.as_bytes()).into()))
}

fn fcgi_docroot<'a>(env: &'a Env<'a>, _: &'a Args, _: &mut Cursor) -> Option<Value<'a>> {
    let application = backend(env)?.application.load();
    let docroot = &application.as_ref()?.docroot;
    Some(Value::Str(crate::value::Scratch::copy(docroot).into()))
}

fn fcgi_index<'a>(env: &'a Env<'a>, _: &'a Args, _: &mut Cursor) -> Option<Value<'a>> {
    let application = backend(env)?.application.load();
    let index = application.as_ref()?.index.as_ref()?;
    Some(Value::Str(crate::value::Scratch::copy(index).into()))
}

fn be_connect_timeout<'a>(env: &'a Env<'a>, _: &'a Args, _: &mut Cursor) -> Option<Value<'a>> {
    backend_timeout(env, TimeoutSlot::Connect)
}

fn be_queue_timeout<'a>(env: &'a Env<'a>, _: &'a Args, _: &mut Cursor) -> Option<Value<'a>> {
    backend_timeout(env, TimeoutSlot::Queue)
}

fn be_server_timeout<'a>(env: &'a Env<'a>, _: &'a Args, _: &mut Cursor) -> Option<Value<'a>> {
    backend_timeout(env, TimeoutSlot::Server)
}

fn be_tarpit_timeout<'a>(env: &'a Env<'a>, _: &'a Args, _: &mut Cursor) -> Option<Value<'a>> {
    backend_timeout(env, TimeoutSlot::Tarpit)
}

fn be_tunnel_timeout<'a>(env: &'a Env<'a>, _: &'a Args, _: &mut Cursor) -> Option<Value<'a>> {
    backend_timeout(env, TimeoutSlot::Tunnel)
}

fn be_max_retries<'a>(env: &'a Env<'a>, _: &'a Args, _: &mut Cursor) -> Option<Value<'a>> {
    int(backend(env)?.retries.load(Relaxed))
}
