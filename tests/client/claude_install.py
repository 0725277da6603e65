"""Installing the plugin as a person does it; each function is one scenario."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

from claude_code import TOOL, Session, environment
from fixture import ANSWER_PLACE, QUESTION, repository
from scripted_model import Call, Reply
from surroundings import Surroundings, assert_answered

MARKETPLACE = Path(__file__).parents[2] / ".claude-plugin" / "marketplace.json"


def it_is_installed_from_a_local_marketplace_and_removed(surroundings: Surroundings) -> None:
    market = surroundings.sandbox / "a market ü"
    shutil.copytree(surroundings.plugin, market / "plugin")
    (market / ".claude-plugin").mkdir()
    shutil.copy(MARKETPLACE, market / ".claude-plugin")
    workspace = repository(surroundings.sandbox)

    def plugin(*arguments: str) -> None:
        command = [surroundings.client, "plugin", *arguments]
        variables = environment(surroundings.sandbox, "http://127.0.0.1:9")
        ended = subprocess.run(command, cwd=workspace, env=variables, capture_output=True, text=True, check=False)
        assert ended.returncode == 0, f"{arguments}: {ended.stdout}{ended.stderr}"

    plugin("validate", "--strict", str(market))
    plugin("marketplace", "add", str(market))
    plugin("install", "live-memory@live-memory", "--config", "model=an-option")
    ask = Reply(calls=[Call(TOOL, {"question": QUESTION})])
    with Session(surroundings.client, surroundings.sandbox, None, workspace, [ask, Reply("done")]) as session:
        session.prompt("ask")
        assert_answered(session, ANSWER_PLACE)
        assert "an-option" in session.prompt("/live-memory-config show"), "the plugin's option does not arrive"
    plugin("uninstall", "live-memory@live-memory")
    with Session(surroundings.client, surroundings.sandbox, None, workspace, [Reply("done")]) as session:
        session.prompt("hello")
        assert not session.shims(), "the plugin is still there"


SCENARIOS = [
    it_is_installed_from_a_local_marketplace_and_removed,
]
