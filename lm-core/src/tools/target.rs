//! The paths that a model names.

use std::path::{Component, Path, PathBuf};

use super::ToolError;
use crate::files::display_path;

/// The longest path that is looked at, in bytes; systems allow no longer ones.
const LONGEST: usize = 4096;

/// A path relative to the root, without `.` and `..`; empty for the root itself. Absolute paths inside
/// the root and relative ones are both understood. This is spelling alone: what a link leads to is
/// settled where files are opened.
pub(super) fn inside(root: &Path, text: &str) -> Result<PathBuf, ToolError> {
    if text.len() > LONGEST {
        return Err(ToolError(format!("the path is {} bytes long, {LONGEST} are allowed", text.len())));
    }
    if text.contains('\0') {
        return Err(ToolError("the path holds a NUL character, which no path can".into()));
    }
    let given = Path::new(plain(text));
    let relative = if given.is_absolute() || given.has_root() {
        let root = root.to_string_lossy();
        strip(given, Path::new(plain(&root))).ok_or_else(|| outside(given))?
    } else {
        given.to_path_buf()
    };
    let mut path = PathBuf::new();
    for part in relative.components() {
        match part {
            Component::Normal(part) => path.push(part),
            Component::CurDir => {}
            Component::ParentDir => {
                if !path.pop() {
                    return Err(outside(given));
                }
            }
            Component::RootDir | Component::Prefix(_) => return Err(outside(given)),
        }
    }
    Ok(path)
}

fn outside(path: &Path) -> ToolError {
    ToolError(format!("`{}` is not inside the workspace; give a path relative to its root", display_path(path)))
}

/// Without the prefix that Windows puts before the full form of a path.
fn plain(path: &str) -> &str {
    if cfg!(windows) { path.strip_prefix(r"\\?\").unwrap_or(path) } else { path }
}

/// What follows `root`; on Windows letter case does not matter.
fn strip(path: &Path, root: &Path) -> Option<PathBuf> {
    if !cfg!(windows) {
        return path.strip_prefix(root).ok().map(Path::to_path_buf);
    }
    let mut parts = path.components();
    for wanted in root.components() {
        let part = parts.next()?;
        if part.as_os_str().to_string_lossy().to_lowercase() != wanted.as_os_str().to_string_lossy().to_lowercase() {
            return None;
        }
    }
    Some(parts.as_path().to_path_buf())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[cfg(unix)]
    #[test]
    fn paths_inside_are_understood() {
        for (text, expected) in [
            ("src/a.rs", "src/a.rs"),
            ("./src//a.rs", "src/a.rs"),
            ("/ws/src/a.rs", "src/a.rs"),
            ("/ws", ""),
            ("/ws/", ""),
            (".", ""),
            ("src/../b", "b"),
            ("/ws/src/../../ws/a", "a"),
        ] {
            let found = inside(Path::new("/ws"), text);
            if text.contains("../../ws") {
                // Leaves the root on the way.
                assert!(found.is_err(), "{text}");
            } else {
                assert_eq!(found, Ok(PathBuf::from(expected)), "{text}");
            }
        }
    }

    #[test]
    fn paths_outside_are_refused() {
        for text in ["..", "../x", "a/../../x", "/etc/passwd", "/wsx/a", "a\0b"] {
            assert!(inside(Path::new("/ws"), text).is_err(), "{text:?}");
        }
        assert!(inside(Path::new("/ws"), &"a/".repeat(3000)).is_err());
    }

    #[cfg(windows)]
    #[test]
    fn windows_spellings_are_understood() {
        let root = Path::new(r"\\?\C:\Work\ws");
        assert_eq!(inside(root, r"c:\work\WS\src\a.rs"), Ok(PathBuf::from(r"src\a.rs")));
        assert_eq!(inside(root, "C:/Work/ws/src/a.rs"), Ok(PathBuf::from(r"src\a.rs")));
        assert!(inside(root, r"D:\Work\ws\a").is_err());
    }
}
