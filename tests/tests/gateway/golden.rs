//! Checks that the configuration of each golden case is valid.

use gateway_model::{Objects, Settings, translate};
use serde_json::Value;
use weir_tests::{check, scratch, workspace};

use crate::scene::write_files;

#[test]
fn golden_configurations_are_valid() {
    let folder = workspace().join("crates/gateway/tests/golden");
    let mut cases = 0;
    for case in std::fs::read_dir(folder).expect("valid test data") {
        let case = case.expect("valid test data").path();
        let text = std::fs::read_to_string(case.join("objects.json")).expect("valid test data");
        let list: Vec<Value> = serde_json::from_str(&text).expect("valid test data");
        let mut objects = Objects::default();
        for object in list {
            let kind = object["kind"].as_str().expect("valid test data").to_string();
            objects.insert(&kind, object).expect("valid test data");
        }
        let directory = scratch("golden");
        let settings = Settings { directory: directory.display().to_string(), ..Settings::default() };
        let output = translate(&objects, &settings);
        write_files(&output, &directory);
        let file = directory.join("weir.cfg");
        std::fs::write(&file, &output.config).expect("valid test data");
        let verdict = check(&file, &directory);
        assert!(verdict.accepted(), "{}: {}", case.display(), verdict.messages);
        assert!(verdict.warnings().is_empty(), "{}: {}", case.display(), verdict.messages);
        cases += 1;
    }
    assert!(cases >= 7, "{cases} cases");
}
