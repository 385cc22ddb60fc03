//! Tests of the contents of the statistics page, its size, and its protection against hostile names.

#![allow(clippy::unwrap_used, reason = "a test may fail")]

mod common;

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use base64::Engine as _;
use common::farm::farm;
use common::{proxy, server};
use sha2::{Digest, Sha256};
use state::journal::EventTopic;
use state::table::{Column, DataType, KeyType, ServerKey, Table, TableSettings};
use statistics::page::{PageRequest, PageSettings, show};
use statistics::{ConfigView, Statistics, sampling};

fn settings(uri: &str) -> PageSettings {
    PageSettings { uri: uri.into(), ..PageSettings::default() }
}

fn render(
    statistics: &Arc<Statistics>,
    settings: &PageSettings,
    uri: &str,
    admin: bool,
) -> (Vec<(&'static str, String)>, String) {
    let request = PageRequest { method: http::Method::Get, uri, body: Some(b""), admin };
    let response = show(statistics, settings, &request);
    (response.headers, String::from_utf8(response.body.flatten().collect()).unwrap())
}

fn html(statistics: &Arc<Statistics>, uri: &str) -> String {
    render(statistics, &settings("/"), uri, false).1
}

/// The parts of a page between `begin` and `end`, in order.
fn between<'p>(page: &'p str, begin: &str, end: &str) -> Vec<&'p str> {
    page.split(begin).skip(1).map(|rest| rest.split(end).next().unwrap()).collect()
}

#[test]
fn what_needs_attention_comes_first() {
    let statistics = farm(60);
    let page = html(&statistics, "/");
    assert!(
        page.contains("<title>✕ 1 backend down, 1 server failing, 9 of 60 servers down · Statistics"),
        "{page}"
    );
    let problems: Vec<&str> = between(&page, "<li class=", "</a>");
    for (at, parts) in [
        (0, ["legacy", "no server is up", "L4CON: ECONNREFUSED"]),
        (1, ["api", "api-02 fails 100 % of its requests", "its checks pass (L7OK/200)"]),
        (2, ["checkout_", "2 of 6 servers down", "(che-00, che-01)"]),
    ] {
        for part in parts {
            assert!(problems[at].contains(part), "{part}: {}", problems[at]);
        }
    }
    let lines = between(&page, "<details id=\"", "\"");
    assert_eq!(lines.len(), 15);
    assert_eq!(
        lines[..3],
        ["legacy", "api", "checkout_and_payment_service_with_a_very_long_name_eu_central_1"]
    );
    let servers =
        between(between(&page, "<details id=\"api\"", "</details>")[0], "class=l href=\"/;detail=", "</a>");
    assert!(servers[1].ends_with("api-00") && servers[2].ends_with("api-02"), "{servers:?}");
}

#[test]
fn sixty_servers_take_at_most_60_kb() {
    let statistics = farm(60);
    let (page, update) = (html(&statistics, "/").len(), html(&statistics, "/;live").len());
    println!("{page} bytes, an update {update}");
    assert!(page <= 60 * 1024 && update <= 30 * 1024, "{page}, {update}");
}

#[test]
fn the_verdict_needs_no_history() {
    let statistics = farm(0);
    let page = html(&statistics, "/");
    assert!(page.contains("<title>✕ 1 backend down, 9 of 60 servers down"), "{page}");
    sampling::round(&statistics, false).for_each(drop);
    for view in &statistics.view().proxies {
        assert!(
            view.state.servers.load().iter().all(|server| server.history.get().is_none()),
            "`stats history off`"
        );
    }
}

#[test]
fn tables_are_sorted_and_searched_without_a_script() {
    let statistics = farm(60);
    let lines = |uri: &str| {
        let page = html(&statistics, uri);
        between(&page, "<details id=\"", "\"").into_iter().map(str::to_owned).collect::<Vec<_>>()
    };
    assert_eq!(lines("/;problems").len(), 6);
    assert_eq!(lines("/;problems;sort=name")[0], "api");
    assert_eq!(lines("/?sort=config")[0], "www_storefront_frankfurt_primary_production");
    assert_eq!(lines("/?find=AUT")[0], "auth");
    assert_eq!(lines("/;find=ser-03"), Vec::<String>::new());
    assert_eq!(lines("/;find=sea-03"), ["search"]);
    // Addresses are only searched where they are shown.
    assert_eq!(lines("/;find=127.0.0.1:8010").len(), 0);
    let legends = PageSettings { show_legends: true, ..settings("/") };
    let page = render(&statistics, &legends, "/;find=127.0.0.1:8010", false).1;
    assert_eq!(between(&page, "<details id=\"", "\""), ["www_storefront_frankfurt_primary_production"]);
    assert_eq!(page.matches("<tr id=").count(), 1, "only the server with that address");
}

#[test]
fn forms_keep_the_query_of_the_pages_address() {
    let statistics = farm(0);
    let page =
        render(&statistics, &settings("/haproxy?stats&a=1"), "/haproxy?stats&a=1;scope=a;sort=rate", false).1;
    for part in [
        "<form method=get action=\"/haproxy\"",
        "<input type=hidden name=\"stats\" value=\"\"><input type=hidden name=\"a\" value=\"1\">\
         <input type=hidden name=\"scope\" value=\"a\"><input type=hidden name=\"sort\" value=\"rate\">",
        "href=\"/haproxy?stats&amp;a=1;problems;sort=rate;scope=a\"",
        "href=\"/haproxy?stats&amp;a=1;scope=a;csv\"",
    ] {
        assert!(page.contains(part), "{part}: {page}");
    }
}

#[test]
fn all_counters_are_shown_on_request() {
    let statistics = farm(60);
    assert!(!html(&statistics, "/").contains("Average times"));
    let page = html(&statistics, "/;detail=11.3");
    assert!(page.contains("<details id=\"api\" data-p=11 open>"), "{page}");
    let row = between(&page, "<td class=x", "\n<tr")[0];
    for part in [
        "<dt>5xx<dd>",
        "<dt>Opened<dd>0",
        "<dt>Reused<dd>0",
        "<dt>Queue<dd>0 ms",
        "<dt>Meaning<dd>Layer7 check passed",
        "<dt>Last<dd>L7OK",
        "<dt>Code<dd>200",
        "<dt>Redispatches<dd>0",
        "<dt>Downtime<dd>0s",
        "<dt>Own id<dd>3",
    ] {
        assert!(row.contains(part), "{part}: {row}");
    }
    assert!(!row.contains("Address") && !row.contains("Cookie"), "{row}");
    let legends = PageSettings { show_legends: true, ..settings("/") };
    let page = render(&statistics, &legends, "/;detail=11.3", false).1;
    assert!(page.contains("<dt>Address<dd>127.0.0.1:8003") && page.contains("<dt>Cookie<dd>c3"), "{page}");
    assert_eq!(html(&statistics, "/;detail=all").matches("Average times").count(), 70);
}

#[test]
fn updates_contain_only_open_lines() {
    let statistics = farm(3);
    let update = html(&statistics, "/;live;open=11,12");
    assert!(!update.contains("<style") && !update.contains("<script"), "{update}");
    assert_eq!(update.matches("<tr id=/").count(), 8 + 6);
    assert_eq!(update.matches("<div class=sv data-k>").count(), 13);
    let version = |page: &str| between(page, "<body data-v=\"", "\"")[0].to_owned();
    assert_eq!(version(&update), version(&html(&statistics, "/")));
}

#[test]
fn the_policy_allows_exactly_the_pages_own_style_and_script() {
    let statistics = farm(0);
    let (headers, page) = render(&statistics, &settings("/"), "/", false);
    let policy = &headers.iter().find(|(name, _)| *name == "content-security-policy").unwrap().1;
    for (element, directive) in [("style", "style-src"), ("script", "script-src")] {
        let texts = between(&page, &format!("<{element}>"), &format!("</{element}>"));
        let hash = base64::engine::general_purpose::STANDARD.encode(Sha256::digest(texts[0]));
        assert_eq!(texts.len(), 1);
        assert!(policy.contains(&format!("{directive} 'sha256-{hash}';")), "{policy}");
    }
    assert!(policy.starts_with("default-src 'none';") && !policy.contains("unsafe"), "{policy}");
    assert!(!page.contains(" style=") && !page.contains(" onclick="), "inline attributes are not allowed");
}

#[test]
fn frames_are_allowed_by_the_keyword_but_never_for_forms() {
    let statistics = farm(0);
    let own = PageSettings { frame_ancestors: "https://wall.example.com".into(), ..settings("/") };
    for (uri, admin, wanted) in [
        ("/", false, "; frame-ancestors https://wall.example.com"),
        ("/", true, "; frame-ancestors 'self'"),
        ("/;wall", true, "; frame-ancestors https://wall.example.com"),
    ] {
        let (headers, page) = render(&statistics, &own, uri, admin);
        assert!(headers.iter().any(|(_, value)| value.ends_with(wanted)), "{uri}: {headers:?}");
        assert_eq!(
            headers.iter().any(|(name, _)| *name == "x-frame-options"),
            page.contains("method=post"),
            "{uri}"
        );
    }
}

/// A table with string keys that the client chooses.
fn table(name: &str, key: &str) -> Arc<Table> {
    let table = Table::new(TableSettings {
        name: name.into(),
        kind: KeyType::Str,
        key_length: 100,
        size: 100,
        expire_ms: 0,
        nopurge: false,
        recv_only: false,
        server_key: ServerKey::Name,
        bytes_factor: 1,
        columns: vec![Column::new(DataType::HttpReqRate, 1, 10_000)],
        peers: None,
        aggregate: None,
    });
    let now = base::clock::now_ms();
    let entry = table.get(key.as_bytes(), now).unwrap();
    entry.add(DataType::HttpReqRate, 0, 7, now);
    drop(entry);
    table
}

#[test]
fn names_keys_and_descriptions_are_only_text() {
    const EVIL: &str = "<i x='\"&>";
    let servers = vec![server(1, EVIL, true, false)];
    servers[0].health.last.store(Arc::new(state::server::CheckResult {
        status: "L7STS",
        code: Some(500),
        duration_ms: 1,
        description: EVIL.into(),
    }));
    servers[0].set_operational(state::server::Operational::Stopped, 1);
    let mut backend = proxy(3, EVIL, false, true, servers);
    backend.description = Some(EVIL.into());
    backend.cookie = Some(EVIL.into());
    let view = ConfigView {
        proxies: vec![proxy(2, EVIL, true, false, Vec::new()), backend],
        tables: vec![table(EVIL, EVIL)],
        ..ConfigView::default()
    };
    let statistics = Arc::new(Statistics::new(Arc::default(), view));
    let own = PageSettings {
        show_legends: true,
        node: Some(EVIL.into()),
        description: Some(EVIL.into()),
        ..settings("/<i x='\"&>")
    };
    state::journal::record(EventTopic::Reloads, EVIL, EVIL);
    // Tables are searched while a page is shown.
    drop(render(&statistics, &own, "/", true));
    sampling::round(&statistics, true).for_each(drop);
    for uri in [
        "/<i x='\"&>;detail=all;find=%3Ci",
        "/<i x='\"&>;wall",
        "/<i x='\"&>?scope=%3Ci;st=<i x",
        "/x;find=<i x='",
    ] {
        let page = render(&statistics, &own, uri, true).1;
        let markup = page.replace(between(&page, "<script>", "</script>")[0], "");
        assert!(!markup.contains("<i x") && !markup.contains("x='\""), "{uri}: {markup}");
    }
    let page = render(&statistics, &own, "/<i x='\"&>", true).1;
    assert!(page.contains("<section class=p id=\"/table.&lt;i x"), "{page}");
    assert_eq!(
        page.matches("&lt;i x=&#39;\\&quot;&amp;&gt;").count() + page.matches("&lt;i x=\\&#39;").count(),
        1,
        "the key: {page}"
    );
}

#[test]
fn pages_with_a_scope_show_nothing_of_others() {
    let statistics = farm(10);
    let own = PageSettings { scope: vec!["auth".into()], show_legends: true, ..settings("/") };
    let mut view = (*statistics.view()).clone();
    view.tables = vec![table("clients", "10.0.0.1")];
    statistics.replace(view);
    state::journal::record(EventTopic::Certificates, "clients", "legacy");
    drop(render(&statistics, &own, "/", true));
    sampling::round(&statistics, true).for_each(drop);
    assert!(render(&statistics, &settings("/"), "/", true).1.contains("10.0.0.1"), "shown without a scope");
    assert!(
        !render(&statistics, &settings("/"), "/", false).1.contains("10.0.0.1"),
        "keys need `show-legends`"
    );
    for uri in ["/", "/;detail=all", "/;wall", "/;live;open=11", "/;find=api"] {
        let page = render(&statistics, &own, uri, true).1;
        for other in ["api", "legacy", "clients", "10.0.0.1", "8 000", "Accepted", "60 servers"] {
            let text = page.replace(between(&page, "<style>", "</style>").first().unwrap_or(&""), "");
            let text = text.replace(between(&text, "<script>", "</script>").first().unwrap_or(&""), "");
            let text = text.replace("value=\"api\"", "").replace("find=api", "");
            assert!(!text.contains(other), "{uri}: {other}: {text}");
        }
        assert!(page.contains("<title>All is well"), "{uri}: {page}");
    }
}

#[test]
fn large_farms_are_surveyed_and_sampled_in_small_pieces() {
    let servers = (1..=10_000).map(|id| server(id, &format!("s{id}"), true, false)).collect();
    let mut proxies = vec![proxy(2, "be", false, true, servers)];
    proxies.extend(
        (3..3_000).map(|id| proxy(id, &format!("p{id}"), true, true, vec![server(1, "s", false, false)])),
    );
    let statistics =
        Arc::new(Statistics::new(Arc::default(), ConfigView { proxies, ..ConfigView::default() }));
    assert!(sampling::round(&statistics, true).count() > 3_000);
    let request = PageRequest { method: http::Method::Get, uri: "/", body: Some(b""), admin: true };
    let sizes: Vec<usize> =
        show(&statistics, &settings("/"), &request).body.map(|piece| piece.len()).collect();
    assert!(sizes.iter().take_while(|size| **size == 0).count() > 3, "the survey");
    assert!(sizes.len() > 300 && sizes.iter().all(|size| *size < 64 * 1024), "{sizes:?}");
    let update = html(&statistics, "/;live").len();
    assert!(update < 6 << 20, "{update}");
}

#[test]
fn limits_that_are_reached_need_attention() {
    let statistics = farm(20);
    let view = statistics.view();
    let frontend = view.frontend("api_partners").unwrap();
    frontend.state.connections.store(2_000, Relaxed);
    statistics.process.connections.store(7_500, Relaxed);
    base::memory::set_short(true);
    sampling::round(&statistics, true).for_each(drop);
    sampling::round(&statistics, true).for_each(drop);
    let page = html(&statistics, "/");
    base::memory::set_short(false);
    for part in [
        "<b>api_partners</b><span>at its limit of 2\u{202f}000 connections</span><span class=dim>for 4s",
        "<b>process</b><span>7\u{202f}500 of 8\u{202f}000 connections</span>",
        "<b>process</b><span>memory is short</span>",
    ] {
        assert!(page.contains(part), "{part}: {page}");
    }
}
