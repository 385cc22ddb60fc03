#!/usr/bin/env bash
# mlua's `Lua::set_global_hook` is intended for limits that apply to every coroutine. With mlua 0.12.2 and Lua 5.4 it works in the
# main state and in coroutines created there. But a coroutine created by a thread that has a hook (`Thread::set_hook`) runs
# without any hook: neither the global one nor that of the thread is called in it.
#
# The program counts the calls of a hook for every 1,000 instructions during a loop of about 100,000 instructions. Needs Rust and
# a C compiler. Exits with 1 if the result changes.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
mkdir src
cat >Cargo.toml <<'TOML'
[package]
name = "hooks"
version = "0.1.0"
edition = "2021"

[dependencies]
mlua = { version = "=0.12.2", features = ["lua54", "vendored"] }
TOML
cat >src/main.rs <<'RUST'
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use mlua::debug::Debug;
use mlua::{HookTriggers, Lua, VmState};

static CALLS: AtomicUsize = AtomicUsize::new(0);

fn calls_in(run: impl FnOnce() -> mlua::Result<()>) -> mlua::Result<usize> {
    CALLS.store(0, Relaxed);
    run()?;
    Ok(CALLS.load(Relaxed))
}

fn main() -> mlua::Result<()> {
    let work = "for _ = 1, 100000 do end";
    let in_coroutine = format!("coroutine.wrap(function() {work} end)()");
    let every = HookTriggers::new().every_nth_instruction(1000);
    let count = |_: &Lua, _: &Debug| {
        CALLS.fetch_add(1, Relaxed);
        Ok(VmState::Continue)
    };
    let lua = Lua::new();
    lua.set_global_hook(every, count)?;
    let main = calls_in(|| lua.load(work).exec())?;
    let coroutine = calls_in(|| lua.load(&in_coroutine).exec())?;
    let thread = lua.create_thread(lua.load(&in_coroutine).into_function()?)?;
    thread.set_hook(every, count)?;
    let nested = calls_in(|| thread.resume::<()>(()))?;
    println!("main state {main}, its coroutine {coroutine}, coroutine of a thread with a hook {nested}");
    assert!(main >= 90 && coroutine >= 90 && nested == 0);
    Ok(())
}
RUST
cargo run -q
