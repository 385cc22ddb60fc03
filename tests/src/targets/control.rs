//! Fuzz targets for external input of the runtime socket and the statistics page, and for files with states and counters of an
//! earlier process.

use std::sync::Arc;
use std::time::Duration;

use control::page::respond;
use control::socket::session::ClientSlot;
use control::{AccessLevel, Runtime, SeverityOutput, serve, state_file};
use http::Method;
use statistics::page::{PageRequest, PageSettings};
use statistics::prometheus::MetricsRequest;
use statistics::{ConfigView, ProxyView, ServerView, Statistics, stats_file};
use tokio::io::{AsyncReadExt, AsyncWriteExt, duplex};

/// A process with every kind of object that commands can reach.
const CONFIGURATION: &str = "
frontend fe
 guid fe
 mode http
 bind 127.0.0.1:1 guid-prefix sock
 timeout client 1s
 http-request set-header a %[path,map(virt@m)] if { src -f virt@l }
 http-request track-sc0 src table t
 default_backend be
backend be
 guid be
 mode http
 timeout connect 1s
 timeout server 1s
 cookie c insert
 server s1 127.0.0.1:2 check weight 10 cookie x guid s1
 server s2 127.0.0.1:3 backup
 server s3 127.0.0.1:4 check agent-check agent-port 5 disabled
backend t
 stick-table type ip size 100 expire 1m store gpc0,http_req_rate(10s),server_id,gpt(2)
backend named
 stick-table type string len 20 size 100 store conn_cnt,bytes_in_rate(1s)
";

fn runtime() -> Arc<Runtime> {
    let loaded = super::load(CONFIGURATION);
    let plan = loaded.plan.unwrap_or_else(|| {
        let why: String = loaded.diagnostics.iter().map(|one| format!("{one:?} ")).collect();
        panic!("the configuration of a target is right: {why}")
    });
    let view = ConfigView {
        node: "n".into(),
        proxies: plan.proxies.iter().map(proxy).collect(),
        environment: vec![("A".into(), "1".into())],
        patterns: plan.patterns.clone(),
        certificates: plan.certificates.clone(),
        tables: plan.tables.clone(),
        caches: plan.caches.clone(),
        tls: plan.tls.clone(),
        line_length: 1024,
        payload_length: 2048,
        ..ConfigView::default()
    };
    Arc::new(Runtime::new(Arc::new(Statistics::new(Arc::default(), view))))
}

fn proxy(proxy: &Arc<plan::Proxy>) -> ProxyView {
    let server = |one: &plan::ServerSettings| ServerView {
        state: one.state.clone(),
        cookie: one.cookie.as_deref().map(|cookie| String::from_utf8_lossy(cookie).into()),
        pool_max: -1,
        pool_purge: Duration::from_secs(5),
    };
    ProxyView {
        state: proxy.state.clone(),
        algorithm: "roundrobin",
        dynamic_weights: true,
        cookie: None,
        description: None,
        listeners: true,
        policies: Default::default(),
        servers: proxy.servers.iter().map(|one| server(&one)).collect(),
    }
}

/// Returns whether a line contains a command that ends or blocks the process, or has effects outside of it. These commands are for
/// developers, or have these effects on purpose.
fn leaves(text: &str) -> bool {
    let said = text.replace('\\', "");
    ["debug", "wait", "save", "httpclient", "_getsocks", "show fd", "show libs", "show dev"]
        .iter()
        .any(|word| said.contains(word))
}

/// Checks that a runtime socket connection is answered in bounded memory and ends. The first byte selects its access level, the
/// rest is the client's input.
pub fn command_line(bytes: &[u8]) {
    let Some((choice, said)) = bytes.split_first() else { return };
    if leaves(&String::from_utf8_lossy(said)) {
        return;
    }
    let level = [AccessLevel::Admin, AccessLevel::Operator, AccessLevel::User][usize::from(choice % 3)];
    let answer = ask(&runtime(), level, said);
    assert!(answer.len() < 1 << 20, "{} bytes for {}", answer.len(), said.escape_ascii());
}

fn ask(runtime: &Arc<Runtime>, level: AccessLevel, said: &[u8]) -> Vec<u8> {
    let executor = tokio::runtime::Builder::new_current_thread().enable_io().build().expect("an executor");
    tokio::task::LocalSet::new().block_on(&executor, async {
        let alarm = ::runtime::timer::Alarm::new().expect("a timer");
        tokio::task::spawn_local(::runtime::timer::drive(alarm));
        let (mut ours, theirs) = duplex(1 << 20);
        let said = said.to_vec();
        let client = tokio::task::spawn_local(async move {
            // The write fails if the client is refused.
            let _ = ours.write_all(&said).await;
            let _ = ours.shutdown().await;
            let mut answer = Vec::new();
            let _ = ours.read_to_end(&mut answer).await;
            answer
        });
        let place = ClientSlot::beyond_the_limit(runtime.clone());
        let _ = serve(theirs, level, SeverityOutput::None, place, None).await;
        client.await.expect("the client ends")
    })
}

/// Checks that a file of server states is restored or refused, and that the resulting states can be written as such a file.
pub fn state_rows(bytes: &[u8]) {
    let text = String::from_utf8_lossy(bytes);
    let Ok(rows) = state::saved_state::read(&text) else { return };
    let (runtime, rows) = (runtime(), state::saved_state::by_name(rows));
    for backend in &runtime.view().proxies {
        let named: Vec<_> = rows.values().cloned().collect();
        state_file::restore(
            &state::saved_state::by_name(state_file::of_backend(named, backend, &|_| ())),
            backend,
            &|_| (),
        );
        state_file::restore(&rows, backend, &|_| ());
    }
    let written =
        String::from_utf8(ask(&runtime, AccessLevel::Admin, b"show servers state\n")).expect("text");
    let written = written.strip_suffix('\n').unwrap_or(&written);
    assert!(state::saved_state::read(written).is_ok(), "{written}");
}

/// Checks that a file of counters is read up to the first error, twice, and that the file then written is read without an error.
pub fn stats_rows(bytes: &[u8]) {
    let text = String::from_utf8_lossy(bytes);
    let runtime = runtime();
    let view = runtime.view();
    let first = stats_file::load(&text, &view);
    assert_eq!(first, stats_file::load(&text, &view));
    let written = stats_file::text(&view);
    assert_eq!(stats_file::load(&written, &view), Ok(()), "{written}");
    let _ = ask(&runtime, AccessLevel::Admin, b"show stat\n");
}

/// Checks that parameters and forms sent to the statistics page and the metrics exporter appear in headers and the page only as
/// text. The first byte selects the method; a form follows a line break.
pub fn statistics_page(bytes: &[u8]) {
    let Some((choice, asked)) = bytes.split_first() else { return };
    let (uri, body) = match memchr::memchr(b'\n', asked) {
        Some(at) => (&asked[..at], &asked[at + 1..]),
        None => (asked, &b""[..]),
    };
    let uri = String::from_utf8_lossy(uri);
    let runtime = runtime();
    let settings = PageSettings { uri: "/stats".into(), show_legends: true, ..PageSettings::default() };
    let method = [Method::Get, Method::Post, Method::Head][usize::from(choice % 3)];
    let request = PageRequest { method, uri: &uri, body: Some(body), admin: choice & 4 != 0 };
    let response = match choice & 8 {
        0 => respond(&runtime, &settings, &request),
        // The body stands in for `Accept`.
        _ => {
            let request = MetricsRequest { method, uri: &uri, accept: body };
            statistics::prometheus::respond(&runtime.statistics, &request)
        }
    };
    for (name, value) in &response.headers {
        assert!(!value.contains(['\r', '\n']), "{name}: {value}");
    }
    let is = |kind: &str| {
        response.headers.iter().any(|(name, value)| *name == "content-type" && value.contains(kind))
    };
    let (html, json) = (is("text/html"), is("json"));
    let page: Vec<u8> = response.body.flatten().collect();
    if json && method == Method::Get {
        assert!(serde_json::from_slice::<serde_json::Value>(&page).is_ok(), "{}", page.escape_ascii());
    }
    if html {
        let text = String::from_utf8_lossy(&page);
        // The page's own markup is the same for every request, and has one script.
        let has_script = !page.is_empty() && !uri.split([';', '&', '?']).any(|word| word == "live");
        assert!(
            text.matches("<script").count() == usize::from(has_script) && !text.contains("onload"),
            "{text}"
        );
        assert_eq!(text.matches("<section").count(), text.matches("</section>").count());
    }
}
