//! The runtime socket of a process with a frontend and a backend of three servers, for tests.

#![allow(dead_code, reason = "no test needs all of it")]

use std::sync::Arc;

use control::socket::session::ClientSlot;
use control::{AccessLevel, Runtime, SeverityOutput, serve};
use state::Proxy;
use tokio::io::{AsyncReadExt, AsyncWriteExt, duplex};

#[path = "../../../statistics/tests/common/mod.rs"]
mod counted;

pub(crate) fn runtime() -> Arc<Runtime> {
    Arc::new(Runtime::new(counted::statistics()))
}

pub(crate) fn ask_at(runtime: &Arc<Runtime>, level: AccessLevel, input: &str) -> String {
    String::from_utf8(exchange(runtime, level, input.as_bytes())).unwrap()
}

fn exchange(runtime: &Arc<Runtime>, level: AccessLevel, input: &[u8]) -> Vec<u8> {
    let executor = tokio::runtime::Builder::new_current_thread().enable_io().build().unwrap();
    tokio::task::LocalSet::new().block_on(&executor, async {
        tokio::task::spawn_local(runtime::timer::drive(runtime::timer::Alarm::new().unwrap()));
        let (mut ours, theirs) = duplex(1 << 20);
        ours.write_all(input).await.unwrap();
        ours.shutdown().await.unwrap();
        serve(theirs, level, SeverityOutput::None, ClientSlot::beyond_the_limit(runtime.clone()), None)
            .await
            .unwrap();
        let mut output = Vec::new();
        ours.read_to_end(&mut output).await.unwrap();
        output
    })
}

pub(crate) fn ask(runtime: &Arc<Runtime>, input: &str) -> String {
    ask_at(runtime, AccessLevel::Admin, input)
}

pub(crate) fn ask_bytes(runtime: &Arc<Runtime>, input: &[u8]) -> Vec<u8> {
    exchange(runtime, AccessLevel::Admin, input)
}

pub(crate) fn be(runtime: &Runtime) -> Arc<Proxy> {
    runtime.view().backend("be").unwrap().state.clone()
}
