//! Load-balancing algorithms, persistence and queueing policy: pure.

#![forbid(unsafe_code)]
