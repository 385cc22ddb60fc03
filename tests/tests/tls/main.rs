//! TLS on both sides, certificates, ACME and OCSP.

mod acme;
mod acme_pebble;
mod both_sides;
mod choices;
mod early;
mod elsewhere;
mod expiry;
mod facts;
mod generated;
mod hello;
mod hostile;
mod introduced;
mod legacy;
mod limits;
mod lists;
mod ocsp;
mod renegotiation;
mod runtime;
mod runtime_trust;
mod shown;
mod stores;
mod words;
