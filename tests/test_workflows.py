"""What the forge runs and shows: workflows, hooks and templates name targets, files and Pythons that exist."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml

TOP = Path(__file__).resolve().parent.parent
WORKFLOWS = sorted((TOP / ".github" / "workflows").glob("*.yml"))


def steps(workflow: Path) -> list[dict[str, Any]]:
    jobs = yaml.safe_load(workflow.read_text("utf-8"))["jobs"]
    return [step for job in jobs.values() for step in job["steps"]]


@pytest.mark.parametrize("workflow", WORKFLOWS, ids=lambda path: path.stem)
def test_steps_call_targets_and_files_that_exist(workflow: Path) -> None:
    targets = set(re.findall(r"^([a-z-]+):", (TOP / "Makefile").read_text("utf-8"), flags=re.MULTILINE))
    commands = [step["run"] for step in steps(workflow) if "run" in step]
    called = [name for command in commands for name in re.findall(r"\bmake ([a-z-]+)", command)]
    assert called and set(called) <= targets
    scripts = [path for command in commands for path in re.findall(r"\btools/\S+", command)]
    assert all((TOP / script).is_file() for script in scripts)


def test_ci_checks_before_it_tests_on_the_oldest_and_the_newest_python() -> None:
    jobs = yaml.safe_load((TOP / ".github" / "workflows" / "ci.yml").read_text("utf-8"))["jobs"]
    assert [name for name, job in jobs.items() if "needs" not in job] == ["check"]
    project = tomllib.loads((TOP / "pyproject.toml").read_text("utf-8"))["project"]
    supported = [label[-4:] for label in project["classifiers"] if re.search(r"Python :: 3\.\d+", label)]
    assert jobs["test"]["strategy"]["matrix"]["python"] == [supported[0], supported[-1]]


def test_actions_are_named_with_their_version_and_nothing_has_an_address() -> None:
    for workflow in WORKFLOWS:
        actions = [step["uses"] for step in steps(workflow) if "uses" in step]
        assert actions and all(re.fullmatch(r"actions/[a-z/-]+@v\d+", action) for action in actions)
        assert "://" not in workflow.read_text("utf-8")


def test_the_night_keeps_what_failed_also_of_a_run_that_failed() -> None:
    (saving,) = (step for step in steps(TOP / ".github/workflows/nightly.yml") if "cache/save" in step.get("uses", ""))
    assert saving["if"] == "always()"


def test_hooks_run_what_make_check_runs() -> None:
    (repository,) = yaml.safe_load((TOP / ".pre-commit-config.yaml").read_text("utf-8"))["repos"]
    hooks = " ".join(hook["entry"] for hook in repository["hooks"])
    makefile = (TOP / "Makefile").read_text("utf-8")
    recipe = makefile.partition("\ncheck:")[2].partition("\n\n")[0]
    tools = {*re.findall(r"ruff [a-z]+|tools/[a-z]+\.py", recipe)}
    assert tools == {"ruff format", "ruff check", "tools/rooms.py", "tools/typecheck.py"}
    assert all(tool in hooks for tool in tools)


def test_templates_name_commands_that_exist() -> None:
    commands = {path.stem for path in (TOP / "cli").glob("*.py")}
    templates = [*(TOP / ".github" / "ISSUE_TEMPLATE").glob("*.md"), TOP / "SECURITY.md"]
    for template in templates:
        assert set(re.findall(r"`ddcore ([a-z]+)", template.read_text("utf-8"))) <= commands, template
