//! `disk`: objects evicted from memory are in files, and nothing damaged is ever sent from them. Directories pass from one process
//! to the next. I/O errors are reported, and no request fails because of them.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use weir_tests::caching::{self, is_hit};
use weir_tests::chunks::{chunked, unchunked};
use weir_tests::client::{Client, Response, exchange, get};
use weir_tests::{Origin, Scratch, Weir, eventually, free_port, scratch};

/// A directory for one test.
struct Directory(Scratch);

impl Directory {
    fn new() -> Self {
        Self(scratch("disk"))
    }

    fn files(&self) -> Vec<PathBuf> {
        let mut all: Vec<PathBuf> = fs::read_dir(self.0.join("files"))
            .map(|entries| entries.filter_map(|entry| Some(entry.ok()?.path())).collect())
            .unwrap_or_default();
        all.retain(|path| path.file_name().is_some_and(|name| name.len() == 16));
        all.sort();
        all
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        let _ = fs::set_permissions(self.0.join("files"), fs::Permissions::from_mode(0o700));
    }
}

/// Starts an origin where every path has its own body of 90 kB, fresh for an hour.
fn pages() -> Origin {
    Origin::start(|head, _| {
        let path = head.split(' ').nth(1).unwrap_or_default().to_owned();
        let body = page(&path);
        format!(
            "HTTP/1.1 200 OK\r\nCache-Control: max-age=3600\r\nCache-Tag: even{} all\r\nContent-Length: {}\r\n\r\n",
            path.len() % 2,
            body.len()
        )
        .into_bytes()
        .into_iter()
        .chain(body)
        .collect()
    })
}

fn page(path: &str) -> Vec<u8> {
    path.bytes().cycle().take(90_000).collect()
}

/// Returns a configuration with a cache of 1 MB, its own directory, and additional lines.
fn configuration(origin: u16, port: u16, directory: &Path, section: &str) -> String {
    let metrics = " http-request use-service prometheus-exporter if { path /metrics }\n";
    let section = format!(
        " total-max-size 1\n max-object-size 200000\n max-age 3600\n purge-tags cache-tag\n process-range on\n \
         disk {}/files size 64m\n{section}",
        directory.display()
    );
    caching::configuration(port, &caching::keeping(origin, metrics, ""), &section)
}

fn start(origin: &Origin, own: &Directory) -> (Weir, u16) {
    let port = free_port();
    let weir = Weir::start(&configuration(origin.port(), port, &own.0, ""), &[port]);
    in_use(&weir);
    (weir, port)
}

fn in_use(weir: &Weir) {
    assert!(eventually(|| weir.ask("show cache").contains(": in use")), "{}", weir.ask("show cache"));
}

/// Returns whether the response, which must be the page of this path, came from the cache.
fn ok(response: Option<Response>, path: &str) -> bool {
    let response = caching::ok(response);
    assert!(response.body == page(path), "{path}");
    is_hit(&response)
}

fn paths(count: usize) -> Vec<String> {
    (0..count).map(|at| format!("/page/{at}")).collect()
}

/// Returns a value from the line about the directory.
fn told(weir: &Weir, name: &str) -> u64 {
    let shown = weir.ask("show cache");
    let line = shown.lines().find(|line| line.starts_with("disk ")).expect("a line about the directory");
    let value = line.split_once(&format!(" {name}:")).expect(name).1;
    value.split([' ', '/']).next().and_then(|text| text.parse().ok()).expect("a number")
}

/// Requests `count` pages, of which memory holds eleven, and waits until the others are written.
fn fill(weir: &Weir, port: u16, count: usize) -> Vec<String> {
    let all = paths(count);
    for path in &all {
        assert!(!ok(get(port, path), path));
        // Waits for the files, so that none is skipped because the disk is slow.
        assert!(eventually(|| told(weir, "files") == told(weir, "written")));
    }
    assert!(told(weir, "files") >= count as u64 - 11, "{}", weir.ask("show cache"));
    all
}

#[test]
fn objects_evicted_from_memory_are_read_from_files() {
    let (origin, own) = (pages(), Directory::new());
    let (weir, port) = start(&origin, &own);
    let all = fill(&weir, port, 40);
    for round in 0..2 {
        for path in &all {
            assert!(ok(get(port, path), path), "{path} in round {round}");
            assert!(eventually(|| told(&weir, "files") <= told(&weir, "written")));
        }
    }
    assert_eq!(origin.requests(), 40);
    assert!(told(&weir, "hits") >= 58);
    let shown = weir.ask("show cache");
    assert!(shown.contains("type:disk"), "{shown}");
    let range = exchange(port, "GET /page/3 HTTP/1.1\r\nHost: test\r\nRange: bytes=1-4\r\n\r\n");
    assert_eq!(range.expect("a response").text(), "page");
}

#[test]
fn disk_usage_is_limited() {
    let (origin, own) = (pages(), Directory::new());
    let port = free_port();
    let text = configuration(origin.port(), port, &own.0, "").replace("size 64m", "size 1m");
    let weir = Weir::start(&text, &[port]);
    in_use(&weir);
    for path in paths(40) {
        assert!(!ok(get(port, &path), &path));
        assert!(eventually(|| told(&weir, "files") == told(&weir, "written") - told(&weir, "evicted")));
        assert!(told(&weir, "size") <= 1 << 20);
    }
    assert!(told(&weir, "evicted") > 10);
    let bytes = || own.files().iter().filter_map(|path| Some(fs::metadata(path).ok()?.len())).sum::<u64>();
    assert!(eventually(|| bytes() <= 1 << 20), "{}", bytes());
    // The most recently used ones are present.
    assert!(ok(get(port, "/page/27"), "/page/27"));
    assert!(!ok(get(port, "/page/1"), "/page/1"));
}

#[test]
fn files_survive_a_killed_process() {
    let (origin, own) = (pages(), Directory::new());
    let (weir, port) = start(&origin, &own);
    fill(&weir, port, 30);
    let before = told(&weir, "files");
    // An unfinished file, and one that does not belong to the cache.
    fs::write(own.0.join("files/00000000000000ff.tmp"), b"half").expect("a file");
    fs::write(own.0.join("files/README"), b"of somebody else").expect("a file");
    weir.signal("KILL");
    drop(weir);
    let (weir, port) = start(&origin, &own);
    assert_eq!(told(&weir, "files"), before);
    let asked = origin.requests();
    let hits = paths(30).iter().filter(|path| ok(get(port, path), path)).count() as u64;
    assert!(hits >= before, "{hits} of {before}");
    assert_eq!(origin.requests() - asked, 30 - hits as usize);
    assert!(!own.0.join("files/00000000000000ff.tmp").exists());
    assert!(own.0.join("files/README").exists());
}

#[test]
fn damaged_file_is_a_miss_and_is_removed() {
    let (origin, own) = (pages(), Directory::new());
    let (weir, port) = start(&origin, &own);
    let all = fill(&weir, port, 30);
    let files = own.files();
    assert!(files.len() >= 19);
    for (at, path) in files.iter().enumerate() {
        let mut bytes = fs::read(path).expect("a file");
        let length = bytes.len();
        match at % 5 {
            // Damages the header, the description, the body, the end, or truncates the file.
            0 => bytes[9] ^= 1,
            1 => bytes[60] ^= 0x20,
            2 => bytes[length / 2] ^= 1,
            3 => bytes.truncate(length - 1),
            _ => bytes.clear(),
        }
        fs::write(path, bytes).expect("a file");
    }
    for path in &all {
        ok(get(port, path), path);
        assert!(eventually(|| told(&weir, "files") <= told(&weir, "written")));
    }
    assert!(told(&weir, "wrong") > 10, "{}", weir.ask("show cache"));
    assert!(weir.says("contained a damaged file"), "{}", weir.messages());
    // The same happens if a process starts with such files.
    assert!(eventually(|| told(&weir, "files") > 10));
    weir.signal("KILL");
    drop(weir);
    for path in own.files() {
        let mut bytes = fs::read(&path).expect("a file");
        bytes.truncate(bytes.len() / 2);
        fs::write(path, bytes).expect("a file");
    }
    let (weir, port) = start(&origin, &own);
    assert_eq!(told(&weir, "files"), 0);
    assert!(own.files().is_empty());
    all.iter().for_each(|path| assert!(!ok(get(port, path), path)));
}

#[test]
fn purges_reach_files() {
    let (origin, own) = (pages(), Directory::new());
    let (weir, port) = start(&origin, &own);
    fill(&weir, port, 30);
    assert_eq!(weir.ask("clear cache c key test/page/1").trim(), "1 objects removed");
    assert!(!ok(get(port, "/page/1"), "/page/1"));
    assert_eq!(weir.ask("clear cache c prefix test/page/2").trim(), "11 objects removed");
    assert!(!ok(get(port, "/page/2"), "/page/2"));
    // Paths of the same length have the same tag.
    assert_eq!(weir.ask("clear cache c tag even1").trim(), "10 objects removed");
    assert_eq!(weir.ask("clear cache c").trim(), "10 objects removed");
    assert!(eventually(|| own.files().is_empty()));
    // They do not return after a crash either.
    weir.signal("KILL");
    drop(weir);
    let (_weir, port) = start(&origin, &own);
    assert!(!ok(get(port, "/page/3"), "/page/3"));
}

#[test]
fn directory_passes_to_the_next_process() {
    let (origin, own) = (pages(), Directory::new());
    let (weir, port) = start(&origin, &own);
    let all = fill(&weir, port, 30);
    let files = told(&weir, "files");
    let text = configuration(origin.port(), port, &own.0, "");
    let arguments = ["-db", "-sf", &weir.pid().to_string()];
    let next = Weir::start_with(&text, &arguments, &[port]);
    in_use(&next);
    assert_eq!(told(&next, "files"), files);
    let hits = all.iter().filter(|path| ok(get(port, path), path)).count() as u64;
    assert!(hits >= files, "{hits} of {files}");
}

#[test]
fn two_processes_do_not_share_a_directory() {
    let (origin, own) = (pages(), Directory::new());
    let (weir, port) = start(&origin, &own);
    fill(&weir, port, 15);
    let other = free_port();
    let second = Weir::start(&configuration(origin.port(), other, &own.0, ""), &[other]);
    assert!(second.ask("show cache").contains(": not in use"));
    assert!(!ok(get(other, "/page/0"), "/page/0"));
    assert!(ok(get(other, "/page/0"), "/page/0"));
    drop(weir);
    in_use(&second);
}

#[test]
fn unusable_directory_costs_no_request() {
    let (origin, own) = (pages(), Directory::new());
    fs::write(own.0.join("files"), b"this is no directory").expect("a file");
    let port = free_port();
    let weir = Weir::start(&configuration(origin.port(), port, &own.0, ""), &[port]);
    assert!(weir.says("cannot open the directory"), "{}", weir.messages());
    for path in paths(20) {
        assert!(!ok(get(port, &path), &path));
        assert!(ok(get(port, &path), &path));
    }
}

#[test]
fn write_errors_are_reported_and_cost_no_request() {
    let (origin, own) = (pages(), Directory::new());
    let (weir, port) = start(&origin, &own);
    // A directory occupies the name of each file that is about to be written.
    for number in 1..200 {
        fs::create_dir(own.0.join(format!("files/{number:016x}.tmp"))).expect("a directory");
    }
    for path in paths(30) {
        assert!(!ok(get(port, &path), &path));
    }
    assert!(eventually(|| told(&weir, "errors") > 10));
    assert_eq!(told(&weir, "written"), 0);
    assert!(weir.says("cannot write to directory"), "{}", weir.messages());
    // The error is reported once.
    assert_eq!(weir.messages().matches("cannot write to").count(), 1);
    assert!(ok(get(port, "/page/29"), "/page/29"));
}

/// Returns a command that starts a program with a file system of `size` KiB mounted at the directory. If mounting is not permitted,
/// prints the reason and returns `None`.
fn mounting(directory: &Path, size: u32) -> Option<Command> {
    let line =
        format!("mount -t tmpfs -o size={size}k,mode=700 none '{}' && exec \"$@\"", directory.display());
    for how in ["-m", "-rm"] {
        let start = |command: &mut Command| {
            command.args([how, "sh", "-c", &line, "sh"]);
        };
        let mut tried = Command::new("unshare");
        start(&mut tried);
        if tried.arg("true").output().is_ok_and(|output| output.status.success()) {
            let mut command = Command::new("unshare");
            start(&mut command);
            command.arg(weir_tests::program());
            return Some(command);
        }
    }
    println!("skipped: no file system can be mounted here");
    None
}

#[test]
fn full_disk_costs_no_request_and_its_files_are_used() {
    let (origin, own) = (pages(), Directory::new());
    // About twenty pages fit, and part of another.
    let Some(command) = mounting(&own.0, 1900) else { return };
    let port = free_port();
    let weir = Weir::start_by(command, &configuration(origin.port(), port, &own.0, ""), &["-db"], &[port]);
    in_use(&weir);
    let all = paths(60);
    for path in &all {
        assert!(!ok(get(port, path), path));
        assert!(eventually(|| told(&weir, "files") <= told(&weir, "written")));
    }
    assert!(eventually(|| told(&weir, "errors") >= 20), "{}", weir.ask("show cache disk"));
    assert!(weir.says("No space left on device"), "{}", weir.messages());
    let (files, written) = (told(&weir, "files"), told(&weir, "written"));
    assert!((15..=21).contains(&files) && files == written, "{files} files, {written} written");
    // All responses are complete, whether from memory, a file, or the server.
    let hits = all.iter().filter(|path| ok(get(port, path), path)).count();
    assert!(hits >= 15, "{hits} hits");
    assert!(told(&weir, "hits") >= 15, "{}", weir.ask("show cache disk"));
    assert_eq!((told(&weir, "wrong"), told(&weir, "evicted")), (0, 0));
    // Nothing is left of files that did not fit, so freed space can be used.
    weir.ask("clear cache c");
    assert!(eventually(|| told(&weir, "files") == 0));
    let before = told(&weir, "written");
    for path in &paths(30) {
        assert!(!ok(get(port, path), path));
        assert!(eventually(|| told(&weir, "files") <= told(&weir, "written") - before));
    }
    assert!(told(&weir, "written") - before >= 15, "{}", weir.ask("show cache disk"));
}

#[test]
fn long_response_that_fills_the_disk_is_complete() {
    let (origin, own) = (longs(), Directory::new());
    let Some(command) = mounting(&own.0, 1900) else { return };
    let port = free_port();
    let weir = Weir::start_by(command, &configuration(origin.port(), port, &own.0, ""), &["-db"], &[port]);
    in_use(&weir);
    for (round, path) in (1..).zip(["/plain", "/chunked", "/plain"]) {
        let response = get(port, path).expect("a response");
        assert_eq!((response.status, response.header("x-hit")), (200, Some("0")), "{path}");
        let body = if path == "/chunked" { unchunked(&response.body).0 } else { response.body };
        assert!(body == long(path.len()), "{path}");
        assert!(eventually(|| told(&weir, "errors") >= round), "{}", weir.ask("show cache disk"));
        assert!(eventually(|| told(&weir, "files") == 0));
    }
    assert_eq!((told(&weir, "written"), told(&weir, "wrong")), (0, 0));
    // Unfinished files have been removed.
    let inside = format!("/proc/{}/root{}/files", weir.pid(), own.0.display());
    let left =
        || fs::read_dir(&inside).expect("a directory").filter_map(|entry| Some(entry.ok()?.file_name()));
    assert!(eventually(|| left().eq(["lock"])), "{:?}", left().collect::<Vec<_>>());
}

#[test]
fn files_are_shown_in_a_table_and_in_metrics() {
    let (origin, own) = (pages(), Directory::new());
    let (weir, port) = start(&origin, &own);
    let all = fill(&weir, port, 20);
    assert!(ok(get(port, &all[0]), &all[0]));
    assert!(eventually(|| told(&weir, "files") <= told(&weir, "written")));
    let table = weir.ask("show cache disk c");
    let mut lines = table.lines();
    let titles: Vec<&str> = lines.next().expect("titles").trim_start_matches("# ").split(' ').collect();
    let row: Vec<&str> = lines.next().expect("a row").split(' ').collect();
    assert_eq!(titles.len(), row.len(), "{table}");
    let value = |name: &str| row[titles.iter().position(|title| *title == name).expect(name)];
    assert_eq!((value("cache"), value("in_use"), value("size")), ("c", "1", "67108864"));
    for name in ["files", "hits", "written", "evicted", "passed", "wrong", "errors"] {
        assert_eq!(value(name), told(&weir, name).to_string(), "{name}");
    }
    assert_eq!(value("bytes"), told(&weir, "size").to_string());
    assert_eq!(value("hits"), "1");
    assert!(weir.ask("show cache disk d").contains("No cache 'd' has a 'disk'."));
    let scraped = get(port, "/metrics?scope=cache").expect("a response").text();
    for (name, column) in
        [("in_use", "in_use"), ("files", "files"), ("bytes", "bytes"), ("hits_total", "hits")]
    {
        let line = format!("weir_cache_disk_{name}{{cache=\"c\"}} {}", value(column));
        assert!(scraped.lines().any(|own| own == line), "{line}: {scraped}");
    }
    assert!(scraped.contains("# TYPE weir_cache_disk_written_total counter"), "{scraped}");
    assert!(!get(port, "/metrics?scope=global").expect("a response").text().contains("weir_cache"));
}

#[test]
fn in_place_reload_keeps_the_files() {
    let (origin, own) = (pages(), Directory::new());
    let (weir, port) = start(&origin, &own);
    let all = fill(&weir, port, 30);
    weir.ask("reload");
    in_use(&weir);
    let hits = all.iter().filter(|path| ok(get(port, path), path)).count();
    assert_eq!(hits, 30);
    // A changed section is a different cache, which has the directory from then on.
    let text = configuration(origin.port(), port, &own.0, " stale-if-error 10\n");
    fs::write(weir.directory().join("haproxy.cfg"), text).expect("a file");
    weir.ask("reload");
    in_use(&weir);
    let hits = all.iter().filter(|path| ok(get(port, path), path)).count();
    assert!(hits >= 15, "{hits}");
}

/// Returns bytes without repetitions.
fn long(seed: usize) -> Vec<u8> {
    (0..3_000_000usize).map(|at| ((at * 7) ^ (at >> 8) ^ (at >> 16) ^ seed) as u8).collect()
}

/// Starts a server of long responses: `/plain…` with a length, others chunked.
fn longs() -> Origin {
    Origin::start(|head, _| {
        let path = head.split(' ').nth(1).unwrap_or_default();
        let body = long(path.len());
        let mut response = b"HTTP/1.1 200 OK\r\nCache-Control: max-age=3600\r\nETag: \"x\"\r\n".to_vec();
        if path.starts_with("/plain") {
            response.extend_from_slice(format!("Content-Length: {}\r\n\r\n", body.len()).as_bytes());
            response.extend_from_slice(&body);
        } else {
            response.extend_from_slice(b"Transfer-Encoding: chunked\r\n\r\n");
            response.extend_from_slice(&chunked(&body, 50_000, ""));
        }
        response
    })
}

/// Requests a path that is not cached yet, and waits until it is written.
fn keep_long(weir: &Weir, port: u16, path: &str) {
    let before = told(weir, "written");
    let first = get(port, path).expect("a response");
    assert_eq!((first.status, first.header("x-hit")), (200, Some("0")));
    assert!(eventually(|| told(weir, "written") == before + 1), "{}", weir.ask("show cache"));
}

fn is_whole(response: Option<Response>, path: &str) -> bool {
    let response = caching::ok(response);
    is_hit(&response) && response.body == long(path.len())
}

#[test]
fn long_objects_are_sent_from_their_file() {
    let (origin, own) = (longs(), Directory::new());
    let (weir, port) = start(&origin, &own);
    for path in ["/plain", "/chunked"] {
        keep_long(&weir, port, path);
        for _ in 0..3 {
            assert!(is_whole(get(port, path), path), "{path}");
        }
        let ask = |fields: &str| {
            exchange(port, &format!("GET {path} HTTP/1.1\r\nHost: test\r\n{fields}\r\n")).expect("a response")
        };
        let part = ask("Range: bytes=65530-200000\r\n");
        assert_eq!((part.status, part.header("content-range")), (206, Some("bytes 65530-200000/3000000")));
        assert!(part.body == long(path.len())[65_530..=200_000]);
        assert_eq!(ask("If-None-Match: \"x\"\r\n").status, 304);
        let mut client = Client::connect(port);
        client.send(format!(
            "HEAD {path} HTTP/1.1\r\nHost: test\r\n\r\nGET {path} HTTP/1.1\r\nHost: test\r\n\r\n"
        ));
        assert!(client.read_head().to_ascii_lowercase().contains("content-length: 3000000"));
        assert!(is_whole(client.response(), path));
    }
    assert_eq!(origin.requests(), 2);
    assert_eq!(weir.ask("clear cache c key test/plain").trim(), "1 objects removed");
    keep_long(&weir, port, "/plain");
    // This also holds after a crash.
    weir.signal("KILL");
    drop(weir);
    let (_weir, port) = start(&origin, &own);
    assert!(is_whole(get(port, "/plain"), "/plain"));
    assert!(is_whole(get(port, "/chunked"), "/chunked"));
    assert_eq!(origin.requests(), 3);
}

#[test]
fn damaged_block_truncates_a_long_response() {
    let (origin, own) = (longs(), Directory::new());
    let (weir, port) = start(&origin, &own);
    keep_long(&weir, port, "/plain");
    let files = own.files();
    let mut bytes = fs::read(&files[0]).expect("a file");
    let at = bytes.len() / 2;
    bytes[at] ^= 1;
    fs::write(&files[0], bytes).expect("a file");
    let mut client = Client::connect(port);
    client.send("GET /plain HTTP/1.1\r\nHost: test\r\n\r\n");
    assert!(client.read_head().starts_with("HTTP/1.1 200"));
    let got = client.read_to_end();
    assert!(got.len() < 3_000_000 && long(6).starts_with(&got), "{}", got.len());
    assert!(eventually(|| own.files().is_empty()));
    keep_long(&weir, port, "/plain");
    assert!(is_whole(get(port, "/plain"), "/plain"));
}

#[test]
fn transfers_from_files_finish_after_a_takeover() {
    let (origin, own) = (longs(), Directory::new());
    let (weir, port) = start(&origin, &own);
    keep_long(&weir, port, "/plain");
    let mut slow = Client::connect(port);
    slow.send("GET /plain HTTP/1.1\r\nHost: test\r\n\r\n");
    assert!(slow.read_head().starts_with("HTTP/1.1 200"));
    let arguments = ["-db", "-sf", &weir.pid().to_string()];
    let next = Weir::start_with(&configuration(origin.port(), port, &own.0, ""), &arguments, &[port]);
    in_use(&next);
    assert!(slow.read_bytes(3_000_000) == long(6));
    assert!(is_whole(get(port, "/plain"), "/plain"));
    assert_eq!(origin.requests(), 1);
}
