//! Writes certificates and keys to their files, atomically and readable only by the owner. Called on a thread that may block on
//! disks.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use plan::Plan;
use tls::files::Contents;
use tls::pair;

/// Replaces the contents of a file with `bytes`.
///
/// # Errors
/// Writing failed; the file is unchanged.
pub(crate) fn replace(path: &Path, bytes: &[u8]) -> io::Result<()> {
    // A symbolic link is kept, and the file that it points to is replaced.
    let path = &real(path);
    let aside = aside(path);
    let written = write(&aside, bytes).and_then(|()| fs::rename(&aside, path));
    if written.is_err() {
        // This file may not exist.
        let _ = fs::remove_file(&aside);
    }
    written?;
    // The rename is durable only once the directory is synced.
    let directory = path.parent().filter(|parent| !parent.as_os_str().is_empty());
    File::open(directory.unwrap_or(Path::new(".")))?.sync_all()
}

/// The temporary file for new contents.
fn aside(path: &Path) -> PathBuf {
    let mut name = std::ffi::OsString::from(".");
    name.push(path.file_name().unwrap_or_default());
    name.push(format!(".{}.new", std::process::id()));
    path.with_file_name(name)
}

fn write(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let open = || OpenOptions::new().write(true).create_new(true).mode(0o600).open(path);
    let mut file = open().or_else(|error| {
        // The file was left by a killed process with the same PID.
        if error.kind() == io::ErrorKind::AlreadyExists {
            fs::remove_file(path).and_then(|()| open())
        } else {
            Err(error)
        }
    })?;
    file.write_all(bytes)?;
    file.sync_all()
}

/// Stores a certificate and its key, in one file or two.
///
/// # Errors
/// A file cannot be written; the message includes its name.
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
            // If the two writes are interrupted, the next start finds both in this file.
            let both = pair::path_of(&real(Path::new(file)));
            replace(&both, contents.to_pem().as_bytes()).map_err(failed(&both.display().to_string()))?;
            replace(Path::new(key_file), key.to_pem().as_bytes()).map_err(failed(key_file))?;
            replace(Path::new(file), chain.to_pem().as_bytes()).map_err(failed(file))?;
            fs::remove_file(&both).map_err(failed(&both.display().to_string()))
        }
    }
}

/// Completes writes of certificates and keys that an earlier process started. Called while the process still has its initial
/// privileges. Returns messages about completed writes.
///
/// # Errors
/// A file cannot be written.
pub fn complete_pairs(plan: &Plan) -> Result<Vec<String>, String> {
    let mut notices = Vec::new();
    for order in &plan.acme {
        let (file, section) = (&*order.file, &order.section.name);
        let Some(key_file) = order.key_file.as_deref() else { continue };
        let failed = |error: String| format!("acme section '{section}': {error}");
        match pair::left_over(file, key_file) {
            Some(text) => {
                let made =
                    tls::Certificate::from_pem(file, &text).map_err(|error| failed(error.to_string()))?;
                keep(&Contents::of(&made), file, Some(key_file)).map_err(failed)?;
                notices.push(format!(
                    "acme: completed replacing {file} and {key_file}, which an earlier process had started."
                ));
            }
            // The leftover file, if any, is obsolete.
            None => drop(fs::remove_file(pair::path_of(&real(Path::new(file))))),
        }
    }
    Ok(notices)
}

/// Checks that future certificates can be written. Called with the process's final privileges.
///
/// # Errors
/// A file cannot be written: an issued certificate would be lost at the next start, and ordered again.
pub fn try_files(plan: &Plan) -> Result<(), String> {
    for order in &plan.acme {
        for path in [Some(&*order.file), order.key_file.as_deref()].into_iter().flatten() {
            try_out(Path::new(path)).map_err(|error| {
                let section = &order.section.name;
                format!(
                    "acme section '{section}': cannot write {path}, the directory of a certificate: \
                     {error}. Each startup would order a new certificate"
                )
            })?;
        }
    }
    Ok(())
}

/// Resolves symbolic links in the existing part of a path.
fn real(path: &Path) -> PathBuf {
    let path = base::raw::path_of(path);
    fs::canonicalize(&path).unwrap_or_else(|_| path.into_owned())
}

/// Tests whether the contents of a file could be replaced.
fn try_out(path: &Path) -> io::Result<()> {
    let path = real(path);
    if path.is_dir() {
        return Err(io::ErrorKind::IsADirectory.into());
    }
    let aside = aside(&path);
    write(&aside, &[])?;
    fs::remove_file(&aside)
}

/// Writes the account keys generated while the configuration was read. Called while the process still has its initial privileges.
/// Returns messages about written keys.
///
/// # Errors
/// A key cannot be written: each start would use a new one, and authorities limit the number of accounts.
pub fn keep_account_keys(plan: &Plan) -> Result<Vec<String>, String> {
    let mut written: Vec<&Path> = Vec::new();
    let mut notices = Vec::new();
    for order in &plan.acme {
        let (key, section) = (&order.section.account_key, &order.section.name);
        if !key.is_new || written.contains(&&*key.file) {
            continue;
        }
        let shown = key.file.display();
        replace(&key.file, tls::pem::block("PRIVATE KEY", &key.pkcs8).as_bytes()).map_err(|error| {
            format!(
                "acme section '{section}': cannot write the account key {shown}: {error}; use \
                 `account-key` to set another file"
            )
        })?;
        notices.push(format!("acme: created the account key {shown} for acme section '{section}'."));
        written.push(&key.file);
    }
    Ok(notices)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use scratch::Scratch;

    use super::*;

    #[test]
    fn replaced_files_are_private_and_leave_no_leftovers() {
        let directory = Scratch::new("whole");
        let file = directory.join("a.pem");
        fs::write(&file, "old").expect("it can be written");
        fs::write(aside(&file), "left over").expect("it can be written");
        let link = directory.join("link.pem");
        std::os::unix::fs::symlink(&file, &link).expect("a link can be made");
        replace(&link, b"new").expect("it can be replaced");
        assert_eq!(fs::read(&file).expect("it is there"), b"new");
        assert!(fs::symlink_metadata(&link).expect("it is there").is_symlink());
        assert_eq!(fs::metadata(&file).expect("it is there").permissions().mode() & 0o777, 0o600);
        assert_eq!(fs::read_dir(&directory).expect("it is there").count(), 2);
    }

    #[test]
    fn half_written_pairs_are_recovered() {
        let directory = Scratch::new("pair");
        let shown = |name: &str| directory.join(name).display().to_string();
        let (file, key_file) = (shown("a.pem"), shown("a.key"));
        let contents = |name: &str| {
            let made = tls::keygen::temporary(name).expect("it can be made");
            Contents::of(&made)
        };
        let (old, new) = (contents("old"), contents("new"));
        keep(&old, &file, Some(&key_file)).expect("both can be written");
        assert_eq!(fs::read_dir(&directory).expect("it is there").count(), 2);
        assert!(pair::left_over(&file, &key_file).is_none());
        // The key is replaced, but the certificate cannot be.
        let certificate = fs::read(&file).expect("it is there");
        fs::remove_file(&file).expect("it is there");
        fs::create_dir_all(Path::new(&file).join("in the way")).expect("it can be made");
        assert!(keep(&new, &file, Some(&key_file)).is_err());
        fs::remove_dir_all(&file).expect("it is there");
        fs::write(&file, certificate).expect("it can be written");
        let left = pair::left_over(&file, &key_file).expect("both are beside them");
        assert_eq!(left, new.to_pem().into_bytes());
        // A consistent pair of files takes precedence over a leftover.
        keep(&old, &file, Some(&key_file)).expect("both can be written");
        fs::write(pair::path_of(Path::new(&file)), new.to_pem()).expect("it can be written");
        assert!(pair::left_over(&file, &key_file).is_none());
    }

    #[test]
    fn failed_writes_keep_the_old_contents() {
        let directory = Scratch::new("not");
        let file = directory.join("missing").join("a.pem");
        assert!(replace(&file, b"new").is_err());
        assert_eq!(fs::read_dir(&directory).expect("it is there").count(), 0);
    }
}
