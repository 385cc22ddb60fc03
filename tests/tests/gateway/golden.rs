//! Checks that the configuration of each golden case is valid.

use gateway_model::{Objects, Settings, translate};
use serde_json::Value;
use weir_tests::{check, scratch, workspace};

use crate::scene::write_files;

#[test]
fn golden_configurations_are_valid() {
    let folder = workspace().join("crates/gateway/tests/golden");
    let mut cases = 0;
    for case in std::fs::read_dir(folder).unwrap() {
        let case = case.unwrap().path();
        let text = std::fs::read_to_string(case.join("objects.json")).unwrap();
        let list: Vec<Value> = serde_json::from_str(&text).unwrap();
        let mut objects = Objects::default();
        for object in list {
            let kind = object["kind"].as_str().unwrap().to_string();
            objects.insert(&kind, object).unwrap();
        }
        let directory = scratch("golden");
        let settings = Settings { directory: directory.display().to_string(), ..Settings::default() };
        let output = translate(&objects, &settings);
        write_files(&output, &directory);
        let file = directory.join("weir.cfg");
        std::fs::write(&file, &output.config).unwrap();
        let verdict = check(&file, &directory);
        assert!(verdict.accepted(), "{}: {}", case.display(), verdict.messages);
        assert!(verdict.warnings().is_empty(), "{}: {}", case.display(), verdict.messages);
        cases += 1;
    }
    assert!(cases >= 7, "{cases} cases");
}
