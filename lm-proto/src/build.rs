//! Which build of the product a process is, as a number that can be compared.

use std::{
    fmt,
    path::Path,
    str::FromStr,
    time::{SystemTime, UNIX_EPOCH},
};

use thiserror::Error;

/// A build: the version first, then the moment its daemon binary was made.
///
/// The order decides who may replace whom: a newer shim may replace an older daemon, never the
/// other way round. The stamp makes a rebuild of the same version newer, so that a developer's fresh
/// build is picked up; it is the modification time of the `lm-core` binary in whole seconds since
/// the Unix epoch, and 0 where that is unknown.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default)]
pub struct Build {
    /// `major << 32 | minor << 16 | patch`.
    pub version: u64,
    /// Seconds since the Unix epoch.
    pub stamp: u64,
}

impl Build {
    /// The build of this crate's version with the stamp of the daemon binary at `core`.
    #[must_use]
    pub fn of_core_binary(core: &Path) -> Self {
        let stamp = std::fs::metadata(core)
            .and_then(|metadata| metadata.modified())
            .ok()
            .and_then(|modified: SystemTime| modified.duration_since(UNIX_EPOCH).ok())
            .map_or(0, |age| age.as_secs());
        Self::with_stamp(stamp)
    }

    /// The build of this crate's version with a given stamp.
    #[must_use]
    pub fn with_stamp(stamp: u64) -> Self {
        Self { version: packed_version(env!("CARGO_PKG_VERSION")), stamp }
    }
}

impl fmt::Display for Build {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [major, minor, patch] =
            [32, 16, 0].map(|shift| self.version >> shift & if shift == 32 { 0xFFFF_FFFF } else { 0xFFFF });
        write!(formatter, "{major}.{minor}.{patch}-{}", self.stamp)
    }
}

/// Reads what [`Display`](fmt::Display) writes.
impl FromStr for Build {
    type Err = BuildNameError;

    fn from_str(name: &str) -> Result<Self, BuildNameError> {
        let (version, stamp) = name.rsplit_once('-').ok_or(BuildNameError)?;
        let build = Self { version: packed_version(version), stamp: stamp.parse().map_err(|_| BuildNameError)? };
        if build.to_string() == name { Ok(build) } else { Err(BuildNameError) }
    }
}

/// The text names no build.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
#[error("a build is named like `1.2.3-1700000000`")]
pub struct BuildNameError;

/// `1.2.3` (anything from a `-` or `+` on ignored) as a comparable number.
fn packed_version(version: &str) -> u64 {
    let release = version.split(['-', '+']).next().unwrap_or_default();
    let mut parts = release.split('.').map(|part| part.parse().unwrap_or(0_u64));
    let mut next = |limit: u64| parts.next().unwrap_or(0).min(limit);
    next(0xFFFF_FFFF) << 32 | next(0xFFFF) << 16 | next(0xFFFF)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_order_as_people_read_them() {
        let versions = ["0.0.9", "0.1.0", "0.1.10", "0.2.0", "1.0.0", "10.0.0"];
        let packed: Vec<u64> = versions.iter().map(|version| packed_version(version)).collect();
        assert!(packed.is_sorted_by(|left, right| left < right), "{packed:?}");
        assert_eq!(packed_version("1.2.3-rc.1"), packed_version("1.2.3"));
    }

    #[test]
    fn a_version_beats_any_stamp() {
        let old_but_rebuilt = Build { version: packed_version("0.1.0"), stamp: u64::MAX };
        let new = Build { version: packed_version("0.1.1"), stamp: 0 };
        assert!(new > old_but_rebuilt);
    }

    #[test]
    fn shows_version_and_stamp() {
        let build = Build { version: packed_version("1.20.3"), stamp: 7 };
        assert_eq!(build.to_string(), "1.20.3-7");
        assert_eq!("1.20.3-7".parse(), Ok(build));
        for other in ["", "1.20.3", "1.20-7", "1.20.3-", "1.20.3-7.old", "v1.20.3-7", "1.20.3-rc.1-7"] {
            assert_eq!(other.parse::<Build>(), Err(BuildNameError), "{other}");
        }
    }
}
