//! The listener for `/metrics`, `/readyz` and `/healthz`.

use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use runtime::timer;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;

use crate::measures::Measures;
use crate::runtime_socket::RuntimeSocket;

/// The longest head of a request, in bytes.
const LONGEST_HEAD: usize = 8 << 10;

/// The longest time for a request and its answer.
const LIMIT: Duration = Duration::from_secs(10);

/// The most connections at the same time.
const CONNECTIONS: usize = 64;

/// What the listener reports about.
pub(crate) struct HealthServer {
    pub(crate) measures: Rc<Measures>,
    pub(crate) socket: RuntimeSocket,
}

impl HealthServer {
    /// Opens the listener.
    ///
    /// # Errors
    /// The address cannot be used.
    pub(crate) fn bind(address: SocketAddr) -> Result<TcpListener, String> {
        let explained = |error: std::io::Error| {
            format!("cannot listen on {address}: {error}; `--http ADDRESS` selects another address")
        };
        let listener = std::net::TcpListener::bind(address).map_err(explained)?;
        listener.set_nonblocking(true).map_err(explained)?;
        TcpListener::from_std(listener).map_err(explained)
    }

    /// Serves until the task is dropped.
    pub(crate) async fn run(self: Rc<Self>, listener: TcpListener) {
        let slots = Arc::new(Semaphore::new(CONNECTIONS));
        loop {
            let Ok(slot) = slots.clone().acquire_owned().await else { return };
            match listener.accept().await {
                Ok((stream, _)) => {
                    let own = self.clone();
                    tokio::task::spawn_local(async move {
                        let _ = timer::timeout(LIMIT, own.serve(stream)).await;
                        drop(slot);
                    });
                }
                Err(_) => timer::sleep(Duration::from_millis(100)).await,
            }
        }
    }

    async fn serve(&self, mut stream: TcpStream) -> std::io::Result<()> {
        let mut head = Vec::new();
        while !head.windows(4).any(|window| window == b"\r\n\r\n") {
            if head.len() > LONGEST_HEAD || stream.read_buf(&mut head).await? == 0 {
                return Ok(());
            }
        }
        let line = String::from_utf8_lossy(&head);
        let mut words = line.split(' ');
        let (method, target) = (words.next().unwrap_or_default(), words.next().unwrap_or_default());
        let path = target.split('?').next().unwrap_or_default();
        let (status, body) = match (method, path) {
            ("GET" | "HEAD", "/healthz") => ("200 OK", "ok\n".to_owned()),
            ("GET" | "HEAD", "/readyz") => self.readiness().await,
            ("GET" | "HEAD", "/metrics") => ("200 OK", self.measures.text()),
            ("GET" | "HEAD", _) => {
                ("404 Not Found", "/metrics, /readyz and /healthz are available\n".to_owned())
            }
            _ => ("405 Method Not Allowed", "only GET is supported\n".to_owned()),
        };
        let content_type = if path == "/metrics" { "text/plain; version=0.0.4" } else { "text/plain" };
        let mut answer = format!(
            "HTTP/1.1 {status}\r\nContent-Type: {content_type}\r\nContent-Length: {}\r\nConnection: close\r\n\r\n",
            body.len()
        );
        if method != "HEAD" {
            answer += &body;
        }
        stream.write_all(answer.as_bytes()).await?;
        stream.shutdown().await
    }

    /// Ready means that the proxy answers and uses the configuration.
    async fn readiness(&self) -> (&'static str, String) {
        let unavailable = "503 Service Unavailable";
        if !self.measures.is_ready.get() {
            return (unavailable, "no configuration is in use yet, or the process is stopping\n".to_owned());
        }
        match self.socket.is_alive().await {
            true => ("200 OK", "ok\n".to_owned()),
            false => {
                (unavailable, format!("the proxy does not answer on {}\n", self.socket.path().display()))
            }
        }
    }
}
