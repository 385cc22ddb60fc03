//! Tests of the forms of the statistics page.

#![allow(clippy::unwrap_used, reason = "a test may fail")]

mod common;

use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use common::{be, runtime};
use control::Runtime;
use control::page::respond;
use state::server::Operational;
use statistics::page::{PageRequest, PageSettings};

fn page(
    runtime: &Arc<Runtime>,
    method: http::Method,
    uri: &str,
    body: &str,
    admin: bool,
) -> (u16, String, String) {
    let settings = PageSettings {
        uri: "/stats".into(),
        refresh: Some(Duration::from_secs(5)),
        ..PageSettings::default()
    };
    let request = PageRequest { method, uri, body: Some(body.as_bytes()), admin };
    let response = respond(runtime, &settings, &request);
    let headers = response.headers.iter().map(|(n, v)| format!("{n}: {v}\n")).collect();
    (response.status, headers, String::from_utf8(response.body.flatten().collect()).unwrap())
}

#[test]
fn the_page_shows_every_proxy_and_acts_only_for_administrators() {
    use http::Method::{Get, Head, Post};
    let runtime = runtime();
    let (status, headers, html) = page(&runtime, Get, "/stats", "", false);
    assert_eq!(status, 200);
    assert!(headers.contains("refresh: 5\n") && headers.contains("content-type: text/html; charset=utf-8\n"));
    for part in [">fe</h3>", ">be</h3>", ">s1</a>", "no check", "</html>"] {
        assert!(html.contains(part), "{part}");
    }
    assert!(!html.contains("<select"), "no forms without the right");
    assert_eq!(html.matches("<section").count(), html.matches("</section>").count());
    assert!(page(&runtime, Get, "/stats", "", true).2.contains("name=s value=\"s1\""));
    assert!(!page(&runtime, Get, "/stats?scope=fe", "", false).2.contains(">be</h3>"));
    assert!(!page(&runtime, Get, "/stats;norefresh", "", false).1.contains("refresh"));
    assert_eq!(page(&runtime, Head, "/stats", "", false).2, "");
    let (_, headers, csv) = page(&runtime, Get, "/stats;csv;scope=be", "", false);
    assert!(headers.contains("text/plain") && csv.contains("\nbe,BACKEND,") && !csv.contains("\nfe,"));
    serde_json::from_str::<serde_json::Value>(&page(&runtime, Get, "/stats;json", "", false).2).unwrap();

    let form = "s=s1&s=s2&action=maint&b=%233";
    assert!(page(&runtime, Post, "/stats", form, false).1.contains("location: /stats;st=DENY\n"));
    assert!(!be(&runtime).server("s1").unwrap().admin().in_maintenance());
    let (status, headers, _) = page(&runtime, Post, "/stats?scope=be", form, true);
    assert_eq!(status, 303);
    assert!(headers.contains("location: /stats;st=DONE;scope=be\n"), "{headers}");
    assert!(be(&runtime).server("s2").unwrap().admin().in_maintenance());
    for (form, outcome) in [
        ("s=s1&action=maint&b=nope", "ERRP"),
        ("s=s1&action=bogus&b=be", "ERRP"),
        ("s=s1&s=zz&action=ready&b=be", "PART"),
        ("action=ready&b=be", "NONE"),
        ("s=s1&b=be", "NONE"),
        // A server that is already in maintenance is neither disabled again nor counted.
        ("s=s1&action=disable&b=be", "DONE"),
        ("s=s1&action=disable&b=be", "NONE"),
        ("s=s1&action=enable&b=be", "DONE"),
        ("s=s1&action=start&b=be", "NONE"),
        ("s=s1&action=stop&b=be", "DONE"),
        ("s=s1&action=start&b=be", "DONE"),
        ("s=s1&action=dhlth&b=be", "DONE"),
        ("s=s2&action=dhlth&b=be", "NONE"),
        ("s=s1&action=eagent&b=be", "NONE"),
        ("s=s1&action=adown&b=be", "NONE"),
    ] {
        let location = page(&runtime, Post, "/stats", form, true).1;
        assert!(location.contains(&format!("st={outcome}")), "{form}: {location}");
    }
    assert!(page(&runtime, Get, "/stats;csv", "", false).1.contains("refresh: 5"));
    let s1 = be(&runtime).server("s1").unwrap();
    s1.agent.configured.store(true, Relaxed);
    for (action, outcome) in
        [("arunn", "NONE"), ("eagent", "DONE"), ("adown", "DONE"), ("arunn", "DONE"), ("dagent", "DONE")]
    {
        let form = format!("s=s1&action={action}&b=be");
        assert!(page(&runtime, Post, "/stats", &form, true).1.contains(outcome), "{form}");
        assert_eq!(s1.operational() == Operational::Stopped, action == "adown", "{action}");
    }
}

#[test]
fn changes_are_logged_with_their_origin_unless_they_have_no_effect() {
    let logged = Arc::new(Mutex::new(Vec::new()));
    let list = logged.clone();
    let notify = move |_: &state::Proxy, _: u8, text: &str| list.lock().unwrap().push(text.to_owned());
    let runtime = Arc::into_inner(runtime()).unwrap().with_notify(Arc::new(notify));
    let runtime = Arc::new(runtime);
    let taken = || std::mem::take(&mut *logged.lock().unwrap());
    be(&runtime).server("s1").unwrap().checked.store(true, Relaxed);
    page(&runtime, http::Method::Post, "/stats", "s=s1&action=hdown&b=be", true);
    let first = taken().swap_remove(0);
    assert!(first.starts_with("Server be/s1 is DOWN, changed from Web interface."), "{first}");
    page(&runtime, http::Method::Post, "/stats", "s=s1&action=maint&b=be", true);
    assert_eq!(taken(), ["Server be/s1 was DOWN and now enters maintenance."]);
    // During maintenance, the state has no effect.
    page(&runtime, http::Method::Post, "/stats", "s=s1&action=hrunn&b=be", true);
    assert!(taken().is_empty());
}

#[test]
fn forms_only_affect_visible_servers() {
    let runtime = runtime();
    let settings = PageSettings { uri: "/".into(), scope: vec!["other".into()], ..PageSettings::default() };
    for backend in ["be", "nope"] {
        let body = format!("s=s1&action=maint&b={backend}");
        let request =
            PageRequest { method: http::Method::Post, uri: "/", body: Some(body.as_bytes()), admin: true };
        let headers = respond(&runtime, &settings, &request).headers;
        assert!(headers.iter().any(|(_, value)| value.contains("st=DENY")), "{backend}: {headers:?}");
    }
    assert!(!be(&runtime).server("s1").unwrap().admin().in_maintenance());
}
