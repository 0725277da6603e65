"""What a scenario with the real Claude Code is given, and what all of them ask of a session."""

from __future__ import annotations

import json
import re
import subprocess
from dataclasses import dataclass
from pathlib import Path

from claude_code import Session, environment
from scripted_model import Json, Reply


@dataclass
class Surroundings:
    """What a scenario is given."""

    client: Path
    sandbox: Path
    plugin: Path
    """The plugin as it is shipped: launcher and binaries, under a path with spaces and umlauts."""
    clone: Path | None = None
    """The sources' own plugin folder, with nothing in it but what is kept under version control."""

    def session(self, workspace: Path, script: list[Reply], **options: object) -> Session:
        return Session(self.client, self.sandbox, self.plugin, workspace, script, **options)

    def shim(self, *arguments: str, cwd: Path | None = None) -> str:
        """What the shipped command line prints."""
        (binary,) = self.plugin.glob("bin/*/lm-shim")
        variables = environment(self.sandbox, "http://127.0.0.1:9")
        command = [binary, *arguments]
        ended = subprocess.run(command, cwd=cwd or self.sandbox, env=variables, capture_output=True, text=True, check=False)
        assert ended.returncode == 0, f"{arguments}: {ended.stdout}{ended.stderr}"
        return ended.stdout

    def stats(self, workspace: Path) -> Json:
        """The daemon's own figures."""
        return json.loads(self.shim("stats", "--json", cwd=workspace))

    def observed(self, workspace: Path) -> int:
        """How many files of a workspace the memory has heard of."""
        all_of_them = self.stats(workspace).get("workspaces", [])
        return sum(one["observed"]["files"] for one in all_of_them if Path(one["root"]) == workspace)


def assert_answered(session: Session, *places: str) -> None:
    """Each tool call so far was answered, and names its place as a `path:line`."""
    results = session.model.tool_results()
    assert len(results) == len(places), results
    for (failed, text), place in zip(results, places, strict=True):
        assert not failed, text
        assert re.search(place, text), f"no {place} in: {text}"
