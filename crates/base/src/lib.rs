//! Clock, time and size units, addresses and hashes: what three or more rooms use and that knows no word of the domain.

#![forbid(unsafe_code)]
