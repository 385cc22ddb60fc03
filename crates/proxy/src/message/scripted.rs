//! Filters of scripts (`filter lua.…`): their functions are called as a stream begins, as its heads
//! leave, as payload passes, and at its end.
//!
//! They are called between the steps of a direction and not within one ([`Flow`](crate::flow::Flow)),
//! so that they see the whole exchange. What caches and services answer passes them, errors and what
//! rules answer does not.

use std::cell::RefCell;
use std::ops::Range;
use std::task::{Context, Poll};

use http::BodyLength;
use lua::{Bridge, Callback, FilterRequest, Payload};
use plan::Proxy;
use rules::{Edit, Side};
use runtime::timer::{NEVER, now_ms};
use sample::Env;

use crate::client::{Client, Watch};
use crate::exchange::filtering::Filtering;
use crate::exchange::{Exchange, Stop, scripting, view};
use crate::fault::Fault;
use crate::flow::{Coding, Filter, Filters, Flow, FlowError, Path, Rank};
use crate::message::{compression, framing};
use crate::server::Upstream;

/// What a function of a filter reaches.
struct FilterBridge<'a> {
    client: &'a Client,
    x: RefCell<&'a mut Exchange>,
    filtering: RefCell<&'a mut Filtering>,
    /// The filter.
    place: usize,
    callback: Callback,
}

impl FilterBridge<'_> {
    /// Whether the head of that message may be changed.
    fn may_edit(&self, x: &Exchange, of_response: bool) -> bool {
        match self.callback {
            Callback::Start | Callback::Headers => x.txn.is_http && x.txn.has_response == of_response,
            _ => false,
        }
    }
}

impl Bridge for FilterBridge<'_> {
    fn view(&self, look: &mut dyn FnMut(&Env<'_>)) {
        view::with(self.client, &self.x.borrow(), |env| look(env));
    }

    fn edit(&self, edit: &Edit<'_>) -> Option<bool> {
        let mut x = self.x.borrow_mut();
        let tune = &self.client.worker.shared.plan.global.tune;
        let may = self.may_edit(&x, edit.side() == Side::Response);
        may.then(|| edit.make(&mut x.txn, tune.bufsize))
    }

    fn notes(&self, with: &mut dyn FnMut(&mut lua::Notes)) -> bool {
        with(&mut scripting::of(&mut self.x.borrow_mut()).notes);
        true
    }

    fn set(&self, setting: lua::Setting) {
        scripting::set(self.client, &mut self.x.borrow_mut(), setting);
    }

    fn payload(&self, of_response: bool, of_message: bool, with: &mut dyn FnMut(&mut Payload)) -> bool {
        if self.x.borrow().txn.is_http != of_message {
            return false;
        }
        let mut filtering = self.filtering.borrow_mut();
        let Some(own) = filtering.filters.get_mut(self.place) else { return false };
        with(&mut own.parts[usize::from(of_response)].payload);
        true
    }

    fn want(&self, wanted: FilterRequest) -> bool {
        let mut filtering = self.filtering.borrow_mut();
        let Some(own) = filtering.filters.get_mut(self.place) else { return false };
        match wanted {
            FilterRequest::Data { of_response, on } => own.parts[usize::from(of_response)].sees_data = on,
            FilterRequest::Wake(ms) => own.wake_at = now_ms().saturating_add(ms),
            FilterRequest::Length { of_response, length } => {
                if !self.may_edit(&self.x.borrow(), of_response) {
                    return false;
                }
                filtering.direction(of_response).length = Some(length);
            }
        }
        true
    }

    fn log(&self, level: u8, text: &[u8]) -> bool {
        scripting::log(self.client, &self.x.borrow(), level, text)
    }

    fn is_response(&self) -> bool {
        self.x.borrow().txn.has_response
    }
}

/// Calls a function of a filter, if it has it; `None` where it returned nothing.
///
/// # Errors
/// It failed, or said that something is wrong.
fn call(
    client: &Client,
    x: &mut Exchange,
    filtering: &mut Filtering,
    place: usize,
    (callback, of_response): (Callback, bool),
) -> Result<Option<i64>, Fault> {
    let Some(own) = filtering.filters.get_mut(place) else { return Ok(None) };
    let is_unseen = callback == Callback::MessageEnd && !own.parts[usize::from(of_response)].sees_data;
    if is_unseen || !own.filter.has(callback) {
        return Ok(None);
    }
    own.wake_at = NEVER;
    // The filter is lent out of its place while its function reaches for that.
    let filter = own.filter.clone();
    let seat =
        FilterBridge { client, x: RefCell::new(x), filtering: RefCell::new(filtering), place, callback };
    match filter.call(&seat, callback, of_response) {
        Ok(Some(number)) if number < 0 => Err(refused(of_response)),
        Ok(number) => Ok(number),
        Err(_) => Err(refused(of_response)),
    }
}

/// A filter does not let a message pass: as in HAProxy, it is its sender's fault.
fn refused(of_response: bool) -> Fault {
    if of_response { Fault::BadResponseBody } else { Fault::BadRequestBody }
}

/// Begins the filters of a proxy, and tells them that the request begins.
///
/// # Errors
/// One of them failed.
#[cold]
pub(crate) async fn begin(client: &mut Client, x: &mut Exchange, proxy: &Proxy) -> Result<(), Stop> {
    let Some(own) = &proxy.script_filters else { return Ok(()) };
    let mut filtering = x.filtering.take().unwrap_or_default();
    let first = filtering.request.order.len();
    let mut made = Vec::with_capacity(own.0.len());
    for (declared, _) in &own.0 {
        let seat = FilterBridge {
            client,
            x: RefCell::new(x),
            filtering: RefCell::new(&mut filtering),
            place: usize::MAX,
            callback: Callback::Start,
        };
        made.push(declared.start(&seat).map_err(|_| refused(false))?);
    }
    let tune = &client.worker.shared.plan.global.tune;
    let of_backend = proxy.index != client.frontend.index;
    filtering.add(own, made, tune.bufsize.saturating_sub(tune.maxrewrite).max(1), of_backend);
    x.filtering = Some(filtering);
    tell(client, x, (Callback::Start, false), first..usize::MAX).await
}

/// The response begins.
///
/// # Errors
/// One of the filters failed.
#[cold]
pub(crate) async fn begin_response(client: &mut Client, x: &mut Exchange) -> Result<(), Stop> {
    tell(client, x, (Callback::Start, true), ALL).await
}

/// The head of a message is about to leave.
///
/// # Errors
/// One of the filters failed.
#[cold]
pub(crate) async fn heads(client: &mut Client, x: &mut Exchange, of_response: bool) -> Result<(), Stop> {
    let has_body = has_body(x, of_response);
    let Some(filtering) = &mut x.filtering else { return Ok(()) };
    if !has_body {
        filtering.end_at_once(of_response);
    }
    filtering.has_shown_request |= !of_response;
    let before = before_compression(client, x, of_response);
    tell(client, x, (Callback::Headers, of_response), 0..before).await?;
    if before < usize::MAX {
        compress_between(client, x, of_response)?;
        tell(client, x, (Callback::Headers, of_response), before..usize::MAX).await?;
    }
    if has_body {
        return Ok(());
    }
    tell(client, x, (Callback::MessageEnd, of_response), ALL).await
}

/// A cache or a service of the proxy has answered a request: filters are shown its head, unless that was
/// about to leave before.
///
/// # Errors
/// One of the filters failed.
#[cold]
pub(crate) async fn head_of_answered(client: &mut Client, x: &mut Exchange) -> Result<(), Stop> {
    x.txn.has_response = false;
    let shown = head_for_service(client, x).await;
    x.txn.has_response = true;
    shown
}

/// A service answers a request: filters are shown its head, unless that was about to leave before.
///
/// # Errors
/// One of the filters failed.
#[cold]
pub(crate) async fn head_for_service(client: &mut Client, x: &mut Exchange) -> Result<(), Stop> {
    let has_body = has_body(x, false);
    let Some(filtering) = &mut x.filtering else { return Ok(()) };
    if std::mem::replace(&mut filtering.has_shown_request, true) {
        return Ok(());
    }
    if !has_body {
        filtering.end_at_once(false);
    }
    tell(client, x, (Callback::Headers, false), ALL).await?;
    match has_body {
        true => Ok(()),
        false => tell(client, x, (Callback::MessageEnd, false), ALL).await,
    }
}

/// Has the body of a request that a service answers come to it through filters, where any see it. Its
/// head says what comes of it.
#[cold]
pub(crate) fn begin_for_service(client: &Client, x: &mut Exchange) {
    if !sees(x, false) || !has_body(x, false) {
        return;
    }
    let length = x.request_body.length;
    let shown = frame(x, false, length, false);
    if let Some(filters) = filters(x, false, shown, None) {
        x.upload.start_filtered(client.side.framing(length), Path::Payload(Coding::Bare), filters);
    }
}

/// How many filters of scripts stand before compression, where others stand behind it.
fn before_compression(client: &Client, x: &Exchange, of_response: bool) -> usize {
    let Some(rank) = compression::rank(client, x, of_response) else { return usize::MAX };
    let Some(filtering) = &x.filtering else { return usize::MAX };
    filtering.ranked(of_response).position(|(own, _)| own > rank).unwrap_or(usize::MAX)
}

/// Decides whether a body is compressed, so that filters behind see a head that tells of it.
fn compress_between(client: &Client, x: &mut Exchange, of_response: bool) -> Result<(), Fault> {
    if of_response {
        let is_framed = framing::frame_response(x)?;
        compression::decide_early(client, x, is_framed);
        return Ok(());
    }
    let backend = x.backend.clone().unwrap_or_else(|| client.frontend.clone());
    framing::frame_request(x)?;
    compression::of_request(client, x, &backend);
    Ok(())
}

/// Whether payload follows a head.
fn has_body(x: &Exchange, of_response: bool) -> bool {
    match of_response {
        false => x.request_body.length != BodyLength::None && !x.request_body.is_dropped,
        true => {
            let has_any = x.response_body.length != BodyLength::None;
            has_any && !framing::is_bodiless(x) && !x.is_tunnel
        }
    }
}

/// Whether filters see the payload of the response, if it has any.
#[cold]
pub(crate) fn sees_response(x: &Exchange) -> bool {
    has_body(x, true) && sees(x, true)
}

/// All filters of a direction.
const ALL: Range<usize> = 0..usize::MAX;

/// Calls a function of some of the filters of a direction; one that waits is called again when it asked
/// for it.
async fn tell(
    client: &mut Client,
    x: &mut Exchange,
    (callback, of_response): (Callback, bool),
    which: Range<usize>,
) -> Result<(), Stop> {
    let mut at = which.start;
    loop {
        let Some(mut filtering) = x.filtering.take() else { return Ok(()) };
        let place = filtering.direction(of_response).order.get(at).copied();
        let place = place.filter(|_| at < which.end);
        let said = place.map(|place| call(client, x, &mut filtering, place, (callback, of_response)));
        let wake_at = place.and_then(|place| filtering.filters.get(place)).map_or(NEVER, |own| own.wake_at);
        x.filtering = Some(filtering);
        match said.transpose()? {
            None => return Ok(()),
            Some(Some(0)) => wait(client, wake_at).await?,
            Some(_) => at += 1,
        }
    }
}

/// Waits until an instant; without one, as long as the client may be silent.
async fn wait(client: &mut Client, until: u64) -> Result<(), Stop> {
    let is_endless = until == NEVER;
    match is_endless {
        true => client.timer.set_after(now_ms(), client.frontend.timeouts.client),
        false => client.timer.set(until.max(now_ms() + 1)),
    }
    let over = |client: &mut Client, context: &mut Context<'_>| client.timer.poll_expired(context);
    client.wait(Watch::KILL, over).await?;
    if is_endless { Err(Fault::Internal.into()) } else { Ok(()) }
}

/// Has a head say what its body will be, where a filter gave that a length; gives how it ends for its
/// receiver. What compression codes is in chunks, unless a filter behind it says otherwise.
#[cold]
pub(crate) fn frame(x: &mut Exchange, of_response: bool, length: BodyLength, is_coded: bool) -> BodyLength {
    let shown = shown(x, of_response, length, is_coded);
    let said = if is_coded { BodyLength::Chunked } else { length };
    if shown == said {
        return shown;
    }
    let head = if of_response { &mut x.txn.response } else { &mut x.txn.request };
    head.remove_body_length();
    match shown {
        BodyLength::Length(bytes) => head.set_content_length(bytes),
        _ => {
            head.append(b"transfer-encoding", b"chunked");
        }
    }
    shown
}

/// How a body ends for its receiver that ends as `length` says for its sender, where filters see it.
pub(crate) fn shown(x: &Exchange, of_response: bool, length: BodyLength, is_coded: bool) -> BodyLength {
    let direction = |filtering: &Filtering| match of_response {
        true => filtering.response.length,
        false => filtering.request.length,
    };
    match x.filtering.as_ref().and_then(|filtering| direction(filtering)) {
        Some(Some(bytes)) => BodyLength::Length(bytes),
        Some(None) => BodyLength::Chunked,
        None if is_coded => BodyLength::Chunked,
        None => length,
    }
}

/// The way of a body of this length, as its receiver sees it, through filters; `path` is the one without.
pub(crate) fn path(shown: BodyLength, path: Path) -> Path {
    match (path, shown) {
        (Path::Verbatim, BodyLength::Chunked) => Path::Payload(Coding::Chunked),
        (Path::Verbatim, _) => Path::Payload(Coding::Bare),
        (path, _) => path,
    }
}

/// The filters of scripts of a direction and others, for a body that ends as `shown` says for its
/// receiver. What scripts saw of a former attempt is forgotten.
pub(crate) fn filters(
    x: &mut Exchange,
    of_response: bool,
    shown: BodyLength,
    others: impl IntoIterator<Item = (Rank, Filter)>,
) -> Option<Box<Filters>> {
    let filtering = x.filtering.as_mut()?;
    filtering.begin(of_response);
    let scripts = filtering.ranked(of_response).map(|(rank, place)| (rank, Filter::script(place)));
    let mut all = Filters::of(scripts.chain(others))?;
    all.promised = match shown {
        BodyLength::Length(bytes) => Some(bytes),
        BodyLength::None | BodyLength::Chunked | BodyLength::UntilClose => None,
    };
    Some(all)
}

/// Both directions of a stream of TCP begin: those that filters see go through them.
#[cold]
pub(crate) fn begin_stream(x: &mut Exchange) {
    for of_response in [false, true] {
        if sees(x, of_response) {
            let length = BodyLength::UntilClose;
            if let Some(filters) = filters(x, of_response, length, None) {
                flow(x, of_response).start_filtered(length, path(length, Path::Verbatim), filters);
            }
        }
    }
}

/// Moves the request on, and what filters make of it where there are any.
#[inline]
pub(crate) fn poll_upload(
    client: &mut Client,
    x: &mut Exchange,
    upstream: &mut Upstream,
    context: &mut Context<'_>,
) -> Poll<Result<(), FlowError>> {
    match x.filtering {
        None => x.upload.poll_pump(context, client.side.source(), &mut upstream.sink()),
        Some(_) => poll_filtered_upload(client, x, upstream, context),
    }
}

/// The same of the response.
#[inline]
pub(crate) fn poll_download(
    client: &mut Client,
    x: &mut Exchange,
    upstream: &mut Upstream,
    context: &mut Context<'_>,
) -> Poll<Result<(), FlowError>> {
    match x.filtering {
        None => x.download.poll_pump(context, upstream.source(), &mut client.side.sink()),
        Some(_) => poll_filtered_download(client, x, upstream, context),
    }
}

#[cold]
fn poll_filtered_upload(
    client: &mut Client,
    x: &mut Exchange,
    upstream: &mut Upstream,
    context: &mut Context<'_>,
) -> Poll<Result<(), FlowError>> {
    loop {
        let pumped = x.upload.poll_pump(context, client.side.source(), &mut upstream.sink());
        if pumped.is_ready() || !run(client, x, false, context)? {
            return pumped;
        }
    }
}

#[cold]
fn poll_filtered_download(
    client: &mut Client,
    x: &mut Exchange,
    upstream: &mut Upstream,
    context: &mut Context<'_>,
) -> Poll<Result<(), FlowError>> {
    loop {
        let pumped = x.download.poll_pump(context, upstream.source(), &mut client.side.sink());
        if pumped.is_ready() || !run(client, x, true, context)? {
            return pumped;
        }
    }
}

/// Shows filters what came in, each in its turn; says whether the direction has something to do then.
///
/// # Errors
/// One of them failed, or the body is not as long as its head says.
pub(crate) fn run(
    client: &Client,
    x: &mut Exchange,
    of_response: bool,
    context: &mut Context<'_>,
) -> Result<bool, FlowError> {
    let stages = flow(x, of_response).scripts();
    if stages.is_empty() {
        return Ok(false);
    }
    let Some(mut filtering) = x.filtering.take() else { return Ok(false) };
    let woken = filtering.poll_woken(context);
    let (mut has_come, mut goes_on) = (false, false);
    for at in stages {
        let shown = show(client, x, &mut filtering, (of_response, at), woken);
        let FilterOutcome { is_news, passes } = match shown {
            Ok(shown) => shown,
            Err(error) => {
                x.filtering = Some(filtering);
                return Err(error);
            }
        };
        has_come |= is_news;
        goes_on |= passes;
    }
    if woken {
        filtering.forget_woken();
    }
    if (woken || has_come) && filtering.poll_woken(context) {
        // A filter asked for it just now.
        context.waker().wake_by_ref();
    }
    x.filtering = Some(filtering);
    Ok(goes_on)
}

fn flow(x: &mut Exchange, of_response: bool) -> &mut Flow {
    if of_response { &mut x.download } else { &mut x.upload }
}

/// What became of showing a filter what came.
#[derive(Default)]
struct FilterOutcome {
    /// Whether anything had come.
    is_news: bool,
    /// Whether the direction has something to do: the filter passed something on, or takes more.
    passes: bool,
}

/// Shows the filter at that place of a direction what came to it, or what it holds if it was woken, and
/// passes on what it gives.
fn show(
    client: &Client,
    x: &mut Exchange,
    filtering: &mut Filtering,
    (of_response, at): (bool, usize),
    woken: bool,
) -> Result<FilterOutcome, FlowError> {
    let side = usize::from(of_response);
    let mut bytes = Vec::new();
    let room = |place: usize| filtering.filters.get(place).map_or(0, |own| room(&own.parts[side].payload));
    let unseen = flow(x, of_response).take_unseen(at, &mut bytes, room);
    let Some(unseen) = unseen else { return Ok(FilterOutcome::default()) };
    if !unseen.is_news && !woken {
        return Ok(FilterOutcome::default());
    }
    let Some(own) = filtering.filters.get_mut(unseen.place) else { return Ok(FilterOutcome::default()) };
    let payload = &mut own.parts[side].payload;
    payload.is_ended |= unseen.is_ended;
    if !payload.is_cut {
        payload.input.append(&mut bytes);
    }
    filter(client, x, filtering, unseen.place, of_response).map_err(|_| FlowError::Filter)?;
    let Some(own) = filtering.filters.get_mut(unseen.place) else { return Ok(FilterOutcome::default()) };
    let part = &mut own.parts[side];
    let bytes = std::mem::take(&mut part.payload.output);
    let (is_over, is_full) = (part.is_over, part.payload.is_full());
    flow(x, of_response).put_from_script(at, &bytes, is_over, is_full)?;
    let takes_more = unseen.is_news && !unseen.is_ended && !is_full;
    Ok(FilterOutcome { is_news: unseen.is_news, passes: is_over || !bytes.is_empty() || takes_more })
}

/// How much more a filter may be shown before it has passed something on. What it left out takes none.
fn room(payload: &Payload) -> usize {
    if payload.is_cut { usize::MAX } else { payload.limit.saturating_sub(payload.input.len()) }
}

/// Has one filter see what it has of a direction.
fn filter(
    client: &Client,
    x: &mut Exchange,
    filtering: &mut Filtering,
    place: usize,
    of_response: bool,
) -> Result<(), Fault> {
    let side = usize::from(of_response);
    let callback = if x.txn.is_http { Callback::Payload } else { Callback::Bytes };
    let Some(own) = filtering.filters.get(place) else { return Ok(()) };
    let part = &own.parts[side];
    let mut most = usize::MAX;
    if part.sees_data && !part.payload.input.is_empty() {
        let said = call(client, x, filtering, place, (callback, of_response))?;
        most = said.map_or(usize::MAX, |number| usize::try_from(number).unwrap_or(0));
    }
    let Some(own) = filtering.filters.get_mut(place) else { return Ok(()) };
    let part = &mut own.parts[side];
    part.payload.forward(most);
    let payload = &part.payload;
    if !payload.input.is_empty() && !payload.output.is_empty() {
        // As long as something passes, it is asked about the rest, once others have had their turn.
        own.wake_at = own.wake_at.min(now_ms());
        return Ok(());
    }
    if part.is_over || !payload.is_ended || !payload.input.is_empty() {
        return Ok(());
    }
    let waits =
        x.txn.is_http && call(client, x, filtering, place, (Callback::MessageEnd, of_response))? == Some(0);
    if let Some(own) = filtering.filters.get_mut(place) {
        let part = &mut own.parts[side];
        // What it says at the end still passes.
        part.payload.forward(usize::MAX);
        part.is_over = !waits && !part.payload.is_open;
    }
    Ok(())
}

/// The stream is over: its filters are told, and end.
#[cold]
pub(crate) fn end(client: &Client, x: &mut Exchange) {
    let Some(mut filtering) = x.filtering.take() else { return };
    for of_response in [false, true] {
        for place in filtering.direction(of_response).order.clone() {
            // What goes wrong is logged, and changes nothing any more.
            let _ = call(client, x, &mut filtering, place, (Callback::End, of_response));
        }
    }
}

/// Whether filters see the payload of that direction, where it has any.
#[inline]
pub(crate) fn sees(x: &Exchange, of_response: bool) -> bool {
    x.filtering.as_ref().is_some_and(|filtering| filtering.sees_data(of_response))
}
