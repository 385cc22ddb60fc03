//! Writes text to inherited descriptors: standard output, standard error and the `fd@N` of `log` lines. Used for logs, messages and
//! traces.
//!
//! The reader of a pipe, a terminal or a socket may be slow or stop reading. [`Output::write`] never waits for the reader: text
//! that does not fit is dropped, and the caller counts the loss. Regular files are written normally.
//!
//! `O_NONBLOCK` is a property of the open file, not of the descriptor, so setting the flag affects every process that shares the
//! file, such as a shell. Pipes and terminals are therefore reopened through `/proc`. Only if that fails (without `/proc`, or
//! without permission after a change of user) is the flag set on the shared file.

use std::io::{self, IoSlice};
use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Mutex, PoisonError, RwLock};

use rustix::fs::{FileType, Mode, OFlags};
use rustix::net::{SendAncillaryBuffer, SendFlags};

/// An open file that can be written without blocking.
#[derive(Debug)]
enum OutputFile {
    /// A regular file, or a pipe or device with `O_NONBLOCK`.
    File(OwnedFd),
    /// A socket. Each call requests non-blocking operation.
    Socket(OwnedFd),
}

/// A descriptor to which text is written without blocking. Shared between threads.
#[derive(Debug)]
pub struct Output {
    open: RwLock<OutputFile>,
    /// Whether the previous text was only written in part, so that the next text must begin a new line.
    cut: AtomicBool,
}

impl Output {
    /// Prepares a copy of an inherited descriptor.
    ///
    /// # Errors
    /// The error of fstat(2) or fcntl(2).
    pub fn new(descriptor: OwnedFd) -> io::Result<Self> {
        Ok(Self { open: RwLock::new(OutputFile::new(descriptor)?), cut: AtomicBool::new(false) })
    }

    /// Writes `text`, which ends with a line feed, in one system call. Up to `PIPE_BUF` bytes are written to a pipe completely or
    /// not at all (pipe(7)).
    ///
    /// # Errors
    /// `WouldBlock` if the reader is too slow, `WriteZero` if only a part of the text was written, and other errors of write(2) or
    /// sendmsg(2).
    pub fn write(&self, text: &[u8]) -> io::Result<()> {
        let was_cut = self.cut.load(Relaxed) && self.cut.swap(false, Relaxed);
        let parts = [IoSlice::new(b"\n"), IoSlice::new(text)];
        let parts = if was_cut { &parts[..] } else { &parts[1..] };
        let written = match &*self.open.read().unwrap_or_else(PoisonError::into_inner) {
            OutputFile::File(file) => rustix::io::retry_on_intr(|| rustix::io::writev(file, parts)),
            OutputFile::Socket(socket) => rustix::io::retry_on_intr(|| {
                let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
                let mut nothing: [MaybeUninit<u8>; 0] = [];
                rustix::net::sendmsg(socket, parts, &mut SendAncillaryBuffer::new(&mut nothing), flags)
            }),
        };
        let begun = usize::from(was_cut);
        match written {
            Ok(length) if length == begun + text.len() => return Ok(()),
            // Only the line feed was written.
            Ok(length) if length == begun => {}
            Ok(_) => self.cut.store(true, Relaxed),
            Err(error) => {
                if was_cut {
                    self.cut.store(true, Relaxed);
                }
                return Err(error.into());
            }
        }
        Err(io::ErrorKind::WriteZero.into())
    }

    fn replace(&self, descriptor: OwnedFd) -> io::Result<()> {
        let open = OutputFile::new(descriptor)?;
        *self.open.write().unwrap_or_else(PoisonError::into_inner) = open;
        self.cut.store(false, Relaxed);
        Ok(())
    }
}

impl OutputFile {
    fn new(descriptor: OwnedFd) -> io::Result<Self> {
        let kind = FileType::from_raw_mode(rustix::fs::fstat(&descriptor)?.st_mode);
        match kind {
            FileType::Socket => return Ok(Self::Socket(descriptor)),
            FileType::Fifo | FileType::CharacterDevice => {}
            _ => return Ok(Self::File(descriptor)),
        }
        let flags = rustix::fs::fcntl_getfl(&descriptor)?;
        if flags.contains(OFlags::NONBLOCK) {
            return Ok(Self::File(descriptor));
        }
        let path = format!("/proc/self/fd/{}", descriptor.as_raw_fd());
        let own = OFlags::WRONLY | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
        if let Ok(file) = rustix::fs::open(path, own, Mode::empty()) {
            return Ok(Self::File(file));
        }
        rustix::fs::fcntl_setfl(&descriptor, flags | OFlags::NONBLOCK)?;
        Ok(Self::File(descriptor))
    }
}

/// The outputs of this process by descriptor number. The configuration determines their number.
static OUTPUTS: Mutex<Vec<(i32, Arc<Output>)>> = Mutex::new(Vec::new());

/// The output for the descriptor `number`. On first use, `duplicate` copies the descriptor. Later calls return the same output, so
/// that all threads see whether a line was truncated.
///
/// # Errors
/// The errors of `duplicate` and of [`Output::new`].
pub fn shared(number: i32, duplicate: impl FnOnce() -> io::Result<OwnedFd>) -> io::Result<Arc<Output>> {
    let mut outputs = OUTPUTS.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some((_, output)) = outputs.iter().find(|(known, _)| *known == number) {
        return Ok(output.clone());
    }
    let output = Arc::new(Output::new(duplicate()?)?);
    outputs.push((number, output.clone()));
    Ok(output)
}

/// A standard stream of this process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Standard {
    /// Standard output.
    Output,
    /// Standard error.
    Error,
}

impl Standard {
    const BOTH: [Self; 2] = [Self::Output, Self::Error];

    fn descriptor(self) -> BorrowedFd<'static> {
        match self {
            Self::Output => rustix::stdio::stdout(),
            Self::Error => rustix::stdio::stderr(),
        }
    }

    /// Opens the stream for writing while the process still has its initial privileges.
    ///
    /// # Errors
    /// The errors of [`Output::new`].
    pub fn open(self) -> io::Result<Arc<Output>> {
        let descriptor = self.descriptor();
        shared(descriptor.as_raw_fd(), || descriptor.try_clone_to_owned())
    }

    /// Writes `text` like [`Output::write`].
    ///
    /// # Errors
    /// The errors of [`Output::new`] and [`Output::write`].
    pub fn write(self, text: &[u8]) -> io::Result<()> {
        self.open()?.write(text)
    }
}

/// Reopens the outputs for the standard streams after they were redirected (`-D`), so that the earlier files are closed.
pub fn reopen_standard() {
    let outputs = OUTPUTS.lock().unwrap_or_else(PoisonError::into_inner);
    for stream in Standard::BOTH.map(Standard::descriptor) {
        let opened = outputs.iter().find(|(number, _)| *number == stream.as_raw_fd());
        if let Some((_, output)) = opened
            && let Ok(descriptor) = stream.try_clone_to_owned()
        {
            // If the new descriptor cannot be opened, the output keeps the old file.
            let _ = output.replace(descriptor);
        }
    }
}

/// Writes a message to standard error without blocking.
pub fn to_standard_error(text: &str) {
    // A failure cannot be reported anywhere else.
    let _ = Standard::Error.write(text.as_bytes());
}

#[cfg(test)]
mod tests {
    use std::io::Read;
    use std::os::unix::net::UnixStream;

    use super::*;

    /// Fills `output` until it accepts no more; returns the number of complete lines.
    fn fill(output: &Output, line: &[u8]) -> usize {
        let lines = (0..1 << 16).take_while(|_| output.write(line).is_ok()).count();
        assert!(lines < 1 << 16, "an output without a reader takes everything");
        lines
    }

    #[test]
    fn full_pipes_lose_lines_and_keep_their_flags() {
        let (reader, writer) = io::pipe().unwrap();
        let kept = OwnedFd::from(writer.try_clone().unwrap());
        let output = Output::new(writer.into()).unwrap();
        let line = [b'x'; 99].into_iter().chain([b'\n']).collect::<Vec<u8>>();
        let lines = fill(&output, &line);
        assert!(lines > 0);
        let error = output.write(&line).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::WouldBlock);
        let flags = rustix::fs::fcntl_getfl(&kept).unwrap();
        assert!(!flags.contains(OFlags::NONBLOCK), "other processes share the file");
        drop((kept, reader));
        assert_eq!(output.write(&line).unwrap_err().kind(), io::ErrorKind::BrokenPipe);
    }

    #[test]
    fn lines_after_a_truncated_one_start_a_new_line() {
        let (mut reader, writer) = UnixStream::pair().unwrap();
        let output = Output::new(writer.into()).unwrap();
        let mut line = vec![b'x'; 3000];
        line.push(b'\n');
        fill(&output, &line);
        let mut all = Vec::new();
        reader.set_nonblocking(true).unwrap();
        let _ = reader.read_to_end(&mut all);
        output.write(b"next\n").unwrap();
        let _ = reader.read_to_end(&mut all);
        assert!(all.ends_with(b"\nnext\n"));
    }

    #[test]
    fn outputs_are_shared_per_descriptor() {
        let open = || Ok(OwnedFd::from(std::fs::File::options().write(true).open("/dev/null")?));
        let first = shared(-5, open).unwrap();
        assert!(Arc::ptr_eq(&first, &shared(-5, || unreachable!("it is open already")).unwrap()));
        assert!(first.write(b"text\n").is_ok());
    }
}
