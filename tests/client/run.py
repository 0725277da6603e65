"""Runs one scenario: `run.py claude|sdk NAME` with its surroundings in options; exit code 0 if it holds."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("lane", choices=["claude", "sdk"])
    parser.add_argument("scenario", help="a name, or `list` for all names")
    parser.add_argument("--sandbox", type=Path, help="an empty directory of the scenario's own")
    parser.add_argument("--client", type=Path, help="the client's binary (claude)")
    parser.add_argument("--plugin", type=Path, help="the plugin as shipped (claude)")
    parser.add_argument("--clone", type=Path, help="the sources' plugin folder (claude)")
    parser.add_argument("--shim", type=Path, help="lm-shim (sdk)")
    options = parser.parse_args()

    if options.lane == "claude":
        import claude_commands
        import claude_install
        import claude_learning
        import claude_scenarios
        import claude_trouble
        from surroundings import Surroundings

        surroundings = Surroundings(options.client, options.sandbox, options.plugin, options.clone)
        listed = claude_scenarios.SCENARIOS + claude_learning.SCENARIOS + claude_commands.SCENARIOS + claude_trouble.SCENARIOS + claude_install.SCENARIOS
    else:
        import sdk_scenarios

        surroundings = sdk_scenarios.Surroundings(options.shim, options.sandbox)
        listed = sdk_scenarios.SCENARIOS
    scenarios = {scenario.__name__: scenario for scenario in listed}
    if options.scenario == "list":
        print("\n".join(scenarios))
        return
    if options.scenario not in scenarios:
        sys.exit(f"no scenario `{options.scenario}`; there are: {', '.join(scenarios)}")
    scenario = scenarios[options.scenario]
    if options.lane == "sdk":
        import anyio

        anyio.run(scenario, surroundings)
    else:
        scenario(surroundings)


if __name__ == "__main__":
    main()
