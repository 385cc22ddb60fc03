//! Writes the output of `filter trace` for a stream to standard error (configuration manual, 9.1), in HAProxy's line format.
//!
//! In HAProxy, a stream passes through analysers, and every line shows which of them are still pending on either channel. Weir
//! has no analysers, but performs the same steps in the same order. [`Trace`] maintains the two masks as HAProxy would, and is
//! called at the beginning and the end of each step. A stream is identified by its number.

use std::cell::{Cell, RefCell};
use std::fmt::Write;
use std::ops::RangeBounds;
use std::rc::Rc;
use std::sync::Arc;

use http::Head;
use plan::Plan;
use plan::filter::TraceFilter;

use super::{EVERYWHERE, Rank, Stretch};

/// A step of a stream, with the name that HAProxy gives it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Analyser {
    InspectFrontend,
    WaitRequest,
    RequestBody,
    ProcessFrontend,
    Switch,
    InspectBackend,
    ProcessBackend,
    ServerRules,
    Inner,
    RdpCookie,
    InspectResponse,
    WaitResponse,
    ProcessResponse,
}

/// Bits of the masks that are not steps.
pub(crate) mod bit {
    /// The frontend's filters begin to see the request.
    pub(crate) const START_FRONTEND: u32 = 0x1;
    /// The backend's filters begin to see the request.
    pub(crate) const START_BACKEND: u32 = 0x40;
    /// Filters still have to see the heads.
    pub(crate) const REQUEST_HEAD: u32 = 0x4000;
    pub(crate) const RESPONSE_HEAD: u32 = 0x200_0000;
    /// HTTP messages are to be forwarded.
    pub(crate) const REQUEST_FORWARD: u32 = 0x8000;
    pub(crate) const RESPONSE_FORWARD: u32 = 0x400_0000;
    /// Bytes are to be forwarded.
    pub(crate) const REQUEST_DATA: u32 = 0x2_0000;
    pub(crate) const RESPONSE_DATA: u32 = 0x1000_0000;
    /// Filters still have to see the end.
    pub(crate) const REQUEST_END: u32 = 0x4_0000;
    pub(crate) const RESPONSE_END: u32 = 0x2000_0000;
    /// The filters begin to see the response.
    pub(crate) const RESPONSE_START_FRONTEND: u32 = 0x8_0000;
    pub(crate) const RESPONSE_START_BACKEND: u32 = 0x10_0000;
}

impl Analyser {
    /// Returns the step's bit in the mask of its channel, its name, and whether it belongs to the request.
    const fn about(self) -> (u32, &'static str, bool) {
        match self {
            Self::InspectFrontend => (0x2, "AN_REQ_INSPECT_FE", true),
            Self::WaitRequest => (0x4, "AN_REQ_WAIT_HTTP", true),
            Self::RequestBody => (0x8, "AN_REQ_HTTP_BODY", true),
            Self::ProcessFrontend => (0x10, "AN_REQ_HTTP_PROCESS_FE", true),
            Self::Switch => (0x20, "AN_REQ_SWITCHING_RULES", true),
            Self::InspectBackend => (0x80, "AN_REQ_INSPECT_BE", true),
            Self::ProcessBackend => (0x100, "AN_REQ_HTTP_PROCESS_BE", true),
            Self::ServerRules => (0x400, "AN_REQ_SRV_RULES", true),
            Self::Inner => (0x800, "AN_REQ_HTTP_INNER", true),
            Self::RdpCookie => (0x1000, "AN_REQ_PRST_RDP_COOKIE", true),
            Self::InspectResponse => (0x20_0000, "AN_RES_INSPECT", false),
            Self::WaitResponse => (0x40_0000, "AN_RES_WAIT_HTTP", false),
            Self::ProcessResponse => (0x100_0000, "AN_RES_HTTP_PROCESS_FE/BE", false),
        }
    }

    pub(crate) const fn bit(self) -> u32 {
        self.about().0
    }
}

/// A `filter trace` that sees the stream.
pub(crate) struct Watcher {
    pub(crate) filter: Arc<TraceFilter>,
    /// The name of the filter's proxy.
    pub(crate) proxy: Box<str>,
    /// Whether the proxy is only the backend of the stream.
    pub(crate) of_backend: bool,
    /// The heads of the request and of the response as this filter sees them, if a later filter changes them.
    pub(crate) heads: [Option<Box<[u8]>>; 2],
}

impl Watcher {
    fn sees(&self, request: bool) -> bool {
        self.rank(request).is_some()
    }

    /// Returns the filter's rank in a direction.
    fn rank(&self, request: bool) -> Option<Rank> {
        let place = self.filter.places.of(!request)?;
        Some(Rank { of_backend: self.of_backend, place })
    }

    /// Whether the filter is in this stretch of a direction.
    fn is_within(&self, request: bool, stretch: &Stretch) -> bool {
        self.rank(request).is_some_and(|rank| stretch.contains(&rank))
    }

    fn kind(&self) -> &'static str {
        if self.of_backend { "filter-type=backend" } else { "filter-type=frontend" }
    }
}

/// Process events reported to filters.
#[derive(Debug, Clone, Copy)]
pub enum Life {
    /// The process starts.
    Begins,
    /// A worker starts.
    WorkerBegins(usize),
    /// A worker ends.
    WorkerEnds(usize),
    /// The process ends.
    Ends,
}

/// Writes a process event for each `filter trace` of the plan.
pub fn trace_process(plan: &Plan, event: Life) {
    for proxy in plan.proxies.iter() {
        for filter in proxy.traces.iter().filter(|filter| !filter.quiet) {
            let text = match event {
                Life::Begins => format!(
                    "filter initialized [quiet=false - fwd random={} - hexdump={} - max fwd={}]",
                    filter.random_forwarding, filter.hexdump, filter.max_forward
                ),
                Life::WorkerBegins(worker) => format!("filter initialized for thread tid {worker}"),
                Life::WorkerEnds(worker) => format!("filter deinitialized for thread tid {worker}"),
                Life::Ends => "filter deinitialized".to_owned(),
            };
            line(filter, &proxy.state.name, &text);
        }
    }
}

/// Writes one line: time, filter, text.
fn line(filter: &TraceFilter, proxy: &str, text: &str) {
    let now = base::clock::WallTime::now();
    let who = format!("{}/{proxy}", filter.name);
    let line = format!("{}.{:06} [{who:<20}] {text}\n", now.seconds, now.micros());
    base::output::to_standard_error(&line);
}

/// The trace of one stream.
pub(crate) struct Trace {
    stream: u64,
    http: bool,
    /// The filters of the frontend, then those of the backend, in configuration order.
    watchers: RefCell<Vec<Watcher>>,
    /// The pending steps on the request channel, and on the response channel.
    request: Cell<u32>,
    response: Cell<u32>,
    has_backend: Cell<bool>,
}

impl Trace {
    /// Starts the trace of the stream with this number. `request` contains the pending steps of the request.
    pub(crate) fn begin(stream: u64, http: bool, watchers: Vec<Watcher>, request: u32) -> Self {
        let trace = Self {
            stream,
            http,
            watchers: RefCell::new(watchers),
            request: Cell::new(request),
            response: Cell::new(0),
            has_backend: Cell::new(false),
        };
        for watcher in trace.watchers.borrow().iter() {
            trace.event(watcher, "trace_attach", watcher.kind());
            trace.write(watcher, "trace_stream_start       ");
        }
        if request & bit::START_FRONTEND != 0 {
            trace.on_channel(true, "trace_chn_start_analyze", "");
            trace.passed(true, bit::START_FRONTEND);
        }
        trace
    }

    /// The backend of the stream is known. Adds its filters, and `request` as further pending steps.
    pub(crate) fn backend(&self, name: &str, watchers: Vec<Watcher>, request: u32) {
        let joined = watchers.len();
        self.passed(true, Analyser::Switch.bit());
        self.watchers.borrow_mut().extend(watchers);
        let watchers = self.watchers.borrow();
        for watcher in &watchers[watchers.len() - joined..] {
            self.event(watcher, "trace_attach", watcher.kind());
        }
        for watcher in watchers.iter() {
            self.event(watcher, "trace_stream_set_backend", &format!("backend={name}"));
        }
        self.has_backend.set(true);
        self.request.set(self.request.get() | request);
        self.response.set(bit::RESPONSE_END);
        for watcher in watchers.iter().filter(|watcher| !watcher.of_backend) {
            self.analysed(watcher, Analyser::Switch, "POST");
        }
        if joined > 0 {
            for watcher in watchers.iter().filter(|watcher| watcher.of_backend && watcher.sees(true)) {
                self.channel_line(watcher, true, "trace_chn_start_analyze", "");
            }
            self.passed(true, bit::START_BACKEND);
        }
    }

    /// A step begins, if it is in the mask.
    pub(crate) fn enter(&self, step: Analyser) {
        let (bits, _, request) = step.about();
        if self.mask(request) & bits != 0 {
            self.step_line(step, "PRE");
        }
    }

    /// The step has ended.
    pub(crate) fn leave(&self, step: Analyser) {
        let (bits, _, request) = step.about();
        if self.mask(request) & bits != 0 {
            self.passed(request, bits);
            self.step_line(step, "POST");
        }
    }

    /// Passes through steps that are instantaneous in Weir.
    pub(crate) fn pass(&self, steps: &[Analyser]) {
        for step in steps {
            self.enter(*step);
            self.leave(*step);
        }
    }

    fn step_line(&self, step: Analyser, when: &str) {
        for watcher in self.watchers.borrow().iter() {
            self.analysed(watcher, step, when);
        }
    }

    fn analysed(&self, watcher: &Watcher, step: Analyser, when: &str) {
        let (_, name, request) = step.about();
        if watcher.sees(request) {
            let more = format!(" - analyzer={name} - step={when}");
            self.channel_line(watcher, request, "trace_chn_analyze", &more);
        }
    }

    /// Adds pending steps on the request channel.
    pub(crate) fn expect(&self, bits: u32) {
        self.request.set(self.request.get() | bits);
    }

    /// The request is about to be sent to a server.
    pub(crate) fn forwards_request(&self) {
        self.enter(Analyser::Inner);
        if self.request.get() & Analyser::Inner.bit() != 0 {
            self.passed(true, bit::REQUEST_DATA);
            self.expect(bit::REQUEST_HEAD | bit::REQUEST_FORWARD);
        }
        self.leave(Analyser::Inner);
    }

    /// A response begins, with these pending steps.
    pub(crate) fn response(&self, steps: u32) {
        let watchers = self.watchers.borrow();
        let of_frontend = watchers.iter().any(|watcher| !watcher.of_backend);
        let start = if of_frontend { bit::RESPONSE_START_FRONTEND } else { 0 } | steps;
        self.response.set(bit::RESPONSE_END | bit::RESPONSE_DATA | start);
        // The start of the frontend is reported to all filters, that of the backend only to its own filters.
        for (bits, own_only) in [(bit::RESPONSE_START_FRONTEND, false), (bit::RESPONSE_START_BACKEND, true)] {
            if start & bits == 0 {
                continue;
            }
            for watcher in watchers.iter().filter(|watcher| watcher.sees(false)) {
                if watcher.of_backend || !own_only {
                    self.channel_line(watcher, false, "trace_chn_start_analyze", "");
                }
            }
            self.passed(false, bits);
        }
    }

    /// The response rules have run.
    pub(crate) fn forwards_response(&self) {
        self.passed(false, bit::RESPONSE_DATA | Analyser::ProcessResponse.bit());
        self.response.set(self.response.get() | bit::RESPONSE_HEAD | bit::RESPONSE_FORWARD);
        self.step_line(Analyser::ProcessResponse, "POST");
    }

    /// Whether any filter is in this stretch of a direction.
    pub(crate) fn has_any(&self, request: bool, stretch: &Stretch) -> bool {
        self.watchers.borrow().iter().any(|watcher| watcher.is_within(request, stretch))
    }

    /// Calls `see` for the filters in this stretch of a direction, in order.
    fn each(&self, request: bool, stretch: &Stretch, mut see: impl FnMut(&Watcher)) {
        let watchers = self.watchers.borrow();
        let mut own: Vec<&Watcher> =
            watchers.iter().filter(|watcher| watcher.is_within(request, stretch)).collect();
        own.sort_by_key(|watcher| watcher.rank(request));
        own.into_iter().for_each(&mut see);
    }

    /// A filter at this rank is about to change a head. Records the head for the filters before it.
    #[cold]
    pub(crate) fn keep_head(&self, request: bool, rank: Rank, head: &Head) {
        let mut text = Vec::new();
        head.write_to(&mut text);
        for watcher in self.watchers.borrow_mut().iter_mut() {
            if watcher.rank(request).is_some_and(|own| own < rank) {
                watcher.heads[usize::from(!request)] = Some(text.as_slice().into());
            }
        }
    }

    /// An HTTP head is sent.
    fn head(&self, request: bool, stretch: &Stretch, head: &[u8]) {
        self.each(request, stretch, |watcher| {
            let head = watcher.heads[usize::from(!request)].as_deref().unwrap_or(head);
            let head = String::from_utf8_lossy(head);
            let mut lines = head.lines().filter(|line| !line.is_empty());
            let Some(first) = lines.next() else { return };
            self.channel_line(watcher, request, "trace_http_headers", &format!("\t{first}"));
            for field in lines {
                let (name, value) = field.split_once(':').unwrap_or((field, ""));
                self.write(watcher, &format!("\t{}: {}", name.to_ascii_lowercase(), value.trim_start()));
            }
        });
        self.passed(request, if request { bit::REQUEST_HEAD } else { bit::RESPONSE_HEAD });
    }

    /// The stream is over.
    pub(crate) fn end(&self) {
        let ends = |mask: &Cell<u32>, bits: u32| mask.set(mask.get() & bits);
        ends(&self.request, bit::REQUEST_END);
        ends(&self.response, bit::RESPONSE_END | bit::RESPONSE_FORWARD);
        self.on_channel(true, "trace_chn_end_analyze", "");
        if self.has_backend.get() {
            ends(&self.response, bit::RESPONSE_END);
            self.on_channel(false, "trace_chn_end_analyze", "");
        }
        self.request.set(0);
        self.response.set(0);
        let watchers = self.watchers.borrow();
        let (backend, frontend): (Vec<_>, Vec<_>) = watchers.iter().partition(|watcher| watcher.of_backend);
        for watcher in &backend {
            self.event(watcher, "trace_detach", watcher.kind());
        }
        for watcher in &frontend {
            self.write(watcher, "trace_stream_stop        ");
        }
        for watcher in &frontend {
            self.event(watcher, "trace_detach", watcher.kind());
        }
    }

    fn mask(&self, request: bool) -> u32 {
        if request { self.request.get() } else { self.response.get() }
    }

    fn passed(&self, request: bool, bits: u32) {
        let mask = if request { &self.request } else { &self.response };
        mask.set(mask.get() & !bits);
    }

    /// Writes one line with the stream, the pending steps and the event.
    fn write(&self, watcher: &Watcher, text: &str) {
        if watcher.filter.quiet {
            return;
        }
        let (stream, request, response) = (self.stream, self.request.get(), self.response.get());
        let text = format!("[strm {stream:#x}({stream}) 0x{request:08x} 0x{response:08x}] {text}");
        line(&watcher.filter, &watcher.proxy, &text);
    }

    fn event(&self, watcher: &Watcher, name: &str, what: &str) {
        self.write(watcher, &format!("{name:<25}: {what}"));
    }

    fn channel_line(&self, watcher: &Watcher, request: bool, name: &str, more: &str) {
        let channel = if request { "REQUEST" } else { "RESPONSE" };
        let mode = if self.http { "HTTP" } else { "TCP" };
        let side = if self.has_backend.get() { "backend" } else { "frontend" };
        self.event(watcher, name, &format!("channel={channel:<10} - mode={mode:<5} ({side}){more}"));
    }

    fn on_channel(&self, request: bool, name: &str, more: &str) {
        self.each(request, &EVERYWHERE, |watcher| self.channel_line(watcher, request, name, more));
    }
}

/// The trace of the bytes in one stretch of a direction.
pub(crate) struct Tracer {
    trace: Rc<Trace>,
    request: bool,
    stretch: Stretch,
}

impl Tracer {
    /// Starts a direction. HTTP streams start with a head.
    pub(crate) fn begin(trace: Rc<Trace>, request: bool, stretch: Stretch, head: &[u8]) -> Self {
        if trace.http {
            trace.head(request, &stretch, head);
        }
        Self { trace, request, stretch }
    }

    /// Returns how many of `wanted` bytes may pass at once.
    pub(crate) fn allow(&self, wanted: u64) -> u64 {
        let mut allowed = wanted;
        self.trace.each(self.request, &self.stretch, |watcher| {
            if watcher.filter.max_forward > 0 {
                allowed = allowed.min(watcher.filter.max_forward as u64);
            }
            if watcher.filter.random_forwarding && allowed > 1 {
                allowed = fastrand::u64(1..=allowed);
            }
        });
        allowed
    }

    /// Payload bytes were sent.
    pub(crate) fn payload(&self, bytes: &[u8], offset: u64) {
        let event = if self.trace.http { "trace_http_payload" } else { "trace_tcp_payload" };
        let length = bytes.len();
        let more = format!(" - offset={offset} - len={length} - forward={length}");
        self.trace.each(self.request, &self.stretch, |watcher| {
            self.trace.channel_line(watcher, self.request, event, &more);
            if watcher.filter.hexdump && !watcher.filter.quiet {
                base::output::to_standard_error(&hexdump(bytes, offset));
            }
        });
    }
}

impl Drop for Tracer {
    fn drop(&mut self) {
        let trace = &self.trace;
        let bits = if self.request { bit::REQUEST_FORWARD } else { bit::RESPONSE_FORWARD };
        if trace.http && trace.mask(self.request) & bits != 0 {
            trace.each(self.request, &self.stretch, |watcher| {
                trace.channel_line(watcher, self.request, "trace_http_end", "");
            });
        }
    }
}

/// Formats bytes, sixteen per line, as hexadecimal and as printable characters.
fn hexdump(bytes: &[u8], offset: u64) -> String {
    let mut out = String::new();
    for (line, part) in bytes.chunks(16).enumerate() {
        let mut shown = String::new();
        let _ = write!(out, "\t0x{:06x}: ", offset + line as u64 * 16);
        for at in 0..16 {
            let _ = match part.get(at) {
                Some(byte) => write!(out, "{byte:02x} "),
                None => write!(out, "   "),
            };
        }
        for byte in part {
            shown.push(if (b' '..=b'~').contains(byte) { char::from(*byte) } else { '.' });
        }
        let _ = writeln!(out, " {shown}");
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_dump_shows_numbers_and_letters() {
        let dump = hexdump(b"GET / HTTP/1.1\r\nHost", 32);
        let lines: Vec<&str> = dump.lines().collect();
        assert_eq!(
            lines,
            [
                "\t0x000020: 47 45 54 20 2f 20 48 54 54 50 2f 31 2e 31 0d 0a  GET / HTTP/1.1..",
                "\t0x000030: 48 6f 73 74                                      Host",
            ]
        );
    }
}
