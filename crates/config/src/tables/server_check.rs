//! Server parameters for health checks, agents and their consequences (manual, section 5.2).

use std::net::IpAddr;

use base::address::{Accepts, Destination, PortRule};
use diag::Diagnostic;
use plan::check::{InitState, Protocol};
use plan::server::{Observe, OnError};

use crate::draft::args::Args;
use crate::draft::row::Outcome;
use crate::draft::server::ServerDraft;
use crate::system::resolve_host;
use crate::tables::server_row::{ServerKeyword, delay, interval, number, row, text};

/// The rows.
#[rustfmt::skip]
pub(crate) static TABLE: &[ServerKeyword] = &[
    // name arguments description setting
    row("addr",               "<address>",     "address to check instead",                                  addr),
    row("check",              "",              "enables health checks",                                     |d, _| { d.check = true; Ok(()) }),
    row("no-check",           "",              "disables health checks",                                    |d, _| { d.check = false; Ok(()) }),
    row("check-send-proxy",   "",              "sends a PROXY header with checks",                          |d, _| { d.check_send_proxy = true; Ok(()) }),
    row("no-check-send-proxy", "",             "sends no PROXY header with checks",                         |d, _| { d.check_send_proxy = false; Ok(()) }),
    row("check-reuse-pool",   "",              "lets HTTP checks reuse idle connections and leave theirs idle", |d, _| { d.check_reuse_pool = true; Ok(()) })
        .partial("HTTP/2 connections are not shared with requests"),
    row("no-check-reuse-pool", "",             "uses a separate connection for each check",                 |d, _| { d.check_reuse_pool = false; Ok(()) }),
    row("check-pool-conn-name", "<name>",      "pool name of the idle connections that checks reuse",       |d, a| text(&mut d.check_pool_conn_name, a)),
    row("error-limit",        "<count>",       "number of consecutive errors that trigger `on-error`",      |d, a| number(&mut d.error_limit, a, 1, i32::MAX as u32)),
    row("fall",               "<count>",       "number of failed checks that take it down",                 |d, a| number(&mut d.fall, a, 1, i32::MAX as u32)),
    row("rise",               "<count>",       "number of passed checks that bring it up",                  |d, a| number(&mut d.rise, a, 1, i32::MAX as u32)),
    row("inter",              "<delay>",       "time between checks",                                       |d, a| { d.inter = interval(a)?; Ok(()) }),
    row("fastinter",          "<delay>",       "time between checks while its state is changing",           |d, a| { d.fastinter = Some(interval(a)?); Ok(()) }),
    row("downinter",          "<delay>",       "time between checks while it is down",                      |d, a| { d.downinter = Some(interval(a)?); Ok(()) }),
    row("init-state",         "{ fully-up | up | down | fully-down | none }", "state before the first check",       init_state),
    row("observe",            "{ none | layer4 | layer7 }", "counts traffic errors as failed checks",       observe),
    row("on-error",           "{ fastinter | fail-check | sudden-death | mark-down }", "action on traffic errors", on_error),
    row("on-marked-down",     "shutdown-sessions", "action when it goes down",                              on_marked_down),
    row("on-marked-up",       "shutdown-backup-sessions", "action when it comes up",                        on_marked_up),
    row("port",               "<port>",        "port to check instead",                                     check_port),
    row("slowstart",          "<time>",        "time over which its weight rises after it comes up",        |d, a| delay(&mut d.slow_start, a)),
    row("track",              "[<backend>/]<server>", "follows the state of another server",                |d, a| { d.track = Some(a.value()?); Ok(()) }),
    row("agent-check",        "",              "also queries an agent for its state",                       |d, _| { d.agent = true; Ok(()) }),
    row("no-agent-check",     "",              "disables agent checks",                                     |d, _| { d.agent = false; Ok(()) }),
    row("agent-addr",         "<address>",     "address of the agent",                                      agent_addr),
    row("agent-port",         "<port>",        "port of the agent",                                         |d, a| { d.agent_port = Some(port(a)?); Ok(()) }),
    row("agent-inter",        "<delay>",       "time between agent checks",                                 |d, a| { d.agent_inter = interval(a)?; Ok(()) }),
    row("agent-send",         "<string>",      "string sent to the agent",                                  |d, a| { d.agent_send = a.value()?.bytes().into(); Ok(()) }),
    row("check-proto",        "<name>",        "protocol for checks",                                       check_proto),
    row("check-via-socks4",   "",              "sends checks through the SOCKS4 proxy too",                 |d, _| { d.check_via_socks4 = true; Ok(()) }),
    row("healthcheck",        "<name>",        "healthcheck section that defines its checks",               |d, a| { d.healthcheck = Some(a.value()?); Ok(()) }),
];

/// 0 means no separate port.
fn check_port<'a>(draft: &mut ServerDraft<'a>, args: &mut Args<'a, '_>) -> Outcome {
    let word = args.value()?;
    draft.check_port = Some(args.number(word, 0, u16::MAX)?).filter(|port| *port != 0);
    Ok(())
}

fn port(args: &mut Args<'_, '_>) -> Result<u16, Diagnostic> {
    let word = args.value()?;
    args.number(word, 1, u16::MAX)
}

fn agent_addr<'a>(draft: &mut ServerDraft<'a>, args: &mut Args<'a, '_>) -> Outcome {
    let (ip, port) = place(args)?;
    draft.agent_address = Some(ip);
    draft.agent_port = port.or(draft.agent_port);
    Ok(())
}

fn addr<'a>(draft: &mut ServerDraft<'a>, args: &mut Args<'a, '_>) -> Outcome {
    let (ip, port) = place(args)?;
    draft.check_address = Some(ip);
    draft.check_address_port = port.or(draft.check_address_port);
    Ok(())
}

fn observe<'a>(draft: &mut ServerDraft<'a>, args: &mut Args<'a, '_>) -> Outcome {
    let word = args.value()?;
    draft.observe = args
        .choice(word, &[("none", Observe::None), ("layer4", Observe::Layer4), ("layer7", Observe::Layer7)])?;
    Ok(())
}

fn on_error<'a>(draft: &mut ServerDraft<'a>, args: &mut Args<'a, '_>) -> Outcome {
    let word = args.value()?;
    draft.on_error = args.choice(
        word,
        &[
            ("fastinter", OnError::FastInter),
            ("fail-check", OnError::FailCheck),
            ("sudden-death", OnError::SuddenDeath),
            ("mark-down", OnError::MarkDown),
        ],
    )?;
    Ok(())
}

fn on_marked_down<'a>(draft: &mut ServerDraft<'a>, args: &mut Args<'a, '_>) -> Outcome {
    let word = args.value()?;
    draft.shutdown_sessions_when_down = args.choice(word, &[("shutdown-sessions", true)])?;
    Ok(())
}

fn on_marked_up<'a>(draft: &mut ServerDraft<'a>, args: &mut Args<'a, '_>) -> Outcome {
    let word = args.value()?;
    draft.shutdown_backups_when_up = args.choice(word, &[("shutdown-backup-sessions", true)])?;
    Ok(())
}

fn init_state<'a>(draft: &mut ServerDraft<'a>, args: &mut Args<'a, '_>) -> Outcome {
    let word = args.value()?;
    draft.initial = args.choice(
        word,
        &[
            ("none", InitState::None),
            ("fully-up", InitState::FullyUp),
            ("up", InitState::Up),
            ("down", InitState::Down),
            ("fully-down", InitState::FullyDown),
        ],
    )?;
    Ok(())
}

fn check_proto<'a>(draft: &mut ServerDraft<'a>, args: &mut Args<'a, '_>) -> Outcome {
    let word = args.value()?;
    match Protocol::ALL.iter().find(|(name, _)| *word == **name) {
        Some((_, protocol)) => {
            draft.check_protocol = Some(*protocol);
            Ok(())
        }
        None => Err(args
            .wrong(format!("unknown protocol `{word}`"))
            .haproxy(format!("'check-proto' :  unknown MUX protocol '{word}'."))),
    }
}

/// Parses an address to check instead of the server's, with an optional port.
fn place(args: &mut Args<'_, '_>) -> Result<(IpAddr, Option<u16>), Diagnostic> {
    let word = args.value()?;
    let address = args.address(word, Accepts { port: PortRule::Optional, range: false, offset: false })?;
    let Destination::Ip { host, ports } = &address.place else { return Err(args.unsupported()) };
    let ip = resolve_host(host).map_err(|error| args.wrong(format!("cannot resolve `{word}`: {error}")))?;
    Ok((ip, ports.iter().next()))
}
