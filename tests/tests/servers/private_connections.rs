//! Server connections that serve the requests of one client only (`http-reuse never`), with each protocol.

use weir_tests::client::Client;
use weir_tests::{Authority, Weir, eventually, free_port};

/// The program with backends `h1`, `h1-tls`, `h2`, `tls` and `quic` with a server `s` that is a frontend of the same program, chosen by the path.
struct Scene {
    weir: Weir,
    port: u16,
    _authority: Authority,
}

const BACKENDS: [&str; 5] = ["h1", "h1-tls", "h2", "tls", "quic"];

fn start(frontend: &str) -> Scene {
    let authority = Authority::new();
    let certificate = authority.issue(&["localhost"]);
    let certificate = certificate.display();
    let [port, behind, secure] = [(); 3].map(|()| free_port());
    let backend = |name: &str, server: String| {
        format!("backend {name}\n http-reuse never\n server s {server}\n").replace("SSL", "ssl verify none")
    };
    let text = format!(
        "global\n nbthread 1\n stats socket runtime level admin\n\
         defaults\n mode http\n timeout connect 10s\n timeout client 20s\n timeout server 20s\n\
         frontend f\n bind 127.0.0.1:{port}\n{frontend}\n use_backend %[path,field(2,/)]\n{}{}{}{}{}\
         frontend behind\n bind 127.0.0.1:{behind}\n bind 127.0.0.1:{secure} ssl crt {certificate} alpn h2,http/1.1\n \
         bind quic4@127.0.0.1:{secure} ssl crt {certificate}\n http-request return status 200\n",
        backend("h1", format!("127.0.0.1:{behind}")),
        backend("h1-tls", format!("127.0.0.1:{secure} SSL alpn http/1.1")),
        backend("h2", format!("127.0.0.1:{behind} proto h2")),
        backend("tls", format!("127.0.0.1:{secure} SSL alpn h2")),
        backend("quic", format!("quic4@127.0.0.1:{secure} SSL")),
    );
    let weir = Weir::start(&text, &[port, behind]);
    Scene { weir, port, _authority: authority }
}

impl Scene {
    fn stat(&self, backend: &str, name: &str) -> String {
        self.weir.stat(&format!("{backend},s"), name)
    }

    /// Sends `count` requests on one connection.
    fn requests(&self, backend: &str, count: u32) -> Client {
        let mut client = Client::connect(self.port);
        for _ in 0..count {
            client.send(format!("GET /{backend} HTTP/1.1\r\nHost: localhost\r\n\r\n"));
            assert_eq!(client.response().expect("a response").status, 200, "{backend}");
        }
        client
    }
}

#[test]
fn the_requests_of_a_client_share_a_connection_that_ends_with_the_client() {
    let scene = start("");
    for backend in BACKENDS {
        let first = scene.requests(backend, 3);
        let second = scene.requests(backend, 2);
        let counts =
            || ["connect", "reuse", "priv_idle_cur", "srv_icur"].map(|name| scene.stat(backend, name));
        assert!(eventually(|| counts() == ["2", "3", "2", "0"]), "{backend}: {:?}", counts());
        drop(first);
        assert!(eventually(|| counts() == ["2", "3", "1", "0"]), "{backend}: {:?}", counts());
        drop(second);
        assert!(eventually(|| counts() == ["2", "3", "0", "0"]), "{backend}: {:?}", counts());
    }
    let open = || scene.weir.stat("behind,FRONTEND", "scur");
    assert!(eventually(|| open() == "0"), "{} connections are open", open());
}

#[test]
fn the_oldest_connections_are_closed_beyond_the_limit_for_a_client() {
    let scene = start(" max-session-srv-conns 2");
    let mut client = Client::connect(scene.port);
    let mut rounds = |backends: &[&str]| {
        for backend in backends {
            client.send(format!("GET /{backend} HTTP/1.1\r\nHost: localhost\r\n\r\n"));
            assert_eq!(client.response().expect("a response").status, 200, "{backend}");
        }
    };
    rounds(&["h2", "quic", "h2", "quic"]);
    let connects = || BACKENDS.map(|backend| scene.stat(backend, "connect"));
    assert_eq!(connects(), ["0", "0", "1", "0", "1"]);
    // Ends the connection of `h2`, the oldest.
    rounds(&["tls", "tls", "quic", "h2"]);
    assert_eq!(connects(), ["0", "0", "2", "1", "1"]);
    let open = || scene.weir.stat("behind,FRONTEND", "scur");
    assert!(eventually(|| open() == "2"), "{} connections are open", open());
}

#[test]
fn without_room_for_a_clients_connections_each_request_opens_one() {
    let scene = start(" max-session-srv-conns 0");
    for backend in BACKENDS {
        let _client = scene.requests(backend, 3);
        assert_eq!(scene.stat(backend, "connect"), "3", "{backend}");
    }
}

#[test]
fn idle_connections_that_have_freed_memory_serve_more_requests() {
    let scene = start("");
    let clients = BACKENDS.map(|backend| scene.requests(backend, 2));
    // Connections free memory after a second at the latest.
    let is_idle = |backend: &&str| scene.stat(backend, "lastsess").parse::<u32>().is_ok_and(|age| age >= 3);
    assert!(eventually(|| BACKENDS.iter().all(is_idle)));
    for (backend, mut client) in BACKENDS.into_iter().zip(clients) {
        for _ in 0..2 {
            client.send(format!("GET /{backend} HTTP/1.1\r\nHost: localhost\r\n\r\n"));
            assert_eq!(client.response().expect("a response").status, 200, "{backend}");
        }
        assert_eq!(["connect", "reuse"].map(|name| scene.stat(backend, name)), ["1", "3"], "{backend}");
    }
}
