//! The integration tests: the real daemon between real peers and a scripted MANTYX.
//!
//! One binary, because each would link the whole daemon again. `#[cfg(test)]` on every module lets
//! its helpers unwrap, panic and print as tests do.

// The kit.
#[cfg(test)]
mod bridge;
mod budgets;
#[cfg(test)]
mod certs;
#[cfg(test)]
mod effects;
#[cfg(test)]
mod effects_harness;
#[cfg(test)]
mod frames;
#[cfg(test)]
mod gate;
#[cfg(test)]
mod haproxy;
#[cfg(test)]
mod harness;
#[cfg(test)]
mod http;
#[cfg(test)]
mod mantyx;
#[cfg(test)]
mod peers;
#[cfg(test)]
mod ports;
#[cfg(test)]
mod postgres;
#[cfg(test)]
mod process;
#[cfg(test)]
mod relay;
#[cfg(test)]
mod sse;
#[cfg(test)]
mod tls_front;
#[cfg(test)]
mod wait;

// The tests.
#[cfg(test)]
mod a2a_answers;
#[cfg(test)]
mod a2a_front;
#[cfg(test)]
mod a2a_peers;
#[cfg(test)]
mod a2a_readiness;
#[cfg(test)]
mod activation;
#[cfg(test)]
mod api;
#[cfg(test)]
mod approvals;
#[cfg(test)]
mod audit;
#[cfg(test)]
mod auth;
#[cfg(test)]
mod backend_tls;
mod callers;
#[cfg(test)]
mod calls;
#[cfg(test)]
mod cards;
#[cfg(test)]
mod catalogs;
mod children;
#[cfg(test)]
mod claims;
#[cfg(test)]
mod cli;
#[cfg(test)]
mod commands;
#[cfg(test)]
mod crash;
#[cfg(test)]
mod credentials;
#[cfg(test)]
mod deploy;
#[cfg(test)]
mod diagnoses;
#[cfg(test)]
mod drain;
#[cfg(test)]
mod durable;
#[cfg(test)]
mod elsewhere;
#[cfg(test)]
mod evals;
#[cfg(test)]
mod events;
#[cfg(test)]
mod faults;
#[cfg(test)]
mod framing;
#[cfg(test)]
mod gateway;
#[cfg(test)]
mod grpc;
#[cfg(test)]
mod guides;
#[cfg(test)]
mod h2;
#[cfg(test)]
mod half_read;
#[cfg(test)]
mod handed_over;
#[cfg(test)]
mod hang_ups;
#[cfg(test)]
mod hidden;
#[cfg(test)]
mod hostile;
#[cfg(test)]
mod instructions;
#[cfg(test)]
mod kit;
#[cfg(test)]
mod large_events;
#[cfg(test)]
mod local;
#[cfg(test)]
mod logins;
#[cfg(test)]
mod logs;
#[cfg(test)]
mod loom;
#[cfg(test)]
mod mcp_clients;
#[cfg(test)]
mod mcp_conformance;
#[cfg(test)]
mod mcp_server;
#[cfg(test)]
mod mcp_tasks;
#[cfg(test)]
mod metrics;
mod model_apis;
#[cfg(test)]
mod names;
#[cfg(test)]
mod nasty;
#[cfg(test)]
mod notify;
#[cfg(test)]
mod openapi;
#[cfg(test)]
mod otlp;
#[cfg(test)]
mod overload;
#[cfg(test)]
mod owners;
#[cfg(test)]
mod page;
#[cfg(test)]
mod param_headers;
#[cfg(test)]
mod pending;
#[cfg(test)]
mod permission;
#[cfg(test)]
mod pins;
#[cfg(test)]
mod postgres_setup;
#[cfg(test)]
mod program_starts;
#[cfg(test)]
mod proxy;
#[cfg(test)]
mod questions;
#[cfg(test)]
mod readers;
#[cfg(test)]
mod real_servers;
#[cfg(test)]
mod recorded_clients;
#[cfg(test)]
mod recovery;
#[cfg(test)]
mod redirects;
#[cfg(test)]
mod refused;
#[cfg(test)]
mod reload;
#[cfg(test)]
mod restarts;
mod results;
#[cfg(test)]
mod rules;
#[cfg(test)]
mod runs;
#[cfg(test)]
mod runtimes;
#[cfg(test)]
mod sdk;
#[cfg(test)]
mod secret_leaks;
#[cfg(test)]
mod selections;
#[cfg(test)]
mod sight;
#[cfg(test)]
mod size_limits;
#[cfg(test)]
mod slow;
#[cfg(test)]
mod ssrf;
#[cfg(test)]
mod starts;
#[cfg(test)]
mod storage;
#[cfg(test)]
mod streams;
#[cfg(test)]
mod syslog;
#[cfg(test)]
mod systemd;
#[cfg(test)]
mod tidy;
#[cfg(test)]
mod trace;
#[cfg(test)]
mod traced;
#[cfg(test)]
mod transports;
#[cfg(test)]
mod trust;
#[cfg(test)]
mod unresolved;
#[cfg(test)]
mod untrusted_events;
#[cfg(test)]
mod upstream_oauth;
#[cfg(test)]
mod upstream_tls;
#[cfg(test)]
mod verbatim;
mod views;
