//! Proxies with a Lua script.

use weir_tests::chunks::unchunked;
use weir_tests::client::{Response, get};
use weir_tests::{Scratch, Weir, free_port, scratch};

/// Writes a script.
pub(crate) fn script(name: &str, text: &str) -> Scratch {
    let path = scratch("lua").file(&format!("{name}.lua"));
    std::fs::write(&path, text).expect("scripts can be written");
    path
}

/// Starts a proxy with a script, and rules of its frontend.
pub(crate) fn start(name: &str, text: &str, global: &str, rules: &str) -> (Weir, u16) {
    start_loading("lua-load", name, text, global, rules)
}

/// Loads the script with another keyword than `lua-load`.
pub(crate) fn start_loading(how: &str, name: &str, text: &str, global: &str, rules: &str) -> (Weir, u16) {
    let (path, port) = (script(name, text), free_port());
    let text = format!(
        "global\n nbthread 2\n stats socket runtime level admin\n tune.lua.bool-sample-conversion normal\n{global} {how} {}\n\
         defaults\n mode http\n timeout client 10s\n timeout connect 5s\n timeout server 10s\n\
         frontend f\n bind 127.0.0.1:{port}\n{rules} http-request return status 204\n",
        path.display()
    );
    (Weir::start(&text, &[port]), port)
}

/// Sends a GET.
pub(crate) fn ask(port: u16, path: &str) -> Response {
    get(port, path).unwrap_or_else(|| panic!("no answer to {path}"))
}

/// Returns the body of a response, with its chunks decoded.
pub(crate) fn body(response: &Response) -> Vec<u8> {
    match response.header("transfer-encoding") {
        Some(_) => unchunked(&response.body).0,
        None => response.body.clone(),
    }
}
