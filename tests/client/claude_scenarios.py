"""What a person meets who uses the plugin in Claude Code; each function is one scenario.

Only the model is scripted. The client starts the shim, the shim starts the daemon, the daemon
searches the repository.
"""

from __future__ import annotations

import re
import shutil
import signal
import subprocess

from claude_code import SERVER, TOOL, Session, environment
from fixture import ANSWER_PLACE, QUESTION, other_repository, repository
from scripted_model import Call, Reply
from surroundings import Surroundings, assert_answered
from system import is_alive, processes, wait_until

ASK = Reply(calls=[Call(TOOL, {"question": QUESTION})])
DONE = Reply("done")


def the_plugin_is_valid(surroundings: Surroundings) -> None:
    command = [surroundings.client, "plugin", "validate", "--strict", surroundings.clone]
    variables = environment(surroundings.sandbox, "http://127.0.0.1:9")
    checked = subprocess.run(command, env=variables, capture_output=True, text=True, check=False)
    assert checked.returncode == 0, checked.stdout + checked.stderr


def the_tool_is_in_the_first_prompt(surroundings: Surroundings) -> None:
    # With tool search on, tools of plugins are left out of the first prompt unless they ask not to be.
    for variables in ({}, {"ENABLE_TOOL_SEARCH": "true"}):
        workspace = repository(surroundings.sandbox)
        with surroundings.session(workspace, [DONE], variables=variables) as session:
            assert session.prompt("hello") == "done"
            servers = {server["name"]: server["status"] for server in session.start_report()["mcp_servers"]}
            assert servers.get(SERVER) == "connected", servers
            first = session.model.prompts[0]
            tools = {tool["name"]: tool for tool in first["tools"]}
            assert TOOL in tools, sorted(tools)
            ours = [name for name in tools if "live-memory" in name]
            assert ours == [TOOL], f"exactly one tool is wanted: {ours}"
            schema = tools[TOOL]["input_schema"]
            assert sorted(schema["properties"]) == ["cwd", "max_answer_tokens", "question"], schema
            assert schema["required"] == ["question"], schema
            assert len(tools[TOOL]["description"]) > 100, "the model must learn when to ask"
            assert f"## {SERVER}" in str(first["messages"]), "the server's instructions do not reach the model"
            assert "live-memory:live-memory" in session.start_report()["skills"], session.start_report()["skills"]


def a_question_is_answered_with_places(surroundings: Surroundings) -> None:
    # Started in a subdirectory and asked without `cwd`: the answer is about the whole repository.
    workspace = repository(surroundings.sandbox) / "docs"
    with surroundings.session(workspace, [ASK, Reply("It is in retry.py.")]) as session:
        assert session.prompt("Where is the delay computed?") == "It is in retry.py."
        assert_answered(session, ANSWER_PLACE)


def another_repository_is_asked_by_cwd(surroundings: Surroundings) -> None:
    workspace = repository(surroundings.sandbox)
    other = other_repository(surroundings.sandbox)
    question = {"question": "Which function folds the kelvin readings?", "cwd": str(other)}
    relative = {"question": "Which function folds the kelvin readings?", "cwd": "other"}
    with surroundings.session(workspace, [Reply(calls=[Call(TOOL, question)]), Reply(calls=[Call(TOOL, relative)])]) as session:
        session.prompt("ask")
        (failed, answer), (relative_failed, refusal) = session.model.tool_results()
        assert not failed and re.search(r"thermal\.py:\d+", answer), answer
        assert "retry.py" not in answer, "another workspace's file was shown"
        assert relative_failed and "absolute" in refusal, refusal


def a_call_without_permission_is_denied(surroundings: Surroundings) -> None:
    workspace = repository(surroundings.sandbox)
    with surroundings.session(workspace, [ASK, DONE], permission=False) as session:
        session.prompt("ask")
        ((failed, text),) = session.model.tool_results()
        assert failed and "granted" in text, text


def two_calls_in_one_turn_are_both_answered(surroundings: Surroundings) -> None:
    workspace = repository(surroundings.sandbox)
    second = Call(TOOL, {"question": "Which text does load_settings complain with?"})
    with surroundings.session(workspace, [Reply(calls=[ASK.calls[0], second]), DONE]) as session:
        assert session.prompt("ask twice") == "done"
        assert len(session.model.prompts) == 2, "both calls belong to one turn"
        assert_answered(session, ANSWER_PLACE, r"settings\.py:\d+")


def clearing_the_conversation_keeps_the_server(surroundings: Surroundings) -> None:
    workspace = repository(surroundings.sandbox)
    with surroundings.session(workspace, [ASK, DONE, ASK, DONE]) as session:
        session.prompt("ask")
        (before,) = wait_until("one shim", session.shims)
        session.prompt("/clear")
        session.prompt("ask again")
        assert session.shims() == [before], "the server was started anew"
        # The conversation was forgotten, so the last prompt holds the second call alone.
        assert len(session.model.prompts) == 4
        assert_answered(session, ANSWER_PLACE, ANSWER_PLACE)


def a_killed_client_leaves_no_shim(surroundings: Surroundings) -> None:
    workspace = repository(surroundings.sandbox)
    with surroundings.session(workspace, [ASK, DONE]) as session:
        session.prompt("ask")
        (shim,) = wait_until("one shim", session.shims)
        session.process.send_signal(signal.SIGKILL)
        session.process.wait()
        wait_until("the shim's end", lambda: not is_alive(shim), deadline_s=10)
    # The daemon belongs to nobody's session and answers the next one.
    with surroundings.session(workspace, [ASK, DONE]) as session:
        session.prompt("ask")
        assert_answered(session, ANSWER_PLACE)


def a_missing_daemon_is_told_and_then_found(surroundings: Surroundings) -> None:
    workspace = repository(surroundings.sandbox)
    (core,) = surroundings.plugin.glob("bin/*/lm-core")
    aside = surroundings.sandbox / "lm-core"
    shutil.move(core, aside)
    with surroundings.session(workspace, [ASK, DONE, ASK, DONE]) as session:
        assert session.prompt("ask") == "done"
        ((failed, text),) = session.model.tool_results()
        assert failed and "lm-core" in text, text
        (shim,) = session.shims()
        shutil.move(aside, core)
        session.prompt("ask again")
        assert session.shims() == [shim], "the server was started anew"
        failed, text = session.model.tool_results()[-1]
        assert not failed and re.search(ANSWER_PLACE, text), text


def a_rebuild_is_picked_up(surroundings: Surroundings) -> None:
    """The plugin of a clone runs whatever was built last.

    `/reload-plugins` reads the plugin's files again and lets a server run whose configuration is the
    same; `/mcp reconnect` starts it anew. Both are sent as the control requests they stand for.
    """
    clone = surroundings.sandbox / "a clone"
    plugin = clone / "plugin"
    shutil.copytree(surroundings.clone, plugin)
    (clone / "Cargo.toml").write_text("[workspace]\n")
    (packaged,) = surroundings.plugin.glob("bin/*/lm-shim")

    def build(profile: str) -> None:
        directory = clone / "target" / profile
        directory.mkdir(parents=True, exist_ok=True)
        for name in ("lm-shim", "lm-core"):
            # Linked anew, as a build does it: the running file stays as it is.
            (directory / name).unlink(missing_ok=True)
            shutil.copy(packaged.parent / name, directory / name)

    def runs(session: Session, profile: str) -> bool:
        commands = [command for pid, _, command in processes() if pid in session.shims()]
        return len(commands) == 1 and f"/target/{profile}/lm-shim" in commands[0]

    build("debug")
    workspace = repository(surroundings.sandbox)
    with Session(surroundings.client, surroundings.sandbox, plugin, workspace, [ASK, DONE] * 3) as session:
        session.prompt("ask")
        assert_answered(session, ANSWER_PLACE)
        assert runs(session, "debug"), processes()
        build("release")
        session.control({"subtype": "reload_plugins"})
        session.prompt("ask again")
        session.control({"subtype": "mcp_reconnect", "serverName": SERVER})
        wait_until("the release build", lambda: runs(session, "release"))
        session.prompt("ask once more")
        assert_answered(session, ANSWER_PLACE, ANSWER_PLACE, ANSWER_PLACE)
    # And a new session needs nothing at all.
    build("debug")
    with Session(surroundings.client, surroundings.sandbox, plugin, workspace, [ASK, DONE]) as session:
        session.prompt("ask")
        assert runs(session, "debug"), processes()
        assert_answered(session, ANSWER_PLACE)


SCENARIOS = [
    the_plugin_is_valid,
    the_tool_is_in_the_first_prompt,
    a_question_is_answered_with_places,
    another_repository_is_asked_by_cwd,
    a_call_without_permission_is_denied,
    two_calls_in_one_turn_are_both_answered,
    clearing_the_conversation_keeps_the_server,
    a_killed_client_leaves_no_shim,
    a_missing_daemon_is_told_and_then_found,
    a_rebuild_is_picked_up,
]
