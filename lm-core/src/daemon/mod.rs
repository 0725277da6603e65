//! The process: lifecycle, locks, the server loop.
