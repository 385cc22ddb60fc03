//! Stick tables, and the peers protocol.

mod fleet;
mod peers;
mod stick_tables;
mod sticky;
mod table_facts;
mod track;
