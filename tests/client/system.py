"""Looking at processes, and waiting for conditions. Python's standard library only."""

from __future__ import annotations

import subprocess
import time
from typing import Callable, TypeVar

DEADLINE_S = 60.0
"""How long anything may take before a scenario fails; only waited out on failure."""

T = TypeVar("T")


def wait_until(what: str, condition: Callable[[], T], deadline_s: float = DEADLINE_S) -> T:
    """Waits until `condition` gives something true; `what` names it in the failure."""
    end = time.monotonic() + deadline_s
    while True:
        value = condition()
        if value:
            return value
        if time.monotonic() > end:
            raise AssertionError(f"waited {deadline_s} s in vain: {what}")
        time.sleep(0.02)


def processes() -> list[tuple[int, int, str]]:
    """Every process: its id, its parent's, its command line."""
    listing = subprocess.run(["ps", "-A", "-o", "pid=,ppid=,args="], capture_output=True, text=True, check=True)
    rows = (line.split(None, 2) for line in listing.stdout.splitlines())
    return [(int(row[0]), int(row[1]), row[2] if len(row) > 2 else "") for row in rows]


def is_alive(pid: int) -> bool:
    """Whether a process runs; one that only waits to be collected by its parent does not."""
    listing = subprocess.run(["ps", "-o", "stat=", "-p", str(pid)], capture_output=True, text=True, check=False)
    state = listing.stdout.strip()
    return bool(state) and not state.startswith("Z")
