//! The runtime socket, the statistics and the metrics.

mod anonymized;
mod backends;
mod commands;
mod ctl;
mod explanations;
mod exposition;
mod frontends;
mod httpclient;
mod journal;
mod latency_histograms;
mod levels;
mod pausing;
mod profiling;
mod promtool;
mod rare_events;
mod running;
mod services;
mod show_errors;
mod show_info;
mod show_stat;
mod statistics_page;
mod streams;
mod suspicious_streams;
mod token_certificates;
