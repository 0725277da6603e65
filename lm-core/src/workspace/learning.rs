//! Learning from what the coding agent does with files: the file is read here, on this machine; what the
//! agent saw or wrote does not travel. Nothing of it costs a token until a question is about it. Blocks on
//! the file system.

use std::{io::ErrorKind, path::Path, sync::Arc, time::SystemTime};

use lm_proto::message::ObservationKind;

use super::companion::{Companion, look_of};
use crate::{
    files::{FileStamp, ReadError, WorkspaceFiles, nanoseconds},
    memory::{
        manifest::{Deed, Look},
        told::Standing,
    },
    settings::Settings,
};

/// What came of an observation.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Learned {
    /// The file is known as it is now.
    Known,
    /// What was known of it holds no longer, and what does is not known.
    Voided,
    /// It is none that is learned from: ignored, binary, secret, or not there.
    Skipped,
}

impl Companion {
    /// Takes in that the coding agent did something with a file, given relative to the root.
    pub(super) fn observed(
        &self,
        files: &WorkspaceFiles,
        path: &str,
        kind: ObservationKind,
        settings: &Settings,
    ) -> Learned {
        if files.is_left_out(Path::new(path)) {
            return Learned::Skipped;
        }
        let at = SystemTime::now();
        let path: Arc<str> = path.into();
        match files.read(Path::new(&*path), settings.passive_max_file_bytes) {
            Ok(file) => {
                self.observe(path, deed(kind), look_of(&file, at));
                self.remember(&file);
                Learned::Known
            }
            Err(error) => self.not_read(path, &error, kind, at),
        }
    }

    /// What cannot be read back is no longer what it was, where something was known of it.
    fn not_read(&self, path: Arc<str>, error: &ReadError, kind: ObservationKind, at: SystemTime) -> Learned {
        let is_gone = matches!(
            error,
            ReadError::Io { source, .. } if matches!(source.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory)
        );
        let was_known = self.knows(&path);
        let is_news = was_known || (is_gone && kind == ObservationKind::Removed);
        if !is_news {
            tracing::trace!(%error, "an observed file is not learned from");
            return Learned::Skipped;
        }
        let standing = if is_gone { Standing::Gone } else { Standing::Unreadable };
        let deed = if is_gone { Deed::Removed } else { deed(kind) };
        let look: Look<FileStamp> = Look { standing, whole: true, stamp: None, at_ns: nanoseconds(at) };
        self.observe(path, deed, look);
        Learned::Voided
    }
}

fn deed(kind: ObservationKind) -> Deed {
    match kind {
        ObservationKind::Read => Deed::Read,
        ObservationKind::Edited => Deed::Edited,
        ObservationKind::Removed => Deed::Removed,
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    struct Place {
        directory: tempfile::TempDir,
        companion: Companion,
    }

    impl Place {
        fn new() -> Self {
            let directory = tempfile::tempdir().unwrap();
            let root = directory.path().join("workspace");
            fs::create_dir(&root).unwrap();
            let companion = Companion::open(&root, &"ab".repeat(32), &directory.path().join("memory"));
            Self { directory, companion }
        }

        fn path(&self, name: &str) -> std::path::PathBuf {
            self.directory.path().join("workspace").join(name)
        }

        fn write(&self, name: &str, bytes: &[u8]) {
            fs::create_dir_all(self.path(name).parent().unwrap()).unwrap();
            fs::write(self.path(name), bytes).unwrap();
        }

        fn observed(&self, name: &str, kind: ObservationKind) -> Learned {
            let files = WorkspaceFiles::open(&self.path("")).unwrap();
            self.companion.observed(&files, name, kind, &Settings::default())
        }

        fn deeds(&self) -> Vec<(String, Deed)> {
            let gap = self.companion.gap(0);
            gap.deeds.into_iter().map(|(path, deed)| (path.to_string(), deed)).collect()
        }
    }

    #[test]
    fn what_is_read_and_edited_is_known() {
        let place = Place::new();
        place.write("src/a.rs", b"fn a() {}");
        assert_eq!(place.observed("src/a.rs", ObservationKind::Read), Learned::Known);
        place.write("src/a.rs", b"fn b() {}");
        assert_eq!(place.observed("src/a.rs", ObservationKind::Edited), Learned::Known);
        assert_eq!(place.deeds(), [("src/a.rs".to_owned(), Deed::Edited)]);
        let looks = place.companion.looks(["src/a.rs"].into_iter());
        let sha256 = looks[0].as_ref().unwrap().standing.sha256().unwrap().clone();
        assert_eq!(place.companion.text(&sha256).as_deref(), Some("fn b() {}"));
    }

    #[test]
    fn what_is_not_to_be_learned_is_not() {
        let place = Place::new();
        place.write(".gitignore", b"build/\n*.log\n");
        place.write(".livememoryignore", b"private/\n");
        place.write("build/out.rs", b"generated");
        place.write("a.log", b"log");
        place.write("private/plan.md", b"plan");
        place.write(".git/config", b"[core]");
        place.write("image.png", b"\x89PNG\0\0\0");
        place.write(".env", b"TOKEN=abc");
        for name in ["build/out.rs", "a.log", "private/plan.md", ".git/config", "image.png", ".env", "missing.rs"] {
            for kind in [ObservationKind::Read, ObservationKind::Edited] {
                assert_eq!(place.observed(name, kind), Learned::Skipped, "{name}");
            }
        }
        assert_eq!(place.deeds(), []);
    }

    #[test]
    fn an_edit_that_cannot_be_read_back_voids_what_was_known() {
        let place = Place::new();
        place.write("data.txt", b"text");
        place.observed("data.txt", ObservationKind::Read);
        place.write("data.txt", b"now\0binary");
        assert_eq!(place.observed("data.txt", ObservationKind::Edited), Learned::Voided);
        let standing = |name: &str| place.companion.looks([name].into_iter())[0].as_ref().unwrap().standing.clone();
        assert_eq!(standing("data.txt"), Standing::Unreadable);
        fs::remove_file(place.path("data.txt")).unwrap();
        assert_eq!(place.observed("data.txt", ObservationKind::Removed), Learned::Voided);
        assert_eq!(standing("data.txt"), Standing::Gone);
        assert_eq!(place.deeds(), [("data.txt".to_owned(), Deed::Removed)]);
    }

    #[test]
    fn a_large_file_is_known_in_part() {
        let place = Place::new();
        place.write("large.txt", "a line\n".repeat(60_000).as_bytes());
        assert_eq!(place.observed("large.txt", ObservationKind::Read), Learned::Known);
        let look = place.companion.looks(["large.txt"].into_iter())[0].clone().unwrap();
        assert!(!look.whole);
        assert_eq!(place.companion.text(look.standing.sha256().unwrap()), None, "a part is not taken for all of it");
    }
}
