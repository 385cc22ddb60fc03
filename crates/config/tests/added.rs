//! A server added at run time: the parts of the plan in use that it shares, and the parts that it does not change.

#![allow(clippy::unwrap_used, missing_docs)]

use config::Boot;
use config::dynamic::{AddServer, resolve};

#[test]
fn resolving_an_added_server_keeps_process_state() {
    let text = "global\n nbthread 4\n max-threads-per-group 2\nbackend b\n server s 127.0.0.1:1\n";
    let plan = config::load_text("test.cfg", text, &Boot::default()).plan.unwrap();
    let process = || (runtime::shard::workers(), runtime::shard::groups());
    let before = process();
    assert_eq!(before, (4, 2));
    let words = ["127.0.0.1:2", "pool-conn-name", "path"].map(String::from);
    let asked = AddServer { backend: plan.backends["b"], name: "t", words: &words, id: 2, track: None };
    let server = resolve(&plan, asked).unwrap();
    assert!(server.pool_conn_name.is_some());
    assert_eq!(process(), before);
    assert_eq!(server.state.counters.all().count(), 0, "no worker has used it");
}
