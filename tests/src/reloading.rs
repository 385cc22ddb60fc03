//! In-place reloads: the program with a changed configuration file.

use crate::Weir;

/// The beginning of every configuration.
pub const TOP: &str = "global\n  nbthread 2\n  stats socket runtime level admin expose-fd listeners\n\
                   defaults\n  mode http\n  timeout client 20s\n  timeout connect 10s\n  timeout server 20s\n";

/// Returns a configuration with these sections.
pub fn configuration(sections: &str) -> String {
    format!("{TOP}{sections}")
}

/// Overwrites the configuration file.
pub fn write(weir: &Weir, configuration: &str) {
    std::fs::write(weir.directory().join("haproxy.cfg"), configuration).expect("the directory takes files");
}

/// Reloads the process with another configuration; returns the reported changes.
pub fn reload(weir: &Weir, configuration: &str) -> String {
    write(weir, configuration);
    weir.ask("reload").trim().to_owned()
}

/// Returns the number of descriptors of the process.
pub fn descriptors(weir: &Weir) -> usize {
    std::fs::read_dir(format!("/proc/{}/fd", weir.pid())).map_or(0, Iterator::count)
}
