//! Real-world configurations are accepted, or refused only for unsupported features.

mod common;

use std::path::Path;

use config::Boot;
use diag::Severity;

#[test]
#[ignore = "needs the folder of collected configurations: make test-configs CONFIGS=<folder>"]
fn forty_one_real_files_have_only_unsupported_features() {
    let folder =
        std::env::var_os("WEIR_CONFIGS").expect("WEIR_CONFIGS names the folder of collected configurations");
    let folder = Path::new(&folder);
    let entries = std::fs::read_dir(folder).expect("the folder that WEIR_CONFIGS names exists");
    let mut seen = 0;
    let mut wrong = Vec::new();
    for entry in entries.flatten().filter(|entry| entry.path().extension().is_some_and(|end| end == "cfg")) {
        let text = std::fs::read(entry.path()).unwrap();
        let name = entry.file_name().to_string_lossy().into_owned();
        let mut sources = diag::SourceMap::new();
        // The files they refer to are in the same directory.
        let root = folder.join("root").display().to_string();
        let text = String::from_utf8_lossy(&text);
        let text = text.replace(" root/", &format!(" {root}/")).replace("(root/", &format!("({root}/"));
        let file = sources.add(name, text);
        let boot = Boot { environment: syntax::Environment::from_process(), ..Boot::default() };
        let loaded = config::load_sources(sources, vec![file], &boot);
        seen += 1;
        wrong.extend(
            loaded
                .diagnostics
                .iter()
                .filter(|message| message.severity == Severity::Alert)
                // The folder has no certificate: users generate one, which this test does not need.
                .filter(|message| {
                    !message.message.contains("not supported yet") && !message.message.contains("site.pem")
                })
                .map(|message| diag::render::line(message, &loaded.sources, 1)),
        );
    }
    assert!(seen >= 41, "{seen} files");
    assert!(wrong.is_empty(), "{wrong:#?}");
}

#[test]
fn missing_files_are_named() {
    let loaded = config::load(&["/nowhere/haproxy.cfg".into()], &Boot::default());
    assert!(loaded.plan.is_none());
    assert!(common::places(&loaded)[0].contains("/nowhere/haproxy.cfg"));
}

#[test]
fn thousands_of_backends_share_their_error_files() {
    let page = "HTTP/1.0 503 Sorry\r\ncontent-type: text/plain\r\n\r\nsorry\n";
    let page = scratch::Scratch::holding("errorfile", page);
    let mut text = format!("{}{}", common::QUIET, format_args!(" errorfile 503 {}\n", page.display()));
    for number in 0..2_000 {
        text.push_str(&format!(
            "backend b{number}\n server s1 10.0.0.1:80 check\n server s2 10.0.0.2:80 check\n"
        ));
    }
    let loaded = common::load(&text);
    let plan = loaded.plan.unwrap_or_else(|| panic!("{:?}", loaded.diagnostics));
    assert_eq!(plan.proxies.len(), 2_000);
    assert!(plan.proxies.iter().all(|proxy| proxy.errors.len() == 1 && proxy.servers.len() == 2));
}

#[test]
fn startup_priority_is_set_while_reading() {
    use std::sync::atomic::{AtomicI32, Ordering};
    static SEEN: AtomicI32 = AtomicI32::new(0);
    let mut boot = Boot::default();
    boot.setting.set_priority = Some(|priority| {
        SEEN.store(priority, Ordering::Relaxed);
        Ok(())
    });
    let loaded =
        config::load_text("haproxy.cfg", "global\n tune.renice.startup 3\n tune.renice.runtime 7\n", &boot);
    assert!(loaded.plan.is_some(), "{:?}", loaded.diagnostics);
    assert_eq!(SEEN.load(Ordering::Relaxed), 3);
    boot.setting.set_priority = Some(|_| Err(std::io::ErrorKind::PermissionDenied.into()));
    let loaded = config::load_text("haproxy.cfg", "global\n tune.renice.startup -5\n", &boot);
    let messages: Vec<&str> = loaded.diagnostics.iter().map(|message| message.message.as_str()).collect();
    assert!(messages[0].starts_with("cannot set the priority -5 of `tune.renice.startup`: "), "{messages:?}");
    let loaded = config::load_text("haproxy.cfg", "global\n tune.renice.startup 20\n", &Boot::default());
    assert!(loaded.plan.is_none());
}

#[test]
fn scripts_that_never_end_fail_within_the_time_limit() {
    for endless in [
        "while true do end",
        "while true do pcall(error) end",
        "core.register_init(function() while true do end end)",
    ] {
        let script = scratch::Scratch::holding("endless", endless);
        let text = format!("global\n lua-load {}\n", script.display());
        let limit = std::time::Duration::from_millis(50);
        let loaded = lua::limit_time(limit, || config::load_text("test.cfg", &text, &Boot::default()));
        assert!(loaded.plan.is_none(), "{endless}");
        let places = common::places(&loaded);
        assert!(places.iter().any(|place| place.contains("execution timeout")), "{places:?}");
        // The limit ends with the call, and the next script is loaded.
        let fine = scratch::Scratch::holding("fine", "local sum = 0 for n = 1, 100000 do sum = sum + n end");
        let loaded = config::load_text(
            "test.cfg",
            &format!("global\n lua-load {}\n", fine.display()),
            &Boot::default(),
        );
        assert!(loaded.plan.is_some());
    }
}
