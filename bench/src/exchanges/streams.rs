//! Random cases in TCP mode: the same traffic, forwarded without parsing.

use fastrand::Rng;

use crate::exchanges::case::{Case, Server};
use crate::exchanges::random::{in_order, pick, seldom};
use crate::exchanges::{hindered, traffic};

/// The fields of [`crate::exchanges::proxy`]'s format that exist for TCP streams.
const LOG_FORMAT: &str = "%f|0/%Tw/%Tc/0/%Tt|%b|%s|-|%ts|%rc|%sq/%bq|-|-|-|-|tcp";

fn content_rule(random: &mut Rng) -> String {
    let action =
        pick(random, &["accept", "reject", "set-var(txn.a) req.payload(0,3)", "set-nice 5", "reject"]);
    let condition = pick(
        random,
        &[
            "",
            " if HTTP",
            " unless HTTP",
            " if WAIT_END",
            " if { req.len gt 60 }",
            " if { req.payload(0,4) -m str POST }",
            " if { src 127.0.0.1 }",
            " if { req.ssl_hello_type 1 }",
        ],
    );
    // Without a condition, this action ends the rules, in most cases too early.
    if condition.is_empty() && action != "accept" && !seldom(random, 4) {
        return format!("tcp-request content {action} if {{ req.len gt 300 }}");
    }
    format!("tcp-request content {action}{condition}")
}

fn front_line(random: &mut Rng) -> String {
    match random.usize(..10) {
        0..=3 => content_rule(random),
        4..=6 => pick(
            random,
            &[
                "tcp-request connection accept",
                "tcp-request session accept",
                "tcp-request connection reject if { src 127.0.0.9 }",
                "tcp-request session reject if { src_port lt 1 }",
            ],
        )
        .to_owned(),
        7 => pick(random, &["timeout client 375ms", "timeout client-fin 375ms"]).to_owned(),
        _ => pick(
            random,
            &[
                "option dontlognull",
                "option independent-streams",
                "option contstats",
                "option tcp-smart-accept",
                "option clitcpka",
                "option log-separate-errors",
            ],
        )
        .to_owned(),
    }
}

fn back_line(random: &mut Rng) -> String {
    match random.usize(..12) {
        0 | 1 => {
            let action = pick(random, &["accept", "reject", "close", "set-var(txn.b) res.len"]);
            let condition = pick(
                random,
                &[" if { res.len gt 100 }", " if WAIT_END", " if { res.payload(0,4) -m str HTTP }"],
            );
            format!("tcp-response content {action}{condition}")
        }
        2 => "tcp-response inspect-delay 375ms".to_owned(),
        3 | 4 => content_rule(random),
        5 | 6 => pick(
            random,
            &[
                "timeout server 375ms",
                "timeout server-fin 375ms",
                "timeout tunnel 375ms",
                "timeout connect 375ms",
                "timeout queue 375ms",
            ],
        )
        .to_owned(),
        7 => pick(random, &["retries 0", "retries 1", "retries 2"]).to_owned(),
        8 => pick(random, &["option redispatch", "option redispatch 1", "no option redispatch"]).to_owned(),
        9 => pick(random, &["balance roundrobin", "balance first", "balance source"]).to_owned(),
        _ => pick(
            random,
            &[
                "option abortonclose",
                "option independent-streams",
                "option tcp-smart-connect",
                "option srvtcpka",
                "fullconn 10",
            ],
        )
        .to_owned(),
    }
}

fn server(random: &mut Rng) -> Server {
    let mut parameters = String::new();
    if seldom(random, 6) {
        parameters.push_str(" maxconn 1");
    }
    if seldom(random, 6) {
        parameters.push(' ');
        parameters.push_str(pick(random, &["weight 5", "backup", "disabled", "send-proxy", "send-proxy-v2"]));
    }
    Server { parameters, is_refused: seldom(random, 8), answers: traffic::answers(random) }
}

pub(crate) fn case(random: &mut Rng) -> Case {
    let mode = || vec!["mode tcp".to_owned()];
    let mut front = mode();
    front.extend([format!("log-format \"{LOG_FORMAT}\""), format!("error-log-format \"{LOG_FORMAT}\"")]);
    front.extend((0..random.usize(..4)).map(|_| front_line(random)));
    // Without a delay, it depends on chance whether rules see the first bytes.
    front.push("tcp-request inspect-delay 375ms".to_owned());
    let mut back = mode();
    back.push("tcp-request inspect-delay 375ms".to_owned());
    back.extend((0..random.usize(..4)).map(|_| back_line(random)));
    let servers = (0..[1, 1, 2][random.usize(..3)]).map(|_| server(random)).collect();
    // Log lines of several clients could not be distinguished.
    let clients = vec![traffic::client(random, 0)];
    let mut case = Case { front, back, servers, clients };
    if seldom(random, 20) {
        hindered::read_slowly(random, &mut case);
    }
    if seldom(random, 12) {
        hindered::introduce(random, &mut case);
    }
    in_order(&mut case);
    case
}
