//! Reads configuration files, and the `.cfg` files of directories, into a source map (management
//! guide, `-f` and `--`).

use diag::{Diagnostic, FileId, SourceMap};
use std::fs;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

/// Reads all paths in order. From a directory, regular files that end in `.cfg` and are not hidden are read, by name in byte order.
/// Messages show the paths as given. Every path that cannot be read is reported.
pub fn load(sources: &mut SourceMap, paths: &[PathBuf]) -> Result<Vec<FileId>, Vec<Diagnostic>> {
    let mut ids = Vec::new();
    let mut errors = Vec::new();
    for path in paths {
        match files_of(path) {
            Ok(files) => {
                if files.is_empty() {
                    let path = path.display();
                    let text = format!("directory `{path}` contains no file with the extension .cfg");
                    errors.push(
                        Diagnostic::alert(text)
                            .haproxy(format!("No configuration file found in directory {path}")),
                    );
                }
                for file in files {
                    match read(&file) {
                        Ok(text) => ids.push(sources.add(base::raw::text_of_path(&file), text)),
                        Err(error) => errors.push(unreadable(&file, "file", &error)),
                    }
                }
            }
            Err(error) => errors.push(unreadable(path, "file or directory", &error)),
        }
    }
    if errors.is_empty() { Ok(ids) } else { Err(errors) }
}

/// The maximum size of a configuration file. Anything longer is assumed to be an endless device.
const MOST: u64 = 512 << 20;

/// Reads any file that has an end. It may be a pipe, such as a shell creates for `<(...)`.
fn read(path: &Path) -> io::Result<Vec<u8>> {
    let mut text = Vec::new();
    fs::File::open(path)?.take(MOST + 1).read_to_end(&mut text)?;
    if text.len() as u64 > MOST {
        return Err(io::Error::other(format!("input is too large, limited to {} MiB", MOST >> 20)));
    }
    Ok(text)
}

fn files_of(path: &Path) -> io::Result<Vec<PathBuf>> {
    if !fs::metadata(path)?.is_dir() {
        return Ok(vec![path.to_owned()]);
    }
    let mut files = Vec::new();
    for entry in fs::read_dir(path)? {
        let file = entry?.path();
        let name = file.file_name().unwrap_or_default().as_encoded_bytes();
        if name.ends_with(b".cfg") && !name.starts_with(b".") && file.is_file() {
            files.push(file);
        }
    }
    files
        .sort_by(|left, right| left.as_os_str().as_encoded_bytes().cmp(right.as_os_str().as_encoded_bytes()));
    Ok(files)
}

fn unreadable(path: &Path, what: &str, error: &io::Error) -> Diagnostic {
    let path = path.display();
    let error = error.to_string();
    // The error number adds nothing to the text.
    let error = error.split(" (os error").next().unwrap_or_default();
    Diagnostic::alert(format!("cannot read configuration {what} `{path}`: {error}"))
        .haproxy(format!("Cannot open configuration file/directory {path} : {error}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn directories_yield_visible_cfg_files_in_byte_order() {
        let directory = scratch::Scratch::new("load");
        fs::create_dir_all(directory.join("sub.cfg")).unwrap();
        for name in ["b.cfg", "a.cfg", "B.cfg", ".hidden.cfg", "x.txt", "10.cfg", "9.cfg"] {
            fs::write(directory.join(name), name).unwrap();
        }
        let mut sources = SourceMap::new();
        let missing = directory.join("missing");
        let ids = load(&mut sources, &[directory.join("b.cfg"), directory.to_path_buf()]).unwrap();
        let errors = load(&mut sources, std::slice::from_ref(&missing)).unwrap_err();
        let texts: Vec<_> = ids.iter().map(|id| sources.file(*id).text()).collect();
        let expected: [&[u8]; 6] = [b"b.cfg", b"10.cfg", b"9.cfg", b"B.cfg", b"a.cfg", b"b.cfg"];
        assert_eq!(texts, expected);
        assert!(errors[0].message.contains("missing"), "{errors:?}");
    }
}
