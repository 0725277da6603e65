//! Glob and `find_paths`: finding files and directories by their paths.

use std::{
    collections::HashSet,
    path::{Path, PathBuf},
    thread,
};

use super::{
    Limits, ToolError, ToolOutput, Tools,
    arguments::Arguments,
    globs::Globs,
    target,
    text::{Page, counted},
};
use crate::files::{PathKind, WalkLimits, WalkReport, WorkspaceFiles, display_path};

/// The most files that are listed.
const MOST_FILES: usize = 1_000_000;
const DEFAULT_LIMIT: usize = 200;

/// Runs Glob.
pub(super) fn glob(tools: &Tools, arguments: &Arguments, limits: &Limits<'_>) -> Result<ToolOutput, ToolError> {
    let pattern = arguments.required_text("pattern")?;
    let under = directory(tools, arguments)?;
    let limit = at_least_one(arguments.number("limit")?, "Glob")?;
    // Models give absolute patterns too.
    let relative = match target::inside(tools.files.root(), pattern) {
        Ok(path) if Path::new(pattern).is_absolute() => {
            let below = path.strip_prefix(&under).unwrap_or(&path);
            format!("/{}", below.to_string_lossy().replace('\\', if cfg!(windows) { "/" } else { "\\" }))
        }
        _ if Path::new(pattern).is_absolute() || pattern.split('/').any(|part| part == "..") => {
            return Err(ToolError(format!(
                "the glob `{}` leads out of the workspace; give one relative to its root",
                super::text::cut(pattern, 200)
            )));
        }
        _ => pattern.to_owned(),
    };
    let globs = Globs::parse(&relative)?;
    let wanted = |path: &Path| globs.matches(path.strip_prefix(&under).unwrap_or(path));
    let (mut found, report) = list(&tools.files, &under, limits, wanted)?;
    found.sort_unstable();
    let lines = found.iter().map(|path| display_path(path));
    Ok(show(lines, found.len(), limit, &report, "no file matches the glob"))
}

/// Runs `find_paths`.
pub(super) fn find(tools: &Tools, arguments: &Arguments, limits: &Limits<'_>) -> Result<ToolOutput, ToolError> {
    let under = directory(tools, arguments)?;
    let name = arguments.text("name")?.filter(|name| !name.is_empty()).map(Name::parse).transpose()?;
    let kind = match arguments.text("type")? {
        Some("f") => "file",
        Some("d" | "dir") => "directory",
        _ => arguments.choice("type", &["any", "file", "directory"])?,
    };
    let max_depth = match arguments.number("max_depth")? {
        Some(0) => return Err(ToolError("`max_depth` of find_paths must be at least 1".into())),
        depth => depth.unwrap_or(usize::MAX),
    };
    let limit = at_least_one(arguments.number("limit")?, "find_paths")?;
    let depth = under.components().count();
    let fits = |path: &Path| {
        (max_depth == usize::MAX || path.components().count() - depth <= max_depth)
            && name.as_ref().is_none_or(|name| name.matches(path))
    };
    let (wants_files, wants_directories) = (kind != "directory", kind != "file");
    let (parts, report) = walk(&tools.files, &under, limits, |part: &mut Part, path| {
        if wants_directories {
            part.note_directory(&path);
        }
        if wants_files && fits(&path) {
            part.files.push(path);
        }
    })?;
    let mut found: Vec<(PathBuf, bool)> = Vec::new();
    let mut parents = Vec::new();
    for part in parts {
        found.extend(part.files.into_iter().map(|path| (path, false)));
        parents.extend(part.directories);
    }
    found.extend(directories(&parents, &under).filter(|path| fits(path)).map(|path| (path.to_path_buf(), true)));
    found.sort_unstable();
    let lines = found.iter().map(|(path, is_directory)| {
        let mut shown = display_path(path);
        if *is_directory {
            shown.push('/');
        }
        shown
    });
    Ok(show(lines, found.len(), limit, &report, "nothing found"))
}

/// The directory that a call looks in.
fn directory(tools: &Tools, arguments: &Arguments) -> Result<PathBuf, ToolError> {
    let path = target::inside(tools.files.root(), arguments.text("path")?.unwrap_or_default())?;
    if path.as_os_str().is_empty() || tools.files.kind(&path)? == PathKind::Directory {
        return Ok(path);
    }
    Err(ToolError(format!("`{}` is not a directory; Read shows files", display_path(&path))))
}

fn at_least_one(limit: Option<usize>, tool: &str) -> Result<usize, ToolError> {
    match limit {
        Some(0) => Err(ToolError(format!("`limit` of {tool} must be at least 1"))),
        limit => Ok(limit.unwrap_or(DEFAULT_LIMIT)),
    }
}

/// The wanted ones of the files below a directory, in no order.
fn list(
    files: &WorkspaceFiles,
    under: &Path,
    limits: &Limits<'_>,
    wanted: impl Fn(&Path) -> bool + Sync,
) -> Result<(Vec<PathBuf>, WalkReport), ToolError> {
    let (parts, report) = walk(files, under, limits, |found: &mut Vec<PathBuf>, path| {
        if wanted(&path) {
            found.push(path);
        }
    })?;
    Ok((parts.into_iter().flatten().collect(), report))
}

/// Shows every file below a directory to `visit`, on several threads that each have a state.
pub(super) fn walk<S: Send + Default>(
    files: &WorkspaceFiles,
    under: &Path,
    limits: &Limits<'_>,
    visit: impl Fn(&mut S, PathBuf) + Sync,
) -> Result<(Vec<S>, WalkReport), ToolError> {
    let bounds = WalkLimits {
        max_files: MOST_FILES,
        deadline: limits.deadline,
        threads: thread::available_parallelism().map_or(1, usize::from),
        stamps: false,
    };
    let (states, report) = files
        .walk_under(under, &bounds, limits.cancel, S::default, |state, file| {
            visit(state, file.path);
            true
        })
        .map_err(|error| ToolError(format!("cannot list the workspace: {error}")))?;
    if limits.cancel.is_cancelled() {
        return Err(ToolError("the call was cancelled".into()));
    }
    Ok((states, report))
}

/// What one thread of a walk has found.
#[derive(Default)]
struct Part {
    files: Vec<PathBuf>,
    /// Those that files lie in. A directory is listed in one go, so comparing with the last is enough.
    directories: Vec<PathBuf>,
}

impl Part {
    fn note_directory(&mut self, file: &Path) {
        if let Some(parent) = file.parent()
            && self.directories.last().is_none_or(|last| last.as_os_str() != parent.as_os_str())
        {
            self.directories.push(parent.to_path_buf());
        }
    }
}

/// The directories below `under` among these and what they lie in, in no order.
fn directories<'a>(parents: &'a [PathBuf], under: &Path) -> impl Iterator<Item = &'a Path> {
    let mut found = HashSet::new();
    for parent in parents {
        let mut directory = Some(parent.as_path());
        while let Some(path) = directory {
            // What is known has its parents known.
            if path.as_os_str().len() <= under.as_os_str().len() || !found.insert(path) {
                break;
            }
            directory = path.parent();
        }
    }
    found.into_iter()
}

fn show(
    lines: impl Iterator<Item = String>,
    total: usize,
    limit: usize,
    report: &WalkReport,
    nothing: &str,
) -> ToolOutput {
    let mut page = Page::default();
    let mut shown = 0;
    for line in lines.take(limit) {
        if !page.push(&line) {
            break;
        }
        shown += 1;
    }
    let mut remarks = Vec::new();
    if total == 0 {
        let listed = counted(report.files, "file");
        remarks.push(format!("{nothing}; {listed} looked at, ignored ones are left out"));
    } else if shown < total {
        let how = if shown < limit { "narrow the search" } else { "narrow the search or raise the limit" };
        remarks.push(format!("{shown} of {total} shown; {how}"));
    }
    if !report.is_complete() {
        let reason = if report.too_many {
            format!("only the first {MOST_FILES} files were listed")
        } else {
            "the time was over".into()
        };
        remarks.push(format!("incomplete: {reason}; look in a subdirectory"));
    }
    if report.secret > 0 {
        remarks.push(format!("left out because they may hold secrets: {}", counted(report.secret, "file")));
    }
    if report.unreadable > 0 {
        remarks.push(format!("could not be listed: {} entries", report.unreadable));
    }
    ToolOutput::plain(page.finish(&remarks))
}

/// What a name has to be like.
enum Name {
    Part(String),
    Glob(Globs),
}

impl Name {
    fn parse(text: &str) -> Result<Self, ToolError> {
        if text.len() > 1_000 {
            return Err(ToolError("the name is too long; 1000 bytes are allowed".into()));
        }
        if text.contains(['*', '?', '[', '{']) {
            return Globs::parse(text).map(Self::Glob);
        }
        Ok(Self::Part(text.trim_end_matches('/').to_lowercase()))
    }

    fn matches(&self, path: &Path) -> bool {
        match self {
            // A part with a slash speaks of more than the name.
            Self::Part(part) if part.contains('/') => display_path(path).to_lowercase().contains(part),
            Self::Part(part) => {
                path.file_name().is_some_and(|name| name.to_string_lossy().to_lowercase().contains(part))
            }
            Self::Glob(globs) => globs.matches(path),
        }
    }
}
