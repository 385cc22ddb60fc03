//! Counters in shared memory (`shm-stats-file`): they continue across successive processes, and are shared by concurrent ones.

use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};

use weir_tests::client::get;
use weir_tests::{Origin, Statistics, Weir, ask, check, eventually, free_port, program, scratch};

/// The name of a shared memory object, which is removed when the value is dropped.
struct Shared(String);

impl Shared {
    fn new() -> Self {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        Self(format!("weir-test-{}-{number}", std::process::id()))
    }

    fn path(&self) -> PathBuf {
        PathBuf::from("/dev/shm").join(&self.0)
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(self.path());
    }
}

/// Returns a configuration with object identifiers; `more` are lines of the global section.
fn configuration(shared: &Shared, port: u16, origin: &Origin, more: &str) -> String {
    format!(
        "global\n  nbthread 2\n  stats socket runtime level admin\n  \
         shm-stats-file /{}\n{more}\
         defaults\n  mode http\n  timeout client 20s\n  timeout connect 10s\n  timeout server 20s\n\
         frontend f\n  guid front\n  bind 127.0.0.1:{port} guid-prefix door\n  option socket-stats\n  default_backend b\n\
         backend b\n  guid back\n  server s 127.0.0.1:{} guid server-s\n",
        shared.0,
        origin.port()
    )
}

fn ask_for(port: u16, times: usize) {
    for _ in 0..times {
        assert_eq!(get(port, "/").map(|response| response.status), Some(200));
    }
}

/// Returns the numbers of responses of the server and of requests to its backend.
fn counted(weir: &Weir) -> [u64; 2] {
    let shown = weir.statistics();
    [("b,s", "hrsp_2xx"), ("b,BACKEND", "req_tot")].map(|(row, column)| shown.number(row, column))
}

fn shows(weir: &Weir, requests: u64) -> bool {
    eventually(|| counted(weir) == [requests; 2])
}

/// Returns the sessions of the frontend and of its listener, including checks whether it listens.
fn sessions(weir: &Weir) -> [u64; 2] {
    let shown = weir.statistics();
    ["f,FRONTEND", "f,sock-1"].map(|row| shown.number(row, "stot"))
}

#[test]
fn counters_continue_until_the_last_process_ends() {
    let (origin, port, shared) = (Origin::echo(), free_port(), Shared::new());
    let text = configuration(&shared, port, &origin, "");
    let mut weir = Weir::start(&text, &[port]);
    ask_for(port, 3);
    assert!(shows(&weir, 3), "{:?}", counted(&weir));
    for before in [3, 5, 7] {
        let pid = weir.pid().to_string();
        let next = Weir::start_with(&text, &["-db", "-sf", &pid], &[port]);
        // This holds from its first answer on.
        assert!(counted(&next).iter().all(|count| *count >= before), "{:?}", counted(&next));
        assert_eq!(weir.await_end(), Some(0), "{}", weir.messages());
        weir = next;
        ask_for(port, 2);
        assert!(shows(&weir, before + 2), "{:?}", counted(&weir));
    }
    let [of_frontend, of_listener] = sessions(&weir);
    assert!(of_frontend >= 9 && of_listener == of_frontend, "{of_frontend} {of_listener}");
    assert!(weir.ask("dump stats-file").contains(&format!("\nfront,{of_frontend},")));
    weir.signal("USR1");
    assert_eq!(weir.await_end(), Some(0));
    assert!(!shared.path().exists(), "a process that stops releases what nobody else uses");
    let weir = Weir::start(&text, &[port]);
    assert_eq!(counted(&weir)[0], 0);
}

#[test]
fn counters_of_a_killed_process_survive() {
    let (origin, port, shared) = (Origin::echo(), free_port(), Shared::new());
    let text = configuration(&shared, port, &origin, "");
    let weir = Weir::start(&text, &[port]);
    ask_for(port, 4);
    assert!(shows(&weir, 4), "what is shown is written too");
    weir.signal("KILL");
    drop(weir);
    assert!(shared.path().exists());
    let weir = Weir::start(&text, &[port]);
    assert!(shows(&weir, 4), "{:?}", counted(&weir));
    assert!(sessions(&weir).iter().all(|count| *count >= 4), "{:?}", sessions(&weir));
    std::fs::remove_file(shared.path()).expect("the file");
    weir.signal("TERM");
    drop(weir);
    let weir = Weir::start(&text, &[port]);
    assert_eq!(counted(&weir)[0], 0, "who removes the file begins anew");
}

#[test]
fn concurrent_processes_share_and_clear_one_sum() {
    let (origin, shared) = (Origin::echo(), Shared::new());
    let ports = [free_port(), free_port()];
    let [one, other] = ports.map(|port| Weir::start(&configuration(&shared, port, &origin, ""), &[port]));
    ask_for(ports[0], 2);
    ask_for(ports[1], 3);
    for weir in [&one, &other] {
        assert!(shows(weir, 5), "{:?}", counted(weir));
    }
    assert_eq!(one.statistics().number("f,FRONTEND", "scur"), 0, "what is now is each process's own");
    let refused = other.ask("clear counters server b/s");
    assert!(refused.contains("force"), "{refused}");
    assert!(shows(&one, 5));
    assert!(other.ask("clear counters server b/s force").contains("cleared"));
    for weir in [&one, &other] {
        assert!(eventually(|| counted(weir) == [0, 5]), "{:?}", counted(weir));
    }
    one.ask("clear counters");
    assert_eq!(counted(&other), [0, 5], "highest values alone");
    one.ask("clear counters all");
    for weir in [&one, &other] {
        assert!(shows(weir, 0), "{:?}", counted(weir));
    }
    ask_for(ports[0], 1);
    ask_for(ports[1], 1);
    for weir in [&one, &other] {
        assert!(shows(weir, 2), "{:?}", counted(weir));
    }
}

#[test]
fn in_place_reload_continues_counters_by_identifier() {
    let (origin, port, shared) = (Origin::echo(), free_port(), Shared::new());
    let text = configuration(&shared, port, &origin, "");
    let weir = Weir::start(&text, &[port]);
    ask_for(port, 3);
    assert!(shows(&weir, 3));
    // Another backend and another server, which did not exist before.
    let text = text.replace("backend b", "backend c").replace("server s ", "server t ");
    std::fs::write(
        weir.directory().join("haproxy.cfg"),
        text.replace("default_backend b", "default_backend c"),
    )
    .expect("the directory takes files");
    let said = weir.ask("reload");
    assert!(said.contains("backend c"), "{said}");
    let shown = weir.statistics();
    let of_new =
        [("c,t", "hrsp_2xx"), ("c,BACKEND", "req_tot")].map(|(row, column)| shown.number(row, column));
    assert_eq!(of_new, [3, 3]);
    ask_for(port, 2);
    assert!(eventually(|| weir.statistics().number("c,t", "hrsp_2xx") == 5));
}

#[test]
fn master_passes_counters_from_worker_to_worker() {
    let (origin, port, shared) = (Origin::echo(), free_port(), Shared::new());
    let text = configuration(&shared, port, &origin, "");
    let mut weir = Weir::start_with(&text, &["-W", "-S", "./master"], &[port]);
    let master = |command: &str| ask(&weir.directory().join("master"), command);
    let requests = || {
        let table = master("@1 show stat");
        Statistics::read(&table).number("b,BACKEND", "req_tot")
    };
    ask_for(port, 3);
    assert!(eventually(|| requests() == 3));
    for _ in 0..2 {
        let answer = master("reload");
        assert!(answer.starts_with("Success=1"), "{answer}");
        assert!(requests() >= 3);
    }
    ask_for(port, 1);
    assert!(eventually(|| requests() == 4), "{}", requests());
    weir.signal("TERM");
    weir.await_end();
    assert!(eventually(|| !shared.path().exists()));
}

#[test]
fn too_few_slots_are_reported_with_the_needed_number() {
    let (origin, port, shared) = (Origin::echo(), free_port(), Shared::new());
    let text = configuration(&shared, port, &origin, "  shm-stats-file-max-objects 3\n");
    let mut weir = Weir::start(&text, &[]);
    assert_eq!(weir.await_end(), Some(1));
    assert!(weir.says("at least 4"), "{}", weir.messages());
    assert!(!shared.path().exists());
    let weir = Weir::start(&text.replace("objects 3", "objects 4"), &[port]);
    ask_for(port, 1);
    assert!(shows(&weir, 1));
    // Slots of removed objects are reused, but not those of another process.
    let renamed = text.replace("objects 3", "objects 4").replace("server-s", "server-t");
    let mut other = Weir::start(&renamed.replace(&port.to_string(), &free_port().to_string()), &[]);
    assert_eq!(other.await_end(), Some(1));
    assert!(other.says("at least 5"), "{}", other.messages());
    weir.signal("KILL");
    drop(weir);
    let weir = Weir::start(&renamed, &[port]);
    assert_eq!(counted(&weir), [0, 1], "another server is counted anew");
}

#[test]
fn foreign_or_damaged_files_are_refused() {
    let (origin, port, shared) = (Origin::echo(), free_port(), Shared::new());
    let text = configuration(&shared, port, &origin, "");
    let refused = |expected: &str| {
        let mut weir = Weir::start(&text, &[]);
        assert_eq!(weir.await_end(), Some(1), "{expected}");
        assert!(
            weir.messages().contains(expected) && weir.messages().contains("Remove"),
            "{}",
            weir.messages()
        );
    };
    std::fs::write(shared.path(), "something else").expect("shared memory takes files");
    refused("it contains no Weir counters");
    std::fs::remove_file(shared.path()).expect("the file");
    let weir = Weir::start(&text, &[port]);
    ask_for(port, 1);
    assert!(shows(&weir, 1));
    weir.signal("KILL");
    drop(weir);
    let file = std::fs::OpenOptions::new().read(true).write(true).open(shared.path()).expect("the file");
    let damage = |at: u64, expected: &str| {
        let mut byte = [0];
        file.read_exact_at(&mut byte, at).expect("a byte");
        file.write_all_at(&[byte[0] ^ 0x10], at).expect("a byte");
        refused(expected);
        file.write_all_at(&byte, at).expect("a byte");
    };
    damage(17, "its header is damaged");
    damage(4096 + 12, "its object table is damaged");
    damage(64 + 8, "its process table is damaged");
    let mut other = Weir::start(
        &text.replace("shm-stats-file ", "shm-stats-file-max-objects 77\n  shm-stats-file "),
        &[],
    );
    assert_eq!(other.await_end(), Some(1));
    assert!(other.says("created for 2048 objects"), "{}", other.messages());
    // A process whose counters are damaged loses only these.
    let weir = Weir::start(&text, &[port]);
    assert!(shows(&weir, 1));
}

#[test]
fn name_is_checked_without_touching_memory() {
    let (origin, port, shared) = (Origin::echo(), free_port(), Shared::new());
    let directory = scratch("check");
    let file = directory.join("haproxy.cfg");
    let verdict = |text: &str| {
        std::fs::write(&file, text).expect("the directory takes files");
        check(&file, &directory)
    };
    let text = configuration(&shared, port, &origin, "");
    assert!(verdict(&text).accepted(), "{}", verdict(&text).messages);
    assert!(!shared.path().exists());
    let told = verdict(&text.replace(&shared.0, "a/b"));
    assert!(told.alerts().iter().any(|alert| alert.contains("shm-stats-file")), "{}", told.messages);
    let status = Command::new(program()).args(["-c", "-f"]).arg(&file).current_dir(&directory).status();
    assert!(status.is_ok_and(|status| !status.success()));
}
