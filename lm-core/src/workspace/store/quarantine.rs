//! Where files go that cannot be used: kept for a person to look at, bounded in number and bytes.

use std::{
    fmt, io,
    path::{Path, PathBuf},
    time::{SystemTime, UNIX_EPOCH},
};

use lm_proto::directory::create_private;

use super::disk;

/// Files that are kept.
const NUMBER_MAX: usize = 8;
/// Bytes that are kept: two generations of journal and snapshot at their largest. The newest one stays however large it is.
const BYTES_MAX: u64 = 128 << 20;

/// Something that could not be used as it was found.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SetAside {
    /// Where it was found.
    pub file: PathBuf,
    /// What is wrong with it, as the end of a sentence that begins with its name.
    pub reason: String,
    /// Where it lies now, if it was worth keeping and could be moved.
    pub kept_as: Option<PathBuf>,
    /// What is used in its place, as a sentence.
    pub instead: String,
}

impl fmt::Display for SetAside {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "`{}` {}; ", self.file.display(), self.reason)?;
        if let Some(kept_as) = &self.kept_as {
            write!(formatter, "it is kept as `{}`; ", kept_as.display())?;
        }
        formatter.write_str(&self.instead)
    }
}

/// The directory for what cannot be used.
#[derive(Debug)]
pub(super) struct Quarantine {
    directory: PathBuf,
}

impl Quarantine {
    pub(super) fn new(directory: PathBuf) -> Self {
        Self { directory }
    }

    /// Moves whatever lies at `path` here.
    pub(super) fn take(&self, path: &Path) -> io::Result<PathBuf> {
        let place = self.place(path)?;
        disk::rename(path, &place)?;
        self.trim(&place);
        Ok(place)
    }

    /// Moves it here and says so; where that cannot be done, this is a reason more.
    pub(super) fn set_aside(&self, path: &Path, mut reason: String, instead: &str) -> SetAside {
        let kept_as = self.take(path);
        if let Err(error) = &kept_as {
            reason = format!("{reason} and cannot be set aside ({error})");
        }
        SetAside { file: path.to_path_buf(), reason, kept_as: kept_as.ok(), instead: instead.to_owned() }
    }

    /// Keeps the file at `path` here as well.
    pub(super) fn copy(&self, path: &Path) -> io::Result<PathBuf> {
        let place = self.place(path)?;
        disk::link_or_copy(path, &place)?;
        self.trim(&place);
        Ok(place)
    }

    /// A free name for a file that goes here.
    fn place(&self, path: &Path) -> io::Result<PathBuf> {
        let name = path.file_name().and_then(|name| name.to_str()).unwrap_or("unnamed");
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
        match create_private(&self.directory) {
            // Something else lies in the way; it is the first to go here.
            Err(error) if error.kind() == io::ErrorKind::NotADirectory => {
                let aside = self.directory.with_extension(now.to_string());
                disk::rename(&self.directory, &aside)?;
                create_private(&self.directory)?;
                disk::rename(&aside, &self.directory.join(format!("quarantine.{now}")))?;
            }
            result => result?,
        }
        let same_second = format!("{name}.{now}");
        let taken = disk::names(&self.directory)?.into_iter().filter_map(|other| {
            let rest = other.strip_prefix(&same_second)?;
            rest.strip_prefix('-').map_or(Some(0), |number| number.parse::<u64>().ok())
        });
        Ok(self.directory.join(match taken.max() {
            None => same_second,
            Some(number) => format!("{same_second}-{}", number.saturating_add(1)),
        }))
    }

    /// Removes the oldest until what is left is within bounds.
    fn trim(&self, newest: &Path) {
        let names = disk::names(&self.directory).unwrap_or_default();
        let mut kept: Vec<_> = names
            .into_iter()
            .map(|name| {
                let path = self.directory.join(&name);
                (age(&name), disk::size(&path), path)
            })
            .filter(|(.., path)| path != newest)
            .collect();
        kept.sort();
        let mut bytes = kept.iter().fold(disk::size(newest), |sum, (_, size, _)| sum.saturating_add(*size));
        let mut number = kept.len() + 1;
        for (_, size, path) in kept {
            if number <= NUMBER_MAX && bytes <= BYTES_MAX {
                break;
            }
            match disk::remove(&path) {
                Ok(()) => (number, bytes) = (number - 1, bytes.saturating_sub(size)),
                Err(error) => tracing::warn!(%error, file = %path.display(), "cannot remove what was set aside"),
            }
        }
    }
}

/// When a file was set aside, as its name says; what is named otherwise is the oldest.
fn age(name: &str) -> (u64, u64) {
    let stamp = name.rsplit('.').next().unwrap_or_default();
    let (time, number) = stamp.split_once('-').unwrap_or((stamp, "0"));
    match (time.parse(), number.parse()) {
        (Ok(time), Ok(number)) => (time, number),
        _ => (0, 0),
    }
}
