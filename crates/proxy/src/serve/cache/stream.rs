//! Sends a response piece by piece, either while another request still fetches it (`collapsed-forwarding`), or from its file
//! (`disk`). `answer` has already prepared its head. A truncated body is reported to the client and in the log. Called by
//! `reply`.

use cache::Piece;
use runtime::timer::now_ms;
use sample::transaction::TimeoutSlot;
use sample::{Cause, Phase};

use crate::client::{Client, Watch};
use crate::exchange::Exchange;
use crate::fault::Fault;
use crate::serve::sending;

/// Sends the head of the response, and its body as it becomes available.
///
/// # Errors
/// The client does not accept the response, or the rest of the response does not arrive.
pub(crate) async fn send_body(client: &mut Client, x: &mut Exchange) -> Result<(), Fault> {
    sending::begin_reply(client, x);
    let sent = send_pieces(client, x).await;
    if let Err(fault) = sent
        && !matches!(fault, Fault::ClientAborted)
    {
        // Prevents the client from treating a truncated body as complete.
        client.side.reset();
    }
    sending::end_reply(client, x, sent)
}

async fn send_pieces(client: &mut Client, x: &mut Exchange) -> Result<(), Fault> {
    let allowed = x.timeout(TimeoutSlot::Client, client.frontend.timeouts.client);
    let backend = x.backend.clone().unwrap_or_else(|| client.frontend.clone());
    // The request that fetches the response has the same timeout for each piece.
    let silent = x.timeout(TimeoutSlot::Server, backend.timeouts.server);
    let leaving = x.aborts_on_close(client, &backend);
    let Some(mut own) = x.reply.feed.take() else { return Err(Fault::Internal) };
    if x.download.is_received() {
        // Only the head of the response is sent.
        x.reply.close();
        return sending::pump(client, x, allowed).await;
    }
    loop {
        client.timer.set_after(now_ms(), silent);
        let watch = Watch { leaving, late: Fault::ServerTimeout };
        match client.wait(watch, |_, context| own.0.poll_piece(context)).await? {
            Piece::Bytes(bytes, range) => {
                x.reply.put(&bytes[range]);
                drop(bytes);
                sending::pump(client, x, allowed).await?;
            }
            Piece::End => {
                x.reply.close();
                return sending::pump(client, x, allowed).await;
            }
            Piece::Cut => {
                // The available part is sent before the connection is closed.
                let _ = sending::pump(client, x, allowed).await;
                (x.txn.termination.cause, x.txn.termination.phase) = (Cause::Server, Phase::Data);
                return Err(Fault::Truncated);
            }
        }
    }
}
