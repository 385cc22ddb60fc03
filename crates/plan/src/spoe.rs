//! Engines that query agents about streams (HAProxy's doc/SPOE.txt): one for each `filter spoe`.

use std::sync::Arc;
use std::time::Duration;

use runtime::{Count, Sharded};
use sample::condition::Condition;
use sample::expression::Expression;
use sample::vars::Var;

use crate::ProxyIndex;
use crate::log::Logger;

/// The events on which messages are sent.
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
    /// The connection to the server is established.
    ServerSession,
    /// Before `tcp-response content`.
    TcpResponse,
    /// Before `http-response`.
    HttpResponse,
}

impl MessageEvent {
    /// All events.
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

    /// Returns the name of the event in the configuration.
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

    /// Whether the event concerns the response.
    pub fn is_of_response(self) -> bool {
        matches!(self, Self::ServerSession | Self::TcpResponse | Self::HttpResponse)
    }
}

/// An engine: the queries of one `filter spoe`.
#[derive(Debug)]
pub struct SpoeEngine {
    /// The name of the engine in rules.
    pub name: Box<str>,
    /// The agent of the engine.
    pub agent: Agent,
    /// The messages of each event, by number.
    pub events: [Vec<SpoeMessage>; MessageEvent::ALL.len()],
    /// The workers' counters.
    pub counts: Sharded<SpoeCounts>,
}

impl SpoeEngine {
    /// Returns the messages of an event.
    pub fn messages(&self, event: MessageEvent) -> &[SpoeMessage] {
        &self.events[event as usize]
    }
}

/// One worker's counters of an engine.
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
    /// The name of the agent.
    pub name: Box<str>,
    /// The unique id by which agents identify the engine.
    pub engine_id: Box<str>,
    /// `use-backend`.
    pub backend: ProxyIndex,
    /// The frontend of queries for the rules of their backend. It has the agent's name.
    pub frontend: Arc<state::Proxy>,
    /// The listener of that frontend, which accepts nothing.
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
    /// The prefix of variable names.
    pub prefix: Box<str>,
    /// `option set-on-error`.
    pub on_error: Option<Var>,
    /// `option set-process-time`.
    pub process_time: Option<Var>,
    /// `option set-total-time`.
    pub total_time: Option<Var>,
}

/// A `spoe-message` section, compiled for its events.
#[derive(Debug)]
pub struct SpoeMessage {
    /// The name of the message.
    pub name: Box<str>,
    /// The condition for sending the message; `None` for always.
    pub condition: Option<Condition>,
    /// `args`: names, possibly empty, and values.
    pub arguments: Vec<(Box<str>, Expression)>,
}

/// A `spoe-group` as sent by a rule.
#[derive(Debug)]
pub struct Sending {
    /// The engine.
    pub engine: Arc<SpoeEngine>,
    /// The group's name.
    pub group: Box<str>,
    /// The messages of the group.
    pub messages: Vec<SpoeMessage>,
}
