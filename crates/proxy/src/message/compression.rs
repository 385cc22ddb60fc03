//! Compression of bodies (manual, 4.2 `compression …`, 9.2): decides which messages are compressed and with which algorithm, and
//! changes their heads. The compression itself is done by [`flow::Filter`](crate::flow::Filter) and the crate `compress`.
//!
//! The codings that the client accepts are read after the request rules have run; the decision about the response is made after
//! the response rules. Called by `fields` and `upload`; `exchange::coded` contains the counters.

use std::cell::Cell;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use compress::{Algorithm, CoderSettings, Encoder};
use http::{BodyLength, Head, KnownName, Method, begins_ignore_case};
use plan::Proxy;
use plan::compression::{Compression, CompressionSide};
use runtime::timer::now_ms;
use state::process::ProcessCounters;

use crate::client::Client;
use crate::exchange::Exchange;
use crate::exchange::compression::Coded;
use crate::flow::{Filter, Rank};

/// The settings of both proxies. For each setting, the backend's value applies if it has one, otherwise the frontend's.
#[derive(Clone, Copy)]
struct Both<'a>([Option<&'a Compression>; 2]);

impl<'a> Both<'a> {
    #[inline]
    fn of(client: &'a Client, backend: &'a Proxy) -> Option<Self> {
        let both = [backend.compression.as_deref(), client.frontend.compression.as_deref()];
        both.iter().any(Option::is_some).then_some(Self(both))
    }

    fn sides(self, request: bool) -> impl Iterator<Item = &'a CompressionSide> {
        let side =
            move |own: &'a Compression| if request { own.request.as_ref() } else { own.response.as_ref() };
        self.0.into_iter().flatten().filter_map(side)
    }

    fn algorithms(self, request: bool) -> &'a [Algorithm] {
        self.sides(request).map(|side| &*side.algorithms).find(|list| !list.is_empty()).unwrap_or_default()
    }

    fn types(self, request: bool) -> &'a [Box<[u8]>] {
        self.sides(request).map(|side| &*side.types).find(|list| !list.is_empty()).unwrap_or_default()
    }

    fn min_size(self, request: bool) -> u64 {
        self.sides(request).map(|side| side.min_size).find(|size| *size > 0).unwrap_or_default()
    }

    /// Returns the rank of compression for bodies in this direction: the rank of the first filter that enables it.
    fn rank(self, of_response: bool) -> Option<Rank> {
        let [backend, frontend] = self.0.map(|own| own.and_then(|own| own.places.of(of_response)));
        let rank = |of_backend| move |place| Rank { of_backend, place };
        frontend.map(rank(false)).or(backend.map(rank(true)))
    }

    fn offloads(self) -> bool {
        self.0.iter().flatten().any(|own| own.offload)
    }
}

/// Reads which codings the client accepts, and compresses the request if configured.
#[inline]
pub(crate) fn of_request(client: &Client, x: &mut Exchange, backend: &Proxy) {
    if let Some(both) = Both::of(client, backend) {
        look_at_request(client, x, both);
    }
}

/// Reads the accepted codings for a request that a cache or a service answers.
#[cold]
pub(crate) fn of_service(client: &Client, x: &mut Exchange, backend: &Proxy) {
    if let Some(both) = Both::of(client, backend)
        && x.coded.is_none()
    {
        x.coded = Some(Box::new(look_at_client(x, both)));
    }
}

#[cold]
fn look_at_request(client: &Client, x: &mut Exchange, both: Both<'_>) {
    if x.coded.is_some() {
        // This was already done: a cache is consulted again after a server failed, or compression was decided between two script
        // filters.
        return;
    }
    let mut coded = look_at_client(x, both);
    if both.offloads() && coded.accepted.is_some_and(|algorithm| algorithm != Algorithm::Identity) {
        x.txn.request.remove_known(KnownName::AcceptEncoding);
    }
    let (request, encoder) = encoder_of_request(client, x, both).unzip();
    (coded.request, coded.encoder) = (request.zip(both.rank(false)), encoder);
    x.coded = Some(Box::new(coded));
}

fn look_at_client(x: &mut Exchange, both: Both<'_>) -> Coded {
    let accepted = accepted(&x.txn.request, both.algorithms(false));
    // Response rules see the algorithm, unless it turns out that compression does not apply.
    x.txn.compressed = accepted.map(Algorithm::name);
    Coded { accepted, ..Coded::default() }
}

/// Returns the rank of compression for the body in this direction, if the body may be compressed.
#[cold]
pub(crate) fn rank(client: &Client, x: &Exchange, of_response: bool) -> Option<Rank> {
    let backend = x.backend.as_ref().unwrap_or(&client.frontend);
    Both::of(client, backend)?.rank(of_response)
}

/// Decides now whether to compress the response, so that later script filters see its final head.
#[cold]
pub(crate) fn decide_early(client: &Client, x: &mut Exchange, is_framed: bool) {
    if x.coded.is_none() {
        return;
    }
    let filter = if is_framed { of_response(client, x) } else { None };
    if let Some(coded) = &mut x.coded {
        coded.decided = Some((is_framed, filter));
    }
}

/// Returns the encoder for the request, and changes the request's head accordingly.
fn encoder_of_request(client: &Client, x: &mut Exchange, both: Both<'_>) -> Option<(Algorithm, Encoder)> {
    let algorithm = both.algorithms(true).first().copied()?;
    let has_body = !matches!(x.request_body.length, BodyLength::None | BodyLength::UntilClose);
    if !has_body
        || !x.txn.request.version().is_11_or_above()
        || x.txn.request.method_id() == Method::Connect
        || !is_fit(&x.txn.request, both, true, x.request_body.length)
    {
        return None;
    }
    let encoder = encoder(client, algorithm)?;
    changes_head(x, false, both.rank(false)?);
    set_coding(&mut x.txn.request, algorithm, false);
    Some((algorithm, encoder))
}

/// Called before the head announces the coding. Earlier filters see the unchanged head, and a body length set by earlier script
/// filters no longer applies.
fn changes_head(x: &mut Exchange, of_response: bool, rank: Rank) {
    if let Some(trace) = &x.trace {
        let head = if of_response { &x.txn.response } else { &x.txn.request };
        trace.keep_head(!of_response, rank, head);
    }
    if let Some(filtering) = &mut x.filtering {
        filtering.direction(of_response).length = None;
    }
}

/// Returns the filter for the request's body. Called for each attempt.
#[inline]
pub(crate) fn filter_of_request(client: &Client, coded: &mut Option<Box<Coded>>) -> Option<(Rank, Filter)> {
    request_filter(client, coded.as_mut()?)
}

#[cold]
fn request_filter(client: &Client, coded: &mut Coded) -> Option<(Rank, Filter)> {
    let (algorithm, rank) = coded.request?;
    let encoder = coded.encoder.take().or_else(|| {
        // Once the head has announced the coding, the limits can no longer apply.
        Encoder::new(algorithm, &CoderSettings { most_memory: 0, ..settings(client) })
    })?;
    Some((rank, Filter::compress(encoder)))
}

/// Returns the filter for the response's body, and changes the response's head accordingly.
#[inline]
pub(crate) fn of_response(client: &Client, x: &mut Exchange) -> Option<(Rank, Filter)> {
    let algorithm = x.coded.as_ref()?.accepted?;
    let filter = look_at_response(client, x, algorithm);
    if filter.is_none() {
        x.txn.compressed = None;
    }
    filter
}

/// Returns the filter for the body of a generated response that passes through filters, unless this was already decided between
/// two script filters.
#[cold]
pub(crate) fn of_reply(client: &Client, x: &mut Exchange) -> Option<(Rank, Filter)> {
    match x.coded.as_mut()?.decided.take() {
        Some((_, filter)) => filter,
        None => of_response(client, x),
    }
}

#[cold]
fn look_at_response(client: &Client, x: &mut Exchange, algorithm: Algorithm) -> Option<(Rank, Filter)> {
    let backend = x.backend.clone().unwrap_or_else(|| client.frontend.clone());
    let both = Both::of(client, &backend)?;
    let length = x.response_body.length;
    let head = &x.txn.response;
    let has_body = !x.head_only
        && !x.is_tunnel
        && !matches!(length, BodyLength::None | BodyLength::UntilClose)
        && matches!(head.status(), 200..=203);
    if !has_body
        || !head.version().is_11_or_above()
        || !x.txn.request.version().is_11_or_above()
        || !is_fit(head, both, false, length)
    {
        return None;
    }
    let Some(encoder) = encoder(client, algorithm) else {
        if let Some(coded) = &mut x.coded {
            coded.is_passed_by = true;
        }
        return None;
    };
    let rank = both.rank(true)?;
    changes_head(x, true, rank);
    set_coding(&mut x.txn.response, algorithm, true);
    Some((rank, Filter::compress(encoder)))
}

/// Whether a message with this head and this length may be compressed, according to its headers and the configuration.
fn is_fit(head: &Head, both: Both<'_>, request: bool, length: BodyLength) -> bool {
    if matches!(length, BodyLength::Length(bytes) if bytes < both.min_size(request).max(1)) {
        return false;
    }
    let no_transform = |value: &[u8]| value.eq_ignore_ascii_case(b"no-transform");
    if head.get_known(KnownName::ContentEncoding).is_some()
        || head.any_value(&KnownName::CacheControl.into(), no_transform)
        || !request && !has_usable_tag(head)
    {
        return false;
    }
    let types = both.types(request);
    match head.get_known(KnownName::ContentType) {
        Some(kind) if begins_ignore_case(kind, b"multipart") => false,
        Some(kind) => types.is_empty() || types.iter().any(|wanted| begins_ignore_case(kind, wanted)),
        None => types.is_empty(),
    }
}

/// Whether the entity tag is absent or well-formed.
fn has_usable_tag(head: &Head) -> bool {
    let name = KnownName::Etag.into();
    let mut tags = head.get_all(&name);
    match (tags.next(), tags.next()) {
        (None, _) => true,
        (Some(tag), None) => is_quoted(tag.strip_prefix(b"W/").unwrap_or(tag)),
        _ => false,
    }
}

fn is_quoted(tag: &[u8]) -> bool {
    tag.len() >= 2 && tag.starts_with(b"\"") && tag.ends_with(b"\"")
}

/// Sets the fields of the head that describe the coding and the framing of the body.
fn set_coding(head: &mut Head, algorithm: Algorithm, is_response: bool) {
    head.remove_body_length();
    head.append(b"transfer-encoding", b"chunked");
    if is_response {
        // A strong entity tag is made weak, because the bytes differ (RFC 9110, 8.8.1).
        if let Some(tag) = head.get_known(KnownName::Etag)
            && tag.starts_with(b"\"")
        {
            let weak = [b"W/", tag].concat();
            head.set(&KnownName::Etag.into(), &weak);
        }
        vary(head);
    }
    if algorithm != Algorithm::Identity {
        head.append(b"content-encoding", algorithm.token().as_bytes());
    }
}

/// Adds `Vary`, because another client may get another coding.
fn vary(head: &mut Head) {
    let name = KnownName::Vary.into();
    let covers = |value: &[u8]| value.eq_ignore_ascii_case(b"accept-encoding");
    if head.any_value(&name, covers) {
        return;
    }
    let lines: Vec<Vec<u8>> =
        head.get_all(&name).filter(|line| !line.is_empty()).map(<[u8]>::to_vec).collect();
    let Some((last, others)) = lines.split_last() else {
        head.set(&name, b"Accept-Encoding");
        return;
    };
    let last = [&last[..], b",Accept-Encoding"].concat();
    head.remove_all(&name);
    for line in others.iter().chain([&last]) {
        head.append(b"vary", line);
    }
}

/// Returns the algorithm that the client prefers. If several are equally preferred, the first one in the client's list is used,
/// or the first one in the configuration if the configuration offers an algorithm that HAProxy does not support.
fn accepted(head: &Head, offered: &[Algorithm]) -> Option<Algorithm> {
    if offered.is_empty() || head.get_known(KnownName::UserAgent).is_some_and(is_old_browser) {
        return None;
    }
    let by_order = offered.iter().any(|algorithm| matches!(algorithm, Algorithm::Zstd | Algorithm::Brotli));
    let mut best: Option<(u32, usize)> = None;
    for value in head.values(&KnownName::AcceptEncoding.into()) {
        let (token, quality) = preference(value);
        let matches = |algorithm: &Algorithm| token.eq_ignore_ascii_case(algorithm.token().as_bytes());
        let found = match token {
            // The last algorithm in the configuration.
            b"*" if !by_order => offered.len().checked_sub(1),
            b"*" => Some(0),
            _ => offered.iter().position(matches),
        };
        let Some(place) = found else { continue };
        let is_better =
            best.is_none_or(|(before, at)| quality > before || by_order && quality == before && place < at);
        if quality > 0 && is_better {
            best = Some((quality, place));
        }
    }
    match best {
        Some((_, place)) => Some(offered[place]),
        None => offered.contains(&Algorithm::Identity).then_some(Algorithm::Identity),
    }
}

/// Splits an item into a coding and its quality value, in thousandths (RFC 9110, 12.4.2).
fn preference(value: &[u8]) -> (&[u8], u32) {
    let mut parts = value.split(|byte| *byte == b';');
    let token = parts.next().unwrap_or_default().trim_ascii();
    let quality = parts.find_map(|part| {
        let (name, number) = part.trim_ascii().split_at_checked(2)?;
        name.eq_ignore_ascii_case(b"q=").then_some(number)
    });
    let Some(number) = quality.filter(|number| number.first().is_some_and(u8::is_ascii_digit)) else {
        return (token, 1000);
    };
    let mut thousandths = 0;
    let digits = number.iter().filter(|byte| byte.is_ascii_digit()).take(4);
    for (at, digit) in digits.enumerate() {
        thousandths += u32::from(digit - b'0') * [1000, 100, 10, 1][at];
    }
    (token, thousandths.min(1000))
}

/// Whether this is an old browser that claims to support codings it cannot decode: `Mozilla/4`, except for Internet Explorer 6 or
/// later on XP SP2.
fn is_old_browser(agent: &[u8]) -> bool {
    let Some(rest) = agent.strip_prefix(b"Mozilla/4") else { return false };
    let Some(at) = rest.windows(5).position(|window| window == b"MSIE ") else { return true };
    match rest.get(at + 5) {
        Some(b'6') => !rest.windows(3).any(|window| window == b"SV1"),
        Some(b'7'..=b'9') => false,
        _ => true,
    }
}

fn settings(client: &Client) -> CoderSettings {
    let limits = &client.worker.shared.plan.global.compression;
    CoderSettings {
        level: limits.level,
        window_bits: limits.window_bits,
        memory_level: limits.memory_level,
        most_memory: limits.memory,
    }
}

/// Returns an encoder, unless the process has reached its compression limits.
fn encoder(client: &Client, algorithm: Algorithm) -> Option<Encoder> {
    let shared = &client.worker.shared;
    let limit = shared.process.compression_limit.load(Relaxed);
    if limit > 0 {
        let rate = |counters: &ProcessCounters| counters.compressed_in_rate.per_second(now_ms());
        let units = shared.process.counters.all().map(rate).fold(0, u32::saturating_add);
        if ProcessCounters::bytes_of_units(units) > limit {
            return None;
        }
    }
    let most_cpu = shared.plan.global.compression.cpu;
    if most_cpu < 100 && used_cpu() > most_cpu {
        return None;
    }
    Encoder::new(algorithm, &settings(client))
}

/// The minimum interval between measurements of CPU usage, in ms.
const MEASURED: u64 = 250;

/// Returns this worker's recent CPU usage, in percent.
fn used_cpu() -> u32 {
    thread_local! {
        static SEEN: Cell<(u64, Duration, u32)> = const { Cell::new((0, Duration::ZERO, 0)) };
    }
    let (then, busy_then, percent) = SEEN.get();
    let now = now_ms();
    let passed = now.saturating_sub(then);
    if passed < MEASURED {
        return percent;
    }
    let busy = runtime::worker::activity(runtime::current_worker()).busy;
    let percent = (busy.saturating_sub(busy_then).as_millis() as u64 * 100 / passed).min(100) as u32;
    SEEN.set((now, busy, percent));
    percent
}
