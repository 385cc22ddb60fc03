//! Values, fetches, converters, ACLs, variables and log formats.

#![forbid(unsafe_code)]
