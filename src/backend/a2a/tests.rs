//! The A2A backend against an agent that does what a test says.
