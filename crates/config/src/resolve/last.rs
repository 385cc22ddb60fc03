//! The addresses that servers had when an earlier process wrote its server states (`init-addr last`; manual, 5.2): only the
//! columns that say so are read here. All else of a state file is put back when the plan is there.

use std::collections::HashMap;
use std::net::IpAddr;
use std::path::{Path, PathBuf};

/// What is known of a server.
struct Known {
    address: IpAddr,
    /// The host name that the address came from, `-` for none.
    host: Box<str>,
    /// Whether that was set by hand, or by an SRV record: it need not be what the configuration says.
    elsewhere: bool,
}

/// What is known of the servers of one file, by backend and name.
type Servers = HashMap<(Box<str>, Box<str>), Known>;

/// Addresses by file; files are read when first asked for.
#[derive(Default)]
pub(crate) struct LastAddresses(HashMap<PathBuf, Servers>);

impl LastAddresses {
    /// The address that `server` of `backend` had under the name `host`, as far as the file knows.
    pub(crate) fn find(&mut self, file: &Path, backend: &str, server: &str, host: &str) -> Option<IpAddr> {
        if !self.0.contains_key(file) {
            // A file that is missing is a warning when the states are put back.
            let text = std::fs::read_to_string(file).unwrap_or_default();
            self.0.insert(file.to_owned(), read(&text));
        }
        let known = self.0.get(file)?.get(&(backend.into(), server.into()))?;
        (known.elsewhere || known.host.eq_ignore_ascii_case(host)).then_some(known.address)
    }
}

/// Reads the lines of version 1.
fn read(text: &str) -> Servers {
    let mut lines = text.lines();
    if lines.next().map(str::trim) != Some("1") {
        return Servers::new();
    }
    let line = |line: &str| {
        let words: Vec<&str> = line.split_ascii_whitespace().collect();
        let column = |at: usize| words.get(at).copied();
        let address = column(4)?.parse().ok()?;
        let admin: u32 = column(6)?.parse().ok()?;
        let by_record = column(19).is_some_and(|record| record != "-");
        let elsewhere = by_record || admin & state::Admin::FQDN_SET != 0;
        let known = Known { address, host: column(17)?.into(), elsewhere };
        Some(((column(1)?.into(), column(3)?.into()), known))
    };
    lines.filter_map(line).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_known_by_backend_server_and_host() {
        let text = "1\n# be_id be_name srv_id …\n\
                    3 b 1 s1 192.0.2.1 2 0 1 1 5 1 0 2 0 0 0 0 app.test 80 - 0 0 - - 0\n\
                    3 b 2 s2 - 0 32 1 1 5 1 0 0 0 0 0 0 app.test 80 - 0 0 - - 0\n\
                    3 b 3 s3 2001:db8::1 2 64 1 1 5 1 0 2 0 0 0 0 other.test 80 - 0 0 - - 0\n\
                    short line\n";
        let mut last = LastAddresses(HashMap::from([(PathBuf::from("x"), read(text))]));
        let mut find =
            |server, host| last.find(Path::new("x"), "b", server, host).map(|address| address.to_string());
        assert_eq!(find("s1", "App.test").as_deref(), Some("192.0.2.1"));
        assert_eq!(find("s1", "new.test"), None, "the configuration has another host now");
        assert_eq!(find("s2", "app.test"), None);
        assert_eq!(find("s3", "app.test").as_deref(), Some("2001:db8::1"), "set by hand");
        assert!(read("2\n3 b 1 s1 192.0.2.1 2 0 1 1 5 1 0 2 0 0 0 0 app.test 80 -\n").is_empty());
    }
}
