//! Protocol-specific checks against real servers: found up, down when they stop, up again.

use weir_tests::peers::{Kind, Peer};
use weir_tests::{Weir, eventually, scratch, statistics};

/// Returns the check columns of a server's row in `show stat`.
fn state(socket: &std::path::Path) -> [String; 3] {
    let shown = statistics(socket);
    ["status", "check_status", "last_chk"].map(|column| shown.value("be,s", column))
}

/// Checks a server of `kind` with `options` while it runs, is stopped and runs again.
fn comes_and_goes(kind: Kind, options: &[&str], told: &str) {
    let mut peer = Peer::start(kind);
    for option in options {
        let socket = scratch("socket").file("control");
        let weir = Weir::start(
            &format!(
                "global\n  stats socket {}\ndefaults\n  mode tcp\n  timeout client 10s\n  timeout connect 10s\n  timeout server 10s\n\
                 backend be\n  timeout check 10s\n  {option}\n\
                 server s 127.0.0.1:{} check inter 20ms rise 1 fall 1\n",
                socket.display(),
                peer.port
            ),
            &[],
        );
        let is = |status: &str, check: &str, info: &str| {
            let mut seen = state(&socket);
            let same = eventually(|| {
                seen = state(&socket);
                seen[0] == status && seen[1].trim_start_matches("* ") == check && seen[2].contains(info)
            });
            assert!(same, "{option}: {seen:?} instead of {status} {check} {info}: {}", weir.messages());
        };
        is("UP", "L7OK", told);
        peer.stop();
        is("DOWN", "L4CON", "ECONNREFUSED");
        peer.resume();
        is("UP", "L7OK", told);
    }
}

#[test]
fn postgresql_down_and_up_are_detected() {
    comes_and_goes(Kind::Postgres, &["option pgsql-check user weir"], "PostgreSQL server is ok");
}

#[test]
fn mariadb_down_and_up_are_detected() {
    let options = ["option mysql-check", "option mysql-check user weir"];
    comes_and_goes(Kind::MariaDb, &options, "MariaDB");
}

#[test]
fn redis_down_and_up_are_detected() {
    let script = "option tcp-check\n  tcp-check send PING\\r\\n\n  tcp-check expect string +PONG\n  \
                  tcp-check send info\\ replication\\r\\n\n  tcp-check expect string role:master\n  \
                  tcp-check send QUIT\\r\\n\n  tcp-check expect string +OK";
    comes_and_goes(Kind::Redis, &["option redis-check"], "Redis server is ok");
    comes_and_goes(Kind::Redis, &[script], "(tcp-check)");
}

#[test]
fn openldap_down_and_up_are_detected() {
    comes_and_goes(Kind::OpenLdap, &["option ldap-check"], "Success");
}
