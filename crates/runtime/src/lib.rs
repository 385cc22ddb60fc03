//! Workers, mailboxes, lazy deadlines, per-thread counters and the buffer pool.

#![forbid(unsafe_code)]
