//! Fuzzes `mantyx_bridge_fuzz::journal`.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| mantyx_bridge_fuzz::journal(data));
