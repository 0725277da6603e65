//! Opening a workspace's repository, and refusing what is none or leads elsewhere.

use std::{
    fs,
    path::{Path, PathBuf},
    sync::Arc,
};

use gix::{Repository, config::File, refs::FullName, sec::Trust};

use super::{GitUser, ToolError, failed, withheld::Withheld};
use crate::files::{WorkspaceFiles, display_path};

/// The longest pointer to another directory, in bytes; git itself has no longer ones.
const POINTER_CAP: u64 = 64 << 10;
/// The longest configuration that is read, in bytes.
const CONFIGURATION_CAP: u64 = 1 << 20;

/// Trees of neighbouring commits are stored as differences; a cache of this size walks them faster than
/// the small one that `gix` has by default.
const PACK_CACHE: &str = "core.deltaBaseCacheLimit=32m";

/// A repository, and where in it the workspace lies.
pub(super) struct Opened {
    pub(super) repository: Repository,
    /// Between the top of the working tree and the workspace; mostly empty.
    pub(super) prefix: PathBuf,
    /// Whose text is not shown.
    pub(super) withheld: Withheld,
}

/// Where a repository's parts lie, after links.
struct Layout {
    top: PathBuf,
    git_dir: PathBuf,
    common: PathBuf,
}

/// Opens the repository that a workspace belongs to, without trusting it.
pub(super) fn open(files: &Arc<WorkspaceFiles>, user: &GitUser) -> Result<Opened, ToolError> {
    let (top, prefix) = find(files.root())?;
    let layout = layout(&top)?;
    let own = configuration(&layout)?;
    let branch = check(&layout, &own)?;
    let options = gix::open::Options::isolated().with(Trust::Reduced).open_path_as_is(true).config_overrides(
        user.overrides(&layout.git_dir, branch.as_ref(), &own).into_iter().chain([PACK_CACHE.into()]),
    );
    let mut repository =
        options.open(layout.git_dir).map_err(|error| failed("open the git repository", error))?.to_thread_local();
    // What its configuration says about the place of the working tree counts for nothing.
    repository.set_workdir(Some(layout.top)).map_err(|error| failed("open the git repository", error))?;
    let withheld = Withheld::new(Arc::clone(files), prefix.clone());
    Ok(Opened { repository, prefix, withheld })
}

/// The top of the working tree that a directory lies in, and the rest of the way.
fn find(root: &Path) -> Result<(PathBuf, PathBuf), ToolError> {
    for top in root.ancestors() {
        if fs::symlink_metadata(top.join(".git")).is_ok() {
            return Ok((top.to_path_buf(), root.strip_prefix(top).unwrap_or(root).to_path_buf()));
        }
    }
    if root.join("HEAD").is_file() && root.join("objects").is_dir() && root.join("refs").is_dir() {
        return Err(ToolError(
            "this is a bare git repository: it has no working tree, and its history is not read; use a clone of it"
                .into(),
        ));
    }
    Err(ToolError("the workspace is not in a git repository; use find_paths and Grep".into()))
}

fn layout(top: &Path) -> Result<Layout, ToolError> {
    let top = canonical(top)?;
    let dot_git = top.join(".git");
    let kind = fs::symlink_metadata(&dot_git).map_err(|error| failed("look at `.git`", error))?.file_type();
    let git_dir = if kind.is_file() {
        let text = pointer(&dot_git)?;
        let target = text.strip_prefix("gitdir:").map(str::trim).filter(|target| !target.is_empty());
        canonical(&top.join(target.ok_or_else(|| ToolError("the file `.git` names no repository".into()))?))?
    } else {
        canonical(&dot_git)?
    };
    if !git_dir.is_dir() {
        return Err(ToolError("`.git` is neither a directory nor a file that names one".into()));
    }
    let common = match pointer(&git_dir.join("commondir")) {
        Ok(text) => canonical(&git_dir.join(text.trim()))?,
        Err(_) if fs::symlink_metadata(git_dir.join("commondir")).is_ok() => {
            return Err(ToolError("`commondir` of the git repository cannot be read".into()));
        }
        Err(_) => git_dir.clone(),
    };
    // A linked worktree is registered in the repository it belongs to; anything else that shares
    // another repository's data only claims to.
    let is_worktree = common != git_dir
        && git_dir.parent() == Some(&common.join("worktrees"))
        && pointer(&git_dir.join("gitdir")).is_ok_and(|text| leads_to(&git_dir, text.trim(), &dot_git));
    if common != git_dir && !is_worktree || !git_dir.starts_with(&top) && !is_worktree && !is_submodule(&git_dir, &top)
    {
        return Err(ToolError(format!(
            "`.git` leads to `{}`, which does not know this workspace, so it is not read; repair it with `git worktree repair` or clone again",
            display_path(&git_dir)
        )));
    }
    Ok(Layout { top, git_dir, common })
}

/// Whether a repository names the workspace as its working tree, as those of submodules do.
fn is_submodule(git_dir: &Path, top: &Path) -> bool {
    let Ok(configuration) = read_configuration(&git_dir.join("config")) else { return false };
    configuration.string("core.worktree").is_some_and(|worktree| leads_to(git_dir, &worktree.to_string(), top))
}

fn leads_to(from: &Path, text: &str, to: &Path) -> bool {
    fs::canonicalize(from.join(text)).is_ok_and(|path| fs::canonicalize(to).is_ok_and(|to| path == to))
}

fn canonical(path: &Path) -> Result<PathBuf, ToolError> {
    fs::canonicalize(path).map_err(|error| failed(&format!("find `{}`", display_path(path)), error))
}

/// The text of a small regular file.
fn pointer(path: &Path) -> Result<String, ToolError> {
    let shown = display_path(path);
    let metadata = fs::metadata(path).map_err(|error| failed(&format!("read `{shown}`"), error))?;
    if !metadata.is_file() || metadata.len() > POINTER_CAP {
        return Err(ToolError(format!("`{shown}` is not a small regular file")));
    }
    fs::read_to_string(path).map_err(|error| failed(&format!("read `{shown}`"), error))
}

fn read_configuration(path: &Path) -> Result<File, ToolError> {
    let metadata = match fs::metadata(path) {
        Ok(metadata) => metadata,
        Err(_) => return Ok(File::default()),
    };
    if !metadata.is_file() || metadata.len() > CONFIGURATION_CAP {
        return Err(ToolError("the git repository's `config` is not a regular file, or too large".into()));
    }
    let mut bytes = fs::read(path).map_err(|error| failed("read the git repository's `config`", error))?;
    File::from_bytes_owned(
        &mut bytes,
        gix::config::file::Metadata::from(gix::config::Source::Local),
        gix::config::file::init::Options::default(),
    )
    .map_err(|error| failed("understand the git repository's `config`", error))
}

fn configuration(layout: &Layout) -> Result<File, ToolError> {
    read_configuration(&layout.common.join("config"))
}

/// Refuses what cannot be read rightly or leads out of the repository; gives the branch.
fn check(layout: &Layout, own: &File) -> Result<Option<FullName>, ToolError> {
    if own.string("extensions.refStorage").is_some_and(|storage| storage != "files") {
        return Err(ToolError(
            "the git repository keeps its references in the reftable format, which is not supported; its history and changes cannot be read".into(),
        ));
    }
    let is_linked = layout.common != layout.git_dir;
    if !is_linked && own.boolean("core.bare").ok().flatten() == Some(true) {
        return Err(ToolError(
            "the git repository is bare: it has no working tree to compare; use a clone of it".into(),
        ));
    }
    for directory in [&layout.git_dir, &layout.common] {
        for (name, is_directory) in [
            ("HEAD", false),
            ("config", false),
            ("config.worktree", false),
            ("index", false),
            ("packed-refs", false),
            ("shallow", false),
            ("info/exclude", false),
            ("info/attributes", false),
            ("objects/info/alternates", false),
            ("objects", true),
            ("objects/pack", true),
            ("refs", true),
        ] {
            stays_inside(layout, &directory.join(name), is_directory)?;
        }
    }
    let head = pointer(&layout.git_dir.join("HEAD"))?;
    let Some(name) = head.strip_prefix("ref:").map(str::trim) else { return Ok(None) };
    let branch = FullName::try_from(name).map_err(|error| failed("understand `HEAD`", error))?;
    for directory in [&layout.git_dir, &layout.common] {
        stays_inside(layout, &directory.join(name), false)?;
    }
    Ok(Some(branch))
}

/// A part of a repository that is a link to somewhere else would show another repository; a pipe in its
/// place would never end.
fn stays_inside(layout: &Layout, path: &Path, is_directory: bool) -> Result<(), ToolError> {
    let Ok(metadata) = fs::metadata(path) else { return Ok(()) };
    let is_right = if is_directory { metadata.is_dir() } else { metadata.is_file() };
    let real = canonical(path)?;
    if is_right && (real.starts_with(&layout.git_dir) || real.starts_with(&layout.common)) {
        return Ok(());
    }
    Err(ToolError(format!(
        "`{}` of the git repository is not what it should be, or leads out of it, so it is not read",
        path.file_name().map_or_else(String::new, |name| display_path(Path::new(name)))
    )))
}
