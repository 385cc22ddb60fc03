//! Filters of scripts (`filter lua.…`): their functions are called as a stream begins, as its heads
//! leave, as payload passes, and at its end.
//!
//! They are called between the steps of a direction and not within one ([`Flow`](crate::flow::Flow)),
//! so that they see the whole exchange. Answers made here, and those out of a cache, do not pass them.

use std::cell::RefCell;
use std::task::{Context, Poll};

use http::BodyLength;
use lua::{Bridge, Callback, Payload, Wanted};
use plan::Proxy;
use rules::{Edit, Side};
use runtime::timer::{NEVER, now_ms};
use sample::Env;

use crate::client::{Client, Watch};
use crate::exchange::filtering::Filtering;
use crate::exchange::{Exchange, Stop, scripting, view};
use crate::fault::Fault;
use crate::flow::{Coding, Filters, FlowError, Path};
use crate::server::Upstream;

/// What a function of a filter reaches.
struct Seat<'a> {
    client: &'a Client,
    x: RefCell<&'a mut Exchange>,
    filtering: RefCell<&'a mut Filtering>,
    /// The filter.
    place: usize,
    callback: Callback,
}

impl Seat<'_> {
    /// Whether the head of that message may be changed.
    fn may_edit(&self, x: &Exchange, of_response: bool) -> bool {
        match self.callback {
            Callback::Start | Callback::Headers => x.txn.is_http && x.txn.has_response == of_response,
            _ => false,
        }
    }
}

impl Bridge for Seat<'_> {
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

    fn want(&self, wanted: Wanted) -> bool {
        let mut filtering = self.filtering.borrow_mut();
        let Some(own) = filtering.filters.get_mut(self.place) else { return false };
        match wanted {
            Wanted::Data { of_response, on } => own.parts[usize::from(of_response)].sees_data = on,
            Wanted::Wake(ms) => own.wake_at = now_ms().saturating_add(ms),
            Wanted::Length { of_response, length } => {
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
    let seat = Seat { client, x: RefCell::new(x), filtering: RefCell::new(filtering), place, callback };
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
    let mut made = Vec::with_capacity(own.declared.len());
    for declared in &own.declared {
        let seat = Seat {
            client,
            x: RefCell::new(x),
            filtering: RefCell::new(&mut filtering),
            place: usize::MAX,
            callback: Callback::Start,
        };
        made.push(declared.start(&seat).map_err(|_| refused(false))?);
    }
    let tune = &client.worker.shared.plan.global.tune;
    filtering.add(own, made, tune.bufsize.saturating_sub(tune.maxrewrite).max(1));
    x.filtering = Some(filtering);
    tell(client, x, (Callback::Start, false), first).await
}

/// The response begins.
///
/// # Errors
/// One of the filters failed.
#[cold]
pub(crate) async fn begin_response(client: &mut Client, x: &mut Exchange) -> Result<(), Stop> {
    tell(client, x, (Callback::Start, true), 0).await
}

/// The head of a message is about to leave.
///
/// # Errors
/// One of the filters failed.
#[cold]
pub(crate) async fn heads(client: &mut Client, x: &mut Exchange, of_response: bool) -> Result<(), Stop> {
    let has_body = has_body(x, of_response);
    if let Some(filtering) = x.filtering.as_mut().filter(|_| !has_body) {
        filtering.end_at_once(of_response);
    }
    tell(client, x, (Callback::Headers, of_response), 0).await?;
    if has_body {
        return Ok(());
    }
    tell(client, x, (Callback::MessageEnd, of_response), 0).await
}

/// Whether payload follows a head.
fn has_body(x: &Exchange, of_response: bool) -> bool {
    match of_response {
        false => x.request_body.length != BodyLength::None && !x.request_body.is_dropped,
        true => {
            let is_bodiless = x.head_only || matches!(x.txn.response.status(), 204 | 304);
            x.response_body.length != BodyLength::None && !is_bodiless && !x.is_tunnel
        }
    }
}

/// Calls a function of all filters of a direction, from one on; one that waits is called again when it
/// asked for it.
async fn tell(
    client: &mut Client,
    x: &mut Exchange,
    (callback, of_response): (Callback, bool),
    first: usize,
) -> Result<(), Stop> {
    let mut at = first;
    loop {
        let Some(mut filtering) = x.filtering.take() else { return Ok(()) };
        let place = filtering.direction(of_response).order.get(at).copied();
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
/// receiver. What another filter codes is in chunks already.
#[cold]
pub(crate) fn frame(x: &mut Exchange, of_response: bool, length: BodyLength, is_coded: bool) -> BodyLength {
    let shown = shown(x, of_response, length, is_coded);
    if is_coded || shown == length {
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
        _ if is_coded => BodyLength::Chunked,
        Some(Some(bytes)) => BodyLength::Length(bytes),
        Some(None) => BodyLength::Chunked,
        None => length,
    }
}

/// The way of a body of this length, as its receiver sees it, through filters; `path` is the one without.
/// Notes what the receiver is promised.
pub(crate) fn path(x: &mut Exchange, of_response: bool, shown: BodyLength, path: Path) -> Path {
    let promised = match shown {
        BodyLength::Length(bytes) => Some(bytes),
        BodyLength::None | BodyLength::Chunked | BodyLength::UntilClose => None,
    };
    if let Some(filtering) = &mut x.filtering {
        filtering.begin(of_response, promised);
    }
    match (path, shown) {
        (Path::Verbatim, BodyLength::Chunked) => Path::Payload(Coding::Chunked),
        (Path::Verbatim, _) => Path::Payload(Coding::Bare),
        (path, _) => path,
    }
}

/// Both directions of a stream of TCP begin: those that filters see go through them.
#[cold]
pub(crate) fn begin_stream(x: &mut Exchange) {
    for of_response in [false, true] {
        if sees(x, of_response) {
            let path = path(x, of_response, BodyLength::UntilClose, Path::Verbatim);
            flow(x, of_response).start_filtered(BodyLength::UntilClose, path, Filters::with_scripts(None));
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

/// Shows filters what came in; says whether the direction has something to do then.
///
/// # Errors
/// One of them failed, or the body is not as long as its head says.
pub(crate) fn run(
    client: &Client,
    x: &mut Exchange,
    of_response: bool,
    context: &mut Context<'_>,
) -> Result<bool, FlowError> {
    if !flow(x, of_response).is_scripted() {
        return Ok(false);
    }
    let mut bytes = Vec::new();
    let came = flow(x, of_response).take_for_scripts(&mut bytes);
    let Some(mut filtering) = x.filtering.take() else { return Ok(false) };
    let woken = filtering.poll_woken(context);
    let passed = match (came, woken) {
        (None, false) => Ok(None),
        (came, _) => pass(client, x, &mut filtering, of_response, bytes, came.unwrap_or(false)).map(Some),
    };
    if woken {
        filtering.forget_woken();
    }
    if (woken || came.is_some()) && filtering.poll_woken(context) {
        // A filter asked for it just now.
        context.waker().wake_by_ref();
    }
    x.filtering = Some(filtering);
    let Some((bytes, is_over, is_full)) = passed.map_err(|_| FlowError::Filter)? else { return Ok(false) };
    flow(x, of_response).put_from_scripts(&bytes, is_over, is_full);
    // What is full is looked at again when a filter asks for it, or something passes.
    Ok(is_over || !bytes.is_empty() || came == Some(false) && !is_full)
}

fn flow(x: &mut Exchange, of_response: bool) -> &mut crate::flow::Flow {
    if of_response { &mut x.download } else { &mut x.upload }
}

/// Sends bytes through the filters of a direction: what comes out of the last, whether that is all, and
/// whether the first takes no more.
fn pass(
    client: &Client,
    x: &mut Exchange,
    filtering: &mut Filtering,
    of_response: bool,
    mut bytes: Vec<u8>,
    ended: bool,
) -> Result<(Vec<u8>, bool, bool), Fault> {
    let side = usize::from(of_response);
    let order = filtering.direction(of_response).order.clone();
    let (mut ended, mut is_full) = (ended, false);
    for (number, place) in order.into_iter().enumerate() {
        let Some(own) = filtering.filters.get_mut(place) else { continue };
        let part = &mut own.parts[side];
        part.payload.is_ended |= ended;
        if !part.payload.is_cut {
            part.payload.input.append(&mut bytes);
        }
        filter(client, x, filtering, place, of_response)?;
        let Some(own) = filtering.filters.get_mut(place) else { continue };
        let part = &mut own.parts[side];
        bytes = std::mem::take(&mut part.payload.output);
        ended = part.is_over;
        is_full |= number == 0 && part.payload.is_full();
    }
    let direction = filtering.direction(of_response);
    if let Some(left) = &mut direction.left {
        *left = left.checked_sub(bytes.len() as u64).ok_or_else(|| refused(of_response))?;
        if ended && *left > 0 {
            return Err(refused(of_response));
        }
    }
    Ok((bytes, ended, is_full))
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
