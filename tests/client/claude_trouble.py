"""Sessions whose daemon is killed, hangs or is shared, and questions that nobody waits for any more."""

from __future__ import annotations

import os
import signal
import time

from claude_code import TOOL, Session
from claude_learning import choose_companion
from fixture import ANSWER_PLACE, QUESTION, repository
from scripted_model import Call, Reply, ScriptedModel
from surroundings import Surroundings, assert_answered
from system import is_alive, wait_until

ASK = Reply(calls=[Call(TOOL, {"question": QUESTION})])
UNDELAYED_S = 20.0
"""Far more than a turn of a few reads takes, far less than anything that waits for a daemon that hangs."""


def a_killed_and_a_hung_daemon_delay_nothing(surroundings: Surroundings) -> None:
    workspace = repository(surroundings.sandbox)
    files = [workspace / "net/retry.py", workspace / "app/settings.py", workspace / "docs/operations.md"]

    def turn(index: int) -> list[Reply]:
        return [Reply(calls=[Call("Read", {"file_path": str(files[index])})]), Reply("read")]

    script = [*turn(0), *turn(1), *turn(2), ASK, Reply("done")]
    with surroundings.session(workspace, script, tools=("Read",)) as session:
        session.prompt("read")
        wait_until("the first report", lambda: surroundings.observed(workspace) == 1)

        os.kill(_daemon(surroundings, workspace), signal.SIGKILL)
        _undelayed(session)
        wait_until("the next daemon", lambda: surroundings.observed(workspace) >= 1)

        hung = _daemon(surroundings, workspace)
        os.kill(hung, signal.SIGSTOP)
        try:
            _undelayed(session)
        finally:
            os.kill(hung, signal.SIGCONT)
        wait_until("what was read meanwhile", lambda: surroundings.observed(workspace) >= 2)
        session.prompt("ask")
        failures = [text for failed, text in session.model.tool_results() if failed]
        assert failures == [], failures
        assert "retry.py" in session.model.tool_results()[-1][1], session.model.tool_results()[-1]


def two_sessions_share_one_memory(surroundings: Surroundings) -> None:
    workspace = repository(surroundings.sandbox)
    read = Reply(calls=[Call("Read", {"file_path": str(workspace / "net/retry.py")})])
    with surroundings.session(workspace, [read, Reply("read")], tools=("Read",)) as first:
        first.prompt("read")
        wait_until("the report", lambda: surroundings.observed(workspace) == 1)
        with surroundings.session(workspace, [ASK, Reply("done")]) as second:
            daemon = _daemon(surroundings, workspace)
            second.prompt("ask")
            assert_answered(second, ANSWER_PLACE)
            assert _daemon(surroundings, workspace) == daemon, "the sessions have a daemon each"
            assert "1 file" in second.prompt("/live-memory-stats"), "what the first has read is not known to the second"
    # The daemon outlives them, and nothing else does.
    assert is_alive(daemon)
    assert surroundings.observed(workspace) == 1


def options_that_are_not_set_hide_nothing(surroundings: Surroundings) -> None:
    workspace = repository(surroundings.sandbox)
    with ScriptedModel([Reply("It is known (net/retry.py:1).")]) as companion:
        choose_companion(surroundings, companion)
        with surroundings.session(workspace, [ASK, Reply("done")]) as session:
            session.prompt("ask")
            assert_answered(session, ANSWER_PLACE)
            assert len(companion.prompts) == 1, "the chosen model was not asked"
            shown = session.prompt("/live-memory-config show --json")
            assert '"problems":[]' in shown, shown


def an_interrupted_question_is_dropped_by_the_daemon(surroundings: Surroundings) -> None:
    workspace = repository(surroundings.sandbox)
    hold = surroundings.sandbox / "hold"
    hold.write_text("", encoding="utf-8")
    variables = {"LIVE_MEMORY_TEST_HOLD_FILE": str(hold)}

    def questions(kind: str) -> int:
        return surroundings.stats(workspace).get("questions", {}).get(kind, 0)

    with surroundings.session(workspace, [ASK, ASK, Reply("done")], variables=variables) as session:
        session.send("ask")
        wait_until("the question", lambda: questions("running") == 1)
        session.control({"subtype": "interrupt"})
        wait_until("its end", lambda: questions("cancelled") == 1 and questions("running") == 0)
        hold.unlink()
        (shim,) = session.shims()
        session.send("ask again")
        wait_until("the next answer", lambda: questions("answered") == 1)
        assert session.shims() == [shim], "the server was started anew"


def _undelayed(session: Session) -> None:
    start = time.monotonic()
    assert session.prompt("read") == "read"
    assert time.monotonic() - start < UNDELAYED_S, "the turn was delayed"


def _daemon(surroundings: Surroundings, workspace: object) -> int:
    return surroundings.stats(workspace)["daemon"]["pid"]


SCENARIOS = [
    a_killed_and_a_hung_daemon_delay_nothing,
    two_sessions_share_one_memory,
    options_that_are_not_set_hide_nothing,
    an_interrupted_question_is_dropped_by_the_daemon,
]
