//! The effects of results on servers: levels, states, trackers, agents, and messages.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use state::server::{Demand, Operational, ServerAddress, Trouble};

use super::{backend, fake, load, nobody, until, worker};
use crate::task::{self, CheckTask};
use crate::{CheckOutcome, Checks, RunningChecks, verdict, watch};

/// Loads a server with its initial state, without running checks.
fn prepared(lines: &str, more: &str) -> (Checks, super::Told) {
    backend(lines, nobody(), more)
}

fn apply(checks: &Checks, status: &'static str, code: i32, info: &str) {
    verdict::apply(&checks.subjects[0].peer, &CheckOutcome::new(status, code, info), &checks.context);
}

#[test]
fn rise_and_fall_decide_and_each_change_is_reported_once() {
    let (checks, list) = prepared("", "");
    let server = checks.subjects[0].server();
    let health = &server.health;
    let step = |status| apply(&checks, status, 0, "");
    let state = || (health.level.load(Relaxed), server.operational());
    step("L4OK");
    assert_eq!(state(), (4, Operational::Running));
    step("L4CON");
    step("L4CON");
    assert_eq!(state(), (2, Operational::Running));
    assert!(list.take().is_empty());
    step("L4CON");
    assert_eq!((state(), health.failed.load(Relaxed)), ((0, Operational::Stopped), 3));
    let down = "Server be/s1 is DOWN, reason: Layer4 connection problem, check duration: 0ms. 0 active and 0 backup \
                servers left. 0 sessions active, 0 requeued, 0 remaining in queue.";
    assert_eq!(list.take(), [(1, down.to_owned()), (0, "backend be has no server available!".to_owned())]);
    step("L4CON");
    step("L4OK");
    assert_eq!(state(), (1, Operational::Stopped));
    assert!(list.take().is_empty());
    step("L4OK");
    assert_eq!((state(), health.failed.load(Relaxed)), ((4, Operational::Running), 3));
    let up = "Server be/s1 is UP, reason: Layer4 check passed, check duration: 0ms. 1 active and 0 backup servers \
              online. 0 sessions requeued, 0 total in queue.";
    assert_eq!(list.take(), [(5, up.to_owned())]);
}

#[test]
fn connect_timeouts_make_the_address_doubtful() {
    let (checks, _) = prepared("", "");
    let doubts = Arc::new(std::sync::atomic::AtomicU32::new(0));
    let counted = doubts.clone();
    checks.subjects[0].server().on_doubt(move || {
        counted.fetch_add(1, Relaxed);
    });
    for (status, expected) in [("L4OK", 0), ("L4TOUT", 1), ("L4CON", 1), ("L7TOUT", 1), ("L4TOUT", 2)] {
        apply(&checks, status, 0, "");
        assert_eq!(doubts.load(Relaxed), expected, "{status}");
    }
}

#[test]
fn logged_checks_match_haproxy() {
    let (checks, list) = prepared("option log-health-checks", "");
    apply(&checks, "L7OK", 200, "");
    apply(&checks, "L7OK", 200, "");
    apply(&checks, "L7STS", 503, "Down \"For\" It");
    apply(&checks, "L7RSP", 503, "a\r\n");
    assert_eq!(
        list.texts(),
        [
            "Health check for server be/s1 succeeded, reason: Layer7 check passed, code: 200, check duration: 0ms, \
             status: 3/3 UP.",
            "Health check for server be/s1 failed, reason: Layer7 wrong status, code: 503, info: \
             \"Down <22>For<22> It\", check duration: 0ms, status: 2/3 UP.",
            "Health check for server be/s1 failed, reason: Layer7 invalid response, info: \"a<0D><0A>\", check \
             duration: 0ms, status: 1/3 UP.",
        ]
    );
}

#[test]
fn a_404_drains_a_running_server_until_the_next_success() {
    let (checks, list) = prepared("option httpchk\n http-check disable-on-404", "");
    let server = checks.subjects[0].server();
    apply(&checks, "L7OKC", 404, "");
    assert_eq!(server.operational(), Operational::Stopping);
    assert!(server.is_up() && server.effective_weight() == 0);
    apply(&checks, "L7OK", 200, "");
    assert_eq!(server.operational(), Operational::Running);
    let texts = list.texts();
    assert!(texts[0].starts_with("Server be/s1 is stopping, reason: "), "{texts:?}");
    assert!(texts.iter().any(|text| text.starts_with("Server be/s1 is UP, ")));
}

#[test]
fn the_initial_state_applies_at_start_and_after_maintenance() {
    let cases = [
        ("", 2, Operational::Running),
        ("init-state fully-up", 4, Operational::Running),
        ("init-state up", 2, Operational::Running),
        ("init-state down", 1, Operational::Stopped),
        ("init-state fully-down", 0, Operational::Stopped),
    ];
    for (more, level, operational) in cases {
        let (checks, _) = prepared("", more);
        let server = checks.subjects[0].server();
        let state = || (server.health.level.load(Relaxed), server.operational());
        assert_eq!(state(), (level, operational), "{more}");
        assert_eq!(server.downs.load(Relaxed), 0, "to begin so is not to go down");
        for _ in 0..4 {
            apply(&checks, "L4OK", 0, "");
        }
        server.change_admin(state::Admin::FORCED_MAINT, 0, 1);
        server.change_admin(0, state::Admin::MAINT, 2);
        let again = if more.is_empty() { (4, Operational::Running) } else { (level, operational) };
        assert_eq!(state(), again, "{more}");
    }
}

#[test]
fn trackers_follow_and_so_do_their_trackers() {
    let (checks, list) = load(&format!(
        "backend be\n server s1 {0} check\nbackend two\n server s2 {0} track be/s1\nbackend three\n server s3 {0} track two/s2\n",
        nobody()
    ));
    let followers: Vec<_> = checks
        .context
        .followers
        .read()
        .unwrap()
        .values()
        .flatten()
        .map(|peer| peer.server().clone())
        .collect();
    assert_eq!(followers.len(), 2);
    let are = |state| followers.iter().all(|server| server.operational() == state);
    apply(&checks, "L4CON", 0, "");
    assert!(are(Operational::Stopped));
    let texts = list.texts();
    assert!(
        texts.iter().any(|text| text.starts_with("Server two/s2 is DOWN via be/s1. 0 active")),
        "{texts:#?}"
    );
    assert!(texts.iter().any(|text| text.starts_with("Server three/s3 is DOWN via two/s2. 0 active")));
    apply(&checks, "L4OK", 0, "");
    apply(&checks, "L4OK", 0, "");
    assert!(are(Operational::Running));
}

#[test]
fn real_traffic_can_bring_a_server_down() {
    let (checks, list) = prepared("", "");
    let subject = &checks.subjects[0];
    let health = &subject.server().health;
    let state = || (health.level.load(Relaxed), subject.server().operational());
    let demand = |demand| {
        for _ in 0..3 {
            health.observe(Err(Trouble::Status), 3, demand);
        }
        verdict::meet(&subject.peer, demand, &checks.context);
    };
    apply(&checks, "L4OK", 0, "");
    demand(Demand::FastInter);
    assert_eq!(state(), (4, Operational::Running));
    demand(Demand::FailCheck);
    assert_eq!(state(), (3, Operational::Running));
    demand(Demand::SuddenDeath);
    assert_eq!(state(), (2, Operational::Running));
    demand(Demand::MarkDown);
    assert_eq!(state(), (0, Operational::Stopped));
    let down = "Server be/s1 is DOWN, reason: Health analyze, info: \"Detected 3 consecutive errors, last one was: \
                Wrong http response\". 0 active";
    assert!(list.texts()[0].starts_with(down));
    for (seen, errors) in
        [(Err(Trouble::Head), 1), (Err(Trouble::Read), 2), (Ok(()), 0), (Err(Trouble::Timeout), 1)]
    {
        health.observe(seen, 3, Demand::MarkDown);
        assert_eq!(health.errors.load(Relaxed), errors);
    }
}

#[test]
fn a_checked_server_goes_down_and_comes_back() {
    worker(async {
        let (good, heard) = fake(Some(b"HTTP/1.0 200 OK\r\n\r\n")).await;
        let (checks, list) = backend("option httpchk", good, "slowstart 50ms");
        let server = checks.subjects[0].server().clone();
        let counters = checks.context.process.checks.mine();
        let running = checks.start();
        assert_eq!(counters.present(), 1);
        until(|| server.health.last.load().status == "L7OK").await;
        assert_eq!(server.health.level.load(Relaxed), 4);
        server.address.store(Arc::new(ServerAddress::Ip(nobody())));
        server.health.demand(Demand::FastInter);
        until(|| server.operational() == Operational::Stopped).await;
        server.address.store(Arc::new(ServerAddress::Ip(good)));
        until(|| server.operational() == Operational::Starting).await;
        assert!(server.ramp() < 100);
        until(|| server.operational() == Operational::Running).await;
        assert_eq!(server.ramp(), 100);
        assert!(watch::is_due(&server));
        server.change_admin(state::Admin::FORCED_MAINT, 0, 0);
        assert!(!watch::is_due(&server), "nobody is asked in maintenance");
        assert!(heard.borrow().len() > 1);
        drop(running);
        assert_eq!(counters.present(), 0);
        assert!(counters.started.get() > 4);
        assert_eq!(list.texts().iter().filter(|text| text.contains("s1 is DOWN")).count(), 1);
    });
}

#[test]
fn checks_that_arrive_before_their_plan_starts_run_once_it_does() {
    worker(async {
        let (address, heard) = fake(Some(b"HTTP/1.0 200 OK\r\n\r\n")).await;
        let (checks, _) = backend("option httpchk", address, "");
        let early = || CheckTask::check(checks.subjects[0].clone(), Duration::ZERO);
        let counters = checks.context.process.checks.mine();
        let arrive = || {
            counters.enter();
            task::accept(&checks.context, early(), false);
        };
        arrive();
        let running = RunningChecks::enter(&checks.context);
        until(|| heard.borrow().len() == 1).await;
        assert_eq!(counters.present(), 1);
        drop(running);
        assert_eq!(counters.present(), 0);
        // The plan has ended, so the check ends too.
        arrive();
        assert_eq!(counters.present(), 0);
    });
}

#[test]
fn concurrent_checks_per_worker_are_limited() {
    worker(async {
        let (address, heard) = fake(None).await;
        let servers: String = (0..6).map(|n| format!(" server s{n} {address} check inter 30ms\n")).collect();
        let (checks, _) = load(&format!(
            "global\n tune.max-checks-per-thread 2\nbackend be\n option tcp-check\n tcp-check send x\n \
             tcp-check expect string y\n{servers}"
        ));
        let counters = checks.context.process.checks.mine();
        let running = checks.start();
        until(|| heard.borrow().len() > 8).await;
        assert!(counters.running.max() <= 2, "{}", counters.running.max());
        drop(running);
    });
}

/// Runs the agent of a server with an initial weight of 100 once; returns the checks, messages and received data.
async fn asked(answer: &'static [u8], lines: &str) -> (Checks, super::Told, super::Heard) {
    let (address, heard) = fake(Some(answer)).await;
    let (checks, list) = load(&format!(
        "backend be\n {lines}\n server s1 {} weight 100 agent-check agent-addr 127.0.0.1 agent-port {} agent-send pouet\n",
        nobody(),
        address.port()
    ));
    let (peer, settings) = &checks.agents[0];
    crate::agent::ask(peer, settings, &checks.context).await;
    (checks, list, heard)
}

#[test]
fn an_agent_sets_weight_limit_and_state() {
    worker(async {
        let (checks, list, heard) = asked(b"75%,maxconn:30,drain,down # sick\n", "").await;
        let server = checks.agents[0].0.server();
        assert!(server.agent_says_down() && server.admin().draining());
        assert_eq!(server.operational(), Operational::Stopped);
        assert_eq!((server.user_weight(), server.maxconn.load(Relaxed)), (75, 30));
        assert_eq!(heard.borrow()[0], "pouet");
        let down =
            "Server be/s1 is DOWN, reason: Layer7 wrong status, code: 0, info: \"via agent : down (sick)\"";
        assert!(list.texts().iter().any(|text| text.starts_with(down)));
    });
}

#[test]
fn agent_results_are_kept_and_logged_like_haproxy() {
    #[rustfmt::skip]
    let cases: &[(&'static [u8], &str, &str)] = &[
        (b"up\n",                   "L7OK",    "via agent : up"),
        (b"fail#disk\r\n",          "L7STS",   "via agent : fail (disk)"),
        (b"up what # fine\n",       "L7OK",    "via agent : up (what)"),
        (b"ready\n",                "CHECKED", ""),
        (b"hello\n",                "CHECKED", "agent reports an error : hello"),
        (b"weight:999\n",           "CHECKED", "agent warns : Absolute weight can only be between 0 and 256 inclusive."),
        (b"up",                     "L7TOUT",  "Ignoring incomplete line from agent"),
        (b"up\0\n",                 "L7TOUT",  "Ignoring incomplete line from agent"),
        (b"",                       "L7RSP",   "TCPCHK got an empty response at step 2"),
        (b"maxconn:\n",             "CHECKED", "agent warns : Require <maxconn>."),
        (b"maxconn:x\n",            "CHECKED", "agent warns : maxconn string empty or preceded by garbage"),
        (b"maxconn:5x\n",           "CHECKED", "agent warns : Trailing garbage in maxconn string"),
    ];
    worker(async {
        for (answer, status, info) in cases {
            let (checks, list, _) = asked(answer, "option log-health-checks").await;
            let last = checks.agents[0].0.server().agent.last.load();
            assert_eq!((last.status, last.description.as_str()), (*status, *info));
            let told = list.texts();
            let logged = told.iter().any(|text| text.starts_with("Agent check for server be/s1 "));
            assert_eq!(logged, *status != "CHECKED", "{told:?}");
        }
    });
}
