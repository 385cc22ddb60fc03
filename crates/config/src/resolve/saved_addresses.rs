//! The addresses of servers in the state files written by an earlier process (`init-addr last`; manual, 5.2). Only the address
//! columns are read here; everything else is restored once the plan exists.

use std::collections::HashMap;
use std::net::IpAddr;
use std::path::{Path, PathBuf};

use state::saved_state::{self, StateFileColumn};

/// The addresses of servers in one file, by backend and server name.
type SavedAddresses = HashMap<(Box<str>, Box<str>), IpAddr>;

/// Addresses by file; files are read on first use.
#[derive(Default)]
pub(crate) struct LastAddresses(HashMap<PathBuf, SavedAddresses>);

impl LastAddresses {
    /// Returns the address of `server` in `backend` according to the file, regardless of the host name that it had then.
    pub(crate) fn find(&mut self, file: &Path, backend: &str, server: &str) -> Option<IpAddr> {
        if !self.0.contains_key(file) {
            // Errors in the file are reported when the states are restored.
            let text = base::file::read_to_string(file).unwrap_or_default();
            self.0.insert(file.to_owned(), read(&text));
        }
        self.0.get(file)?.get(&(backend.into(), server.into())).copied()
    }
}

fn read(text: &str) -> SavedAddresses {
    let rows = saved_state::by_name(saved_state::read(text).unwrap_or_default());
    let known = rows.iter().filter_map(|(&(backend, server), row)| {
        let address = row.get(StateFileColumn::Address).parse().ok()?;
        Some(((backend.into(), server.into()), address))
    });
    known.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_found_by_backend_and_server() {
        let text = "1\n# be_id be_name srv_id …\n\
                    3 b 1 s1 192.0.2.1 2 0 1 1 5 1 0 2 0 0 0 0 app.test 80 - 0 0 - - 0\n\
                    3 b 2 s2 - 0 32 1 1 5 1 0 0 0 0 0 0 app.test 80 - 0 0 - - 0\n\
                    3 b 3 s3 2001:db8::1 2 64 1 1 5 1 0 2 0 0 0 0 other.test 80 - 0 0 - - 0\n\
                    3 b 3 s3 192.0.2.9 2 64 1 1 5 1 0 2 0 0 0 0 other.test 80 - 0 0 - - 0\n";
        let mut last = LastAddresses(HashMap::from([(PathBuf::from("x"), read(text))]));
        let mut find = |server| last.find(Path::new("x"), "b", server).map(|address| address.to_string());
        assert_eq!(find("s1").as_deref(), Some("192.0.2.1"));
        assert_eq!(find("s2"), None);
        assert_eq!(find("s3").as_deref(), Some("2001:db8::1"));
        assert!(read(&format!("{text}short line\n")).is_empty(), "what is broken is not used at all");
    }
}
