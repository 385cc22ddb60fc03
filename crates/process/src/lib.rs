//! Process management: starting child processes, dropping privileges, signals, limits, and inherited descriptors.
//!
//! `unsafe` only in [`sys`]. Called by the binary and, for the programs that it starts, by `health`.

#![deny(unsafe_code)]

mod sys;

pub use sys::{
    Allocator, Forked, daemonize, descriptor_limit, drop_privileges, enter_user_namespace, fork,
    hold_signals, next_signal, raise_descriptor_limit, reserve_memory, return_memory, take_inherited,
    thread_cpu_time,
};
