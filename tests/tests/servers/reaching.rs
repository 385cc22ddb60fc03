//! Other ways to reach a server than its address: SOCKS4, `redir`.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};

use weir_tests::listen::{ask, listen, local};
use weir_tests::{Origin, client};

#[test]
fn redir_redirects_clients_to_the_server() {
    let origin = Origin::text("hello");
    let (_weir, port) = listen("", "", &format!("{} redir http://images.test", local(&origin)));
    let moved = client::get(port, "/a/b?c").expect("a response");
    assert_eq!((moved.status, moved.header("location")), (302, Some("http://images.test/a/b?c")));
    let post = ask(port, "POST / HTTP/1.1\r\nHost: h\r\nConnection: close\r\nContent-Length: 0\r\n\r\n");
    assert_eq!((post.status, origin.requests()), (200, 1));
}

#[test]
fn socks4_server_is_reached_through_the_proxy() {
    let origin = Origin::text("hello");
    let socks = TcpListener::bind("127.0.0.1:0").expect("a port");
    let proxy = socks.local_addr().expect("a bound socket has an address");
    let wanted = origin.port();
    let asked = std::thread::spawn(move || {
        let (mut stream, _) = loop {
            // The test harness checks the program's port, not this one: the first connection is the request.
            if let Ok(accepted) = socks.accept() {
                break accepted;
            }
        };
        let mut request = [0; 16];
        stream.read_exact(&mut request).expect("a SOCKS4 request");
        stream.write_all(&[0, 90, 0, 0, 0, 0, 0, 0]).expect("an answer");
        let mut server = TcpStream::connect(("127.0.0.1", wanted)).expect("the server");
        let (mut back, mut from) =
            (stream.try_clone().expect("a socket"), server.try_clone().expect("a socket"));
        std::thread::spawn(move || std::io::copy(&mut from, &mut back));
        let _ = std::io::copy(&mut stream, &mut server);
        request
    });
    let (weir, port) = listen("", "", &format!("{} socks4 {proxy}", local(&origin)));
    assert_eq!(client::get(port, "/").expect("a response").text(), "hello");
    drop(weir);
    let [high, low] = wanted.to_be_bytes();
    let request = asked.join().expect("the proxy");
    assert_eq!(request[..8], [4, 1, high, low, 127, 0, 0, 1]);
    assert_eq!(&request[8..], b"HAProxy\0", "the user that HAProxy names");
}
