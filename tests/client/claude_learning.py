"""What the memory learns from a session without being asked; each function is one scenario.

The session and the companion that answers have a scripted model each.
"""

from __future__ import annotations

import json
from pathlib import Path

from claude_code import TOOL
from fixture import repository
from scripted_model import Call, Reply, ScriptedModel
from surroundings import Surroundings
from system import wait_until

NOTEBOOK = {
    "cells": [{"cell_type": "code", "id": "one", "source": "first = 1", "metadata": {}, "outputs": [], "execution_count": None}],
    "metadata": {"language_info": {"name": "python"}},
    "nbformat": 4,
    "nbformat_minor": 5,
}


def choose_companion(surroundings: Surroundings, companion: ScriptedModel) -> None:
    """Lets questions be answered by a model of this scenario's own."""
    choice = ["provider=anthropic", f"base_url={companion.url}", "model=claude-haiku-5-5", "api_key=not-a-key"]
    surroundings.shim("config", "set", *choice)


def what_every_tool_touches_is_known_at_the_next_question(surroundings: Surroundings) -> None:
    workspace = repository(surroundings.sandbox)
    (workspace / "lab.ipynb").write_text(json.dumps(NOTEBOOK), encoding="utf-8")
    files = {name: workspace / name for name in ("net/retry.py", "app/settings.py", "new/courier.py", "lab.ipynb", "docs/operations.md")}
    edit = {"file_path": str(files["app/settings.py"]), "old_string": "is empty", "new_string": "holds nothing at all"}
    cell = {"notebook_path": str(files["lab.ipynb"]), "cell_id": "one", "new_source": "second_parcel = 2"}
    content = "def hand_over_parcel():\n    return 'handed over'\n"
    agent = {"description": "look", "prompt": "SUBMARK look", "subagent_type": "general-purpose"}
    question = {"question": "What of hand_over_parcel, holds nothing at all, second_parcel, Operations, compute_retry_delay?"}
    script = [
        Reply(calls=[Call("Read", {"file_path": str(files["net/retry.py"])})]),
        Reply(calls=[Call("Write", {"file_path": str(files["new/courier.py"]), "content": content})]),
        Reply(calls=[Call("Read", {"file_path": str(files["app/settings.py"])})]),
        Reply(calls=[Call("Edit", edit)]),
        Reply(calls=[Call("Read", {"file_path": str(files["lab.ipynb"])})]),
        Reply(calls=[Call("NotebookEdit", cell)]),
        Reply(calls=[Call("Agent", agent)]),
        Reply(calls=[Call(TOOL, question)]),
        Reply("done"),
    ]
    subagent = [Reply(calls=[Call("Read", {"file_path": str(files["docs/operations.md"])})]), Reply("looked")]
    with ScriptedModel([Reply("It is known (net/retry.py:1).")]) as companion:
        choose_companion(surroundings, companion)
        model = ScriptedModel(script, {"SUBMARK": subagent})
        tools = ("Read", "Write", "Edit", "NotebookEdit", "Agent")
        with surroundings.session(workspace, model, tools=tools) as session:
            assert session.prompt("work") == "done"
            failures = [text for failed, text in model.tool_results() if failed]
            assert failures == [], failures
            told = _told(companion)
            for name in files:
                assert name in told, f"{name} is not named: {told}"
            for text in ("handed over", "holds nothing at all", "second_parcel"):
                assert text in told, f"`{text}` is not shown: {told}"
            assert "is empty" not in told, f"what was there before is shown: {told}"
            assert surroundings.observed(workspace) == len(files), surroundings.stats(workspace)
            # The client shows nothing of the hooks, neither to the person nor to the model.
            assert "PostToolUse" not in json.dumps(model.prompts[-1]), "the hooks reach the model"


def an_edit_by_a_command_is_noticed(surroundings: Surroundings) -> None:
    workspace = repository(surroundings.sandbox)
    retry = workspace / "net/retry.py"
    ask = Reply(calls=[Call(TOOL, {"question": "What caps the delay in compute_retry_delay (MAXIMUM_DELAY_S)?"})])
    script = [
        Reply(calls=[Call("Read", {"file_path": str(retry)})]),
        ask,
        Reply(calls=[Call("Bash", {"command": f"sed -i 's/30\\.0/77.5/' '{retry}'"})]),
        ask,
        Reply("done"),
    ]
    with ScriptedModel([Reply("30 s (net/retry.py:1)."), Reply("77.5 s (net/retry.py:1).")]) as companion:
        choose_companion(surroundings, companion)
        with surroundings.session(workspace, script, tools=("Read", "Bash")) as session:
            assert session.prompt("work") == "done"
            assert "MAXIMUM_DELAY_S = 77.5" in retry.read_text(encoding="utf-8"), session.model.tool_results()
            wait_until("the second question", lambda: len(companion.prompts) == 2)
            told = _told(companion)
            assert "MAXIMUM_DELAY_S = 77.5" in told, told


def _told(companion: ScriptedModel) -> str:
    """What the last question was told besides what stood in the conversation before."""
    return "\n".join(_texts(companion.prompts[-1]["messages"][-1]["content"]))


def _texts(content: object) -> list[str]:
    if isinstance(content, str):
        return [content]
    return [block.get("text", "") for block in content if isinstance(block, dict)]


SCENARIOS = [
    what_every_tool_touches_is_known_at_the_next_question,
    an_edit_by_a_command_is_noticed,
]
