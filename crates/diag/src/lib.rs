//! Spans, severities, diagnostics, suggestions, and how they are shown.

#![forbid(unsafe_code)]
