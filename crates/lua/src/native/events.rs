//! Event handlers: their queues, and events as tables.

use std::sync::Arc;

use mlua::{IntoLuaMulti, Lua, MultiValue, Table, UserData, UserDataMethods, Value};
use sample::pattern::ListChange;
use state::events::{
    self, About, AdminChange, Checked, OrderEvent, ServerEvent, ServerEventKind, StateCause, StateChange,
    Subscriber,
};
use state::server::{Admin, Operational};

use super::function;
use crate::inbox::{Happened, Inbox};
use crate::name_cache::Called;

/// Kinds of events, by their names in scripts.
const KINDS: [(&str, ServerEventKind); 9] = [
    ("SERVER_ADD", ServerEventKind::Added),
    ("SERVER_DEL", ServerEventKind::Removed),
    ("SERVER_DOWN", ServerEventKind::Down),
    ("SERVER_UP", ServerEventKind::Up),
    ("SERVER_STATE", ServerEventKind::State),
    ("SERVER_ADMIN", ServerEventKind::Admin),
    ("SERVER_CHECK", ServerEventKind::Check),
    ("ACME_DEPLOY", ServerEventKind::Deploy),
    ("ACME_NEWCERT", ServerEventKind::Certified),
];

/// The number of kinds that concern servers.
const OF_SERVERS: usize = 7;

/// Kinds of pattern list changes.
const OF_PATTERNS: [(&str, ListChange); 5] = [
    ("PAT_REF_ADD", ListChange::Add),
    ("PAT_REF_DEL", ListChange::Delete),
    ("PAT_REF_SET", ListChange::Set),
    ("PAT_REF_CLEAR", ListChange::Clear),
    ("PAT_REF_COMMIT", ListChange::Commit),
];

/// Administrative flags, by their names in scripts, each with its mask.
const FLAGS: [(u32, &str); 8] = [
    (Admin::MAINT, "MAINT"),
    (Admin::FORCED_MAINT, "FMAINT"),
    (Admin::INHERITED_MAINT, "IMAINT"),
    (Admin::RESOLUTION_MAINT, "RMAINT"),
    (Admin::CONFIGURED_MAINT, "CMAINT"),
    (Admin::DRAIN, "DRAIN"),
    (Admin::FORCED_DRAIN, "FDRAIN"),
    (Admin::INHERITED_DRAIN, "IDRAIN"),
];

/// An event queue as scripts hold it.
pub(super) struct Handle(pub(super) Arc<Inbox>);

impl UserData for Handle {
    fn add_methods<M: UserDataMethods<Self>>(methods: &mut M) {
        methods.add_method("signal", |_, own, ()| Ok(own.0.signal.clone()));
        methods.add_method("is_closed", |_, own, ()| Ok(own.0.is_closed()));
        methods.add_method("close", |_, own, ()| {
            own.0.clone().end();
            Ok(())
        });
        methods.add_method("take", |lua, own, ()| match own.0.take() {
            None => Ok(MultiValue::new()),
            Some(Happened::Server(event)) => {
                (name_of(event.kind), of_server(lua, &event)?, event.at).into_lua_multi(lua)
            }
            Some(Happened::Order(event)) => {
                let kind =
                    if event.record.is_some() { ServerEventKind::Deploy } else { ServerEventKind::Certified };
                (name_of(kind), of_order(lua, &event)?, event.at).into_lua_multi(lua)
            }
            Some(Happened::Pattern(change, at)) => {
                let name = OF_PATTERNS.iter().find(|(_, own)| *own == change).map(|(name, _)| *name);
                (name, Value::Nil, at).into_lua_multi(lua)
            }
        });
    }
}

fn name_of(kind: ServerEventKind) -> Option<&'static str> {
    KINDS.iter().find(|(_, own)| *own == kind).map(|(name, _)| *name)
}

fn of_order(lua: &Lua, event: &OrderEvent) -> mlua::Result<Table> {
    let table = lua.create_table()?;
    table.set("crtname", &*event.certificate)?;
    if let Some(record) = &event.record {
        table.set("domain", &*record.domain)?;
        table.set("thumbprint", &*record.thumbprint)?;
        table.set("dns_record", &*record.text)?;
        table.set("provider", record.provider.as_deref())?;
        table.set("vars", record.vars.as_deref())?;
    }
    Ok(table)
}

/// Returns the event as its handler sees it.
fn of_server(lua: &Lua, event: &ServerEvent) -> mlua::Result<Table> {
    let table = lua.create_table()?;
    table.set("name", &*event.server)?;
    table.set("puid", event.id)?;
    table.set("rid", event.revision)?;
    table.set("proxy_name", &*event.proxy)?;
    table.set("proxy_uuid", event.proxy_id)?;
    match &event.about {
        About::Nothing => {}
        About::State(change) => table.set("state", of_state(lua, change)?)?,
        About::Admin(change) => table.set("admin", of_admin(lua, change)?)?,
        About::Check(result) => table.set("check", of_check(lua, result)?)?,
    }
    Ok(table)
}

fn of_state(lua: &Lua, change: &StateChange) -> mlua::Result<Table> {
    let name = |state| match state {
        Operational::Stopped => "STOPPED",
        Operational::Starting => "STARTING",
        Operational::Running => "RUNNING",
        Operational::Stopping => "STOPPING",
    };
    let table = lua.create_table()?;
    table.set("admin", matches!(change.cause, StateCause::Admin(_)))?;
    match &change.cause {
        StateCause::Admin(text) | StateCause::Other(text) => table.set("cause", &**text)?,
        StateCause::Check(result) => {
            table.set("cause", "")?;
            table.set("check", of_check(lua, result)?)?;
        }
    }
    table.set("new_state", name(change.new))?;
    table.set("old_state", name(change.old))?;
    table.set("requeued", change.requeued)?;
    Ok(table)
}

fn of_admin(lua: &Lua, change: &AdminChange) -> mlua::Result<Table> {
    let flags = |admin: Admin| {
        let table = lua.create_table()?;
        for (_, name) in FLAGS.iter().filter(|(flag, _)| admin.0 & flag != 0) {
            table.set(*name, true)?;
        }
        mlua::Result::Ok(table)
    };
    let table = lua.create_table()?;
    table.set("cause", &*change.cause)?;
    table.set("new_admin", flags(change.new)?)?;
    table.set("old_admin", flags(change.old)?)?;
    table.set("requeued", change.requeued)?;
    Ok(table)
}

fn of_check(lua: &Lua, result: &Checked) -> mlua::Result<Table> {
    let (table, reason, health) = (lua.create_table()?, lua.create_table()?, lua.create_table()?);
    table.set(
        "result",
        match (result.is_success, result.is_conditional) {
            (_, true) => "CONDPASS",
            (true, false) => "PASSED",
            (false, false) => "FAILED",
        },
    )?;
    table.set("agent", result.by_agent)?;
    table.set("duration", result.duration_ms.map_or(-1, |time| time as i64))?;
    reason.set("short", result.status)?;
    reason.set("desc", result.meaning)?;
    reason.set("code", result.code)?;
    table.set("reason", reason)?;
    let (current, rise, fall) = result.level;
    health.set("cur", current)?;
    health.set("rise", rise)?;
    health.set("fall", fall)?;
    table.set("health", health)?;
    Ok(table)
}

/// Adds the functions to the prelude's table.
pub(super) fn fill(lua: &Lua, native: &Table, called: &Arc<Called>) -> mlua::Result<()> {
    let own = called.clone();
    native.set(
        "inbox",
        function(lua, move |_, ()| {
            let shared = own.shared.clone();
            let inbox = Inbox::new(move |text: &str| shared.log(3, text.as_bytes()));
            own.shared.keep_inbox(&inbox);
            Ok(Handle(inbox))
        })?,
    )?;
    native.set("kinds", function(lua, |_, names| kinds(&KINDS, names, |kind| kind as u32))?)?;
    let of_servers = &KINDS[..OF_SERVERS];
    native
        .set("server_kinds", function(lua, move |_, names| kinds(of_servers, names, |kind| kind as u32))?)?;
    native.set(
        "pattern_kinds",
        function(lua, |_, names| kinds(&OF_PATTERNS, names, |change| change as u32))?,
    )?;
    let own = called.clone();
    type Arguments = (mlua::UserDataRef<Handle>, u32, Option<String>, Option<String>);
    native.set(
        "subscribe",
        function(lua, move |_, (handle, kinds, backend, server): Arguments| {
            let subscriber: Arc<dyn Subscriber> = handle.0.clone();
            let server = match (backend, server) {
                (Some(backend), Some(server)) => {
                    let known = own.shared.known().map(|known| &known.directory.backends);
                    let found = known.and_then(|all| all.get(&*backend)?.server(&server));
                    let gone =
                        || mlua::Error::runtime(format!("server `{backend}/{server}` no longer exists"));
                    Some(found.ok_or_else(gone)?)
                }
                _ => None,
            };
            events::subscribe(kinds, server.as_ref(), &subscriber);
            Ok(())
        })?,
    )
}

/// Adds up the kinds with these names. The name of a family stands for all kinds of the family.
fn kinds<K: Copy>(all: &[(&str, K)], names: Table, number: impl Fn(K) -> u32) -> mlua::Result<u32> {
    let mut sum = 0;
    for name in names.sequence_values::<String>() {
        let name = name?;
        let is_of = |own: &str| own == name || own.rsplit_once('_').is_some_and(|(family, _)| family == name);
        let own = all.iter().filter(|(own, _)| is_of(own)).fold(0, |sum, (_, kind)| sum | number(*kind));
        if own == 0 {
            let known: Vec<&str> = all.iter().map(|(own, _)| *own).collect();
            return Err(mlua::Error::runtime(format!(
                "unknown event `{name}`; use {}, or the part before the last `_` for a group of events",
                known.join(", ")
            )));
        }
        sum |= own;
    }
    Ok(sum)
}
