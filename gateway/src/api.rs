//! Requests to the API server on kept connections, and its errors.

use std::cell::RefCell;
use std::fmt;
use std::time::Duration;

use httpclient::{ErrorKind, KeptConnection, Response, ResponseStream};
use serde_json::Value;
use tokio::sync::Semaphore;

use crate::access::ServerAccess;

/// The longest time that the server may take to answer.
const ANSWER: Duration = Duration::from_secs(30);

/// The longest silence of a watch. Bookmarks arrive about once a minute.
pub(crate) const SILENCE: Duration = Duration::from_secs(90);

/// The number of requests at the same time, without watches.
const PARALLEL: usize = 8;

/// Content types of bodies.
pub(crate) const JSON: &str = "application/json";
pub(crate) const MERGE_PATCH: &str = "application/merge-patch+json";

/// A failed request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum ApiError {
    /// The server did not respond.
    NoResponse(String),
    /// Nothing arrived for too long.
    Silent,
    /// The status of the response, and the server's message.
    Refused { status: u16, message: String },
}

impl ApiError {
    /// The status of the response, if there was one.
    pub(crate) fn status(&self) -> Option<u16> {
        match self {
            Self::Refused { status, .. } => Some(*status),
            _ => None,
        }
    }
}

impl fmt::Display for ApiError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoResponse(cause) => f.write_str(cause),
            Self::Silent => f.write_str("the server sent nothing for too long"),
            Self::Refused { status, message } => {
                let hint = match status {
                    401 => " (the token is missing or invalid)",
                    403 => " (the account has no such right: see the ClusterRole of the installation)",
                    _ => "",
                };
                write!(f, "status {status}{hint}: {message}")
            }
        }
    }
}

/// A client of the API server.
pub(crate) struct ApiClient {
    access: ServerAccess,
    idle: RefCell<Vec<KeptConnection>>,
    parallel: Semaphore,
}

impl ApiClient {
    pub(crate) fn new(access: ServerAccess) -> Self {
        Self { access, idle: RefCell::default(), parallel: Semaphore::new(PARALLEL) }
    }

    /// The access that the requests use.
    pub(crate) fn access(&self) -> &ServerAccess {
        &self.access
    }

    /// Sends a request and returns the body of the successful response.
    pub(crate) async fn send(
        &self,
        method: &str,
        path: &str,
        body: Option<(&str, Vec<u8>)>,
    ) -> Result<Vec<u8>, ApiError> {
        // The semaphore is never closed.
        let _permit = self.parallel.acquire().await;
        let settings = self.access.settings(ANSWER).await.map_err(ApiError::NoResponse)?;
        let mut request = self.access.request(method, path).map_err(ApiError::NoResponse)?;
        if let Some((content_type, bytes)) = body {
            request = request.body(content_type, bytes);
        }
        let mut connection = self.idle.borrow_mut().pop().unwrap_or_default();
        let sent = connection.send(&settings, &request).await;
        let response = sent.map_err(failure)?;
        let mut idle = self.idle.borrow_mut();
        if idle.len() < PARALLEL {
            idle.push(connection);
        }
        drop(idle);
        match response.is_success() {
            true => Ok(response.body),
            false => Err(refusal(&response)),
        }
    }

    /// Sends a JSON document and returns the one in the response.
    pub(crate) async fn send_json(
        &self,
        method: &str,
        path: &str,
        content_type: &str,
        body: &Value,
    ) -> Result<Value, ApiError> {
        let body = body.to_string().into_bytes();
        let bytes = self.send(method, path, Some((content_type, body))).await?;
        Ok(serde_json::from_slice(&bytes).unwrap_or_default())
    }

    /// Starts a request with a response that arrives in lines.
    pub(crate) async fn watch(&self, path: &str) -> Result<ResponseStream, ApiError> {
        let settings = self.access.settings(SILENCE).await.map_err(ApiError::NoResponse)?;
        let request = self.access.request("GET", path).map_err(ApiError::NoResponse)?;
        let mut stream = httpclient::stream(&settings, &request).await.map_err(failure)?;
        if stream.head.is_success() {
            return Ok(stream);
        }
        let mut body = Vec::new();
        while body.len() < 64 << 10 && stream.read(&mut body).await.unwrap_or(false) {}
        Err(refusal(&Response { body, ..stream.head.clone() }))
    }
}

/// Converts an error of a request.
pub(crate) fn failure(error: httpclient::Error) -> ApiError {
    match error.kind {
        ErrorKind::Timeout => ApiError::Silent,
        _ => ApiError::NoResponse(error.to_string()),
    }
}

/// The longest message that is taken from a response, in characters.
const LONGEST_MESSAGE: usize = 500;

fn refusal(response: &Response) -> ApiError {
    let status: Option<Value> = serde_json::from_slice(&response.body).ok();
    let message = status.as_ref().and_then(|status| status.get("message")?.as_str());
    let message = message.unwrap_or(&response.reason).chars().take(LONGEST_MESSAGE).collect();
    ApiError::Refused { status: response.status, message }
}
