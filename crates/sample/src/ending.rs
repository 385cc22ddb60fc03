//! How a stream and its connections ended, in the notation of `term_events`: the events of each layer in order.
//!
//! Only the reason for the stream's end and the fate of both connections are stored; the events of the layers are derived when
//! needed. A letter names the layer: the connection (`f`), its protocol (`m`), the protocol's stream (`e`), the proxy's stream
//! (`s`). Upper case is the server side. A digit names the event: closed locally (1), closed by the peer (2), read error (3), write
//! error (4), premature end (5) or error (6) within the message, timeout (7), intercepted by a rule (8), invalid message (9),
//! internal error (A). For a connection, 7 also means refused.

use crate::value::Scratch;

/// The reason for a stream's end.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[repr(u8)]
#[allow(missing_docs)]
pub enum StreamEnd {
    /// Still open.
    #[default]
    None,
    // Closed before a request.
    NoRequest,
    ClosedSilently,
    ResetSilently,
    HeadCut,
    HeadReset,
    BadHead,
    // Ended by the proxy.
    Whole,
    Denied,
    ResponseDenied,
    Service,
    Killed,
    NoServer,
    BadRequest,
    BadRequestBody,
    Internal,
    // Ended by the client.
    ClientLeft,
    ClientReset,
    ClientCut,
    ClientCutReset,
    ClientUnwritable,
    ClientTimeout,
    ClientStalled,
    TarpitLeft,
    TarpitReset,
    // Ended by the server.
    ServerEnd,
    ServerEndReset,
    ServerCut,
    ServerReset,
    ServerHeadCut,
    ServerHeadReset,
    BadResponse,
    ServerTimeout,
    Refused,
    // Tunnels that were closed in both directions, by the side that closed first.
    TunnelByClient,
    TunnelByServer,
    TunnelClientReset,
    TunnelServerReset,
    TunnelTimeout,
    TunnelClientTimeout,
    TunnelServerTimeout,
    RelayClientReset,
    RelayServerReset,
    HalfServerTimeout,
    HalfClientTimeout,
}

/// The fate of a connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum ConnectionOutcome {
    /// There was no connection.
    #[default]
    None,
    /// The connection is in use, or kept for other requests.
    Kept,
    /// Closed locally.
    Closed,
    /// The connection attempt failed.
    Failed,
}

/// The end of a stream and its connections.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Ending {
    /// The stream's end.
    pub end: StreamEnd,
    /// Whether the client connection was closed locally.
    pub client_closed: bool,
    /// The server connection.
    pub server: ConnectionOutcome,
}

/// The events of the seven layers, without the events that the final close of a connection causes.
struct EndingRow(StreamEnd, [&'static str; 7]);

#[rustfmt::skip]
const ROWS: &[EndingRow] = &[
    //                           client            stream               server
    //                           f     m     e     s           E       M     F
    EndingRow(StreamEnd::None,              ["",   "",   "",   "",         "",     "",   ""]),
    EndingRow(StreamEnd::NoRequest,         ["",   "",   "-",  "-",        "-",    "-",  "-"]),
    EndingRow(StreamEnd::ClosedSilently,    ["f2", "m2", "-",  "-",        "-",    "-",  "-"]),
    EndingRow(StreamEnd::ResetSilently,     ["f3", "m3", "-",  "-",        "-",    "-",  "-"]),
    EndingRow(StreamEnd::HeadCut,           ["f2", "m5", "-",  "-",        "-",    "-",  "-"]),
    EndingRow(StreamEnd::HeadReset,         ["f3", "m6", "-",  "-",        "-",    "-",  "-"]),
    EndingRow(StreamEnd::BadHead,           ["",   "m9", "-",  "-",        "-",    "-",  "-"]),
    EndingRow(StreamEnd::Whole,             ["",   "",   "",   "s1S1",     "",     "",   ""]),
    EndingRow(StreamEnd::Denied,            ["",   "",   "",   "s8S1s1",   "",     "",   ""]),
    EndingRow(StreamEnd::ResponseDenied,    ["",   "",   "",   "S8S1s1",   "",     "",   ""]),
    EndingRow(StreamEnd::Service,           ["",   "",   "",   "S2S1s1",   "E2E1", "",   ""]),
    EndingRow(StreamEnd::Killed,            ["",   "",   "",   "S1s1",     "",     "",   ""]),
    EndingRow(StreamEnd::NoServer,          ["",   "",   "",   "S1s1",     "",     "",   ""]),
    EndingRow(StreamEnd::BadRequest,        ["",   "",   "",   "s9S1s1",   "",     "",   ""]),
    EndingRow(StreamEnd::BadRequestBody,    ["",   "",   "e9", "s6s1s9S1", "",     "",   ""]),
    EndingRow(StreamEnd::Internal,          ["",   "",   "",   "sAS1s1",   "",     "",   ""]),
    EndingRow(StreamEnd::ClientLeft,        ["f2", "m2", "e2", "s2S1s1",   "",     "",   ""]),
    EndingRow(StreamEnd::ClientReset,       ["f3", "",   "",   "s3s1S1",   "",     "",   ""]),
    EndingRow(StreamEnd::ClientCut,         ["f2", "m5", "e5", "s5s1S1",   "",     "",   ""]),
    EndingRow(StreamEnd::ClientCutReset,    ["f3", "m6", "e6", "s5s1S1",   "",     "",   ""]),
    EndingRow(StreamEnd::ClientUnwritable,  ["fAf3", "m4", "", "s3s1S1",   "",     "",   ""]),
    EndingRow(StreamEnd::ClientTimeout,     ["",   "",   "",   "s7S1s1",   "",     "",   ""]),
    EndingRow(StreamEnd::ClientStalled,     ["",   "",   "",   "s7s1S1",   "",     "",   ""]),
    EndingRow(StreamEnd::TarpitLeft,        ["f2", "m2", "e2", "s8s2s8S1", "",     "",   ""]),
    EndingRow(StreamEnd::TarpitReset,       ["f3", "",   "",   "s8s3s8S1", "",     "",   ""]),
    EndingRow(StreamEnd::ServerEnd,         ["",   "",   "",   "S2s1",     "E2",   "M2", "F2"]),
    EndingRow(StreamEnd::ServerEndReset,    ["",   "",   "",   "S2s1",     "E3",   "M3", "F3"]),
    EndingRow(StreamEnd::ServerCut,         ["",   "",   "",   "S5s1",     "E5",   "M5", "F2"]),
    EndingRow(StreamEnd::ServerReset,       ["",   "",   "",   "S5s1",     "E6",   "M6", "F3"]),
    EndingRow(StreamEnd::ServerHeadCut,     ["",   "",   "",   "S5S9s1",   "E5",   "M5", "F2"]),
    EndingRow(StreamEnd::ServerHeadReset,   ["",   "",   "",   "S5S9s1",   "E6",   "M6", "F3"]),
    EndingRow(StreamEnd::BadResponse,       ["",   "",   "",   "S6S1S9s1", "E9",   "",   ""]),
    EndingRow(StreamEnd::ServerTimeout,     ["",   "",   "",   "S7S1s1",   "",     "",   ""]),
    EndingRow(StreamEnd::Refused,           ["",   "",   "",   "S1s1",     "",     "",   "F7"]),
    EndingRow(StreamEnd::TunnelByClient,    ["f2", "m2", "e2", "s2S1S2s1", "E1E2", "M1M2M1", "F1F2"]),
    EndingRow(StreamEnd::TunnelByServer,    ["f1f2", "m1m2m1", "e1e2", "S2s1s2S1", "E2", "M2", "F2"]),
    EndingRow(StreamEnd::TunnelClientReset, ["f3", "m3", "e3", "s2s1S1",   "",     "",   ""]),
    EndingRow(StreamEnd::TunnelServerReset, ["",   "",   "",   "S2S1s1",   "E3",   "M3", "F3"]),
    EndingRow(StreamEnd::TunnelTimeout,     ["",   "",   "",   "s7S7S1s1", "",     "",   ""]),
    EndingRow(StreamEnd::TunnelClientTimeout, ["", "",   "",   "s7S1s1",   "",     "",   ""]),
    EndingRow(StreamEnd::TunnelServerTimeout, ["", "",   "",   "S7S1s1",   "",     "",   ""]),
    EndingRow(StreamEnd::RelayClientReset,  ["f3", "m3", "e3", "s5s1S1",   "",     "",   ""]),
    EndingRow(StreamEnd::RelayServerReset,  ["",   "",   "",   "S5S1s1",   "",     "M3", "F3"]),
    EndingRow(StreamEnd::HalfServerTimeout, ["f2", "m2", "e2", "s2S1S7s1", "",     "",   ""]),
    EndingRow(StreamEnd::HalfClientTimeout, ["",   "",   "",   "S2s1s7S1", "E2",   "M2", "F2"]),
];

impl Ending {
    /// The events as `{f,m,e,s,E,M,F}`. TCP streams have no multiplexed protocol, so for those layers only the close is shown.
    pub(crate) fn events(self, is_http: bool) -> Scratch {
        let layers = ROWS.iter().find(|row| row.0 == self.end).map_or([""; 7], |row| row.1);
        let mut text = Scratch::default();
        for (index, events) in layers.iter().enumerate() {
            text.push(if index == 0 { b'{' } else { b',' });
            let had_stream = layers[3] != "-";
            self.layer(index, events, is_http, had_stream, &mut text);
        }
        text.push(b'}');
        text
    }

    fn layer(self, index: usize, events: &str, is_http: bool, had_stream: bool, text: &mut Scratch) {
        let over = self.end != StreamEnd::None && had_stream;
        let is_stream = matches!(index, 2 | 4);
        if events == "-" || index > 4 && self.server == ConnectionOutcome::None {
            return text.push(b'-');
        }
        if is_http || !is_stream {
            text.extend_from_slice(events.as_bytes());
        }
        let closed = match index {
            2 => over,
            4 => {
                !events.is_empty() && is_http
                    || over && matches!(self.server, ConnectionOutcome::Kept | ConnectionOutcome::Closed)
            }
            0 | 1 => over && self.client_closed,
            5 | 6 => over && self.server == ConnectionOutcome::Closed,
            _ => false,
        };
        let closing = ["f1", "m1", "e1", "", "E1", "M1", "F1"].get(index).copied();
        let Some(closing) = closing.filter(|_| closed) else { return };
        // A broken connection is not closed again. The layer that saw the first close shows it.
        let broke = matches!(index, 0 | 6) && events.ends_with('3');
        let is_reported = events.as_bytes().chunks(2).any(|event| event == closing.as_bytes());
        if !broke && (!is_reported || !is_http && is_stream) {
            text.extend_from_slice(closing.as_bytes());
        }
    }
}
