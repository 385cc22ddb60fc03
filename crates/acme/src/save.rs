//! Certificates and keys in their files: all of a file or what was there before, for its owner
//! alone. Called on a thread that may wait for disks.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use plan::Plan;
use tls::files::Contents;

/// Puts `bytes` in place of what the file has.
///
/// # Errors
/// It cannot be done; the file is as it was.
pub(crate) fn replace(path: &Path, bytes: &[u8]) -> io::Result<()> {
    // A link stays one, to a file that is new.
    let path = &fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
    let aside = aside(path);
    let written = write(&aside, bytes).and_then(|()| fs::rename(&aside, path));
    if written.is_err() {
        // It may not be there.
        let _ = fs::remove_file(&aside);
    }
    written?;
    // The name counts only once its directory is on the disk too.
    let directory = path.parent().filter(|parent| !parent.as_os_str().is_empty());
    File::open(directory.unwrap_or(Path::new(".")))?.sync_all()
}

/// Where the new contents stand until they are whole.
fn aside(path: &Path) -> PathBuf {
    let mut name = std::ffi::OsString::from(".");
    name.push(path.file_name().unwrap_or_default());
    name.push(format!(".{}.new", std::process::id()));
    path.with_file_name(name)
}

fn write(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let open = || OpenOptions::new().write(true).create_new(true).mode(0o600).open(path);
    let mut file = open().or_else(|error| {
        // Left by a process of that number that was killed.
        if error.kind() == io::ErrorKind::AlreadyExists {
            fs::remove_file(path).and_then(|()| open())
        } else {
            Err(error)
        }
    })?;
    file.write_all(bytes)?;
    file.sync_all()
}

/// Keeps a certificate and its key: together, or the key in a file of its own.
///
/// # Errors
/// What cannot be written, with the name of the file.
pub(crate) fn keep(contents: &Contents, file: &str, key_file: Option<&str>) -> Result<(), String> {
    let failed = |file: &str| {
        let file = file.to_owned();
        move |error: io::Error| format!("cannot write {file}: {error}")
    };
    match key_file {
        None => replace(Path::new(file), contents.to_pem().as_bytes()).map_err(failed(file)),
        Some(key_file) => {
            let key = Contents { chain: Vec::new(), ..contents.clone() };
            let chain = Contents { key: None, ..contents.clone() };
            replace(Path::new(key_file), key.to_pem().as_bytes()).map_err(failed(key_file))?;
            replace(Path::new(file), chain.to_pem().as_bytes()).map_err(failed(file))
        }
    }
}

/// Writes the keys of accounts that were made while the configuration was read. Called while the
/// process still has the rights that it was started with. Gives what was written, to be told of.
///
/// # Errors
/// A key cannot be written: it would be another at each start, and authorities limit accounts.
pub fn keep_account_keys(plan: &Plan) -> Result<Vec<String>, String> {
    let mut written: Vec<&Path> = Vec::new();
    let mut told = Vec::new();
    for order in &plan.acme {
        let (key, section) = (&order.section.account_key, &order.section.name);
        if !key.is_new || written.contains(&&*key.file) {
            continue;
        }
        let shown = key.file.display();
        replace(&key.file, tls::pem::block("PRIVATE KEY", &key.pkcs8).as_bytes()).map_err(|error| {
            format!(
                "acme section '{section}': cannot write the account's key {shown}: {error}; `account-key` \
                 names another file"
            )
        })?;
        told.push(format!("acme: made the account's key {shown} for acme section '{section}'."));
        written.push(&key.file);
    }
    Ok(told)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    /// A directory that goes with its owner.
    struct Directory(PathBuf);

    impl Directory {
        fn new(name: &str) -> Self {
            let path = std::env::temp_dir().join(format!("weir-acme-{}-{name}", std::process::id()));
            fs::create_dir_all(&path).expect("the directory can be made");
            Self(path)
        }
    }

    impl Drop for Directory {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    #[test]
    fn a_file_is_replaced_whole_for_its_owner_alone_and_leaves_nothing_beside_it() {
        let directory = Directory::new("whole");
        let file = directory.0.join("a.pem");
        fs::write(&file, "old").expect("it can be written");
        fs::write(aside(&file), "left over").expect("it can be written");
        let link = directory.0.join("link.pem");
        std::os::unix::fs::symlink(&file, &link).expect("a link can be made");
        replace(&link, b"new").expect("it can be replaced");
        assert_eq!(fs::read(&file).expect("it is there"), b"new");
        assert!(fs::symlink_metadata(&link).expect("it is there").is_symlink());
        assert_eq!(fs::metadata(&file).expect("it is there").permissions().mode() & 0o777, 0o600);
        assert_eq!(fs::read_dir(&directory.0).expect("it is there").count(), 2);
    }

    #[test]
    fn what_cannot_be_written_leaves_what_was_there() {
        let directory = Directory::new("not");
        let file = directory.0.join("missing").join("a.pem");
        assert!(replace(&file, b"new").is_err());
        assert_eq!(fs::read_dir(&directory.0).expect("it is there").count(), 0);
    }
}
