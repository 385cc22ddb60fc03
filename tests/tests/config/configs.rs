//! Complete configurations get the expected verdict: accepted, or refused because of unsupported features, which are named.
//!
//! `tests/configs` contains configurations for common uses; the folder that `WEIR_CONFIGS` names contains others collected from
//! public repositories. A table row is a file and the names that the errors may and must contain; there are none if the file is
//! accepted. When a feature is implemented, its name is removed from the tables.

use std::collections::BTreeSet;
use std::path::Path;
use std::process::Command;

use weir_tests::{Scratch, check, scratch, workspace};

/// A file, and the names in its errors.
type Expected = (&'static str, &'static [&'static str]);

#[rustfmt::skip]
const OWN: &[Expected] = &[
    ("acme-redirect.cfg", &[]),
    ("basic-auth.cfg", &[]),
    ("blue-green.cfg", &[]),
    ("cache-and-compression.cfg", &[]),
    ("canary.cfg", &[]),
    ("conditional.cfg", &[]),
    ("cors.cfg", &[]),
    ("discovery.cfg", &[]),
    ("dns-over-tcp.cfg", &[]),
    ("elasticsearch.cfg", &[]),
    ("exchange.cfg", &[]),
    ("galera.cfg", &[]),
    ("gitlab.cfg", &[]),
    ("grpc.cfg", &[]),
    ("kubernetes-api.cfg", &[]),
    ("log-formats.cfg", &[]),
    ("logging.cfg", &[]),
    ("lua-and-spoe.cfg", &[]),
    ("mail.cfg", &[]),
    ("maintenance.cfg", &[]),
    ("many-domains.cfg", &[]),
    ("minio.cfg", &[]),
    ("nextcloud.cfg", &[]),
    ("patroni.cfg", &[]),
    ("prometheus.cfg", &[]),
    ("proxy-protocol.cfg", &[]),
    ("queues.cfg", &[]),
    ("rabbitmq.cfg", &[]),
    ("rate-limits.cfg", &[]),
    ("redis-sentinel.cfg", &[]),
    ("server-template.cfg", &[]),
    ("splice.cfg", &[]),
    ("tuning.cfg", &[]),
    ("unix-sockets.cfg", &[]),
    ("websocket.cfg", &[]),
];

#[rustfmt::skip]
const COLLECTED: &[Expected] = &[
    ("100f+rinha-backend-2025--haproxy.cfg", &[]),
    ("2002chris+ePortfolio--haproxy.cfg", &[]),
    ("2XL+hwConsul--haproxy.cfg", &[]),
    ("7mza+thymx--haproxy.cfg", &[]),
    ("Aareez01+HAProxy-Setup-with-Rate-Limiting-CORS-and-OWASP-Compliance--haproxy.cfg", &[]),
    ("Abbosbek-cloud+haproxy--haproxy.copy.cfg", &[]),
    ("Aidaho12+haproxy_configs--haproxy.cfg", &[]),
    ("Akahime+THUDistributedDatabase--haproxy.cfg", &[]),
    ("Akaronte+okd4.14-install--kube2_haproxy.cfg", &[]),
    ("AleSassi+reckon-k8s--haproxy.cfg", &[]),
    ("AlexeySigida+SocialHub--haproxy.cfg", &[]),
    ("AndrewWhitaker+haproxy-htx-buffer-request-expect-header--haproxy.cfg", &[]),
    ("CERNDocumentServer+cds-videos--docker_haproxy_haproxy.cfg", &[]),
    ("CodethinkLabs+immut--packer_files_boot-config_haproxy.cfg", &[]),
    ("EdX0t+sec-testing--docker_haproxy_haproxy.cfg", &[]),
    ("Elyspio+haproxy-editor--Haproxy.Editor.AppHost_haproxy_haproxy.cfg", &[]),
    ("Exymat+haproxy-vscode--docs_fixtures_format-before.cfg", &[]),
    ("Exymat+haproxy-vscode--docs_fixtures_outline.cfg", &[]),
    ("G2BC+BEM-server--docker_haproxy_haproxy.cfg", &[]),
    ("HarryKodden+b2share-new--docker_haproxy_haproxy.cfg", &[]),
    ("Nonymus+k8s-haproxy-example--docker_haproxy_haproxy.cfg", &[]),
    ("Unified-Projects+uni-status--docker_haproxy_haproxy.cfg", &[]),
    ("asadmshah+rplace-server--docker_haproxy_haproxy.cfg", &[]),
    ("byjg+docker-easy-haproxy--tests_expected_no-services.txt.cfg", &[]),
    ("byjg+docker-easy-haproxy--tests_expected_services-multi-containers.txt.cfg", &[]),
    ("byjg+docker-easy-haproxy--tests_expected_services-redirect-ssl.txt.cfg", &[]),
    ("byjg+docker-easy-haproxy--tests_expected_services.txt.cfg", &[]),
    ("byjg+docker-easy-haproxy--tests_expected_ssl-strict.txt.cfg", &[]),
    ("frobware+haproxy-hacks--BZ1690146_haproxy.cfg", &[]),
    ("frobware+haproxy-hacks--BZ1810573_haproxy.cfg", &[]),
    ("frobware+haproxy-hacks--BZ2021495_haproxy.cfg", &[]),
    ("frobware+haproxy-hacks--BZ2064976_haproxy.cfg", &[]),
    ("frobware+haproxy-hacks--maxaccept_haproxy.cfg", &[]),
    ("haproxy+haproxy--examples_content-sw-sample.cfg", &[]),
    ("haproxy+haproxy--examples_mptcp.cfg", &["server … mptcp@[::]:4331", "MPTCP"]),
    ("haproxy+haproxy--examples_quick-test.cfg", &[]),
    ("haproxy+haproxy--examples_transparent_proxy.cfg", &[]),
    ("haproxytech+kubernetes-ingress--documentation_tcp-cr-full-example_haproxy.cfg", &[]),
    ("indralaksmana+api-gateway-with-docker-and-haproxy--conf_haproxy_haproxy.cfg", &[]),
    ("taylanbakircioglu+haproxy-openmanager--haproxy_haproxy-simple.cfg", &[]),
    ("zalando+patroni--haproxy.cfg", &[]),
];

#[test]
fn common_configurations_get_their_verdict() {
    let copy = copied(&workspace().join("tests/configs"));
    std::fs::create_dir_all(copy.join("root")).expect("the copy takes directories");
    assert!(certificate(&copy), "openssl is missing, which makes a certificate: `make tools` installs it");
    std::fs::copy(copy.join("root/site.pem"), copy.join("site.pem")).expect("it was made");
    verdicts(&copy, OWN);
}

/// Makes a writable copy of a folder.
fn copied(folder: &Path) -> Scratch {
    let copy = scratch("configs");
    run(Command::new("cp").arg("-r").arg(folder.join(".")).arg(&copy));
    run(Command::new("chmod").args(["-R", "u+w"]).arg(&copy));
    copy
}

#[test]
#[ignore = "needs the folder of collected configurations: make test-configs CONFIGS=<folder>"]
fn collected_configurations_get_their_verdict() {
    let folder =
        std::env::var_os("WEIR_CONFIGS").expect("WEIR_CONFIGS names the folder of collected configurations");
    let copy = copied(Path::new(&folder));
    assert!(certificate(&copy), "openssl is missing, which makes a certificate: `make tools` installs it");
    verdicts(&copy, COLLECTED);
}

/// Creates `root/site.pem` as described in the folder's README.
fn certificate(folder: &Path) -> bool {
    let made = Command::new("openssl")
        .args(["req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=localhost"])
        .args(["-keyout", "k.pem", "-out", "c.pem"])
        .current_dir(folder)
        .output();
    if !made.is_ok_and(|output| output.status.success()) {
        return false;
    }
    let read = |name: &str| std::fs::read_to_string(folder.join(name)).expect("openssl wrote it");
    std::fs::write(folder.join("root/site.pem"), read("c.pem") + &read("k.pem")).is_ok()
}

fn run(command: &mut Command) {
    let status = command.status().expect("a command of every system");
    assert!(status.success(), "{command:?}");
}

/// Compares every file of a folder with its row; all differences are shown at once.
fn verdicts(folder: &Path, expected: &[Expected]) {
    let files: BTreeSet<String> = std::fs::read_dir(folder)
        .expect("the folder exists")
        .filter_map(|entry| entry.ok()?.file_name().into_string().ok())
        .filter(|name| name.ends_with(".cfg"))
        .collect();
    let named: BTreeSet<String> = expected.iter().map(|(name, _)| (*name).to_owned()).collect();
    assert_eq!(files, named, "the table and the folder hold the same files");
    let wrong: Vec<String> =
        expected.iter().filter_map(|(file, names)| difference(folder, file, names)).collect();
    assert!(wrong.is_empty(), "\n{}", wrong.join("\n"));
}

fn difference(folder: &Path, file: &str, names: &[&str]) -> Option<String> {
    let verdict = check(Path::new(file), folder);
    if names.is_empty() {
        let accepted = verdict.accepted();
        return (!accepted).then(|| {
            format!("{file} is to be accepted (exit code {:?}):\n{}", verdict.code, verdict.messages)
        });
    }
    let alerts = verdict.alerts();
    let holds = |alert: &str, name: &str| alert.contains(&format!("'{name}'"));
    let by_name = alerts
        .iter()
        .all(|alert| alert.contains("not supported yet") && names.iter().any(|name| holds(alert, name)));
    let all_names = names.iter().all(|name| alerts.iter().any(|alert| holds(alert, name)));
    let refused = verdict.code == Some(1) && by_name && all_names;
    (!refused).then(|| {
        format!("{file} is to be refused for {names:?} (exit code {:?}):\n{}", verdict.code, verdict.messages)
    })
}
