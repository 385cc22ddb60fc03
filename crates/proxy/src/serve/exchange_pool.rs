//! Requests in progress. Their futures are in reused boxes, so that an idle connection is small and a request in the steady state
//! allocates nothing.

use std::cell::{Cell, RefCell};
use std::future::poll_fn;
use std::pin::Pin;
use std::task::{Context, Poll};

use runtime::pools::Pool;
use runtime::profile;
use runtime::usage::Measured;
use runtime::watchdog::{self, TaskName};
use runtime::{Boxed, Boxes};

use crate::client::{Client, ClientConnection};
use crate::exchange::{Arrival, Next};

/// Serves requests: the steps of [`http`](super::http), with the type of their future.
pub(crate) trait ServeExchange {
    /// Serves one request, and returns the client.
    type Exchange: Future<Output = (Boxed<Client>, Next)>;

    /// Starts serving the next request of `client`.
    fn serve(&self, client: Boxed<Client>, arrival: Arrival) -> Self::Exchange;
}

impl<M, F> ServeExchange for M
where
    M: Fn(Boxed<Client>, Arrival) -> F,
    F: Future<Output = (Boxed<Client>, Next)>,
{
    type Exchange = F;

    #[inline]
    fn serve(&self, client: Boxed<Client>, arrival: Arrival) -> F {
        self(client, arrival)
    }
}

/// A box for the future of a request.
type ExchangeSlot<F> = Pin<Box<Option<F>>>;

/// Boxes for the futures of requests in progress: as many as requests ever ran at the same time on this worker.
pub(crate) struct Exchanges<S: ServeExchange> {
    server: S,
    free: RefCell<Vec<ExchangeSlot<S::Exchange>>>,
    /// The number of boxes allocated.
    made: Cell<usize>,
    /// Boxes for the clients of streams, as many as there are futures. The client of a whole connection has a separate box.
    clients: Boxes<Client>,
}

impl<S: ServeExchange> Exchanges<S> {
    pub(super) fn new(server: S) -> Self {
        Self { server, free: RefCell::new(Vec::new()), made: Cell::new(0), clients: Boxes::default() }
    }

    /// Returns the statistics of the request boxes for `show pools`.
    pub(super) fn pool(&self) -> Pool {
        let free = self.free.borrow().len();
        Pool { name: "exchange", size: size_of::<Option<S::Exchange>>(), allocated: self.made.get(), free }
    }

    /// Returns the statistics of the stream boxes for `show pools`.
    pub(super) fn stream_pool(&self) -> Pool {
        self.clients.pool("stream")
    }

    /// Serves a request.
    // The exchange is started before it is awaited. Otherwise, the future of an idle connection would contain it.
    pub(super) fn run(
        &self,
        connection: ClientConnection,
        arrival: Arrival,
    ) -> impl Future<Output = (ClientConnection, Next)> {
        let mut running = self.begin(connection.into_client(), arrival);
        async move {
            let (client, next) = poll_fn(|context| running.poll(context)).await;
            self.end(running);
            (ClientConnection::of_client(client), next)
        }
    }

    /// Starts a request in a free box.
    #[inline]
    pub(super) fn begin(&self, client: Boxed<Client>, arrival: Arrival) -> RunningRequest<S::Exchange> {
        let mut slot = self.free.borrow_mut().pop().unwrap_or_else(|| {
            self.made.set(self.made.get() + 1);
            Box::pin(None)
        });
        let task = task_of(&client);
        slot.set(Some(self.server.serve(client, arrival)));
        // Boxed for the same reason as above.
        let measure = profile::measures().then(|| Box::new(Measured::new("exchange")));
        RunningRequest { slot, task, measure }
    }

    /// Like [`begin`](Self::begin), with one stream of a connection as the client.
    pub(super) fn begin_stream(&self, client: Client, arrival: Arrival) -> RunningRequest<S::Exchange> {
        self.begin(self.clients.put(client), arrival)
    }

    /// Takes back the boxes of a stream that has ended.
    pub(super) fn end_stream(&self, client: Boxed<Client>, running: RunningRequest<S::Exchange>) {
        self.clients.take_back(client);
        self.end(running);
    }

    /// Takes back the box of a request that has ended.
    #[inline]
    pub(super) fn end(&self, running: RunningRequest<S::Exchange>) {
        let mut slot = running.slot;
        slot.set(None);
        self.free.borrow_mut().push(slot);
    }
}

/// A request in progress.
pub(super) struct RunningRequest<F> {
    slot: ExchangeSlot<F>,
    task: TaskName,
    measure: Option<Box<Measured>>,
}

impl<F: Future> RunningRequest<F> {
    #[inline]
    pub(super) fn poll(&mut self, context: &mut Context<'_>) -> Poll<F::Output> {
        match (self.slot.as_mut().as_pin_mut(), &mut self.measure) {
            (Some(future), None) => watchdog::during(self.task, || future.poll(context)),
            (Some(future), Some(measure)) => {
                watchdog::during(self.task, || measure.poll(context, |context| future.poll(context)))
            }
            (None, _) => Poll::Pending,
        }
    }
}

/// Returns the name of the connection's task for the watchdog.
pub(super) fn task_of(connection: &Client) -> TaskName {
    TaskName::Stream { proxy: connection.frontend.index as u32, session: connection.session.id as u32 }
}
