//! Checks that `docs/lua.md` matches the available functions.

use std::sync::Arc;

use mlua::{Table, Value};

use crate::fresh;
use crate::name_cache::SharedNames;
use crate::settings::LuaSettings;
use crate::state::State;

/// Members that are created per object, so they are not in the table of a class.
const OF_OBJECTS: &[&str] = &[
    "Proxy.name",
    "Proxy.uuid",
    "Proxy.servers",
    "Server.name",
    "Server.puid",
    "Proxy.stktable",
    "Proxy.listeners",
    "TXN.http_req",
    "TXN.http_res",
    "ProxyMailers.track_server_health",
    "ProxyMailers.log_level",
    "ProxyMailers.mailservers",
    "ProxyMailers.mailservers_timeout",
    "ProxyMailers.smtp_hostname",
    "ProxyMailers.smtp_from",
    "ProxyMailers.smtp_to",
    "ServerEvent.name",
    "ServerEvent.puid",
    "ServerEvent.rid",
    "ServerEvent.proxy_name",
    "ServerEvent.proxy_uuid",
    "ServerEvent.reference",
    "ServerEvent.state",
    "ServerEvent.admin",
    "ServerEvent.check",
    "ServerEventCheckRes.result",
    "ServerEventCheckRes.agent",
    "ServerEventCheckRes.duration",
    "ServerEventCheckRes.reason",
    "ServerEventCheckRes.health",
    "ServerEventState.admin",
    "ServerEventState.check",
    "ServerEventState.cause",
    "ServerEventState.new_state",
    "ServerEventState.old_state",
    "ServerEventState.requeued",
    "ServerEventAdmin.cause",
    "ServerEventAdmin.new_admin",
    "ServerEventAdmin.old_admin",
    "ServerEventAdmin.requeued",
    "TXN.c",
    "TXN.sc",
    "TXN.f",
    "TXN.sf",
    "TXN.req",
    "TXN.res",
    "TXN.http",
    "Reply.status",
    "Reply.reason",
    "Reply.headers",
    "Reply.body",
    "AppletHTTP.c",
    "AppletHTTP.sc",
    "AppletHTTP.f",
    "AppletHTTP.sf",
    "AppletHTTP.method",
    "AppletHTTP.version",
    "AppletHTTP.path",
    "AppletHTTP.qs",
    "AppletHTTP.length",
    "AppletHTTP.headers",
    "AppletTCP.c",
    "AppletTCP.sc",
    "AppletTCP.f",
    "AppletTCP.sf",
    "AcmeEvent.crtname",
    "AcmeEvent.domain",
    "AcmeEvent.thumbprint",
    "AcmeEvent.dns_record",
    "AcmeEvent.provider",
    "AcmeEvent.vars",
    "Map.lookup",
    "Map.slookup",
    "Regex.exec",
    "Regex.match",
];

fn has(state: &State, name: &str) -> bool {
    if OF_OBJECTS.contains(&name) {
        return true;
    }
    let Some((class, member)) = name.split_once('.') else { return false };
    let table = state.lua.globals().get::<Option<Table>>(class).ok().flatten();
    let table = table.or_else(|| state.classes.get::<Option<Table>>(class).ok().flatten());
    table.is_some_and(|table| !matches!(table.raw_get(member), Ok(Value::Nil) | Err(_)))
}

#[test]
fn the_reference_is_complete() {
    let settings = Arc::new(LuaSettings::default());
    let shared = Arc::new(SharedNames::new(&settings));
    let state = fresh::state(0, &settings, &shared, 0, 1).expect("a state");
    let (mut rows, mut wrong) = (0, Vec::new());
    for line in include_str!("../../../docs/lua.md").lines() {
        let mut cells = line.trim_matches('|').split('|').map(str::trim);
        let (Some(name), Some(status)) = (cells.next(), cells.next()) else { continue };
        let Some(name) = name.strip_prefix('`').and_then(|name| name.strip_suffix('`')) else { continue };
        rows += 1;
        if has(&state, name) != (status == "yes") {
            wrong.push(name.to_owned());
        }
    }
    assert!(wrong.is_empty(), "{wrong:?}");
    assert!(rows > 200, "{rows}");
}
