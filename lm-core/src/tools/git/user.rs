//! What the user's own git configuration says about files.
//!
//! How lines end and which files are ignored everywhere is set there, and without it clean files would
//! show as changed. Its files are read for these values alone: repositories are opened without them.

use std::{
    env, fs,
    path::{Path, PathBuf},
};

use gix::{
    bstr::BString,
    config::{
        File, Source,
        file::{Metadata, includes, init},
        path::interpolate,
    },
    refs::FullName,
};

/// The longest file of configuration that is read, in bytes.
const CONFIGURATION_CAP: u64 = 1 << 20;
/// Values that are texts.
const TEXTS: &[&str] = &["core.autocrlf", "core.eol"];
/// Values that are paths.
const PATHS: &[&str] = &["core.excludesFile", "core.attributesFile"];

/// Where the user's git configuration lies.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct GitUser {
    /// The home directory, for paths that begin with `~/`.
    pub home: Option<PathBuf>,
    /// The user's directory of git configuration, as `~/.config/git`.
    pub directory: Option<PathBuf>,
    /// Configuration files, weakest first; missing ones are passed over.
    pub files: Vec<PathBuf>,
}

impl GitUser {
    /// Where git itself looks: the places of the system and of the user.
    #[must_use]
    pub fn from_environment() -> Self {
        let absolute = |name: &str| env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
        let home = absolute("HOME").or_else(dirs::home_dir);
        let directory = absolute("XDG_CONFIG_HOME")
            .or_else(|| home.as_ref().map(|home| home.join(".config")))
            .map(|directory| directory.join("git"));
        let mut files = Vec::new();
        if cfg!(windows) {
            // Git for Windows sets core.autocrlf there.
            files.extend(absolute("ProgramFiles").map(|programs| programs.join("Git").join("etc").join("gitconfig")));
            files.extend(absolute("ProgramData").map(|data| data.join("Git").join("config")));
        } else {
            files.push(PathBuf::from("/etc/gitconfig"));
        }
        files.extend(directory.as_ref().map(|directory| directory.join("config")));
        files.extend(home.as_ref().map(|home| home.join(".gitconfig")));
        Self { home, directory, files }
    }

    /// The values that hold in a repository, as `key=value`, but for those it sets itself.
    pub(super) fn overrides(&self, git_dir: &Path, branch: Option<&FullName>, own: &File) -> Vec<BString> {
        let configuration = self.load(git_dir, branch);
        let context =
            interpolate::Context { git_install_dir: None, home_dir: self.home.as_deref(), home_for_user: None };
        let mut overrides = Vec::new();
        let mut set = |key: &str, value: &[u8]| {
            let mut text = BString::from(format!("{key}="));
            text.extend_from_slice(value);
            overrides.push(text);
        };
        for key in TEXTS.iter().filter(|key| own.string(**key).is_none()) {
            if let Some(value) = configuration.as_ref().and_then(|file| file.string(*key)) {
                set(key, &value);
            }
        }
        for key in PATHS {
            let configured = configuration
                .as_ref()
                .and_then(|file| file.path(*key))
                .and_then(|path| path.interpolate(context).ok())
                .filter(|path| path.is_absolute());
            // Where nothing is said, git looks for these.
            let standard = if *key == "core.excludesFile" { "ignore" } else { "attributes" };
            let path = configured.or_else(|| self.directory.as_ref().map(|directory| directory.join(standard)));
            if let Some(path) = path.filter(|path| is_small_file(path)) {
                set(key, path.as_os_str().as_encoded_bytes());
            }
        }
        overrides
    }

    fn load(&self, git_dir: &Path, branch: Option<&FullName>) -> Option<File> {
        let interpolate =
            interpolate::Context { git_install_dir: None, home_dir: self.home.as_deref(), home_for_user: None };
        let conditional = includes::conditional::Context {
            git_dir: Some(git_dir),
            branch_name: branch.map(|branch| branch.as_ref()),
        };
        let read = |includes: includes::Options<'_>| {
            let metadata = self
                .files
                .iter()
                .filter(|path| is_small_file(path))
                .map(|path| Metadata::from(Source::User).at(path.clone()));
            let options = init::Options { includes, lossy: true, ignore_io_errors: true };
            File::from_paths_metadata(metadata, options).ok().flatten()
        };
        // A condition that cannot be judged must not take the plain values with it.
        read(includes::Options::follow(interpolate, conditional)).or_else(|| read(includes::Options::no_follow()))
    }
}

fn is_small_file(path: &Path) -> bool {
    fs::metadata(path).is_ok_and(|metadata| metadata.is_file() && metadata.len() <= CONFIGURATION_CAP)
}
