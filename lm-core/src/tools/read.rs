//! Read: a file's text with line numbers.

use super::{
    FileSeen, Limits, ToolError, ToolOutput, Tools,
    arguments::Arguments,
    target,
    text::{Page, counted, cut},
};
use crate::files::{Encoding, FileText, PathKind, display_path};

/// The longest part of a file that is read, in bytes. The hash of a longer file is that of its beginning.
pub const READ_CAP: u64 = 16 << 20;
/// The longest part of a line that is shown, in characters.
const LINE_CAP: usize = 2_000;
const DEFAULT_LIMIT: usize = 2_000;

pub(super) fn run(tools: &Tools, arguments: &Arguments, _: &Limits<'_>) -> Result<ToolOutput, ToolError> {
    let path = target::inside(tools.files.root(), arguments.required_text("file_path")?)?;
    let offset = arguments.number("offset")?.unwrap_or(1).max(1);
    let limit = arguments.number("limit")?.unwrap_or(DEFAULT_LIMIT);
    if limit == 0 {
        return Err(ToolError("`limit` of Read must be at least 1".into()));
    }
    let shown = display_path(&path);
    if path.as_os_str().is_empty() || tools.files.kind(&path)? == PathKind::Directory {
        let name = if shown.is_empty() { "the workspace".to_owned() } else { format!("`{shown}`") };
        return Err(ToolError(format!("{name} is a directory; list it with find_paths or Glob and read its files")));
    }
    let file = tools.files.read(&path, READ_CAP)?;
    let text = page(&shown, &file, offset, limit)?;
    let seen = FileSeen { path, sha256: file.sha256, truncated: file.truncated, is_shown: true };
    Ok(ToolOutput { text, is_error: false, files: vec![seen] })
}

fn page(shown: &str, file: &FileText, offset: usize, limit: usize) -> Result<String, ToolError> {
    let mut remarks = Vec::new();
    match file.encoding {
        Encoding::Utf8 => {}
        Encoding::Utf16 => remarks.push("converted from UTF-16".to_owned()),
        Encoding::Repaired => remarks.push("not valid UTF-8; what cannot be read is shown as \u{fffd}".to_owned()),
    }
    if file.text.is_empty() {
        remarks.push(format!("`{shown}` is empty"));
        return Ok(Page::default().finish(&remarks));
    }
    let total = file.text.lines().count();
    let behind = || format!("`{shown}` is {} bytes long, only the first {READ_CAP} can be read", file.size);
    if offset > total {
        let longer = if file.truncated { format!("; {}", behind()) } else { String::new() };
        return Err(ToolError(format!("`{shown}` has {}, none at offset {offset}{longer}", counted(total, "line"))));
    }
    let mut page = Page::default();
    let mut last = offset - 1;
    let mut cut_lines = 0;
    for (position, line) in file.text.lines().enumerate().skip(offset - 1).take(limit) {
        let line = cut(line, LINE_CAP);
        cut_lines += usize::from(matches!(line, std::borrow::Cow::Owned(_)));
        if !page.push(&format!("{:>6}\t{line}", position + 1)) {
            break;
        }
        last = position + 1;
    }
    if cut_lines > 0 {
        remarks.push(format!(
            "{} cut at {LINE_CAP} characters; Grep with output_mode content shows the part around a match",
            counted(cut_lines, "long line")
        ));
    }
    if last < total {
        remarks.push(format!("lines {offset}-{last} of {total}; go on with offset={}", last + 1));
    } else if offset > 1 {
        remarks.push(format!("lines {offset}-{last} of {total}, the end of the file"));
    }
    if file.truncated {
        remarks.push(behind());
    }
    Ok(page.finish(&remarks))
}
