//! The statistics of one proxy, one server or the process by name, for scripts.

use state::statistic::{Statistic, Whose};

use super::column::{COLUMNS, ObjectRow};
use super::field::StatValue;
use super::info;
use super::stat::{self, RowFilter, Show};
use crate::config_view::Runtime;

fn field(value: &StatValue) -> Option<Statistic> {
    Some(match value {
        StatValue::Empty => return None,
        StatValue::S32(value) => Statistic::Integer((*value).into()),
        StatValue::U32(value) => Statistic::Integer((*value).into()),
        StatValue::U64(value) => Statistic::Integer(i64::try_from(*value).unwrap_or(i64::MAX)),
        StatValue::F64(value) => Statistic::Number(*value),
        StatValue::Str(text) => Statistic::Text(text.to_string()),
    })
}

/// Those that have a value now.
pub fn statistics(runtime: &Runtime, whose: Whose<'_>) -> Vec<(&'static str, Statistic)> {
    let (proxy, kinds, server) = match whose {
        Whose::Process => {
            let values = info::values(runtime, false);
            let named = values.iter().filter_map(|(at, value)| Some((info::FIELDS[*at].name, field(value)?)));
            return named.collect();
        }
        Whose::Listener(frontend, name) => return of_listener(runtime, frontend, name),
        Whose::Frontend(name) => (name, 1, None),
        Whose::Backend(name) => (name, 2, None),
        Whose::Server(backend, name) => (backend, 4, Some(name)),
    };
    let shown = runtime.view();
    let Some(view) =
        shown.proxy(proxy, |state| if kinds == 1 { state.is_frontend } else { state.is_backend })
    else {
        return Vec::new();
    };
    let server = server.and_then(|name| view.state.server(name)).map(|server| server.id);
    let filter = RowFilter { kinds: Some(kinds), server, ..RowFilter::default() };
    let row = stat::rows(view, &filter, Show::now(runtime, true)).next();
    row.map(|row| values(&row)).unwrap_or_default()
}

/// Those of a listener, whether it counts or not.
fn of_listener(runtime: &Runtime, frontend: &str, name: &str) -> Vec<(&'static str, Statistic)> {
    let shown = runtime.view();
    let Some(view) = shown.proxy(frontend, |state| state.is_frontend) else { return Vec::new() };
    let listeners = view.state.listeners.load();
    let listener = listeners.iter().find(|listener| *listener.name == *name);
    let row = listener.map(|listener| stat::listener_row(view, listener, Show::now(runtime, true)));
    row.map(|row| values(&row)).unwrap_or_default()
}

fn values(row: &ObjectRow) -> Vec<(&'static str, Statistic)> {
    COLUMNS.iter().zip(&row.values).filter_map(|(column, value)| Some((column.name, field(value)?))).collect()
}
