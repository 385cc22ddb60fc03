//! The process: arguments, signals, reloads, privileges, limits, memory, system calls.

mod arguments;
mod calls;
mod confinement;
mod haterm;
mod health;
mod kernel;
mod limits;
mod memory;
mod messages;
mod reload;
mod reload_differences;
mod reload_in_place;
mod server_states;
mod shared_counters;
mod signals;
mod soft_stop;
