//! Compiled actions.

use std::sync::Arc;

use base::address::Family;
use http::Name;
use sample::bandwidth::BandwidthFilter;
use sample::expression::Expression;
use sample::format::Format;
use sample::pattern::List;
use sample::regex::Regex;
use sample::transaction::{CaptureSlot, TimeoutSlot};
use sample::vars::{SetConditions, Var};
use sample::{LogOrigin, LogProfile};
use state::resolvers::ResolversSection;
use state::table::Table;

use crate::redirect::Redirect;
use crate::reply::Reply;
use crate::stage::Spoken;
use crate::stage::{ScriptCall, Service};

/// A constant number, or an expression that yields one.
#[derive(Debug)]
pub(crate) enum Number {
    Fixed(i64),
    Made(Expression),
}

/// A part of the request line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum RequestLinePart {
    Method,
    Path,
    Pathq,
    Query,
    Uri,
}

/// The end of the connection changed by a rule.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ConnectionEnd {
    Source,
    SourcePort,
    Destination,
    DestinationPort,
}

/// How `del-header` matches names.
#[derive(Debug)]
pub(crate) enum NameMatch {
    Exact(Name),
    Begin(Box<[u8]>),
    End(Box<[u8]>),
    Within(Box<[u8]>),
    Regex(Regex),
}

/// The operation on the headers in a binary value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum BinaryHeaders {
    /// Adds headers with this name prefix.
    Add { prefix: Box<[u8]> },
    /// Replaces headers, with this name prefix.
    Set { prefix: Box<[u8]> },
    /// Removes headers whose name matches one in the value.
    Remove(NamesMatch),
}

/// How a name is matched against those in the value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum NamesMatch {
    Exact,
    Begin,
    End,
    Within,
}

/// A change of a pattern list.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ListChange {
    Add,
    Remove,
    Set,
}

/// The selection of cached objects to purge.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum PurgeBy {
    Key,
    Prefix,
    Tag,
}

/// A URI normalization.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Normalizer {
    FragmentEncode,
    FragmentStrip,
    PathMergeSlashes,
    PathStripDot,
    PathStripDotDot { full: bool },
    PercentDecodeUnreserved { strict: bool },
    PercentToUppercase { strict: bool },
    QuerySortByName,
}

/// A change of a stick table entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum TableChange {
    /// Adds to a counter.
    Add,
    /// Sets a tag.
    Tag,
}

/// A counter or tag of a tracked entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct TrackedCounter {
    pub(crate) element: u8,
    /// Whether this is `gpc0`, `gpc1` or `gpt0`, and not only that element of the array.
    pub(crate) is_named: bool,
    pub(crate) counter: u8,
}

/// A rule's action. Rules are scanned sequentially, so large variants are boxed to keep all of them small.
#[derive(Debug)]
pub(crate) enum Action {
    Accept,
    AttachServer {
        server: Arc<state::Server>,
        name: Option<Box<Expression>>,
    },
    Deny(Arc<Reply>),
    Tarpit(Arc<Reply>),
    Return(Arc<Reply>),
    Redirect(Arc<Redirect>),
    Auth(Box<str>),
    Reject,
    SendRetry,
    CloseServer,
    SilentDrop {
        rst_ttl: Option<u8>,
    },
    AddHeader {
        name: Box<[u8]>,
        value: Format,
    },
    SetHeader {
        name: Name,
        shown: Box<[u8]>,
        value: Format,
    },
    DelHeader(NameMatch),
    ReplaceHeader {
        name: Name,
        regex: Box<Regex>,
        with: Format,
        each_value: bool,
    },
    ReplaceUri {
        part: RequestLinePart,
        regex: Regex,
        with: Format,
    },
    SetPart {
        part: RequestLinePart,
        value: Format,
    },
    SetStatus {
        status: u16,
        reason: Option<Box<[u8]>>,
    },
    SetVar {
        var: Var,
        conditions: SetConditions,
        value: Expression,
    },
    SetVarFormat {
        var: Var,
        conditions: SetConditions,
        value: Format,
    },
    UnsetVar(Var),
    SetAddress {
        end: ConnectionEnd,
        value: Expression,
    },
    SetLogLevel(Option<u8>),
    SetPriorityClass(Expression),
    SetPriorityOffset(Expression),
    SetTimeout {
        slot: TimeoutSlot,
        value: Number,
    },
    /// The time until the response must have begun.
    SetDeadline(Number),
    SetRetries(Number),
    SetTos(Number),
    SetMark(Number),
    Nothing,
    /// Continues at a label, if there is one below.
    Jump(Format),
    /// A place at which `Jump` continues.
    Label(Box<[u8]>),
    BinaryHeaders {
        change: BinaryHeaders,
        value: Box<Expression>,
    },
    SetServerTos(Number),
    SetServerMark(Number),
    SwitchMode(Spoken),
    StrictMode(bool),
    Capture {
        value: Expression,
        slot: CaptureSlot,
    },
    ChangeList {
        list: Arc<List>,
        change: ListChange,
        key: Format,
        value: Option<Format>,
    },
    Normalize(Normalizer),
    WaitForBody {
        at_least: usize,
        timeout_ms: u64,
        in_large: bool,
    },
    /// Waits for the end of the client's TLS handshake (`wait-for-handshake`).
    WaitForHandshake,
    Pause(Number),
    EarlyHint {
        name: Box<[u8]>,
        value: Format,
    },
    ExpectProxy,
    ExpectNetscaler,
    DoLog {
        origin: LogOrigin,
        profile: Option<Arc<LogProfile>>,
    },
    DisableRetry,
    LimitBandwidth {
        filter: Arc<BandwidthFilter>,
        limit: Option<Box<Number>>,
        period: Option<Box<Number>>,
        /// The key expression of a shared limit, and the table.
        shared: Option<Box<(Expression, Arc<Table>)>>,
    },
    Resolve {
        section: Arc<ResolversSection>,
        prefer: Option<Family>,
        var: Var,
        name: Box<Expression>,
    },
    /// `lua.name`.
    Script(Arc<ScriptCall>),
    UseService(Service),
    /// `send-spoe-group`: the number of the request among those of the proxy.
    SendSpoeGroup(usize),
    /// `mirror`.
    Mirror {
        backend: Arc<state::Proxy>,
        /// The percentage of requests that are copied.
        percent: u8,
    },
    /// `cache-use`.
    UseCache {
        store: Arc<cache::Store>,
        /// Whether hints may be sent.
        hints: bool,
    },
    /// `cache-store`.
    StoreInCache(Arc<cache::Store>),
    /// `cache-purge`.
    PurgeCache {
        store: Arc<cache::Store>,
        by: PurgeBy,
        what: Format,
    },
    /// `track-sc0` …
    Track {
        counter: u8,
        key: Box<Expression>,
        table: Arc<Table>,
    },
    /// Changes a tracked entry.
    ChangeEntry {
        change: TableChange,
        counted: TrackedCounter,
        value: Box<Number>,
    },
}

const _: () = assert!(size_of::<Action>() <= 72, "an action grew");
