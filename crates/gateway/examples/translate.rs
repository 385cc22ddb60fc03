//! Translates a JSON list of objects without a cluster: `translate <objects.json> <directory>` writes the configuration as
//! `weir.cfg` and its files to the directory, and prints the statuses.

use std::error::Error;
use std::path::Path;

use gateway_model::{ListenAddress, Objects, Settings, translate};
use serde_json::Value;

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [file, directory] = arguments.as_slice() else {
        return Err("usage: translate <file> <directory>".into());
    };
    let list: Vec<Value> = serde_json::from_str(&std::fs::read_to_string(file)?)?;
    let mut objects = Objects::default();
    for object in list {
        let kind = object["kind"].as_str().unwrap_or_default().to_string();
        objects.insert(&kind, object)?;
    }
    let addresses = vec![ListenAddress { bind: "127.0.0.1".into(), reported: Vec::new() }];
    let settings = Settings { directory: directory.clone(), addresses, ..Settings::default() };
    let started = std::time::Instant::now();
    let output = translate(&objects, &settings);
    eprintln!("translated in {:?}", started.elapsed());
    for (name, content) in &output.files {
        let path = Path::new(directory).join(name);
        std::fs::create_dir_all(path.parent().unwrap_or(Path::new("/")))?;
        std::fs::write(path, content)?;
    }
    std::fs::write(Path::new(directory).join("weir.cfg"), &output.config)?;
    for it in &output.statuses {
        println!("{} {}: {}", it.kind, it.key, it.status);
    }
    Ok(())
}
