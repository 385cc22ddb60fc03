//! HTTP/1 messages and TCP streams: parsing, framing, forwarding, rules, PROXY headers.

mod bodies;
mod canonical;
mod connection_rules;
mod content_rules;
mod cookies;
mod forwarding;
mod framing;
mod glitches;
mod haterm;
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
