//! The statistics page in a browser: its appearance on windows from a phone to a wall, and updates in place. Without Chromium,
//! these tests report that they are skipped.

use std::fmt::Write;
use std::path::PathBuf;

use serde_json::Value;
use weir_tests::browser::{Browser, Window};
use weir_tests::{Weir, client, eventually, free_port};

/// Servers per backend, and how many of them are down.
const BACKENDS: &[(&str, usize, usize)] = &[
    ("www_storefront_frankfurt_primary_production", 10, 1),
    ("api", 8, 1),
    ("checkout_and_payment_service_with_a_very_long_name_eu_central_1", 6, 2),
    ("static", 8, 1),
    ("websocket", 4, 1),
    ("legacy", 3, 3),
    ("auth", 5, 0),
    ("search", 6, 0),
    ("redis", 7, 0),
    ("reports", 3, 0),
];

/// The program with fifteen proxies and sixty servers: nine are down, among them all of `legacy`, and one of `api` fails every
/// request while its checks pass.
struct Farm {
    weir: Weir,
    /// Forwards to `api`.
    traffic: u16,
    /// The page.
    page: u16,
    /// The page with forms.
    forms: u16,
}

impl Farm {
    fn start() -> Self {
        let [traffic, page, forms, good, bad, closed] = std::array::from_fn(|_| free_port());
        let mut text = format!(
            "global\n  stats socket runtime level admin\n  node edge-lb-03\n\
             defaults\n  mode http\n  timeout client 20s\n  timeout connect 5s\n  timeout server 20s\n\
             frontend traffic\n  bind 127.0.0.1:{traffic}\n  default_backend api\n\
             frontend page\n  bind 127.0.0.1:{page}\n  stats enable\n  stats uri /\n  stats show-node\n  stats show-legends\n  stats refresh 1s\n\
             frontend forms\n  bind 127.0.0.1:{forms}\n  stats enable\n  stats uri /admin?stats\n  stats admin if TRUE\n\
             frontend good\n  bind 127.0.0.1:{good}\n  http-request return status 200\n\
             frontend bad\n  bind 127.0.0.1:{bad}\n  http-request return status 500 if !{{ path /health }}\n  http-request return status 200\n"
        );
        for (name, servers, down) in BACKENDS {
            let _ = writeln!(text, "backend {name}\n  option httpchk GET /health");
            for number in 0..*servers {
                let port = match number {
                    number if number < *down => closed,
                    2 if *name == "api" => bad,
                    _ => good,
                };
                let _ = writeln!(
                    text,
                    "  server {}-{number:02} 127.0.0.1:{port} check inter 500ms fall 1",
                    &name[..3]
                );
            }
        }
        Self { weir: Weir::start(&text, &[traffic, page, forms, good, bad]), traffic, page, forms }
    }

    /// Sends requests until the page names the failing server.
    fn await_verdict(&self) {
        let shown = eventually(|| {
            for _ in 0..16 {
                client::get(self.traffic, "/").expect("a response");
            }
            let page = client::get(self.page, "/").expect("a page").text();
            page.contains("api-02 fails 100 % of its requests")
                && page
                    .contains("<title>✕ 1 backend down, 1 server failing, 9 of 60 servers down · edge-lb-03")
        });
        assert!(shown, "{}", client::get(self.page, "/").expect("a page").text());
    }
}

/// Fails if the browser reported an error or a violation of the content security policy, or asked for anything from elsewhere.
fn check_events(browser: &mut Browser, port: u16) {
    let own = format!("http://127.0.0.1:{port}/");
    for event in browser.take_events() {
        let parameters = &event["params"];
        match event["method"].as_str().unwrap_or_default() {
            "Runtime.exceptionThrown" => panic!("{parameters}"),
            "Log.entryAdded" if parameters["entry"]["level"] == "error" => panic!("{parameters}"),
            "Network.requestWillBeSent" => {
                let url = parameters["request"]["url"].as_str().unwrap_or_default();
                assert!(url.starts_with(&own) || url.starts_with("data:"), "{url}");
            }
            _ => {}
        }
    }
}

fn is_true(browser: &mut Browser, expression: &str) -> bool {
    browser.evaluate(expression) == Value::Bool(true)
}

fn await_true(browser: &mut Browser, expression: &str) {
    assert!(
        eventually(|| browser.holds(expression)),
        "{expression}: {}",
        browser.evaluate("(document.body?.innerText ?? '')")
    );
}

/// With `WEIR_PICTURES`, a directory, the pages that the tests look at are stored there.
fn save(browser: &mut Browser, name: &str) {
    if let Some(directory) = std::env::var_os("WEIR_PICTURES") {
        browser.save_picture(&PathBuf::from(directory).join(format!("{name}.png")));
    }
}

#[test]
fn page_is_legible_from_phones_to_walls() {
    let Some(mut browser) = Browser::start() else { return };
    let farm = Farm::start();
    farm.await_verdict();
    let windows = [
        ("phone", 390, 844, ""),
        ("desktop", 1440, 900, ""),
        ("wall", 1920, 1080, ";wall"),
        ("tablet", 820, 1100, ""),
    ];
    for (name, width, height, option) in windows {
        for is_dark in [false, true] {
            browser.set_window(Window { width, height, is_dark });
            for (port, uri) in [(farm.page, "/"), (farm.forms, "/admin?stats")] {
                browser.open(&format!("http://127.0.0.1:{port}{uri}{option}"));
                browser.evaluate("document.querySelectorAll('details').forEach(one => one.open = true)");
                await_true(&mut browser, "document.getElementById('live').textContent == '● live'");
                save(
                    &mut browser,
                    &format!(
                        "{name}{}{}",
                        if is_dark { "-dark" } else { "" },
                        if port == farm.forms { "-forms" } else { "" }
                    ),
                );
                let wrong = browser.evaluate(include_str!("statistics_page.js"));
                assert_eq!(wrong, "", "{name}, dark: {is_dark}, {uri}");
                check_events(&mut browser, port);
            }
        }
    }
    browser.open(&format!("http://127.0.0.1:{}/;detail=all", farm.page));
    let wrong = browser.evaluate(include_str!("statistics_page.js"));
    assert_eq!(wrong, "", "all counters");
}

#[test]
fn page_updates_in_place_without_losing_the_readers_place() {
    let Some(mut browser) = Browser::start() else { return };
    let farm = Farm::start();
    browser.set_window(Window { width: 1440, height: 500, is_dark: false });
    browser.open(&format!("http://127.0.0.1:{}/admin?stats", farm.forms));
    let prepare = "
        window.mark = 1;
        document.getElementById('auth').open = true;
        document.querySelector('#auth input[value=aut-01]').checked = true;
        document.querySelector('#auth select').value = 'drain';
        document.querySelector('#auth input[value=aut-02]').focus({ preventScroll: true });
        window.scrollTo(0, 300);
        performance.clearResourceTimings();
    ";
    browser.evaluate(prepare);
    farm.weir.ask("set server auth/aut-04 state maint");
    await_true(&mut browser, "/MAINT/.test(document.getElementById('auth').innerText)");
    for kept in [
        "window.mark == 1",
        "document.getElementById('auth').open",
        "document.querySelector('#auth input[value=aut-01]').checked",
        "document.querySelector('#auth select').value == 'drain'",
        "document.activeElement.value == 'aut-02'",
        "Math.abs(window.scrollY - 300) < 200",
        "!document.getElementById('search').open",
    ] {
        assert!(is_true(&mut browser, kept), "{kept}");
    }

    // A search is answered while it is typed, and the page's address then has it.
    browser.evaluate("{ const own = document.querySelector('input[type=search]'); own.focus(); own.value = 'AUT-03'; own.dispatchEvent(new Event('input')); }");
    await_true(&mut browser, "document.querySelectorAll('details[data-p]').length == 1");
    await_true(
        &mut browser,
        "document.querySelectorAll('#auth tr').length == 1 && /find=AUT-03/.test(location.href)",
    );
    assert!(is_true(&mut browser, "document.activeElement.value == 'AUT-03' && window.mark == 1"));
    browser.evaluate("document.querySelector('#auth tr a').click()");
    await_true(
        &mut browser,
        "/Average times/.test(document.getElementById('auth').innerText) && window.mark == 1",
    );
    browser.evaluate("history.back()");
    await_true(&mut browser, "!/Average times/.test(document.getElementById('auth').innerText)");
    check_events(&mut browser, farm.forms);

    // The form works as without the script.
    browser.open(&format!("http://127.0.0.1:{}/admin?stats", farm.forms));
    browser.evaluate(prepare);
    browser.evaluate("document.querySelector('#auth form').requestSubmit()");
    await_true(&mut browser, "/Action processed successfully/.test(document.body.innerText)");
    assert_eq!(farm.weir.stat("auth,aut-01", "status"), "DRAIN");
    check_events(&mut browser, farm.forms);

    drop(farm);
    await_true(&mut browser, "/no connection since/.test(document.getElementById('live').textContent)");
}

#[test]
fn updates_replace_the_reloads_of_the_refresh_header() {
    let Some(mut browser) = Browser::start() else { return };
    let farm = Farm::start();
    browser.open(&format!("http://127.0.0.1:{}/", farm.page));
    browser.evaluate("window.mark = 1");
    // The header asks for a reload after a second, and an update takes place each second.
    let updates =
        "performance.getEntriesByType('resource').filter(one => /;live/.test(one.name)).length >= 4";
    await_true(&mut browser, updates);
    assert!(is_true(&mut browser, "window.mark == 1"), "the page was loaded again");
    browser.evaluate("document.getElementById('live').click()");
    await_true(&mut browser, "document.getElementById('live').textContent == 'paused'");
}
