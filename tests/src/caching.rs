//! Cache tests: start the program with a cache in front of a server, and inspect the responses.

use crate::client::Response;
use crate::{Origin, Weir, free_port};

/// Returns a configuration with these proxies, in which `PORT` stands for the listener's address, and a cache `c` with the lines of
/// `section`.
pub fn configuration(port: u16, proxies: &str, section: &str) -> String {
    format!(
        "global\n nbthread 2\n stats socket runtime level admin\n\
         defaults\n mode http\n timeout client 20s\n timeout connect 5s\n timeout server 20s\n{}\
         cache c\n{section}",
        proxies.replace("PORT", &format!("127.0.0.1:{port}"))
    )
}

/// Returns a proxy in front of the server at this port that uses the cache, and sets `x-hit` on responses from the cache; the lines
/// `first` and `last` go before and after the cache rules.
pub fn keeping(server: u16, first: &str, last: &str) -> String {
    format!(
        "listen p\n bind PORT\n{first} http-request cache-use c\n http-response cache-store c\n\
         http-response set-header x-hit %[res.cache_hit]\n{last} server s 127.0.0.1:{server}\n"
    )
}

/// Starts the program with these proxies and a cache of 8 MB with additional lines; returns the listener's port.
pub fn start(section: &str, proxies: &str) -> (Weir, u16) {
    let port = free_port();
    let text = configuration(port, proxies, &format!(" total-max-size 8\n{section}"));
    (Weir::start(&text, &[port]), port)
}

/// Starts the program with one caching proxy in front of `origin`, and additional lines for the cache and the proxy.
pub fn around(origin: &Origin, section: &str, lines: &str) -> (Weir, u16) {
    start(section, &keeping(origin.port(), "", lines))
}

/// Returns whether a response came from the cache.
pub fn is_hit(response: &Response) -> bool {
    response.header("x-hit") == Some("1")
}

/// Returns the response and checks that its status is 200.
///
/// # Panics
/// There is no response, or it has another status.
pub fn ok(response: Option<Response>) -> Response {
    let response = response.expect("a response");
    assert_eq!(response.status, 200, "{}", response.head);
    response
}
