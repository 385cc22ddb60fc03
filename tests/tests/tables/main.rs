//! Stick tables, and the peers protocol.

mod dns_members;
mod fleet;
mod fleet_limit;
mod owners;
mod peers;
mod stick_tables;
mod sticky;
mod table_facts;
mod track;
