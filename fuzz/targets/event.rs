//! Fuzzes `mantyx_bridge_fuzz::event`.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| mantyx_bridge_fuzz::event(data));
