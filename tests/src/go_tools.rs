//! Programs that `make tools` builds with Go if it is available: they are not packaged in Debian.

use std::io::Write;
use std::path::{Path, PathBuf};

/// Returns the program's path, from `PATH` or Go's bin directory. If it is not installed, reports that on standard error and
/// returns `None`.
pub fn of_go(name: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let mut places: Vec<PathBuf> = std::env::split_paths(&path).collect();
    places.extend(std::env::var_os("GOBIN").map(PathBuf::from));
    places.extend(std::env::var_os("GOPATH").map(|path| Path::new(&path).join("bin")));
    places.extend(std::env::var_os("HOME").map(|home| Path::new(&home).join("go/bin")));
    let found = places.into_iter().map(|place| place.join(name)).find(|file| file.is_file());
    if found.is_none() {
        let test = std::thread::current().name().unwrap_or("a test").to_owned();
        // Bypasses the output capture of the test harness, so that the message is visible.
        let _ = writeln!(
            std::io::stderr(),
            "SKIPPED: {test}: {name} is not installed (`make tools` installs it where Go 1.24 or newer is)"
        );
    }
    found
}
