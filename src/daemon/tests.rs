//! The daemon as a whole, in a world that is made up.

mod simulation;
