//! The statistics of one proxy, one server or the process by name, for scripts.

use state::statistic::{Statistic, StatisticOwner};

use crate::column::{COLUMNS, ObjectRow};
use crate::field::StatValue;
use crate::info;
use crate::process::Statistics;
use crate::row_objects;
use crate::stat::{self, RowFilter, Show};

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

/// The names and current values of all available statistics of `whose`; empty if the object does not exist.
pub fn by_name(statistics: &Statistics, whose: StatisticOwner<'_>) -> Vec<(&'static str, Statistic)> {
    let (proxy, kinds, server) = match whose {
        StatisticOwner::Process => {
            let values = info::values(statistics, false);
            let named = values.iter().filter_map(|(at, value)| Some((info::FIELDS[*at].name, field(value)?)));
            return named.collect();
        }
        StatisticOwner::Listener(frontend, name) => return of_listener(statistics, frontend, name),
        StatisticOwner::Frontend(name) => (name, 1, None),
        StatisticOwner::Backend(name) => (name, 2, None),
        StatisticOwner::Server(backend, name) => (backend, 4, Some(name)),
    };
    let shown = statistics.view();
    let Some(view) =
        shown.proxy(proxy, |state| if kinds == 1 { state.is_frontend } else { state.is_backend })
    else {
        return Vec::new();
    };
    let server = server.and_then(|name| view.state.server(name)).map(|server| server.id);
    let filter = RowFilter { kinds: Some(kinds), server, ..RowFilter::default() };
    let objects = row_objects::objects(view, &filter);
    let row = objects.first().map(|object| object.row(view, Show::now(statistics, true)));
    row.map(|row| values(&row)).unwrap_or_default()
}

/// The statistics of a listener, whether it has counters or not.
fn of_listener(statistics: &Statistics, frontend: &str, name: &str) -> Vec<(&'static str, Statistic)> {
    let shown = statistics.view();
    let Some(view) = shown.proxy(frontend, |state| state.is_frontend) else { return Vec::new() };
    let listeners = view.state.listeners.load();
    let listener = listeners.iter().find(|listener| *listener.name == *name);
    let row = listener.map(|listener| stat::listener_row(view, listener, Show::now(statistics, true)));
    row.map(|row| values(&row)).unwrap_or_default()
}

fn values(row: &ObjectRow) -> Vec<(&'static str, Statistic)> {
    COLUMNS.iter().zip(&row.values).filter_map(|(column, value)| Some((column.name, field(value)?))).collect()
}
