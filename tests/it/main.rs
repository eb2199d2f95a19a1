//! The integration tests: the real daemon between real peers and a scripted MANTYX.
//!
//! One binary, because each would link the whole daemon again. The first block is the kit, the
//! second the tests. `#[cfg(test)]` on the kit lets it unwrap, panic and print as tests do.

#[cfg(test)]
mod bridge;
#[cfg(test)]
mod frames;
#[cfg(test)]
mod http;
#[cfg(test)]
mod mantyx;
#[cfg(test)]
mod peers;
#[cfg(test)]
mod process;
#[cfg(test)]
mod rig;
#[cfg(test)]
mod sse;
#[cfg(test)]
mod wait;

mod api;
mod calls;
mod faults;
mod hostile;
mod kit;
mod later;
mod names;
mod proxy;
mod streams;
mod tidy;
