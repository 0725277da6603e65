//! End-to-end tests through the real binaries, one file per flow.

mod llm_wire;
