"""Small repositories to ask about."""

from __future__ import annotations

from pathlib import Path

QUESTION = "Where is the delay between two attempts computed, and what caps it? (compute_retry_delay)"
ANSWER_PLACE = r"retry\.py:\d+"


def repository(directory: Path) -> Path:
    """A repository whose `net/retry.py` answers [`QUESTION`]."""
    return _write(
        directory / "repository",
        {
            "README.md": "# Courier\n\nDelivers parcels of bytes.\n",
            "docs/operations.md": "# Operations\n\nRun it, watch it.\n",
            "net/retry.py": (
                "MAXIMUM_DELAY_S = 30.0\n\n\n"
                "def compute_retry_delay(attempt: int) -> float:\n"
                '    """Doubles with each attempt, up to MAXIMUM_DELAY_S."""\n'
                "    return min(MAXIMUM_DELAY_S, 0.5 * 2**attempt)\n"
            ),
            "app/settings.py": (
                "def load_settings(text: str) -> dict:\n"
                "    if not text:\n"
                '        raise ValueError("the settings file is empty")\n'
                "    return dict(line.split('=', 1) for line in text.splitlines())\n"
            ),
        },
    )


def other_repository(directory: Path) -> Path:
    """One that has nothing in common with the first."""
    code = "def fold_kelvin_readings(readings):\n    return sum(readings) / len(readings)\n"
    return _write(directory / "other", {"sensors/thermal.py": code})


def _write(root: Path, files: dict[str, str]) -> Path:
    # As much of a git directory as makes a repository; git itself is not needed.
    for name in ("objects", "refs"):
        (root / ".git" / name).mkdir(parents=True, exist_ok=True)
    files = {".git/HEAD": "ref: refs/heads/main\n", **files}
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    return root
