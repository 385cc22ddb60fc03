//! Claims about whole checks.
