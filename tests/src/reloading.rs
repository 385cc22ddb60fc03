//! Reloads in place: a program whose file says something else than before.

use crate::Weir;

/// The beginning of every configuration.
pub const TOP: &str = "global\n  nbthread 2\n  stats socket runtime level admin expose-fd listeners\n\
                   defaults\n  mode http\n  timeout client 20s\n  timeout connect 10s\n  timeout server 20s\n";

/// A configuration with these sections.
pub fn configuration(sections: &str) -> String {
    format!("{TOP}{sections}")
}

/// Lets the file say something else.
pub fn write(weir: &Weir, configuration: &str) {
    std::fs::write(weir.directory().join("haproxy.cfg"), configuration).expect("the directory takes files");
}

/// Has the process use another configuration; what it says has changed.
pub fn reload(weir: &Weir, configuration: &str) -> String {
    write(weir, configuration);
    weir.ask("reload").trim().to_owned()
}

/// How many descriptors the process has.
pub fn descriptors(weir: &Weir) -> usize {
    std::fs::read_dir(format!("/proc/{}/fd", weir.pid())).map_or(0, Iterator::count)
}
