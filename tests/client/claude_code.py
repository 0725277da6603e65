"""The real Claude Code, run without a terminal in surroundings of its own.

The environment is cleared: a home of its own, a key that is none, the scripted model as the only
endpoint and as the proxy for everything else. Python's standard library only.
"""

from __future__ import annotations

import json
import os
import queue
import subprocess
import sys
import threading
from pathlib import Path

from scripted_model import Json, Reply, ScriptedModel
from system import DEADLINE_S, processes, wait_until

SERVER = "plugin:live-memory:live-memory"
TOOL = "mcp__plugin_live-memory_live-memory__ask_live_memory"


def environment(sandbox: Path, model_url: str) -> dict[str, str]:
    """All that the client knows of the machine."""
    return {
        "HOME": str(sandbox / "home"),
        "PATH": os.environ["PATH"],
        "LANG": "C.UTF-8",
        "LIVE_MEMORY_DATA_DIR": str(sandbox / "data"),
        "ANTHROPIC_BASE_URL": model_url,
        "ANTHROPIC_API_KEY": "not-a-key",
        "HTTP_PROXY": model_url,
        "HTTPS_PROXY": model_url,
        "NO_PROXY": "127.0.0.1",
        "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
        "CLAUDE_CODE_DISABLE_OFFICIAL_MARKETPLACE_AUTOINSTALL": "1",
        "DISABLE_AUTOUPDATER": "1",
        "DISABLE_ERROR_REPORTING": "1",
        "DISABLE_TELEMETRY": "1",
    }


class Session:
    """A session of the client with the plugin, from its start to its end."""

    def __init__(
        self,
        client: Path,
        sandbox: Path,
        plugin: Path | None,
        workspace: Path,
        script: list[Reply] | ScriptedModel,
        *,
        permission: bool = True,
        tools: tuple[str, ...] = (),
        variables: dict[str, str] | None = None,
    ) -> None:
        self.model = script if isinstance(script, ScriptedModel) else ScriptedModel(script)
        self.events: list[Json] = []
        """What the client printed, one object a line."""
        self._debug_log = sandbox / "client-debug.log"
        self._results: queue.SimpleQueue[Json | None] = queue.SimpleQueue()
        self._command = [
            str(client), "--print", "--verbose", "--input-format", "stream-json", "--output-format", "stream-json",
            "--debug-file", str(self._debug_log),
        ]  # fmt: skip
        if plugin:
            self._command += ["--plugin-dir", str(plugin)]
        # The whole server is allowed, as a user would do it.
        allowed = [*([TOOL.rpartition("__")[0]] if permission else []), *tools]
        if allowed:
            self._command += ["--allowedTools", ",".join(allowed)]
        self._sandbox, self._workspace, self._variables = sandbox, workspace, variables or {}

    def __enter__(self) -> "Session":
        self.model.__enter__()
        self._debug_log.unlink(missing_ok=True)
        self._errors = (self._sandbox / "client-stderr.log").open("wb")
        self.process = subprocess.Popen(
            self._command,
            cwd=self._workspace,
            env=environment(self._sandbox, self.model.url) | self._variables,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
        )
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if self.process.poll() is None:
            self.process.stdin.close()
            try:
                self.process.wait(DEADLINE_S)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()
                if kind is None:
                    raise AssertionError("the client did not end with its input") from None
        self._reader.join(5)
        self._errors.close()
        self.model.__exit__()
        if kind is not None:
            self._tell_what_happened()
        else:
            assert self.model.strangers == [], f"the client tried to reach {self.model.strangers}"
            complaints = [line for line in self._log() if SERVER in line and "Connection error" in line]
            assert complaints == [], f"the client complains about the server: {complaints}"

    def _read(self) -> None:
        for line in self.process.stdout:
            event = json.loads(line)
            self.events.append(event)
            if event["type"] == "result":
                self._results.put(event)
        self._results.put(None)

    def send(self, prompt: str) -> None:
        """Types a prompt without waiting for what comes of it."""
        self._write({"type": "user", "message": {"role": "user", "content": prompt}})

    def _write(self, message: Json) -> None:
        self.process.stdin.write(json.dumps(message).encode() + b"\n")
        self.process.stdin.flush()

    def prompt(self, text: str) -> str:
        """Types a prompt and waits for the end of the turn; gives the model's last words."""
        self.send(text)
        try:
            result = self._results.get(timeout=DEADLINE_S)
        except queue.Empty:
            raise AssertionError(f"no result for the prompt {text!r}") from None
        assert result is not None, f"the client ended before it answered the prompt {text!r}"
        assert not result["is_error"], f"the turn failed: {result}"
        return result.get("result", "")

    def control(self, request: Json) -> Json:
        """Asks something of the client itself, as programs that embed it do."""
        name = f"control-{len(self.events)}"
        self._write({"type": "control_request", "request_id": name, "request": request})
        response = wait_until(f"a response to {request}", lambda: self._response(name))
        assert response["subtype"] == "success", response
        return response.get("response", {})

    def _response(self, name: str) -> Json | None:
        responses = (event["response"] for event in self.events if event["type"] == "control_response")
        return next((response for response in responses if response.get("request_id") == name), None)

    def start_report(self) -> Json:
        """What the client says about itself when a session starts."""
        return wait_until("the client's first event", lambda: self._first("init"))

    def _first(self, subtype: str) -> Json | None:
        return next((event for event in self.events if event.get("subtype") == subtype), None)

    def shims(self) -> list[int]:
        """The server processes of this session."""
        return [pid for pid, parent, command in processes() if parent == self.process.pid and "lm-shim" in command]

    def _log(self) -> list[str]:
        return self._debug_log.read_text(errors="replace").splitlines() if self._debug_log.exists() else []

    def _tell_what_happened(self) -> None:
        """On failure: everything a reader needs, on stderr."""
        stderr_file = self._sandbox / "client-stderr.log"
        about_server = [line for line in self._log() if "live-memory" in line or "[ERROR]" in line]
        print("--- tool results", *self.model.tool_results(), sep="\n", file=sys.stderr)
        print("--- requests elsewhere", *self.model.strangers, sep="\n", file=sys.stderr)
        print("--- client's stderr", stderr_file.read_text(errors="replace")[-4000:], sep="\n", file=sys.stderr)
        print("--- client's log", *about_server[-60:], sep="\n", file=sys.stderr)
        print("--- client's last events", *map(_shortened, self.events[-8:]), sep="\n", file=sys.stderr)


def _shortened(event: Json) -> str:
    return json.dumps(event)[:1500]
