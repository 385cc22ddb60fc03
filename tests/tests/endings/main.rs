//! How requests and streams end. A test belongs to the file of the cause: the client in `client_aborts`, the server in
//! `server_faults`, rules, options and services in `own_answers`, an operator or a health check in `shutdowns`.

mod client_aborts;
mod faults;
mod own_answers;
mod retries;
mod server_faults;
mod shutdowns;
mod termination_events;
mod timers;
mod tunnels;
