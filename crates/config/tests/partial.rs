//! A reload that resolves only the changed sections has the same result as one that resolves everything.

use std::cell::Cell;

use config::partial::ChangedSections;
use config::{Boot, load_after, load_text};
use diag::SourceMap;
use plan::Plan;
use proptest::prelude::*;
use proptest::test_runner::TestRunner;
use state::Mode;

const TOP: &str = "global\n maxconn 100\ndefaults\n mode http\n timeout connect 5s\n timeout client 5s\n timeout server 5s\n retries 2\nfrontend web\n bind 127.0.0.1:80\n http-request deny if { path /x }\n default_backend b0\n";

fn boot() -> Boot {
    let mut boot = Boot::default();
    boot.setting.is_running = true;
    boot
}

fn whole(text: &str) -> Plan {
    let loaded = load_text("t.cfg", text, &boot());
    loaded.plan.unwrap_or_else(|| panic!("{:?}\n{text}", loaded.diagnostics))
}

fn after(text: &str, plan: &Plan) -> Option<Plan> {
    let mut sources = SourceMap::new();
    let file = sources.add("t.cfg", text);
    load_after(sources, vec![file], &boot(), plan).plan
}

/// The plan with only the changed sections resolved, if that is possible.
fn partial(text: &str, plan: &Plan) -> Option<Plan> {
    let mut sources = SourceMap::new();
    let file = sources.add("t.cfg", text);
    let found = ChangedSections::find(&sources, &[file], plan)?;
    found.check(&boot(), plan)?;
    Some(found.apply(&boot(), plan).expect("it was checked"))
}

/// Everything of a plan that a change of these sections can affect, as text.
fn shown(plan: &Plan) -> String {
    let mut text = String::new();
    for section in &plan.source {
        let lines: Vec<_> = section.lines.iter().map(|line| (section.number(line), &line.text)).collect();
        text.push_str(&format!("{} {} {} {lines:?}\n", section.title(), section.file, section.from));
    }
    for proxy in plan.proxies.iter() {
        let state = &proxy.state;
        text.push_str(&format!(
            "{} {} {} {:?} {:?} {:?} {:?} {:?} {:?} {:?} {:?} {:?} {:?} {:?} {}\n",
            proxy.index,
            state.name,
            state.id,
            proxy.mode,
            proxy.options,
            proxy.timeouts,
            proxy.balance,
            proxy.cookie,
            proxy.retries,
            proxy.redispatch,
            proxy.reuse,
            proxy.fullconn,
            proxy.default_backend,
            proxy.description,
            plan.backends.get(&state.name).is_some(),
        ));
        text.push_str(&format!(
            "{:?} {:?} {:?} {:?} {:?}\n",
            state.configured(),
            state.referenced,
            state.timeouts,
            state.retries,
            proxy.lent
        ));
        let states = state.servers.load();
        for (server, shared) in proxy.servers.fixed().iter().zip(states.iter()) {
            let own = &server.state;
            assert!(std::sync::Arc::ptr_eq(own, shared));
            text.push_str(&format!(
                "  {} {} {} {:?} {:?} {:?} {} {} {:?} {:?} {:?} {:?}\n",
                server.index,
                own.name,
                own.id,
                own.configured(),
                own.address.load(),
                own.admin(),
                own.user_weight(),
                own.is_up(),
                own.checked,
                own.health.rise,
                own.health.fall,
                server.options,
            ));
        }
        assert_eq!(states.len(), proxy.servers.fixed().len());
    }
    text
}

fn same(old: &str, new: &str) -> bool {
    let (one, other) = (whole(old), whole(old));
    let Some(partially) = partial(new, &one) else { return false };
    let wholly = after(new, &other).unwrap_or_else(|| panic!("refused:\n{new}"));
    assert_eq!(shown(&partially), shown(&wholly), "{old}\n{new}");
    true
}

fn backends(count: usize) -> String {
    (0..count).map(|at| format!("backend b{at}\n server s1 127.0.0.1:{}\n", 8000 + at)).collect()
}

#[test]
fn an_edit_of_one_backend_resolves_only_that() {
    let old = TOP.to_owned() + &backends(4);
    for (from, to) in [
        (":8001", ":8001 weight 7 check inter 3s"),
        (":8001", ":9001"),
        (" server s1 127.0.0.1:8001\n", " server s1 127.0.0.1:8001\n server s2 127.0.0.1:1 backup\n"),
        (" server s1 127.0.0.1:8001\n", ""),
        (" server s1 127.0.0.1:8001\n", " server other 127.0.0.1:8001\n"),
        ("backend b1\n", "backend b1\n # a comment\n\n balance leastconn\n timeout server 9s\n"),
        ("backend b1\n", "backend b1\n option httpchk GET /health\n cookie C insert\n"),
        ("backend b1\n", "backend b1\n option redispatch\n retries 5\n fullconn 9\n"),
    ] {
        assert!(same(&old, &old.replace(from, to)), "{from} {to}");
    }
    assert!(same(&old, &old), "nothing has changed");
}

#[test]
fn what_affects_other_sections_resolves_everything() {
    let old = TOP.to_owned() + &backends(3) + "backend last\n http-request deny if { path /y }\n";
    for (from, to) in [
        ("maxconn 100", "maxconn 101"),
        ("mode http", "mode http\n option httplog"),
        ("retries 2", "retries 3"),
        ("/x", "/z"),
        ("/y", "/z"),
        ("backend b1\n", "backend b4\n"),
        ("backend b1\n", "listen b1\n"),
        ("backend b1\n", "backend b1 from d\n"),
        ("backend b1\n", ""),
        ("backend b1\n", "backend new\nbackend b1\n"),
        ("backend b1\n", "backend b1\n mode tcp\n"),
        ("backend b1\n", "backend b1\n id 77\n"),
        ("backend b1\n", "backend b1\n guid g\n"),
        ("backend b1\n", "backend b1\n disabled\n"),
        ("backend b1\n", "backend b1\n stick-table type ip size 1k\n"),
        ("backend b1\n", "backend b1\n acl a path /\n"),
        ("backend b1\n", "backend b1\n http-request set-header a b\n"),
        ("backend b1\n", "backend b1\n description $HOME\n"),
        ("backend b1\n", "backend b1\n .if 1\n .endif\n"),
        // The lines of the last section move, and its rule knows its line.
        ("backend b1\n", "backend b1\n # a comment\n"),
        (":8001", ":8001 id 9"),
        (":8001", ":8001 track b0/s1"),
        (":8001", ":8001 ssl verify none"),
        ("127.0.0.1:8001", "localhost:8001"),
        (":8001", ":8001 check-sni %[str(a)]"),
    ] {
        let new = old.replacen(from, to, 1);
        assert_ne!(old, new, "{from}");
        assert!(partial(&new, &whole(&old)).is_none(), "{from} {to}");
    }
}

#[test]
fn a_referenced_server_resolves_everything() {
    let old = TOP.to_owned() + &backends(3);
    let new = old.replace(":8001", ":8001 weight 9");
    for line in
        [" http-request deny if { srv_is_up(b1/s1) }\n", " http-request set-header a %[srv_weight(b1/s1)]\n"]
    {
        let with = |text: &str| text.replacen(" default_backend", &format!("{line} default_backend"), 1);
        assert!(partial(&with(&new), &whole(&with(&old))).is_none(), "{line}");
    }
    let tracked = old.replace(":8001", ":8001 check").replace(":8002", ":8002 track b1/s1");
    assert!(partial(&tracked.replace(":8001", ":8001 weight 9"), &whole(&tracked)).is_none());
}

#[test]
fn changed_files_resolve_everything() {
    let scratch = scratch::Scratch::new("partial");
    let list = scratch.directory().join("list");
    std::fs::write(&list, "/x\n").expect("a file");
    let rule = format!(" http-request deny if {{ path -f {} }}\n", list.display());
    let old = TOP.replacen(" default_backend", &format!("{rule} default_backend"), 1) + &backends(3);
    let new = old.replace(":8001", ":8001 weight 9");
    let mut plan = whole(&old);
    // A file that was changed just before it was read may change again unnoticed.
    while partial(&new, &plan).is_none() {
        plan = whole(&old);
    }
    std::fs::write(&list, "/y\n").expect("a file");
    assert!(partial(&new, &plan).is_none(), "the list has changed");
}

#[test]
fn state_is_kept() {
    let old = TOP.to_owned() + &backends(2);
    let plan = whole(&old);
    let server = |plan: &Plan| plan.backend("b1").expect("b1").servers.fixed()[0].state.clone();
    server(&plan).set_weight(33);
    let new = partial(&old.replace("backend b1\n", "backend b1\n retries 1\n"), &plan).expect("one backend");
    assert_eq!((server(&new).user_weight(), new.backend("b1").expect("b1").mode), (33, Mode::Http));
    assert!(std::sync::Arc::ptr_eq(&plan.proxies[0], &new.proxies[0]), "the frontend is the same");
    let new = partial(&old.replace(":8001", ":8001 weight 44"), &new).expect("one backend again");
    assert_eq!(server(&new).user_weight(), 44);
}

fn line() -> impl Strategy<Value = String> {
    let simple = prop::sample::select(vec![
        "balance leastconn",
        "balance roundrobin",
        "timeout server 7s",
        "timeout queue 1s",
        "retries 1",
        "option redispatch",
        "no option redispatch",
        "option httpchk",
        "option log-health-checks",
        "http-reuse always",
        "default-server inter 2s weight 3",
        "description text",
        "# only a comment",
        "",
    ]);
    let server = (
        0..4,
        1..4,
        prop::sample::select(vec!["", " check", " backup", " weight 5", " disabled", " maxconn 9"]),
    );
    let server = server.prop_map(|(name, port, words)| format!("server s{name} 127.0.0.1:{port}{words}"));
    let other = prop::sample::select(vec![
        "acl a path /b",
        "http-request set-header x y",
        "mode tcp",
        "stick-table type ip size 1k",
        "use-server s1 if { path / }",
        "id 99",
    ]);
    prop_oneof![6 => simple.prop_map(str::to_owned), 8 => server, 1 => other.prop_map(str::to_owned)]
}

fn section() -> impl Strategy<Value = Vec<String>> {
    prop::collection::vec(line(), 0..5)
}

fn text(sections: &[Vec<String>], defaults_between: bool) -> String {
    let mut text = TOP.to_owned();
    for (at, lines) in sections.iter().enumerate() {
        if at == 2 && defaults_between {
            text.push_str("defaults\n mode http\n timeout connect 1s\n timeout server 2s\n timeout client 2s\n balance first\n");
        }
        text.push_str(&format!("backend b{at}\n"));
        lines.iter().for_each(|line| text.push_str(&format!(" {line}\n")));
    }
    text
}

#[test]
fn random_edits_have_the_same_result() {
    let edits = prop::collection::vec((0usize..4, section()), 1..3);
    let input = (prop::collection::vec(section(), 4), edits, any::<bool>());
    let resolved_partially = Cell::new(0);
    let mut runner = TestRunner::new(ProptestConfig::with_cases(600));
    let outcome = runner.run(&input, |(sections, edits, between)| {
        let old = text(&sections, between);
        let mut new = sections;
        for (at, lines) in edits {
            new[at] = lines;
        }
        let new = text(&new, between);
        // Only valid configurations are compared; others are refused in both ways.
        if load_text("t.cfg", &old, &boot()).plan.is_none() {
            return Ok(());
        }
        if load_text("t.cfg", &new, &boot()).plan.is_some() {
            resolved_partially.set(resolved_partially.get() + u32::from(same(&old, &new)));
        } else {
            prop_assert!(partial(&new, &whole(&old)).is_none(), "{}", new);
        }
        Ok(())
    });
    assert_eq!(outcome, Ok(()));
    assert!(resolved_partially.get() > 60, "{} edits", resolved_partially.get());
}
