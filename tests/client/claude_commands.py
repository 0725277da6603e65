"""The slash commands of the plugin as a person types them; each function is one scenario."""

from __future__ import annotations

import json

from fixture import repository
from surroundings import Surroundings

COMMANDS = {
    "stats": "workspaces",
    "config show": "provider",
    "config": "Usage: /live-memory-config",
    "pause": "Paused learning",
    "resume": "Resumed learning",
    "remember It isn't raining": "It isn't raining",
    "ledger": "It isn't raining",
    "forget raining": "--yes",
    "reset": "memory begins",
    "empty": "Forgot everything of",
    "empty all": "of any workspace",
    "doctor": "the daemon's own checks",
    "setup": "lm-shim\" setup",
    "stats --json": '"daemon"',
}
"""What is typed after `/live-memory-`, and a part of the answer."""


def every_command_is_answered_without_the_model(surroundings: Surroundings) -> None:
    workspace = repository(surroundings.sandbox)
    with surroundings.session(workspace, []) as session:
        for typed, expected in COMMANDS.items():
            answer = session.prompt(f"/live-memory-{typed}")
            assert expected in answer, f"{typed}: {answer}"
            assert "Original prompt" not in answer, answer
        # The long form is what the client's own list shows.
        assert "workspaces" in session.prompt("/live-memory:live-memory-stats")
        known = session.start_report()["slash_commands"]
        assert {f"live-memory:live-memory-{typed.split()[0]}" for typed in COMMANDS} <= set(known), known
        assert session.model.prompts == [], "a command has asked the model"


def a_provider_is_chosen_in_one_line(surroundings: Surroundings) -> None:
    workspace = repository(surroundings.sandbox)
    with surroundings.session(workspace, []) as session:
        line = "set provider=openai base_url=http://127.0.0.1:9/v1 model=some-model api_key=sk-very-secret"
        answer = session.prompt(f"/live-memory-config {line}")
        assert "some-model" in answer and "sk-very-secret" not in answer, answer
        assert "sk-very-secret" not in session.prompt("/live-memory-config show")
        wrong = session.prompt("/live-memory-config set provider=nobody max_answer_tokens=1")
        assert "provider" in wrong and "max_answer_tokens" in wrong, wrong
        assert "some-model" in session.prompt("/live-memory-stats")
        session.prompt("/live-memory-config unset provider base_url model api_key")
        assert "some-model" not in session.prompt("/live-memory-stats")
        assert session.model.prompts == [], "a command has asked the model"
        (shown,) = [event["result"] for event in session.events if event["type"] == "result"][:1]
        assert "sk-very-secret" not in json.dumps(shown)


SCENARIOS = [
    every_command_is_answered_without_the_model,
    a_provider_is_chosen_in_one_line,
]
