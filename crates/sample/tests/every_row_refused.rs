//! Every fetch and converter refuses invalid arguments, places without its data, and wrong types. The tests iterate over the
//! tables.

mod common;

use common::rows::{eval_anywhere, usual};
use sample::args::ArgKind;
use sample::{Place, convert, fetch};

/// An invalid text for an argument of that kind, if there is one.
fn wrong(kind: ArgKind) -> Option<&'static str> {
    Some(match kind {
        ArgKind::Int => "one",
        ArgKind::Time => "1parsec",
        ArgKind::Ip4 | ArgKind::Mask4 => "300.1.1.1",
        ArgKind::Ip6 | ArgKind::Mask6 => "g::",
        ArgKind::Frontend | ArgKind::Backend | ArgKind::Userlist | ArgKind::Table => "nowhere",
        ArgKind::Server => "nowhere/s1",
        ArgKind::Variable | ArgKind::IntOrVariable => "galaxy.x",
        ArgKind::Regex => "(",
        ArgKind::Str | ArgKind::HeaderName | ArgKind::StrOrVariable => return None,
    })
}

/// A valid text for an argument of that kind.
fn right(kind: ArgKind) -> &'static str {
    match kind {
        ArgKind::Int | ArgKind::Mask4 | ArgKind::Mask6 | ArgKind::IntOrVariable => "1",
        ArgKind::Time => "1s",
        ArgKind::Ip4 => "1.1.1.1",
        ArgKind::Ip6 => "::1",
        ArgKind::Frontend => "fe",
        ArgKind::Backend => "be",
        ArgKind::Server => "be/s1",
        ArgKind::Userlist => "users",
        ArgKind::Variable => "txn.x",
        ArgKind::Table | ArgKind::Str | ArgKind::HeaderName | ArgKind::StrOrVariable | ArgKind::Regex => "x",
    }
}

/// Whether `message` names the keyword and contains `part`.
fn tells(message: &str, name: &str, part: &str) -> bool {
    message.starts_with("error: ") && message.contains(&format!("`{name}`")) && message.contains(part)
}

#[test]
fn every_row_refuses_invalid_arguments() {
    let mut world = usual();
    let rows = fetch::all().map(|row| ("", row.name, row.args));
    let rows = rows.chain(convert::all().map(|row| ("str(x),", row.name, row.args)));
    let mut failures = Vec::new();
    for (before, name, specs) in rows {
        // A converter that takes no text is tried after a number.
        let before = match convert::find(name).filter(|_| !before.is_empty()).map(|row| row.takes) {
            Some(taken) if !sample::Type::Str.casts_to(taken) => "int(1),",
            _ => before,
        };
        let mut expect = |args: Vec<&str>, part: String| {
            let text = format!("{before}{name}({})", args.join(","));
            let found = eval_anywhere(&mut world, &text);
            if !tells(&found, name, &part) {
                failures.push(format!("{text}\n   says {found}\n  wanted a word of {part}"));
            }
        };
        let all: Vec<&str> = specs.iter().map(|spec| right(spec.kind)).collect();
        let many = if specs.is_empty() { "takes no argument" } else { "takes at most" };
        expect([&all[..], &["x"]].concat(), many.to_owned());
        let needed = specs.iter().take_while(|spec| !spec.optional).count();
        let named = |kind| matches!(kind, ArgKind::Frontend | ArgKind::Backend | ArgKind::Table);
        if let Some(last) = needed.checked_sub(1).filter(|last| *last > 0 && !named(specs[*last].kind)) {
            expect(all[..last].to_vec(), format!("needs argument {needed}"));
        }
        for (at, spec) in specs.iter().enumerate() {
            let Some(bad) = wrong(spec.kind) else { continue };
            let mut args = all[..=at].to_vec();
            args[at] = bad;
            expect(args, format!("argument {}", at + 1));
        }
    }
    assert!(failures.is_empty(), "\n{}", failures.join("\n"));
}

#[test]
fn every_row_refuses_wrong_places_and_types() {
    let mut world = usual();
    for row in fetch::all() {
        let args: Vec<&str> =
            row.args.iter().filter(|spec| !spec.optional).map(|spec| right(spec.kind)).collect();
        let text =
            if args.is_empty() { row.name.to_owned() } else { format!("{}({})", row.name, args.join(",")) };
        for place in [Place::TcpConnection, Place::Boot, Place::Check] {
            world.place = place;
            let allowed = row.columns.meets(world.scope().columns());
            let found = world.eval(&text);
            if !allowed && !found.contains("argument") && !found.contains(&format!("`{}`:", row.name)) {
                assert!(
                    tells(&found, row.name, "cannot be used here: it needs"),
                    "{place:?} {text}: {found}"
                );
            }
        }
    }
    world.place = Place::HttpRequest;
    for row in convert::all().filter(|row| !sample::Type::Bool.casts_to(row.takes)) {
        let args: Vec<&str> =
            row.args.iter().filter(|spec| !spec.optional).map(|spec| right(spec.kind)).collect();
        let text = format!("bool(true),{}({})", row.name, args.join(","));
        let found = world.eval(&text);
        assert!(tells(&found, row.name, "cannot be applied: it takes"), "{text}: {found}");
    }
}
