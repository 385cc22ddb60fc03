//! `userlist` (manual, section 12.2), `http-errors` (section 12.4) and `healthcheck` (section
//! 12.9).

use std::sync::Arc;

use diag::{Diagnostic, Diagnostics};
use sample::auth::{HashFormat, Password, Userlist};
use syntax::Word;

use crate::draft::args::Args;
use crate::draft::row::Outcome;
use crate::draft::settings::{CheckMode, ProxySettings};
use crate::draft::{Draft, Section, SectionKind, Statement};
use crate::resolve::check::Healthchecks;
use crate::resolve::rules::read_message;
use crate::resolve::unique::second;
use crate::resolve::{ResolveContext, read_line};

/// Reads every userlist.
pub(crate) fn userlists(draft: &Draft, context: &mut ResolveContext<'_>) {
    for section in draft.sections.iter().filter(|section| section.kind == SectionKind::Userlist) {
        if context.names.userlists.contains_key(section.name.as_str()) {
            duplicate("userlist", &section.name, "", context);
            continue;
        }
        let mut list = Userlist::new(&section.name);
        let (groups, users): (Vec<_>, Vec<_>) =
            section.statements.iter().partition(|statement| statement.keyword.name == "group");
        let known: Vec<&str> =
            groups.iter().filter_map(|group| group.arguments().first()).map(|word| word.as_str()).collect();
        for (at, group) in groups.iter().filter_map(|group| group.arguments().first()).enumerate() {
            if known[..at].contains(&group.as_str()) {
                duplicate("group", group, &format!(" in userlist '{}'", section.name), context);
            }
        }
        known.iter().for_each(|name| list.add_group(name));
        for statement in users {
            let outcome = user(&mut list, statement, &known, context);
            context.note(outcome);
        }
        for statement in groups {
            let outcome = group(&mut list, statement, context);
            context.note(outcome);
        }
        context.names.userlists.insert(section.name.as_str().into(), Arc::new(list));
    }
}

/// Checks that a password can match the hash.
fn check_hash(hash: &Word, user: &Word, diagnostics: &mut Diagnostics) -> Outcome {
    match HashFormat::of(hash) {
        HashFormat::Known | HashFormat::Yescrypt | HashFormat::Apr1 => Ok(()),
        // The account is locked.
        HashFormat::Unknown if hash.starts_with(['!', '*']) => Ok(()),
        HashFormat::Unbuilt => Err(Diagnostic::alert("this password hash format is not supported yet")
            .at(hash.span())
            .help("use a hash from `mkpasswd -m sha-512` or `mkpasswd -m yescrypt`")),
        HashFormat::Unknown => {
            // HAProxy does not warn, and the user can never log in. The message is shown, but not counted as a warning.
            let warning =
                Diagnostic::warning(format!("user `{user}` can never log in: unknown password hash format"))
                    .tolerated()
                    .at(hash.span())
                    .label(
                        "crypt(3) does not support this format; use `insecure-password` for a plain password",
                    );
            diagnostics.push(warning);
            Ok(())
        }
    }
}

fn user(
    list: &mut Userlist,
    statement: &Statement,
    groups: &[&str],
    context: &mut ResolveContext<'_>,
) -> Outcome {
    let mut args = Args::new(statement, context.diagnostics, context.environment);
    let name = args.required("a user name")?;
    let (mut password, mut member_of) = (None, Vec::new());
    while let Some(word) = args.next() {
        match word.as_str() {
            "password" => {
                let hash = args.value()?;
                check_hash(hash, name, args.diagnostics)?;
                password = Some(Password::Crypt(hash.as_str().into()));
            }
            "insecure-password" => password = Some(Password::Plain(args.value()?.bytes().into())),
            "groups" => {
                let names = args.value()?;
                for group in names.split(',') {
                    if !groups.contains(&group) {
                        return Err(args
                            .wrong(format!("there is no group `{group}` in this userlist"))
                            .did_you_mean(diag::suggest(group, groups.iter().copied()))
                            .haproxy(format!(
                                "userlist: no such group '{group}' specified in user '{name}'"
                            )));
                    }
                    member_of.push(group.into());
                }
            }
            other => {
                let near = diag::suggest(other, ["password", "insecure-password", "groups"]);
                return Err(args.wrong(format!("unknown argument `{other}` for `user`")).did_you_mean(near));
            }
        }
    }
    if !list.add_user(name, password, member_of) {
        duplicate("user", name, &format!(" in userlist '{}'", list.name), context);
    }
    Ok(())
}

/// Warns about a duplicate; the first entry of that name is used.
fn duplicate(kind: &str, name: &Word, within: &str, context: &mut ResolveContext<'_>) {
    context.diagnostics.push(
        Diagnostic::warning(format!("{kind} `{name}` is already defined: the first definition is used"))
            .at(name.span())
            .haproxy(format!("ignoring duplicated {kind} '{name}'{within}.")),
    );
}

fn group(list: &mut Userlist, statement: &Statement, context: &mut ResolveContext<'_>) -> Outcome {
    let mut args = Args::new(statement, context.diagnostics, context.environment);
    let name = args.required("a group name")?;
    if args.take("users") {
        let users = args.required("a list of users")?;
        for user in users.split(',').filter(|user| !user.is_empty()) {
            if !list.join(user, name) {
                return Err(args
                    .wrong(format!("there is no user `{user}` in this userlist"))
                    .haproxy(format!("userlist: no such user '{user}' specified in group '{name}'")));
            }
        }
    }
    args.finish()
}

/// Reads every `healthcheck` section.
pub(crate) fn healthchecks<'a>(draft: &'a Draft, context: &mut ResolveContext<'_>) -> Healthchecks<'a> {
    let mut healthchecks = Healthchecks::new();
    for section in draft.sections.iter().filter(|section| section.kind == SectionKind::Healthcheck) {
        let mut settings = ProxySettings::new(section);
        for statement in &section.statements {
            read_line(section, &mut settings, statement, context);
        }
        let (name, place) = (&section.name, context.place(section));
        if settings.check.mode == CheckMode::Connect {
            context.diagnostics.push(
                Diagnostic::alert(format!("healthcheck section `{name}` has no type"))
                    .at(name.span())
                    .help("add a line such as `type httpchk`")
                    .haproxy(format!("healthcheck '{name}' declared at {place} has no type defined.")),
            );
        }
        if let Some((_, other)) = healthchecks.insert(name, (settings.check, section)) {
            let haproxy = |name: &str, place: &str| {
                format!("healthcheck section '{name}' already declared at {place}.")
            };
            let error = second(section, other, haproxy, context);
            context.diagnostics.push(error);
        }
    }
    healthchecks
}

/// Reads every `http-errors` section.
pub(crate) fn http_errors(draft: &Draft, context: &mut ResolveContext<'_>) {
    for section in draft.sections.iter().filter(|section| section.kind == SectionKind::HttpErrors) {
        context.enter(section);
        let messages = messages(section, context);
        if context.names.http_errors.insert(section.name.as_str().into(), messages.into()).is_some() {
            let name = &section.name;
            context.diagnostics.push(
                Diagnostic::alert(format!("there are two http-errors sections named `{name}`"))
                    .at(name.span())
                    .haproxy(format!("http-errors section '{name}' already exists.")),
            );
        }
    }
}

fn messages(section: &Section, context: &mut ResolveContext<'_>) -> Vec<(u16, Arc<[u8]>)> {
    let mut messages: Vec<(u16, Arc<[u8]>)> = Vec::new();
    for statement in &section.statements {
        match read_message(statement, context) {
            Ok((status, bytes)) => {
                messages.retain(|(other, _)| *other != status);
                messages.push((status, bytes));
            }
            Err(error) => context.diagnostics.push(error),
        }
    }
    messages
}
