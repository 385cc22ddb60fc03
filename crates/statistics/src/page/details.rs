//! All counters of an object, in groups.

use std::fmt::Write;

use crate::column::{C, COLUMNS, ObjectRow};
use crate::field::StatValue;
use crate::page::figures::{bytes, duration, escape, number};

/// How a value is written.
#[derive(Clone, Copy, PartialEq)]
enum As {
    Number,
    Bytes,
    Seconds,
    Millis,
    Percent,
    Text,
    /// Text that may be shown only with `stats show-legends` or to administrators.
    Legend,
}

use As::{Bytes, Legend, Millis, Number, Percent, Seconds, Text};

type CounterGroup = (&'static str, &'static [(&'static str, C, As)]);

/// The counters of HAProxy's page and its tooltips.
#[rustfmt::skip]
const GROUPS: &[CounterGroup] = &[
    ("State", &[
        ("Status", C::status, Text), ("Since", C::lastchg, Seconds), ("Weight", C::weight, Number), ("User weight", C::uweight, Number),
        ("Active servers", C::act, Number), ("Backup servers", C::bck, Number), ("Throttle", C::throttle, Percent), ("Tracks", C::tracked, Text),
        ("Address", C::addr, Legend), ("Cookie", C::cookie, Legend), ("Balance", C::algo, Legend), ("Mode", C::mode, Text), ("Protocol", C::proto, Text),
        ("Proxy id", C::iid, Number), ("Own id", C::sid, Number),
    ]),
    ("Sessions", &[
        ("Current", C::scur, Number), ("Highest", C::smax, Number), ("Limit", C::slim, Number), ("Total", C::stot, Number),
        ("Per second", C::rate, Number), ("Highest per second", C::rate_max, Number), ("Limit per second", C::rate_lim, Number),
        ("Last", C::lastsess, Seconds), ("Load-balanced", C::lbtot, Number), ("HTTP/1", C::h1sess, Number), ("HTTP/2", C::h2sess, Number),
        ("HTTP/3", C::h3sess, Number), ("Other", C::sess_other, Number),
    ]),
    ("Queue", &[("Current", C::qcur, Number), ("Highest", C::qmax, Number), ("Limit", C::qlimit, Number)]),
    ("Connections", &[
        ("Per second", C::conn_rate, Number), ("Highest per second", C::conn_rate_max, Number), ("Total", C::conn_tot, Number),
        ("Opened", C::connect, Number), ("Reused", C::reuse, Number), ("In use", C::used_conn_cur, Number), ("Idle", C::srv_icur, Number),
        ("Idle limit", C::src_ilim, Number), ("Idle, unsafe", C::idle_conn_cur, Number), ("Idle, safe", C::safe_conn_cur, Number),
        ("Idle, private", C::priv_idle_cur, Number), ("Needed", C::need_conn_est, Number),
    ]),
    ("Requests", &[
        ("Total", C::req_tot, Number), ("Per second", C::req_rate, Number), ("Highest per second", C::req_rate_max, Number),
        ("Intercepted", C::intercepted, Number), ("HTTP/1", C::h1req, Number), ("HTTP/2", C::h2req, Number), ("HTTP/3", C::h3req, Number),
        ("Other", C::req_other, Number),
    ]),
    ("Responses", &[
        ("1xx", C::hrsp_1xx, Number), ("2xx", C::hrsp_2xx, Number), ("3xx", C::hrsp_3xx, Number), ("4xx", C::hrsp_4xx, Number),
        ("5xx", C::hrsp_5xx, Number), ("Other", C::hrsp_other, Number), ("Compressed", C::comp_rsp, Number),
        ("Cache lookups", C::cache_lookups, Number), ("Cache hits", C::cache_hits, Number), ("Hits with hints", C::cache_hint_hits, Number),
    ]),
    ("Bytes", &[
        ("In", C::bin, Bytes), ("Out", C::bout, Bytes), ("Requests sent", C::reqbout, Bytes), ("Responses received", C::resbin, Bytes),
        ("Compression in", C::comp_in, Bytes), ("Compression out", C::comp_out, Bytes), ("Not compressed", C::comp_byp, Bytes),
    ]),
    ("Denied", &[
        ("Requests", C::dreq, Number), ("Responses", C::dresp, Number), ("Connections", C::dcon, Number), ("Sessions", C::dses, Number),
    ]),
    ("Errors", &[
        ("Requests", C::ereq, Number), ("Connections", C::econ, Number), ("Responses", C::eresp, Number), ("Retries", C::wretr, Number),
        ("Redispatches", C::wredis, Number), ("Client aborts", C::cli_abrt, Number), ("Server aborts", C::srv_abrt, Number),
        ("Failed rewrites", C::wrew, Number), ("Internal", C::eint, Number),
    ]),
    ("Average times", &[
        ("Queue", C::qtime, Millis), ("Connect", C::ctime, Millis), ("Response", C::rtime, Millis), ("Total", C::ttime, Millis),
    ]),
    ("Longest times", &[
        ("Queue", C::qtime_max, Millis), ("Connect", C::ctime_max, Millis), ("Response", C::rtime_max, Millis), ("Total", C::ttime_max, Millis),
    ]),
    ("Checks", &[
        ("Last", C::check_status, Text), ("Code", C::check_code, Number), ("Duration", C::check_duration, Millis), ("Meaning", C::check_desc, Text),
        ("Report", C::last_chk, Text), ("Failed", C::chkfail, Number), ("Times down", C::chkdown, Number), ("Downtime", C::downtime, Seconds),
        ("Level", C::check_health, Number), ("Rise", C::check_rise, Number), ("Fall", C::check_fall, Number), ("Failures in traffic", C::hanafail, Number),
    ]),
    ("Agent", &[
        ("Last", C::agent_status, Text), ("Code", C::agent_code, Number), ("Duration", C::agent_duration, Millis), ("Meaning", C::agent_desc, Text),
        ("Report", C::last_agt, Text), ("Level", C::agent_health, Number), ("Rise", C::agent_rise, Number), ("Fall", C::agent_fall, Number),
    ]),
];

/// Columns that are shown by other means, or repeat others.
const REPEATED: &[C] = &[
    C::pxname,
    C::svname,
    C::pid,
    C::type_,
    C::srid,
    C::reqbin,
    C::resbout,
    C::agg_server_status,
    C::agg_server_check_status,
    C::agg_check_status,
];

/// Writes the counters of `row`; with `legends` also addresses, cookies and algorithms.
pub(super) fn write(row: &ObjectRow, legends: bool, out: &mut String) {
    out.push_str("<div class=f2>");
    for (title, columns) in GROUPS {
        let mut is_empty = true;
        for (name, column, form) in *columns {
            let value = row.get(*column);
            let is_empty_text = matches!(value, StatValue::Str(text) if text.is_empty());
            if *value == StatValue::Empty || is_empty_text || (*form == Legend && !legends) {
                continue;
            }
            if std::mem::take(&mut is_empty) {
                let _ = write!(out, "<dl><h4>{title}</h4>");
            }
            let _ = write!(out, "<div><dt>{name}<dd>{}</div>", text(value, *form));
        }
        out.push_str(if is_empty { "" } else { "</dl>" });
    }
    write_others(row, out);
    out.push_str("</div>");
}

/// The counters of protocols, by the names of their columns, without those that are zero.
fn write_others(row: &ObjectRow, out: &mut String) {
    let is_shown = |position: usize| {
        GROUPS.iter().any(|(_, columns)| columns.iter().any(|(_, column, _)| *column as usize == position))
            || REPEATED.iter().any(|column| *column as usize == position)
    };
    let mut is_empty = true;
    for (position, (value, column)) in row.values.iter().zip(COLUMNS).enumerate() {
        let counts = match value {
            StatValue::U32(value) => *value > 0,
            StatValue::U64(value) => *value > 0,
            _ => false,
        };
        if counts && !is_shown(position) {
            if std::mem::take(&mut is_empty) {
                out.push_str("<dl><h4>Protocols</h4>");
            }
            let _ = write!(
                out,
                "<div title=\"{}\"><dt>{}<dd>{}</div>",
                escape(column.text),
                column.name,
                text(value, Number)
            );
        }
    }
    out.push_str(if is_empty { "" } else { "</dl>" });
}

fn text(value: &StatValue, form: As) -> String {
    let mut plain = String::new();
    value.write(&mut plain);
    let Ok(count) = plain.parse::<u64>() else {
        // -1 is the age of what never happened.
        return if form == Seconds { "never".to_owned() } else { escape(&plain) };
    };
    match form {
        Number => number(count),
        Bytes => bytes(count),
        Seconds => duration(count),
        Millis => format!("{} ms", number(count)),
        Percent => format!("{count} %"),
        Text | Legend => escape(&plain),
    }
}
