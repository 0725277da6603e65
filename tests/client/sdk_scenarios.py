"""The shim as another implementation of the protocol sees it: the official Python SDK."""

from __future__ import annotations

import os
import re
import signal
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

import anyio
from mcp.client import Client
from mcp.client.stdio import StdioServerParameters

from fixture import ANSWER_PLACE, QUESTION, repository
from system import processes

TOOL = "ask_live_memory"


@dataclass
class Surroundings:
    """What a scenario is given."""

    shim: Path
    sandbox: Path
    progress: list[tuple[float, str | None]] = field(default_factory=list)

    @asynccontextmanager
    async def connect(self, workspace: Path, mode: str = "legacy") -> AsyncIterator[Client]:
        parameters = StdioServerParameters(
            command=str(self.shim),
            env={"HOME": str(self.sandbox / "home"), "LIVE_MEMORY_DATA_DIR": str(self.sandbox / "data")},
            cwd=workspace,
        )
        async with Client(parameters, mode=mode, read_timeout_seconds=60) as client:
            yield client

    async def note_progress(self, progress: float, _total: float | None, message: str | None) -> None:
        self.progress.append((progress, message))


async def it_connects_and_lists_one_tool(surroundings: Surroundings) -> None:
    workspace = repository(surroundings.sandbox)
    # `auto` asks for a newer protocol's `server/discover` first and must be told no in a way it understands.
    for mode in ("legacy", "auto"):
        async with surroundings.connect(workspace, mode) as client:
            assert client.server_info.name == "live-memory", client.server_info
            assert client.instructions, "a model should be told when to ask"
            (tool,) = (await client.list_tools()).tools
            assert tool.name == TOOL, tool
            assert tool.annotations is not None and tool.annotations.read_only_hint is True, tool.annotations
            assert set(tool.input_schema["properties"]) == {"question", "cwd", "max_answer_tokens"}, tool.input_schema
            assert (tool.meta or {}).get("anthropic/maxResultSizeChars"), tool.meta


async def a_question_is_answered_with_places(surroundings: Surroundings) -> None:
    # No roots, no variable of any client: the shim's own directory is what is asked about.
    async with surroundings.connect(repository(surroundings.sandbox)) as client:
        result = await client.call_tool(TOOL, {"question": QUESTION})
        assert not result.is_error, result
        text = "\n".join(block.text for block in result.content)
        assert re.search(ANSWER_PLACE, text), text


async def bad_arguments_are_explained(surroundings: Surroundings) -> None:
    workspace = repository(surroundings.sandbox)
    async with surroundings.connect(workspace) as client:
        for arguments in ({"question": QUESTION, "cwd": "relative"}, {"question": QUESTION, "cwd": "/no/such/directory"}, {"question": "  "}):
            result = await client.call_tool(TOOL, arguments)
            assert result.is_error, f"{arguments}: {result}"
            assert len(result.content[0].text) > 20, f"{arguments}: {result}"
        # And the server is none the worse for it.
        assert not (await client.call_tool(TOOL, {"question": QUESTION})).is_error


async def progress_is_reported(surroundings: Surroundings) -> None:
    async with surroundings.connect(repository(surroundings.sandbox)) as client:
        result = await client.call_tool(TOOL, {"question": QUESTION}, progress_callback=surroundings.note_progress)
        assert not result.is_error, result
        assert surroundings.progress, "no progress was reported"
        values = [value for value, _ in surroundings.progress]
        assert values == sorted(set(values)), f"progress must increase: {values}"
        assert all(message for _, message in surroundings.progress), surroundings.progress


async def ping_and_calls_share_the_connection(surroundings: Surroundings) -> None:
    async with surroundings.connect(repository(surroundings.sandbox)) as client:
        results = []

        async def ask() -> None:
            results.append(await client.call_tool(TOOL, {"question": QUESTION}))

        async with anyio.create_task_group() as tasks:
            for _ in range(4):
                tasks.start_soon(ask)
            for _ in range(10):
                await client.send_ping()
        assert len(results) == 4 and not any(result.is_error for result in results), results


async def an_abandoned_call_is_cancelled_and_the_next_one_answered(surroundings: Surroundings) -> None:
    async with surroundings.connect(repository(surroundings.sandbox)) as client:
        assert not (await client.call_tool(TOOL, {"question": QUESTION})).is_error
        # A daemon that stands still cannot answer, so this call is given up in the middle.
        (daemon,) = daemons(surroundings)
        os.kill(daemon, signal.SIGSTOP)
        try:
            with anyio.move_on_after(0.5) as scope:
                await client.call_tool(TOOL, {"question": QUESTION})
            assert scope.cancelled_caught, "a daemon that stands still has answered"
            await client.send_ping()
        finally:
            os.kill(daemon, signal.SIGCONT)
        assert not (await client.call_tool(TOOL, {"question": QUESTION})).is_error


async def the_end_of_input_ends_the_process(surroundings: Surroundings) -> None:
    async with surroundings.connect(repository(surroundings.sandbox)) as client:
        await client.call_tool(TOOL, {"question": QUESTION})
        assert shims(), "the shim should run"
        before = time.monotonic()
    # The SDK closes the input and waits two seconds before it kills; a shim that left by itself was faster.
    assert time.monotonic() - before < 2.0, "the shim had to be killed"
    assert not shims(), "a shim was left behind"


def shims() -> list[int]:
    """The shims of this scenario: those that this process started."""
    return [pid for pid, parent, command in processes() if parent == os.getpid() and "lm-shim" in command]


def daemons(surroundings: Surroundings) -> list[int]:
    """The daemons of this scenario: they run from a copy in its data directory."""
    directory = str(surroundings.sandbox)
    return [pid for pid, _, command in processes() if "lm-core" in command and directory in command]


SCENARIOS = [
    it_connects_and_lists_one_tool,
    a_question_is_answered_with_places,
    bad_arguments_are_explained,
    progress_is_reported,
    ping_and_calls_share_the_connection,
    an_abandoned_call_is_cancelled_and_the_next_one_answered,
    the_end_of_input_ends_the_process,
]
