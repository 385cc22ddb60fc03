//! Hands a translation to the proxy: files, the configuration, and the least disruptive command for each change.
//!
//! | change | effect |
//! | --- | --- |
//! | lists of endpoints | the files are replaced, and the proxy reads them; no reload |
//! | contents of certificates and authorities in use | `set ssl …` and `commit ssl …`; no reload |
//! | routes that only choose a backend in use | `add map`, `set map` and `del map`; no reload |
//! | anything else | `reload` |
//!
//! A configuration that the proxy refuses is taken back, so that the files on disk are always those of the last accepted one.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::rc::Rc;

use gateway_model::Output;

use crate::map_changes;
use crate::measures::Measures;
use crate::report::{notice, warning};
use crate::runtime_socket::{CommandError, PemKind, RuntimeSocket};

/// The name of the configuration in the directory.
pub(crate) const CONFIGURATION: &str = "weir.cfg";

/// The prefix of lists of endpoints.
const ENDPOINTS: &str = "endpoints/";

/// The prefix of certificates.
const CERTIFICATES: &str = "certs/";

/// The prefix of maps from paths to backends.
const PATHS: &str = "paths/";

/// The prefix of trusted authorities.
const AUTHORITIES: &str = "ca/";

type Files = BTreeMap<String, Vec<u8>>;

/// Why a configuration is not in use.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum ApplyError {
    /// A file cannot be written, or the proxy does not answer. The next attempt may succeed.
    Later(String),
    /// The proxy refuses the configuration.
    Refused(String),
}

/// The files of the proxy, and the proxy itself.
pub(crate) struct Applier {
    directory: PathBuf,
    socket: RuntimeSocket,
    measures: Rc<Measures>,
    /// The configuration and files that the proxy uses; `None` if that is not known.
    used: Option<(String, Files)>,
}

impl Applier {
    pub(crate) fn new(directory: PathBuf, socket: RuntimeSocket, measures: Rc<Measures>) -> Self {
        Self { directory, socket, measures, used: None }
    }

    /// Forgets what the proxy uses, so that the next configuration is applied whole.
    pub(crate) fn forget(&mut self) {
        self.used = None;
    }

    /// Returns the configuration on disk, if there is one.
    pub(crate) fn on_disk(&self) -> Option<String> {
        std::fs::read_to_string(self.directory.join(CONFIGURATION)).ok()
    }

    /// Writes a configuration for a proxy that has not started yet.
    ///
    /// # Errors
    /// A file cannot be written.
    pub(crate) fn prepare(&mut self, output: &Output) -> io::Result<()> {
        for (name, bytes) in &output.files {
            write(&self.directory.join(name), bytes)?;
        }
        write(&self.directory.join(CONFIGURATION), output.config.as_bytes())
    }

    /// Brings the proxy to a configuration, and takes its text and files from `output`. Returns whether anything has changed.
    ///
    /// # Errors
    /// The proxy keeps the last configuration; only its lists of endpoints may be new.
    pub(crate) async fn apply(&mut self, output: &mut Output) -> Result<bool, ApplyError> {
        let Some((config, files)) = self.used.take() else {
            self.write_all(output, &Files::new())?;
            self.reload().await?;
            self.remove_unlisted(&output.files);
            self.used = Some(taken(output));
            return Ok(true);
        };
        let changed: BTreeSet<&str> = output
            .files
            .iter()
            .filter(|(name, bytes)| files.get(*name) != Some(*bytes))
            .map(|(name, _)| name.as_str())
            .collect();
        let outcome = if config == output.config && changed.is_empty() {
            Ok(false)
        } else if config == output.config && changed.iter().all(|name| self.can_replace(name, &files, output))
        {
            self.replace(output, &files, &changed).await.map(|()| true)
        } else {
            self.change(output, &config, &files).await.map(|()| true)
        };
        match outcome {
            Ok(has_changed) => {
                for name in files.keys().filter(|name| !output.files.contains_key(*name)) {
                    let _ = std::fs::remove_file(self.directory.join(name));
                }
                self.used = Some(taken(output));
                Ok(has_changed)
            }
            Err(ApplyError::Refused(answer)) => {
                self.take_back(&config, &files, &output.files)?;
                self.used = Some((config, merged(files, &output.files)));
                Err(ApplyError::Refused(answer))
            }
            Err(later) => Err(later),
        }
    }

    /// Replaces files that the proxy can read without a reload.
    async fn replace(
        &self,
        output: &Output,
        known: &Files,
        changed: &BTreeSet<&str>,
    ) -> Result<(), ApplyError> {
        for name in changed {
            let bytes = &output.files[*name];
            self.write(name, bytes)?;
            if name.starts_with(ENDPOINTS) {
                self.measures.endpoint_lists.add();
                continue;
            }
            let path = self.directory.join(name).display().to_string();
            if name.starts_with(PATHS) {
                let commands = self.map_commands(name, known, output).unwrap_or_default();
                match self.socket.change_map(&commands).await {
                    Ok(()) => self.measures.routes.add(),
                    // A reload reads the map.
                    Err(CommandError::Refused(answer)) => {
                        warning(format!("{path} cannot be changed without a reload: {answer}"));
                        return self.reload().await;
                    }
                    Err(error) => return Err(ApplyError::Later(error.to_string())),
                }
                continue;
            }
            let kind =
                if name.starts_with(CERTIFICATES) { PemKind::Certificate } else { PemKind::Authorities };
            match self.socket.replace_pem(kind, &path, &String::from_utf8_lossy(bytes)).await {
                Ok(()) => {
                    self.measures.certificates.add();
                    notice(format!("{path} is replaced without a reload."));
                }
                // A reload reads the file, and its answer names the cause.
                Err(CommandError::Refused(answer)) => {
                    warning(format!("{path} cannot be replaced without a reload: {answer}"));
                    return self.reload().await;
                }
                Err(error) => return Err(ApplyError::Later(error.to_string())),
            }
        }
        self.refresh(changed.iter().copied()).await
    }

    /// Returns whether the proxy takes new contents of a file without a reload.
    fn can_replace(&self, name: &str, known: &Files, output: &Output) -> bool {
        let is_pem = name.starts_with(CERTIFICATES) || name.starts_with(AUTHORITIES);
        name.starts_with(ENDPOINTS)
            || (is_pem && known.contains_key(name))
            || (name.starts_with(PATHS) && self.map_commands(name, known, output).is_some())
    }

    /// The commands that change a map; `None` if it must be read again.
    fn map_commands(&self, name: &str, known: &Files, output: &Output) -> Option<Vec<String>> {
        let file = self.directory.join(name).display().to_string();
        map_changes::commands(&file, known.get(name)?, output.files.get(name)?)
    }

    /// Makes the proxy read those of the files that are lists of endpoints.
    async fn refresh(&self, files: impl Iterator<Item = &str>) -> Result<(), ApplyError> {
        let sections: Vec<String> = files.filter_map(gateway_model::endpoints_section).collect();
        let refreshed = self.socket.refresh_endpoints(&sections).await;
        refreshed.map_err(|error| ApplyError::Later(error.to_string()))
    }

    /// Writes changed files and the configuration, and reloads.
    async fn change(&self, output: &Output, config: &str, files: &Files) -> Result<(), ApplyError> {
        self.write_all(output, files)?;
        self.reload().await?;
        if config == output.config {
            notice("files are read again.");
        }
        // Lists that the configuration had before are not read by a reload.
        let new =
            output.files.iter().filter(|(name, bytes)| files.get(*name).is_some_and(|own| own != *bytes));
        self.refresh(new.map(|(name, _)| name.as_str())).await
    }

    async fn reload(&self) -> Result<(), ApplyError> {
        match self.socket.reload().await {
            Ok(changes) => {
                self.measures.reloads.add();
                notice(format!("reloaded: {}", shortened(&changes)));
                Ok(())
            }
            Err(CommandError::Refused(answer)) => {
                self.measures.refused.add();
                Err(ApplyError::Refused(answer))
            }
            Err(error) => Err(ApplyError::Later(error.to_string())),
        }
    }

    fn write_all(&self, output: &Output, known: &Files) -> Result<(), ApplyError> {
        for (name, bytes) in &output.files {
            if known.get(name) != Some(bytes) {
                self.write(name, bytes)?;
            }
        }
        self.write(CONFIGURATION, output.config.as_bytes())
    }

    fn write(&self, name: &str, bytes: &[u8]) -> Result<(), ApplyError> {
        let path = self.directory.join(name);
        write(&path, bytes)
            .map_err(|error| ApplyError::Later(format!("cannot write {}: {error}", path.display())))
    }

    /// Restores the files of the accepted configuration. Lists of endpoints stay current.
    fn take_back(&self, config: &str, files: &Files, refused: &Files) -> Result<(), ApplyError> {
        for (name, bytes) in files.iter().filter(|(name, _)| !name.starts_with(ENDPOINTS)) {
            if refused.get(name) != Some(bytes) {
                self.write(name, bytes)?;
            }
        }
        self.write(CONFIGURATION, config.as_bytes())
    }

    /// Removes files of an earlier process.
    fn remove_unlisted(&self, files: &Files) {
        let listed: BTreeSet<PathBuf> = files.keys().map(|name| self.directory.join(name)).collect();
        let folders: BTreeSet<&Path> = listed.iter().filter_map(|path| path.parent()).collect();
        for folder in folders.into_iter().filter(|folder| **folder != *self.directory) {
            let Ok(entries) = std::fs::read_dir(folder) else { continue };
            for entry in entries.flatten() {
                if !listed.contains(&entry.path()) && entry.file_type().is_ok_and(|kind| kind.is_file()) {
                    let _ = std::fs::remove_file(entry.path());
                }
            }
        }
    }
}

/// Takes the configuration and the files.
fn taken(output: &mut Output) -> (String, Files) {
    (std::mem::take(&mut output.config), std::mem::take(&mut output.files))
}

/// The files that are on disk after a refused change.
fn merged(mut files: Files, refused: &Files) -> Files {
    for (name, bytes) in refused.iter().filter(|(name, _)| name.starts_with(ENDPOINTS)) {
        if let Some(own) = files.get_mut(name) {
            own.clone_from(bytes);
        }
    }
    files
}

/// Replaces a file by a rename. Nothing is flushed to the disk, because all files can be made again from the objects.
fn write(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let mut beside = path.as_os_str().to_owned();
    beside.push(".tmp");
    let beside = Path::new(&beside);
    // The group may be that of a proxy in another container. Others cannot read keys.
    let open =
        || std::fs::OpenOptions::new().write(true).create(true).truncate(true).mode(0o640).open(beside);
    let file = match open() {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            std::fs::create_dir_all(path.parent().unwrap_or(path))?;
            open()
        }
        other => other,
    };
    file?.write_all(bytes)?;
    std::fs::rename(beside, path)
}

/// The longest description of changes in a message, in characters.
const LONGEST: usize = 300;

fn shortened(text: &str) -> String {
    let line = text.lines().collect::<Vec<_>>().join("; ");
    match line.char_indices().nth(LONGEST) {
        Some((at, _)) => format!("{} …", &line[..at]),
        None => line,
    }
}

#[cfg(test)]
mod tests {
    use std::io::{BufRead, BufReader};
    use std::os::unix::fs::MetadataExt;
    use std::os::unix::net::UnixListener;
    use std::sync::mpsc;

    use super::*;

    /// A proxy that accepts everything and passes on the commands that it receives.
    fn proxy(socket: &Path) -> mpsc::Receiver<String> {
        let listener = UnixListener::bind(socket).expect("the temporary directory takes sockets");
        let (sender, receiver) = mpsc::channel();
        let folder = socket.parent().map_or_else(String::new, |path| path.display().to_string());
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let mut line = String::new();
                let _ = BufReader::new(&stream).read_line(&mut line);
                let _ = sender.send(line.trim().replace(&folder, "D"));
                let is_reload = line.trim() == "reload";
                let answer: &[u8] = if is_reload { b"nothing else\n" } else { b"\n" };
                let _ = (&stream).write_all(answer);
            }
        });
        receiver
    }

    /// The files with their inodes: a file that is written again has another one.
    fn inodes(directory: &Path) -> BTreeMap<String, u64> {
        let mut found = BTreeMap::new();
        for folder in ["", ENDPOINTS, PATHS, "maps/"] {
            for entry in std::fs::read_dir(directory.join(folder)).into_iter().flatten().flatten() {
                let facts = entry.metadata().expect("files stay");
                if facts.is_file() {
                    found.insert(format!("{folder}{}", entry.file_name().display()), facts.ino());
                }
            }
        }
        found
    }

    /// The commands and the written files of each change.
    type Effects = Vec<(Vec<String>, Vec<String>)>;

    fn effects_of(outputs: Vec<Output>) -> Effects {
        let directory = weir_tests::scratch("apply");
        let (path, commands) = (directory.to_path_buf(), proxy(&directory.join("proxy.sock")));
        let (done, effects) = mpsc::channel();
        let work = move || async move {
            let socket = RuntimeSocket::new(path.join("proxy.sock"));
            let mut applier = Applier::new(path.clone(), socket, Rc::default());
            for mut output in outputs {
                let before = inodes(&path);
                applier.apply(&mut output).await.expect("the proxy accepts everything");
                let after = inodes(&path);
                let written = after.into_iter().filter(|(name, inode)| before.get(name) != Some(inode));
                let _ = done.send((commands.try_iter().collect(), written.map(|(name, _)| name).collect()));
            }
        };
        runtime::worker::spawn_aside("test", work).expect("threads can be started").join().expect("no panic");
        effects.into_iter().collect()
    }

    fn output(config: &str, files: &[(&str, &str)]) -> Output {
        let files = files.iter().map(|(name, text)| ((*name).to_owned(), text.as_bytes().to_vec())).collect();
        Output { config: config.to_owned(), files, ..Output::default() }
    }

    #[test]
    fn the_effect_depends_on_the_size_of_the_change() {
        let maps = [("maps/a.map", "a b\n"), ("paths/f.map", "/a/ x\n/b/ y\n")];
        let all = [("endpoints/1.json", "[]"), ("endpoints/2.json", "[]"), maps[0], maps[1]];
        let scaled = [("endpoints/1.json", "[1]"), all[1], all[2], all[3]];
        let moved = [scaled[0], scaled[1], scaled[2], ("paths/f.map", "/c/ x\n/b/ y\n")];
        let routed = [scaled[0], ("endpoints/2.json", "[2]"), ("maps/b.map", "b c\n"), moved[3]];
        let steps = [("x", &all), ("x", &all), ("x", &scaled), ("x", &moved), ("y", &routed)];
        let effects = effects_of(steps.map(|(config, files)| output(config, files)).into());
        let expected: [(&[&str], &[&str]); 5] = [
            (&["reload"], &["weir.cfg", "endpoints/1.json", "endpoints/2.json", "maps/a.map", "paths/f.map"]),
            (&[], &[]),
            (&["refresh discovery endpoints-1"], &["endpoints/1.json"]),
            (&["add map D/paths/f.map /c/ x;del map D/paths/f.map /a/"], &["paths/f.map"]),
            (&["reload", "refresh discovery endpoints-2"], &["weir.cfg", "endpoints/2.json", "maps/b.map"]),
        ];
        for ((commands, mut written), (of_commands, files)) in effects.into_iter().zip(expected) {
            let mut files = files.to_vec();
            files.sort();
            written.sort();
            assert_eq!(
                (commands, written),
                (
                    of_commands.iter().map(|own| (*own).to_owned()).collect(),
                    files.iter().map(|own| (*own).to_owned()).collect()
                )
            );
        }
    }
}
