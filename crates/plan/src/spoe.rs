//! Engines that ask agents about streams (HAProxy's doc/SPOE.txt): one for each `filter spoe`.

use std::sync::Arc;
use std::time::Duration;

use runtime::{Count, Sharded};
use sample::condition::Condition;
use sample::expression::Expression;
use sample::vars::Var;

use crate::ProxyIndex;
use crate::log::Logger;

/// When messages are sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MessageEvent {
    /// A stream begins.
    ClientSession,
    /// Before `tcp-request content` of the frontend.
    FrontendTcpRequest,
    /// Before `tcp-request content` of the backend.
    BackendTcpRequest,
    /// Before `http-request` of the frontend.
    FrontendHttpRequest,
    /// Before `http-request` of the backend.
    BackendHttpRequest,
    /// The connection to the server stands.
    ServerSession,
    /// Before `tcp-response content`.
    TcpResponse,
    /// Before `http-response`.
    HttpResponse,
}

impl MessageEvent {
    /// All of them.
    pub const ALL: [Self; 8] = [
        Self::ClientSession,
        Self::FrontendTcpRequest,
        Self::BackendTcpRequest,
        Self::FrontendHttpRequest,
        Self::BackendHttpRequest,
        Self::ServerSession,
        Self::TcpResponse,
        Self::HttpResponse,
    ];

    /// What the configuration calls it.
    pub fn name(self) -> &'static str {
        match self {
            Self::ClientSession => "on-client-session",
            Self::FrontendTcpRequest => "on-frontend-tcp-request",
            Self::BackendTcpRequest => "on-backend-tcp-request",
            Self::FrontendHttpRequest => "on-frontend-http-request",
            Self::BackendHttpRequest => "on-backend-http-request",
            Self::ServerSession => "on-server-session",
            Self::TcpResponse => "on-tcp-response",
            Self::HttpResponse => "on-http-response",
        }
    }

    /// Whether it is about the response.
    pub fn is_of_response(self) -> bool {
        matches!(self, Self::ServerSession | Self::TcpResponse | Self::HttpResponse)
    }
}

/// An engine: what one `filter spoe` asks its agent.
#[derive(Debug)]
pub struct SpoeEngine {
    /// Its name, by which rules call it.
    pub name: Box<str>,
    /// Whom it asks, and how.
    pub agent: Agent,
    /// The messages of each event, by its number.
    pub events: [Vec<SpoeMessage>; MessageEvent::ALL.len()],
    /// What the workers count.
    pub counts: Sharded<SpoeCounts>,
}

impl SpoeEngine {
    /// The messages of an event.
    pub fn messages(&self, event: MessageEvent) -> &[SpoeMessage] {
        &self.events[event as usize]
    }
}

/// What one worker counts of an engine.
#[derive(Debug, Default)]
pub struct SpoeCounts {
    /// Events and groups that failed.
    pub errors: Count,
    /// All events and groups for which messages were sent.
    pub processed: Count,
}

/// A `spoe-agent` section.
#[derive(Debug)]
pub struct Agent {
    /// Its name.
    pub name: Box<str>,
    /// What agents know the engine by: no other has it.
    pub engine_id: Box<str>,
    /// `use-backend`.
    pub backend: ProxyIndex,
    /// The frontend that questions come from, as rules of their backend see them: named as the agent.
    pub frontend: Arc<state::Proxy>,
    /// Its listener: nobody's.
    pub listener: Arc<state::Listener>,
    /// `timeout processing`.
    pub timeout: Option<Duration>,
    /// `max-frame-size`, in bytes.
    pub frame_size: u32,
    /// `option pipelining`.
    pub pipelining: bool,
    /// `option continue-on-error`.
    pub continues: bool,
    /// `option force-set-var`.
    pub forces: bool,
    /// `option dontlog-normal`.
    pub only_errors: bool,
    /// `log`.
    pub loggers: Vec<Logger>,
    /// What names of variables begin with.
    pub prefix: Box<str>,
    /// `option set-on-error`.
    pub on_error: Option<Var>,
    /// `option set-process-time`.
    pub process_time: Option<Var>,
    /// `option set-total-time`.
    pub total_time: Option<Var>,
}

/// A `spoe-message` section, compiled for where it is sent.
#[derive(Debug)]
pub struct SpoeMessage {
    /// Its name.
    pub name: Box<str>,
    /// When it is sent; always where there is none.
    pub condition: Option<Condition>,
    /// `args`: names, empty for those that have none, and what is told.
    pub arguments: Vec<(Box<str>, Expression)>,
}

/// A `spoe-group` as a rule sends it.
#[derive(Debug)]
pub struct Sending {
    /// The engine.
    pub engine: Arc<SpoeEngine>,
    /// The group's name.
    pub group: Box<str>,
    /// Its messages.
    pub messages: Vec<SpoeMessage>,
}
