//! The delivery threads, one per mail server.

use std::io::{self, ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::sync::mpsc::{self, Receiver, SyncSender, TrySendError};
use std::time::{Duration, Instant};

use crate::dialog::{Dialog, Refusal};
use crate::letter::Letter;

/// The maximum number of letters queued for a mail server. Further ones are dropped.
pub const QUEUE: usize = 256;

/// A mail server (`mailer`).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mailer {
    /// The name of the mail server.
    pub name: Box<str>,
    /// The address of the mail server.
    pub address: SocketAddr,
    /// The time limit for a delivery as a whole (`timeout mail`).
    pub limit: Duration,
}

/// Reports which mail server did not accept a letter, and why.
pub type MailFailed = Arc<dyn Fn(&str, &str) + Send + Sync>;

/// The queues of the servers of a `mailers` section.
pub struct Post {
    queues: Vec<(Box<str>, SyncSender<Arc<Letter>>)>,
    failed: MailFailed,
}

impl Post {
    /// Starts a thread for each of `mailers`. They end when the [`Post`] is dropped.
    ///
    /// # Errors
    /// A thread cannot be started.
    pub fn start(mailers: &[Mailer], failed: &MailFailed) -> io::Result<Self> {
        let queue = |mailer: &Mailer| {
            let (queue, letters) = mpsc::sync_channel(QUEUE);
            let (name, mailer, failed) = (mailer.name.clone(), mailer.clone(), failed.clone());
            let thread = std::thread::Builder::new().name("mail".to_owned());
            thread.spawn(move || work(&mailer, &letters, &failed))?;
            Ok((name, queue))
        };
        let queues = mailers.iter().map(queue).collect::<io::Result<_>>()?;
        Ok(Self { queues, failed: failed.clone() })
    }

    /// Queues a letter for all servers. Never blocks.
    pub fn send(&self, letter: Letter) {
        let letter = Arc::new(letter);
        for (name, queue) in &self.queues {
            if let Err(TrySendError::Full(_)) = queue.try_send(letter.clone()) {
                (self.failed)(name, &format!("its queue of {QUEUE} e-mails is full"));
            }
        }
    }
}

fn work(mailer: &Mailer, letters: &Receiver<Arc<Letter>>, failed: &MailFailed) {
    for letter in letters {
        if let Err(error) = deliver(mailer, &letter) {
            let why = match error.kind() {
                ErrorKind::WouldBlock | ErrorKind::TimedOut => "it timed out".to_owned(),
                _ => error.to_string(),
            };
            failed(&mailer.name, &why);
        }
    }
}

fn deliver(mailer: &Mailer, letter: &Letter) -> io::Result<()> {
    let end = Instant::now() + mailer.limit;
    let left = || {
        let left = end.saturating_duration_since(Instant::now());
        if left.is_zero() { Err(io::Error::from(ErrorKind::TimedOut)) } else { Ok(left) }
    };
    let mut socket = TcpStream::connect_timeout(&mailer.address, left()?)?;
    let mut dialog = Dialog::new(letter);
    let mut buffer = [0; 1024];
    while !dialog.is_over() {
        socket.set_read_timeout(Some(left()?))?;
        match socket.read(&mut buffer) {
            Err(error) if error.kind() == ErrorKind::Interrupted => continue,
            // The letter is delivered, so it does not matter how the server closes.
            Ok(0) | Err(_) if dialog.is_delivered() => return Ok(()),
            Ok(0) => return Err(io::Error::other(Refusal::Closed)),
            Ok(length) => dialog.receive(&buffer[..length]).map_err(io::Error::other)?,
            Err(error) => return Err(error),
        }
        socket.set_write_timeout(Some(left()?))?;
        socket.write_all(dialog.take_output().as_bytes())?;
    }
    Ok(())
}
