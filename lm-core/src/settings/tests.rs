use std::{collections::BTreeMap, fs, path::Path};

use serde_json::{Map, Value as Json, json};

use super::{
    kind::{Kind, Value},
    page::page,
    resolve::{Layers, Values, interpret, named, nearest, resolve},
    show,
    table::{ROWS, row},
    *,
};

fn variables(pairs: &[(&str, &str)]) -> Vec<(String, String)> {
    pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
}

fn document(json: Json) -> Map<String, Json> {
    json.as_object().unwrap().clone()
}

fn config(json: Json) -> Values {
    let (values, problems) = interpret(&document(json), &Values::new(), Some(Path::new("/home/me")));
    assert_eq!(problems, []);
    values
}

struct Given {
    request: Values,
    session: Vec<(String, String)>,
    daemon: Vec<(String, String)>,
    config: Values,
}

impl Given {
    fn nothing() -> Self {
        Self { request: Values::new(), session: vec![], daemon: vec![], config: Values::new() }
    }

    fn resolve(&self) -> Resolved {
        resolve(Layers {
            request: &self.request,
            session: &self.session,
            daemon: &self.daemon,
            config: &self.config,
            home: Some(Path::new("/home/me")),
        })
    }
}

#[test]
fn the_table_agrees_with_itself() {
    let defaults = Settings::default();
    for row in ROWS {
        assert_eq!(row.key, row.key.to_ascii_lowercase());
        assert!(row.meaning().ends_with('.'), "{}", row.key);
        // Each default is a value that a person could have typed, and comes back as the same.
        if let Some(value) = row.value(&defaults) {
            let typed = row.kind.parse(&value.text(), None).unwrap_or_else(|| panic!("{}", row.key));
            let mut settings = Settings::default();
            assert!(row.assign(&mut settings, &typed), "{}", row.key);
            assert_eq!(settings, defaults, "{}", row.key);
        }
    }
    let keys: BTreeMap<_, _> = ROWS.iter().map(|row| (row.key, row)).collect();
    assert_eq!(keys.len(), ROWS.len());
}

#[test]
fn every_kind_reaches_its_field() {
    let given = config(json!({
        "provider": "anthropic", "base_url": "https://example.org/v1", "api_key": "k", "max_context_tokens": 9000,
        "compaction_threshold": 0.5, "async_tools": true, "exclude": ["~/secret", "**/x"],
        "openai_extra_body": {"a": 1}, "extra_headers": {"X-A": "b"}, "ca_file": "~/ca.pem", "file_globs": "*.rs, *.md",
    }));
    let settings = Given { config: given, ..Given::nothing() }.resolve().settings;
    assert_eq!(settings.provider, Provider::Anthropic);
    assert_eq!(settings.base_url.as_deref(), Some("https://example.org/v1"));
    assert_eq!(settings.api_key.as_ref().map(Secret::reveal), Some("k"));
    assert_eq!(settings.max_context_tokens, 9000);
    assert_eq!(settings.compaction_threshold, 0.5);
    assert!(settings.async_tools);
    assert_eq!(settings.exclude, ["/home/me/secret", "**/x"]);
    assert_eq!(settings.openai_extra_body.as_ref().unwrap()["a"], 1);
    assert_eq!(settings.extra_headers[0].1.reveal(), "b");
    assert_eq!(settings.ca_file.as_deref(), Some(Path::new("/home/me/ca.pem")));
    assert_eq!(settings.file_globs, ["*.rs", "*.md"]);
}

#[test]
fn the_stronger_source_decides_and_the_weaker_ones_are_named() {
    let mut given = Given::nothing();
    let model = |given: &Given| {
        let resolved = given.resolve();
        assert_eq!(resolved.problems, []);
        (resolved.settings.model.clone(), resolved.origin("model"), resolved.shadowed("model").to_vec())
    };
    assert_eq!(model(&given), (None, Origin::Default, vec![]));
    given.session = variables(&[("LIVE_MEMORY_USERCONFIG_MODEL", "plugin")]);
    assert_eq!(model(&given), (Some("plugin".into()), Origin::Plugin, vec![]));
    given.config = config(json!({"model": "file"}));
    assert_eq!(model(&given), (Some("file".into()), Origin::Config, vec![Origin::Plugin]));
    given.session.extend(variables(&[("LIVE_MEMORY_MODEL", "session")]));
    assert_eq!(model(&given), (Some("session".into()), Origin::Session, vec![Origin::Config, Origin::Plugin]));
    given.request.insert("model", Value::Text("request".into()));
    assert_eq!(model(&given).0.as_deref(), Some("request"));
    // What the daemon was started with is another session's and never counts for a request.
    let other = Given { daemon: variables(&[("LIVE_MEMORY_MODEL", "first session")]), ..Given::nothing() };
    assert_eq!(model(&other).0, None);
}

#[test]
fn empty_and_unfilled_are_unset() {
    for text in ["", "  ", "${LIVE_MEMORY_MODEL}", "${user_config.model}"] {
        let given = Given {
            session: variables(&[("LIVE_MEMORY_MODEL", text), ("LIVE_MEMORY_USERCONFIG_MODEL", text)]),
            config: config(json!({"model": "file"})),
            ..Given::nothing()
        };
        assert_eq!(given.resolve().settings.model.as_deref(), Some("file"), "{text}");
    }
    assert!(config(json!({"model": "", "provider": null, "exclude": " "})).is_empty());
}

#[test]
fn a_session_cannot_change_the_daemon_and_is_told() {
    let given = Given {
        session: variables(&[("LIVE_MEMORY_IDLE_EXIT_S", "5")]),
        daemon: variables(&[("LIVE_MEMORY_LOG_LEVEL", "debug")]),
        config: config(json!({"idle_exit_s": 60, "log_level": "warn"})),
        ..Given::nothing()
    };
    let resolved = given.resolve();
    assert_eq!(resolved.settings.idle_exit_s, 60);
    assert_eq!(resolved.settings.log_level, LogLevel::Debug);
    assert_eq!(resolved.origin("log_level"), Origin::DaemonEnvironment);
    assert_eq!(resolved.problems.len(), 1);
    assert!(resolved.problems[0].to_string().contains("LIVE_MEMORY_IDLE_EXIT_S"), "{}", resolved.problems[0]);
    // The same value in both places is no reason to complain.
    let given = Given { session: variables(&[("LIVE_MEMORY_IDLE_EXIT_S", "1800")]), ..Given::nothing() };
    assert_eq!(given.resolve().problems, []);
}

#[test]
fn what_is_not_accepted_is_named_with_what_is() {
    let before = config(json!({"default_timeout_s": 30}));
    let given = document(json!({
        "default_timeout_s": 4, "max_answer_tokens": "many", "porvider": "offline", "data_dir": "/x",
        "repo_root_mode": "inner", "api_key": ["sk-canary"],
    }));
    let (values, problems) = interpret(&given, &before, None);
    assert_eq!(values, before, "the last good value is kept");
    let text = problems.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n");
    insta::assert_snapshot!(text);
    assert!(!text.contains("canary"));
}

#[test]
fn a_wrong_variable_is_named_with_the_right_one() {
    let given = Given {
        session: variables(&[("LIVE_MEMORY_PROVDER", "offline"), ("LIVE_MEMORY_DEFAULT_TIMEOUT_S", "1e9")]),
        ..Given::nothing()
    };
    let text = given.resolve().problems.iter().map(|problem| problem.to_string() + "\n").collect::<String>();
    insta::assert_snapshot!(text);
}

#[test]
fn variables_of_the_surroundings_are_no_mistakes() {
    for name in ["TEST_BINARIES", "TEST_HOLD_FILE", "TEST_REQUIRE_CLIENTS", "BLESS", "HOME", "VERSION"] {
        let session = vec![(format!("LIVE_MEMORY_{name}"), "x".to_owned())];
        assert_eq!(Given { session, ..Given::nothing() }.resolve().problems, [], "{name}");
    }
}

#[test]
fn one_setting_has_three_spellings() {
    for name in ["provider", "PROVIDER", "LIVE_MEMORY_PROVIDER", " live_memory_provider "] {
        assert_eq!(named(name).unwrap().key, "provider", "{name}");
    }
    assert_eq!(named("provder").unwrap_err(), "`provder` is no setting; did you mean `provider`?");
    assert_eq!(nearest("LIVE_MEMORY_IDLE_EXIT"), Some("idle_exit_s"));
    assert_eq!(nearest("max-answer-tokens"), Some("max_answer_tokens"));
    assert_eq!(nearest("xyzzy"), None);
}

#[test]
fn kinds_accept_what_they_say_and_nothing_else() {
    let accepts = |kind: Kind, text: &str| kind.parse(text, Some(Path::new("/home/me"))).is_some();
    let absolute = if cfg!(windows) { r"C:\x" } else { "/x" };
    let cases: &[(Kind, &[&str], &[&str])] = &[
        (Kind::Switch, &["true", "FALSE", "1", "off"], &["maybe", "2"]),
        (Kind::Integer { min: 5, max: 1800 }, &["5", "1_800", " 60 "], &["4", "1801", "-1", "6.0", "1e2", "∞"]),
        (Kind::Number { min: 0.0, max: 1.0 }, &["0", "0.85", "1e-3"], &["1.1", "NaN", "-0.1", "inf"]),
        (
            Kind::Url,
            &["http://127.0.0.1:8080/v1"],
            &["ftp://x", "https://", "https://me:key@host/", "host", "http://a b"],
        ),
        (Kind::Path, &["~/log", "~", absolute], &["log", "~other/x", "./x"]),
        (Kind::Locations, &["~/a, **/b", absolute], &["a", "~/a, b", "/a/[", "~x"]),
        (Kind::Object, &[r#"{"a": [1]}"#], &["[1]", "x", "1"]),
        (Kind::Secret, &["sk-1"], &["a\nb"]),
        (Kind::Headers, &["A: b, C: d", r#"{"A": "b"}"#], &["A", "A b: c", r#"{"A": 1}"#]),
    ];
    for (kind, good, bad) in cases {
        for text in *good {
            assert!(accepts(*kind, text), "{kind:?} {text}");
        }
        for text in *bad {
            assert!(!accepts(*kind, text), "{kind:?} {text}");
        }
    }
}

#[test]
fn a_credential_is_only_said_to_be_set() {
    let given = Given {
        config: config(json!({"api_key": "sk-canary", "extra_headers": {"Authorization": "canary"}})),
        ..Given::nothing()
    };
    let resolved = given.resolve();
    let shown = [
        format!("{resolved:?}"),
        format!("{:?}", given.config),
        show::text(&resolved, "config.json"),
        show::json(&resolved, "config.json").to_string(),
    ];
    for text in shown {
        assert!(!text.contains("canary"), "{text}");
        assert!(text.contains("set"));
    }
}

#[test]
fn the_list_fits_a_terminal() {
    let given = Given {
        session: variables(&[("LIVE_MEMORY_MODEL", "m"), ("LIVE_MEMORY_MAX_ANSWER_TOKENS", "1")]),
        config: config(
            json!({"model": "x", "exclude": (0..40).map(|n| format!("/long/path/{n}")).collect::<Vec<_>>()}),
        ),
        ..Given::nothing()
    };
    let text = show::text(&given.resolve(), "/home/me/config.json");
    for line in text.lines() {
        assert!(line.chars().count() <= show::COLUMNS, "{line}");
    }
    insta::assert_snapshot!(text);
}

fn store(directory: &Path, text: &str) -> SettingsStore {
    let path = directory.join("config.json");
    fs::write(&path, text).unwrap();
    SettingsStore::open_with(path, vec![], Some(directory.to_owned()))
}

#[test]
fn a_change_holds_at_the_next_request_and_a_broken_file_keeps_the_last_good() {
    let directory = tempfile::tempdir().unwrap();
    let store = store(directory.path(), "{\"model\": \"one\"}");
    let model = || store.for_request(&[]).settings.model;
    assert_eq!(model().as_deref(), Some("one"));
    fs::write(store.path(), "{\"model\": \"second\"}").unwrap();
    assert_eq!(model().as_deref(), Some("second"));

    fs::write(store.path(), "{\"model\": \"third\"\n \"provider\": 1}").unwrap();
    assert_eq!(model().as_deref(), Some("second"));
    let problem = store.for_request(&[]).problems[0].to_string();
    assert!(problem.contains("line 2, column 2"), "{problem}");
    let broken = fs::read(store.path()).unwrap();
    let refused = store.set(&variables(&[("model", "fourth")]), &[]).unwrap_err();
    assert!(refused.contains("line 2, column 2"), "{refused}");
    assert!(store.unset(&["model".into()], &[]).is_err());
    assert_eq!(fs::read(store.path()).unwrap(), broken, "never overwritten");

    fs::remove_file(store.path()).unwrap();
    assert_eq!(model(), None);
    assert!(store.error().is_none());
}

#[test]
fn changes_are_made_all_or_none_and_foreign_keys_stay() {
    let directory = tempfile::tempdir().unwrap();
    let store = store(directory.path(), "\u{FEFF}{\r\n\"theirs\": {\"a\": 1}, \"model\": \"m\"}\r\n");
    let read = || serde_json::from_slice::<Json>(&fs::read(store.path()).unwrap()).unwrap();

    let refused = store
        .set(&variables(&[("provider", "anthropic"), ("modle", "x"), ("default_timeout_s", "4")]), &[])
        .unwrap_err();
    insta::assert_snapshot!(refused);
    assert_eq!(store.for_request(&[]).settings.provider, Provider::Offline);

    let changes = [
        ("LIVE_MEMORY_PROVIDER", "anthropic"),
        ("DEFAULT_TIMEOUT_S", "30"),
        ("exclude", "~/a, ~/b"),
        ("keep_warm", "yes"),
        ("model", ""),
    ];
    let session = variables(&[("LIVE_MEMORY_PROVIDER", "openai")]);
    let changed = store.set(&variables(&changes), &session).unwrap();
    assert_eq!(
        read(),
        json!({
            "theirs": {"a": 1}, "provider": "anthropic", "default_timeout_s": 30, "exclude": ["~/a", "~/b"],
            "keep_warm": true,
        })
    );
    insta::assert_snapshot!(show::changed_text(&changed, &[]).replace(&*directory.path().to_string_lossy(), "~"));
    let refused = store.set(&variables(&[("data_dir", "/x")]), &[]).unwrap_err();
    assert!(refused.contains("LIVE_MEMORY_DATA_DIR in the environment"), "{refused}");
    assert!(store.set(&variables(&[("model", "a"), ("MODEL", "b")]), &[]).is_err());

    let changed = store.unset(&["provider".into(), "theirs".into()], &[]).unwrap();
    assert_eq!(changed.strays, ["theirs"]);
    assert_eq!(read(), json!({"default_timeout_s": 30, "exclude": ["~/a", "~/b"], "keep_warm": true}));
}

#[test]
fn the_documentation_is_the_table() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/settings.md");
    if std::env::var_os("LIVE_MEMORY_BLESS").is_some() {
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, page()).unwrap();
    }
    let written = fs::read_to_string(&path).unwrap_or_default().replace("\r\n", "\n");
    assert_eq!(written, page(), "run LIVE_MEMORY_BLESS=1 cargo test -p lm-core settings");
    assert!(row("provider").is_some());
}

#[test]
fn what_may_hold_half_a_secret_is_not_shown() {
    let directory = tempfile::tempdir().unwrap();
    let store = SettingsStore::open_with(directory.path().join("config.json"), vec![], None);
    let set = |name: &str, value: &str| store.set(&[(name.to_owned(), value.to_owned())], &[]);
    let changed = set("openai_extra_body", r#"{"user_token": "canary", "seed": 1}"#).unwrap();
    let text = show::changed_text(&changed, &[]);
    assert!(text.contains("openai_extra_body = set: seed, user_token"), "{text}");
    assert!(!show::changed_json(&changed, "f").to_string().contains("canary"));
    set("extra_headers", "X-Key: canary").unwrap();
    set("base_url", "https://gateway.example/v1?key=canary").unwrap();
    for refused in [
        set("openai_extra_body", r#"{"user_token": "canary""#),
        set("extra_headers", "canary"),
        set("base_url", "gateway.example/v1?key=canary"),
        set("c2VjcmV0-canary1", ""),
    ] {
        let refusal = refused.unwrap_err();
        assert!(!refusal.contains("canary"), "{refusal}");
    }
    let session = [("LIVE_MEMORY_OPENAI_EXTRA_BODY".to_owned(), "canary".to_owned())];
    let resolved = store.for_request(&session);
    let shown = format!("{}{}{:?}", show::text(&resolved, "f"), show::json(&resolved, "f"), resolved.settings);
    assert!(!shown.contains("canary"), "{shown}");
    assert!(shown.contains("https://gateway.example/v1?…"), "{shown}");
}
