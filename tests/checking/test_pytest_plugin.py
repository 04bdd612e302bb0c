"""The pytest plugin collects rule files, and stays out of the way otherwise."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

# Runs inside this process find it loaded; NumPy cannot be loaded a second time.
import eqsat  # noqa: F401

pytest_plugins = ["pytester"]

RULES = '''
from eqsat import rule
from eqsat.ops import exp


@rule("..., ...")
def right(x, y):
    """x + y = y + x."""
    return x + y, y + x


@rule("...")
def wrong(x):
    """e^-x is not eˣ."""
    return exp(-x), exp(x)


made = [rule("...", name=f"times_{i}")(lambda x: (x * 1.0, x)) for i in (1, 2)]
'''


@pytest.fixture
def project(pytester: pytest.Pytester) -> pytest.Pytester:
    pytester.makepyfile(my_rules=RULES)
    return pytester


def test_the_flag_collects_a_test_for_each_rule(project: pytest.Pytester) -> None:
    result = project.runpytest("my_rules.py", "--eqsat", "-v", "--eqsat-examples=20")
    result.assert_outcomes(passed=3, failed=1)
    result.stdout.fnmatch_lines(
        ["my_rules.py::right PASSED*", "my_rules.py::wrong FAILED*", "*times_2 PASSED*"]
    )


def test_a_failure_shows_the_counterexample_and_no_traceback(
    project: pytest.Pytester,
) -> None:
    result = project.runpytest("my_rules.py::wrong", "--eqsat", "--eqsat-examples=20")
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(
        [
            "*my_rules.py:11: rule 'wrong'",
            "reassociate: * differ by *",
            "left, right = sides(rule, x)",
        ]
    )
    assert "Traceback" not in result.stdout.str()
    assert "check.py" not in result.stdout.str()


def test_without_the_flag_rules_are_no_tests(project: pytest.Pytester) -> None:
    project.runpytest("my_rules.py").assert_outcomes()


def test_the_setting_collects_them_without_the_flag(project: pytest.Pytester) -> None:
    project.makepyfile(test_mine="def test_it(): pass")
    project.makeini(
        "[pytest]\neqsat_rules =\n    my_*.py\neqsat_examples = 10\n"
        "addopts = --deselect my_rules.py::wrong"
    )
    result = project.runpytest("-rA")
    result.assert_outcomes(passed=4, deselected=1)
    result.stdout.fnmatch_lines(["*cases"])


def test_a_folder_gives_its_rule_files_and_its_tests(
    project: pytest.Pytester,
) -> None:
    project.makepyfile(
        test_mine="def test_it(): pass",
        helper="from eqsat import rule\nraise ValueError",
        conftest=RULES,
    )
    result = project.runpytest("--eqsat", "--eqsat-examples=5", "-k", "not wrong")
    result.assert_outcomes(passed=4, deselected=1)


def test_a_broken_rule_file_is_an_error_that_names_the_line(
    pytester: pytest.Pytester,
) -> None:
    pytester.makepyfile(
        broken='from eqsat import rule\n\n@rule("n")\ndef f(x):\n    return x + y, x\n'
    )
    result = pytester.runpytest("broken.py", "--eqsat")
    result.assert_outcomes(errors=1)
    result.stdout.fnmatch_lines(["*broken.py:3: rule 'f': NameError*"])


def test_it_imports_nothing_of_eqsat_before_a_rule_file(tmp_path: Path) -> None:
    """pytest loads plugins in every project, also in those without rules."""
    (tmp_path / "test_mine.py").write_text(
        "import sys\n"
        "def test_it():\n"
        "    assert 'eqsat_pytest' in sys.modules\n"
        "    assert not {'eqsat', 'numpy', 'hypothesis'} & set(sys.modules)\n",
        encoding="utf-8",
    )
    command = [sys.executable, "-m", "pytest", "-p", "no:hypothesispytest"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
