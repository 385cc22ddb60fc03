//! Passes fuzzer input to `weir_tests::targets::discovery_documents`.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| weir_tests::targets::discovery_documents(bytes));
