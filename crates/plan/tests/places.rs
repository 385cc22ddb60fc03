//! Indexes of servers that are added and removed at run time. This is an integration test because the parser that creates the
//! servers links the library without `cfg(test)`.

#![allow(clippy::unwrap_used, missing_docs)]

use std::sync::Arc;

use config::{Boot, load_text};
use plan::{ServerSettings, Servers};

fn server(name: &str) -> ServerSettings {
    let text = format!("backend b\n mode http\n server {name} 127.0.0.1:80\n");
    let plan = load_text("test.cfg", &text, &Boot::default()).plan.unwrap();
    let proxy = plan.proxies.into_fixed().pop().and_then(Arc::into_inner).unwrap();
    proxy.servers.into_only().unwrap()
}

#[test]
fn a_removed_servers_index_is_reused_once_unreferenced() {
    let servers = Servers::from(vec![Arc::new(server("s"))]);
    let add = |name: &str| servers.add(server(name)).unwrap();
    let first = add("a");
    assert_eq!((first.index, add("b").index), (1, 2));
    servers.remove(1);
    assert_eq!(add("c").index, 3, "the first is held still");
    drop(first);
    assert_eq!(add("d").index, 1);
    let names = || servers.iter().map(|server| server.state.name.to_string()).collect::<Vec<_>>();
    assert_eq!(names(), ["s", "d", "b", "c"]);
    servers.remove(0);
    assert_eq!(add("e").index, 4, "those of the configuration keep their places");
    assert_eq!(names().len(), servers.len());
}
