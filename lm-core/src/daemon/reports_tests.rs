use std::{path::PathBuf, sync::Arc};

use lm_proto::Build;

use super::*;
use crate::{
    agent::answer::WindowFill,
    daemon::status::Ending,
    retrieval::LeftOut,
    settings::SettingsStore,
    workspace::{Dropped, MemoryStatus},
};

fn workspace() -> WorkspaceStatus {
    WorkspaceStatus {
        root: "/home/me/project".into(),
        key: "ab".repeat(32),
        answered: 3,
        running: 1,
        waiting: 2,
        vanished: false,
        paused: false,
        missed: 0,
        index: IndexStatus {
            state: IndexState::Ready,
            files: 5012,
            bytes: 12_345_678,
            built_in: Some(Duration::from_millis(400)),
            left_out: LeftOut { secret: 2, ..LeftOut::default() },
        },
        memory: MemoryStatus {
            answers: 2,
            fill: WindowFill { tokens: 31_000, window: 100_000 },
            known_files: 12,
            facts: 40,
            stale_facts: 2,
            archived: 7,
            archive_dropped: 1,
            compactions: 3,
            shed: 1,
            dropped_notes: 1,
            summary_failure: Some("the summary is empty".to_owned()),
            ..MemoryStatus::default()
        },
    }
}

#[test]
fn stats_say_it_all_in_80_columns() {
    let directory = tempfile::tempdir().unwrap();
    let data = DataDirectory::open_at(directory.path().join("data")).unwrap();
    std::fs::write(data.config_file(), r#"{"model": "a", "porvider": "x", "api_key": "sk-canary"}"#).unwrap();
    let session = [("LIVE_MEMORY_MODEL".to_owned(), "b".to_owned())];
    let resolved = SettingsStore::open_with(data.config_file(), vec![], None).for_request(&session);
    let mut status = Status::new(Build::with_stamp(1_700_000_000), PathBuf::from("/run/core.sock"), None);
    status.pid = 77;
    status.count(Ending::Answered);
    status.count(Ending::Failed("the search failed unexpectedly; the daemon's log says more".into()));
    status.count(Ending::Refused);
    let status = Arc::new(status);
    let _running = (status.question(), status.question());
    let vanished = WorkspaceStatus {
        vanished: true,
        paused: true,
        missed: 3,
        root: "/home/me/gone".into(),
        index: IndexStatus { state: IndexState::Failed("no space left on device".into()), ..IndexStatus::default() },
        ..workspace()
    };
    let budget = crate::budget::Budget::open(&data, status.started_at);
    let usage =
        crate::llm::Usage { input: Some(3_000), cache_read: Some(28_000), output: Some(900), ..Default::default() };
    budget.book("/home/me/project", "claude-haiku-5-5", &usage, Some(0.001_03), status.started_at);
    budget.book("/home/me/gone", "qwen3:8b", &usage, None, status.started_at);
    let report = stats(&Subject {
        status: &status,
        data: &data,
        resolved: &resolved,
        config_file: &data.config_file(),
        workspaces: &[workspace(), vanished],
        root: Some(&Err("`/` is the root of the file system, too much to be a workspace".into())),
        model: &Ok(None),
        spent: &budget.spent(status.started_at),
        observations: ObservationStatus {
            waiting: 1,
            taken: 40,
            dropped: Dropped { outside: 2, paused: 3, overflow: 1, ..Dropped::default() },
        },
        inherited_keys: &["ANTHROPIC_API_KEY"],
        now: status.started_at + Duration::from_secs(7_500),
    });
    assert!(!report.text.contains("canary") && !report.json.contains("canary"));
    let text = report.text.replace(&*directory.path().to_string_lossy(), "~");
    for line in text.lines() {
        assert!(line.chars().count() <= show::COLUMNS, "{line}");
    }
    insta::assert_snapshot!(text);
    let json: Json = serde_json::from_str(&report.json).unwrap();
    assert_eq!((&json["questions"]["failed"], &json["questions"]["refused"]), (&1.into(), &1.into()));
    assert_eq!(json["questions"]["running"], 2);
    assert_eq!(json["provider"]["inherited_keys"][0], "ANTHROPIC_API_KEY");
    assert_eq!(json["settings"]["shadowed"][0]["name"], "model");
    assert_eq!(json["settings"]["problems"][0]["name"], "porvider");
    assert_eq!(json["workspaces"][0]["index"]["state"], "ready");
    assert!(json["daemon"]["data_bytes"].as_u64().unwrap() > 0);
}

#[test]
fn a_workspace_that_was_not_opened_is_not_counted_as_open() {
    let unopened = WorkspaceStatus { index: IndexStatus::default(), ..workspace() };
    assert_eq!(workspaces_text(&[workspace()]), "1 open");
    assert_eq!(workspaces_text(&[workspace(), unopened]), "1 open, 1 not opened yet");
}

#[test]
fn sizes_and_times_read_as_people_write_them() {
    assert_eq!(bytes_text(999), "999 B");
    assert_eq!(bytes_text(12_345_678), "12.3 MB");
    assert_eq!(lasting(Duration::from_secs(59)), "59 s");
    assert_eq!(lasting(Duration::from_secs(7_500)), "2 h 5 min");
    assert_eq!(lasting(Duration::from_secs(100_000)), "1 d 3 h");
}
