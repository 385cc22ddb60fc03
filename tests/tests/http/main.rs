//! Messages of HTTP/1 and TCP streams on their way: parsing, framing, forwarding, rules, PROXY headers.

mod bodies;
mod canonical;
mod connection_rules;
mod content_rules;
mod cookies;
mod forwarding;
mod framing;
mod glitches;
mod hosts;
mod identities;
mod malformed;
mod message_rules;
mod mirror;
mod options;
mod proxy_headers;
mod proxying;
mod reverse_http;
mod serving;
mod survival;
mod trickles;
mod variables;
