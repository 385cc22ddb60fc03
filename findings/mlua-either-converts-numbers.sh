#!/usr/bin/env bash
# A host function with an argument of the type `Either<i64, String>` seems to distinguish numbers from texts. With mlua 0.12.2, the first
# alternative to which Lua can convert the value wins: `"7"` arrives as the number 7, `"07"` too, and with `Either<String, i64>` the
# number 7 arrives as a text. Only `Value` keeps the type.
#
# The program prints what each signature receives. Needs Rust and a C compiler. Exits with 1 if the result changes.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
mkdir src
cat >Cargo.toml <<'TOML'
[package]
name = "either"
version = "0.1.0"
edition = "2021"

[dependencies]
mlua = { version = "=0.12.2", features = ["lua54", "vendored"] }
TOML
cat >src/main.rs <<'RUST'
use mlua::{Either, Function, IntoLua, Lua};

fn main() -> mlua::Result<()> {
    let lua = Lua::new();
    let number_first: Function =
        lua.create_function(|_, value: Either<i64, String>| Ok(format!("{value:?}")))?;
    let text_first: Function =
        lua.create_function(|_, value: Either<String, i64>| Ok(format!("{value:?}")))?;
    let values = [("7", "7".into_lua(&lua)?), ("07", "07".into_lua(&lua)?), ("seven", "seven".into_lua(&lua)?), ("7", 7.into_lua(&lua)?)];
    let mut seen = Vec::new();
    for (shown, value) in values {
        let row = (number_first.call::<String>(value.clone())?, text_first.call::<String>(value.clone())?);
        println!("{} {shown}: {} with Either<i64, String>, {} with Either<String, i64>", value.type_name(), row.0, row.1);
        seen.push(row);
    }
    let row = |one: &str, other: &str| (one.to_owned(), other.to_owned());
    let wanted = [
        row("Left(7)", r#"Left("7")"#),
        row("Left(7)", r#"Left("07")"#),
        row(r#"Right("seven")"#, r#"Left("seven")"#),
        row("Left(7)", r#"Left("7")"#),
    ];
    assert_eq!(seen, wanted);
    Ok(())
}
RUST
cargo run -q
