//! Certificates that have expired or expire soon: messages, events, the metric, and the choice between certificates.

use std::time::{SystemTime, UNIX_EPOCH};

use weir_tests::certificates::{DEFAULTS, serves};
use weir_tests::client::get;
use weir_tests::{Authority, Weir, check, eventually, free_port, scratch};

fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).expect("the clock is after 1970").as_secs()
}

#[test]
fn expiring_certificates_are_reported_but_accepted() {
    let authority = Authority::new();
    let (fine, expired) = (authority.issue(&["fine.test"]), authority.issue_expired(&["expired.test"]));
    let end = now() + 3 * 86_400 + 3_600;
    let soon = authority.issue_until(&["soon.test"], end);
    let (port, metrics) = (free_port(), free_port());
    let text = format!(
        "{DEFAULTS}frontend f\n bind 127.0.0.1:{port} ssl crt {} crt {} crt {}\n\
         frontend m\n bind 127.0.0.1:{metrics}\n http-request use-service prometheus-exporter\n",
        fine.display(),
        expired.display(),
        soon.display()
    );
    let weir = Weir::start(&text, &[port, metrics]);
    let messages = weir.messages();
    assert!(messages.contains(&format!("Certificate '{}' expired on 2", expired.display())), "{messages}");
    assert!(messages.contains(&format!("Certificate '{}' expires on 2", soon.display())), "{messages}");
    assert!(messages.contains(", in 3 days."), "{messages}");
    assert!(!messages.contains(&format!("Certificate '{}'", fine.display())), "{messages}");

    let events = || weir.ask("show events certificates");
    assert!(
        eventually(|| events().lines().filter(|line| line.contains("Certificate '")).count() == 2),
        "{}",
        events()
    );
    let series = format!(
        "weir_certificate_not_after_seconds{{certificate=\"{}\",name=\"soon.test\"}} {end}\n",
        soon.display()
    );
    let scraped = get(metrics, "/metrics?scope=certificate").expect("a response").text();
    assert!(scraped.contains(&series), "{scraped}");
    assert_eq!(scraped.matches("\nweir_certificate_not_after_seconds{").count(), 3, "{scraped}");

    // The messages are not warnings about the configuration.
    let directory = scratch("expiry");
    let file = directory.join("haproxy.cfg");
    std::fs::write(&file, format!("global\n zero-warning\n{text}")).expect("the directory takes files");
    let verdict = check(&file, &directory);
    assert!(verdict.accepted(), "{verdict:?}");
}

#[test]
fn the_valid_one_of_two_certificates_with_the_same_name_is_served() {
    let (old, new) = (Authority::new(), Authority::new());
    let (expired, valid) = (old.issue_expired(&["a.test"]), new.issue(&["a.test"]));
    let ports = [free_port(), free_port()];
    for (port, files) in ports.into_iter().zip([[&expired, &valid], [&valid, &expired]]) {
        let [first, second] = files.map(|file| file.display().to_string());
        let text = format!("{DEFAULTS}frontend f\n bind 127.0.0.1:{port} ssl crt {first} crt {second}\n");
        let _weir = Weir::start(&text, &[port]);
        assert!(serves(port, "a.test", &valid), "{first}");
    }
}
