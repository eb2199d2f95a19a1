//! What is remembered of conversations, and for how long.
