//! Which tools there are, what the model is told about them, and who runs a call.

use super::{
    Limits, ToolError, ToolOutput, Tools,
    arguments::{self, Arguments},
};

/// What a model is told about a tool. All of it is constant, so that every request tells it in the same
/// bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ToolSpecification {
    /// By which the model calls it.
    pub name: &'static str,
    /// What it does and when to use it.
    pub description: &'static str,
    /// The JSON schema of its arguments, as text.
    pub schema: &'static str,
}

type Run = fn(&Tools, &Arguments, &Limits<'_>) -> Result<ToolOutput, ToolError>;

struct Tool {
    specification: ToolSpecification,
    parameters: &'static [&'static str],
    run: Run,
}

const TOOLS: &[Tool] = &[
    Tool {
        specification: ToolSpecification {
            name: "Read",
            description: "Reads a text file of the workspace and shows it with line numbers, up to 20,000 characters; go on with offset. Binary files and files that hold secrets are not shown.",
            schema: r#"{"type":"object","properties":{"file_path":{"type":"string","description":"The file, absolute or relative to the workspace"},"offset":{"type":"integer","minimum":1,"description":"The line to start at; 1 if left out"},"limit":{"type":"integer","minimum":1,"description":"How many lines; 2000 if left out"}},"required":["file_path"],"additionalProperties":false}"#,
        },
        parameters: &["file_path", "offset", "limit"],
        run: super::read::run,
    },
    Tool {
        specification: ToolSpecification {
            name: "Grep",
            description: "Searches file contents with a regular expression (Rust syntax: no look-around, no backreferences; escape literal braces). Ignored and hidden-secret files are left out.",
            schema: r#"{"type":"object","properties":{"pattern":{"type":"string","description":"The regular expression"},"path":{"type":"string","description":"A file or directory to search; the whole workspace if left out"},"glob":{"type":"string","description":"Only files that match, such as *.js or src/**/*.{ts,tsx}; a leading ! excludes"},"type":{"type":"string","description":"Only files of a type, such as rust, py, js"},"output_mode":{"type":"string","enum":["files_with_matches","content","count"],"description":"Paths (the default), matching lines, or counts per file"},"-i":{"type":"boolean","description":"Ignore case"},"-n":{"type":"boolean","description":"Line numbers with content; true if left out"},"-A":{"type":"integer","minimum":0,"description":"Lines shown after each match"},"-B":{"type":"integer","minimum":0,"description":"Lines shown before each match"},"-C":{"type":"integer","minimum":0,"description":"Lines shown around each match"},"multiline":{"type":"boolean","description":"Let matches span lines and . match line ends"},"head_limit":{"type":"integer","minimum":0,"description":"The most lines or files in all; 200 if left out, 0 for as many as fit"},"offset":{"type":"integer","minimum":0,"description":"Lines or files to skip first"}},"required":["pattern"],"additionalProperties":false}"#,
        },
        parameters: &[
            "pattern",
            "path",
            "glob",
            "type",
            "output_mode",
            "-i",
            "-n",
            "-A",
            "-B",
            "-C",
            "multiline",
            "head_limit",
            "offset",
        ],
        run: super::search::run,
    },
    Tool {
        specification: ToolSpecification {
            name: "Glob",
            description: "Lists the files whose path matches a glob, such as **/*.rs or src/**/test_*.{py,pyi}, in the order of their paths.",
            schema: r#"{"type":"object","properties":{"pattern":{"type":"string","description":"The glob, relative to path; ** crosses directories"},"path":{"type":"string","description":"The directory to look in; the workspace if left out"},"limit":{"type":"integer","minimum":1,"description":"The most files; 200 if left out"}},"required":["pattern"],"additionalProperties":false}"#,
        },
        parameters: &["pattern", "path", "limit"],
        run: super::paths::glob,
    },
    Tool {
        specification: ToolSpecification {
            name: "find_paths",
            description: "Finds files and directories by name: a part of the name, or a glob such as *.toml. Without a name it lists a directory.",
            schema: r#"{"type":"object","properties":{"path":{"type":"string","description":"The directory to look in; the workspace if left out"},"name":{"type":"string","description":"A part of the name, in any letter case, or a glob for it"},"type":{"type":"string","enum":["any","file","directory"],"description":"What to find; any if left out"},"max_depth":{"type":"integer","minimum":1,"description":"How many levels below path; no bound if left out"},"limit":{"type":"integer","minimum":1,"description":"The most paths; 200 if left out"}},"additionalProperties":false}"#,
        },
        parameters: &["path", "name", "type", "max_depth", "limit"],
        run: super::paths::find,
    },
    Tool {
        specification: ToolSpecification {
            name: "get_changed_files",
            description: "Lists what differs from the last commit of the git repository: staged, not staged, untracked, renamed, in conflict.",
            schema: r#"{"type":"object","properties":{"path":{"type":"string","description":"Only changes to this file or directory"}},"additionalProperties":false}"#,
        },
        parameters: &["path"],
        run: super::git::changed_files,
    },
    Tool {
        specification: ToolSpecification {
            name: "git_search",
            description: "Searches the git history from the newest commit: commits whose message, or whose added or removed lines, hold a text, and commits that changed a path. Says how far back it got.",
            schema: r#"{"type":"object","properties":{"query":{"type":"string","description":"The text to look for, literally; or the id of a commit"},"path":{"type":"string","description":"Only commits that changed this file or directory"},"show_diff":{"type":"boolean","description":"Show what each commit changed; false if left out"},"max_results":{"type":"integer","minimum":1,"description":"The most commits; 10 if left out"}},"additionalProperties":false}"#,
        },
        parameters: &["query", "path", "show_diff", "max_results"],
        run: super::git::search,
    },
    Tool {
        specification: ToolSpecification {
            name: "recall",
            description: "Searches what was noted and answered about this workspace earlier and does not stand in this conversation any more, by words. Each result says what it rests on and whether that has changed since.",
            schema: r#"{"type":"object","properties":{"query":{"type":"string","description":"Words and identifiers to look for"},"limit":{"type":"integer","minimum":1,"description":"The most results; 8 if left out"}},"required":["query"],"additionalProperties":false}"#,
        },
        parameters: &["query", "limit"],
        run: super::recall::run,
    },
];

/// All tools, in a fixed order.
pub fn specifications() -> impl ExactSizeIterator<Item = ToolSpecification> {
    TOOLS.iter().map(|tool| tool.specification)
}

/// Runs the tool that a call names.
pub(super) fn dispatch(tools: &Tools, name: &str, input: &str, limits: &Limits<'_>) -> Result<ToolOutput, ToolError> {
    let Some(tool) = TOOLS.iter().find(|tool| tool.specification.name == name) else {
        let names: Vec<&str> = TOOLS.iter().map(|tool| tool.specification.name).collect();
        return Err(ToolError(format!(
            "there is no tool `{}`{}; there are {}",
            super::text::cut(name, 100),
            arguments::nearest(name, &names).map_or_else(String::new, |name| format!(" (did you mean `{name}`?)")),
            names.join(", ")
        )));
    };
    let arguments = Arguments::parse(tool.specification.name, tool.parameters, input)?;
    if limits.is_over() {
        return Err(ToolError("no time was left to run the tool; answer with what is known".into()));
    }
    (tool.run)(tools, &arguments, limits)
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::*;

    #[test]
    fn the_schemas_name_exactly_the_parameters_that_are_read() {
        for tool in TOOLS {
            let schema: Value = serde_json::from_str(tool.specification.schema).unwrap();
            let mut described: Vec<&str> =
                schema["properties"].as_object().unwrap().keys().map(String::as_str).collect();
            let mut read = tool.parameters.to_vec();
            described.sort_unstable();
            read.sort_unstable();
            assert_eq!(described, read, "{}", tool.specification.name);
        }
    }

    #[test]
    fn names_suit_every_provider() {
        for tool in specifications() {
            assert!(
                tool.name.len() <= 64 && tool.name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
            );
        }
    }
}
