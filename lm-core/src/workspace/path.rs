//! What a path's text alone says about it: refused before any call into the file system, or brought
//! into one form. Pure, and the rules of every platform can be tested on every other.

use thiserror::Error;

/// Whose rules a path follows.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum PathStyle {
    /// `/` separates, every letter counts.
    Unix,
    /// `\` and `/` separate, case does not count, drives have letters.
    Windows,
}

impl PathStyle {
    /// The rules of this platform.
    pub const NATIVE: Self = if cfg!(windows) { Self::Windows } else { Self::Unix };
}

/// Why a path is refused unseen.
#[derive(Clone, PartialEq, Eq, Debug, Error)]
pub enum PathRefusal {
    /// No path at all.
    #[error("the working directory is missing; give an absolute directory as `cwd`")]
    Empty,
    /// It would mean another directory in every process.
    #[error("`{0}` is not absolute; give an absolute directory")]
    Relative(String),
    /// Merely looking at it makes Windows log in at another machine.
    #[error("`{0}` is a network or device path, which is never opened; give a directory on a local drive")]
    Remote(String),
    /// Systems end a path there.
    #[error("the path has a NUL character in it; give an absolute directory")]
    Nul,
    /// A device on Windows, wherever it seems to lie.
    #[error("`{path}` has the reserved name `{name}` in it; give another directory")]
    Reserved {
        /// The path.
        path: String,
        /// The part of it that Windows takes for a device.
        name: String,
    },
}

/// The path in the one form its platform knows it by, without a trailing separator.
///
/// # Errors
/// Where it is not an absolute path to something local.
pub fn normalize(text: &str, style: PathStyle) -> Result<String, PathRefusal> {
    if text.trim().is_empty() {
        return Err(PathRefusal::Empty);
    }
    if text.contains('\0') {
        return Err(PathRefusal::Nul);
    }
    match style {
        PathStyle::Unix => normalize_unix(text),
        PathStyle::Windows => normalize_windows(text),
    }
}

fn normalize_unix(text: &str) -> Result<String, PathRefusal> {
    // A Windows path of any kind has no meaning here; the likely mistake is worth its own words.
    if text.starts_with("//") || text.starts_with("\\\\") || text.starts_with("\\??\\") {
        return Err(PathRefusal::Remote(text.to_owned()));
    }
    if !text.starts_with('/') {
        return Err(PathRefusal::Relative(text.to_owned()));
    }
    let trimmed = text.trim_end_matches('/');
    Ok(if trimmed.is_empty() { "/".into() } else { trimmed.to_owned() })
}

fn normalize_windows(text: &str) -> Result<String, PathRefusal> {
    let path = text.replace('/', "\\");
    let path = match path.strip_prefix(r"\\?\") {
        // Only a drive may follow the prefix: `UNC\…`, `GLOBALROOT\…` and `Volume{…}\…` lead elsewhere.
        Some(rest) if drive(rest).is_some() => rest.to_owned(),
        Some(_) => return Err(PathRefusal::Remote(text.to_owned())),
        None => path,
    };
    if path.starts_with(r"\\") || path.starts_with(r"\??\") {
        return Err(PathRefusal::Remote(text.to_owned()));
    }
    // Shells of the MSYS family write `/w/p` for `W:\p`.
    let mounted = path.strip_prefix('\\').filter(|_| text.starts_with('/'));
    let path = match mounted.map(|rest| rest.split_once('\\').unwrap_or((rest, ""))) {
        Some((letter, rest)) if letter.len() == 1 && letter.as_bytes()[0].is_ascii_alphabetic() => {
            format!("{letter}:\\{rest}")
        }
        _ => path,
    };
    let Some((letter, rest)) = drive(&path) else { return Err(PathRefusal::Relative(text.to_owned())) };
    let parts: Vec<&str> = rest.split('\\').filter(|part| !part.is_empty()).collect();
    if let Some(name) = parts.iter().find(|part| is_reserved(part)) {
        return Err(PathRefusal::Reserved { path: text.to_owned(), name: (*name).to_owned() });
    }
    Ok(format!("{}:\\{}", letter.to_ascii_uppercase(), parts.join("\\")))
}

/// Letter and rest of `w:\rest`; `w:rest` is relative to a directory that only one process knows.
fn drive(path: &str) -> Option<(char, &str)> {
    let letter = path.chars().next().filter(char::is_ascii_alphabetic)?;
    let rest = path[1..].strip_prefix(':')?;
    (rest.is_empty() || rest.starts_with('\\')).then_some((letter, rest))
}

/// Device names, with any extension, and anything with a colon (a stream of a file).
fn is_reserved(part: &str) -> bool {
    let stem = part.split('.').next().unwrap_or_default().trim_end().to_ascii_uppercase();
    let numbered = |prefix: &str| {
        stem.strip_prefix(prefix).is_some_and(|rest| rest.chars().count() == 1 && "123456789¹²³".contains(rest))
    };
    part.contains(':')
        || matches!(stem.as_str(), "CON" | "PRN" | "AUX" | "NUL" | "CONIN$" | "CONOUT$")
        || numbered("COM")
        || numbered("LPT")
}

/// What a canonical path is compared by: on Windows case does not count.
#[must_use]
pub fn comparable(canonical: &str, style: PathStyle) -> String {
    match style {
        PathStyle::Unix => canonical.to_owned(),
        PathStyle::Windows => canonical.to_lowercase(),
    }
}

#[cfg(test)]
mod tests {
    use super::{PathStyle::*, *};
    use proptest::prelude::*;

    #[test]
    fn every_spelling_of_a_windows_directory_is_one() {
        for spelling in
            [r"W:\p\q", r"w:\p\q", "W:/p/q", r"\\?\W:\p\q", "//?/w:/p/q", "/w/p/q", "/W/p/q/", r"W:\p\q\", "W:/p//q///"]
        {
            assert_eq!(normalize(spelling, Windows).as_deref(), Ok(r"W:\p\q"), "{spelling}");
        }
        for spelling in [r"c:\", "C:", "/c/", "/c", r"\\?\c:\"] {
            assert_eq!(normalize(spelling, Windows).as_deref(), Ok(r"C:\"), "{spelling}");
        }
        assert_eq!(comparable(r"W:\Pröj", Windows), comparable(r"W:\PRÖJ", Windows));
        assert_ne!(comparable("/Proj", Unix), comparable("/proj", Unix));
    }

    #[test]
    fn network_and_device_paths_are_refused_unseen() {
        for path in [
            r"\\10.0.0.1\s\x",
            "//10.0.0.1/s/x",
            r"\??\UNC\10.0.0.1\s",
            r"\\?\UNC\10.0.0.1\s",
            r"\\.\pipe\x",
            r"\\.\C:\x",
            r"\\?\GLOBALROOT\Device\x",
            r"\\?\Volume{1}\x",
            r"\\wsl$\Debian\home",
        ] {
            for style in [Unix, Windows] {
                assert!(matches!(normalize(path, style), Err(PathRefusal::Remote(_))), "{path} {style:?}");
            }
        }
        for path in [r"C:\ws\CON", r"C:\ws\nul.txt\x", r"C:\aux", r"C:\ws\com1", r"C:\ws\a:stream"] {
            assert!(matches!(normalize(path, Windows), Err(PathRefusal::Reserved { .. })), "{path}");
        }
        assert!(normalize(r"C:\ws\console\communal", Windows).is_ok());
    }

    #[test]
    fn what_is_not_absolute_is_refused() {
        for path in ["src", ".", "./x", "../x", "~", "~/x", "C:"] {
            assert!(matches!(normalize(path, Unix), Err(PathRefusal::Relative(_))), "{path}");
        }
        for path in ["src", r"..\x", r"C:x", r"\x\y", "~", "/home/me"] {
            assert!(matches!(normalize(path, Windows), Err(PathRefusal::Relative(_))), "{path}");
        }
        assert_eq!(normalize(" ", Unix), Err(PathRefusal::Empty));
        assert_eq!(normalize("/a\0b", Unix), Err(PathRefusal::Nul));
    }

    #[test]
    fn unix_paths_only_lose_their_last_separators() {
        assert_eq!(normalize("/a/ b\n/", Unix).as_deref(), Ok("/a/ b\n"));
        assert_eq!(normalize("/", Unix).as_deref(), Ok("/"));
        assert_eq!(normalize("/a\\b", Unix).as_deref(), Ok("/a\\b"));
    }

    proptest! {
        #[test]
        fn what_is_normal_stays_so(text in r"[\\/?.:a-cW~ \u{e9}]{0,12}") {
            for style in [Unix, Windows] {
                if let Ok(once) = normalize(&text, style) {
                    prop_assert_eq!(normalize(&once, style), Ok(once));
                }
            }
        }
    }
}
