//! How the process gives memory back.
//!
//! Left alone, the C library of most Linux systems keeps what a build of an index took: every thread
//! gets an arena of its own, and after the first large block even larger ones come from the arenas
//! and stay there. Only the allocator is spoken to in here.
#![cfg_attr(
    all(target_os = "linux", target_env = "gnu"),
    expect(unsafe_code, reason = "the allocator can only be told by a call of the C library")
)]

/// Makes large blocks go back to the system when they are freed. To be called before threads are
/// started; where the allocator is another one, nothing happens.
#[cfg(all(target_os = "linux", target_env = "gnu"))]
pub fn return_freed_memory() {
    /// Blocks from this size on are the system's, in bytes.
    const LARGE: libc::c_int = 256 << 10;
    /// Free memory kept at the top of an arena, in bytes.
    const KEPT: libc::c_int = 128 << 10;
    for (option, value) in [
        (libc::M_MMAP_THRESHOLD, LARGE),
        (libc::M_TRIM_THRESHOLD, KEPT),
        // The threads that compute are few, so they do not wait for each other.
        (libc::M_ARENA_MAX, 2),
    ] {
        // SAFETY: takes two numbers and refuses what it does not know; no other thread allocates yet.
        unsafe { libc::mallopt(option, value) };
    }
}

/// Makes large blocks go back to the system when they are freed. To be called before threads are
/// started; where the allocator is another one, nothing happens.
#[cfg(not(all(target_os = "linux", target_env = "gnu")))]
pub fn return_freed_memory() {}
