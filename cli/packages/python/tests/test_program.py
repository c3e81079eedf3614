"""`find_program`, `python -m everlink`, and an import without the SDK."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest
from support import DEADLINE

import everlink
from everlink import _program

SOURCE = Path(everlink.__file__).parent


def make_program(path: Path) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("#!/bin/sh\n")
    path.chmod(0o755)
    return path


@pytest.fixture
def nowhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A world in which the program is nowhere, and in which this package is installed nowhere."""
    monkeypatch.delenv("EVERLINK_PROGRAM", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path / "path"))
    monkeypatch.setattr(_program, "__file__", str(tmp_path / "elsewhere" / "everlink" / "_program.py"))
    schemes = lambda name, scheme="default", vars=None: str(tmp_path / ("base" if vars else scheme) / name)  # noqa: E731
    monkeypatch.setattr(_program.sysconfig, "get_path", schemes)
    monkeypatch.setattr(sys, "executable", str(tmp_path / "interpreter" / "python"))
    return tmp_path


def test_missing_program_names_all_places_and_what_to_do(nowhere: Path) -> None:
    with pytest.raises(everlink.ProgramNotFoundError) as caught:
        everlink.find_program()
    text = str(caught.value)
    for place in ["elsewhere/bin", "default/scripts", "posix_user/scripts", "base/scripts", "interpreter"]:
        assert str(nowhere / place) in text
    for word in ["PATH", "pip install everlink", "EVERLINK_PROGRAM"]:
        assert word in text
    assert isinstance(caught.value, FileNotFoundError)


@pytest.mark.parametrize("place", ["elsewhere/bin", "default/scripts", "posix_user/scripts", "base/scripts", "interpreter", "path"])
def test_program_is_found_at_each_place_of_an_installer(nowhere: Path, place: str) -> None:
    program = make_program(nowhere / place / "everlink")
    assert everlink.find_program() == str(program)


@pytest.mark.parametrize("packages", ["lib/python3.11/site-packages", "lib64/python3.11/site-packages", "Lib/site-packages"])
def test_program_of_another_prefix_is_found_beside_its_packages(nowhere: Path, monkeypatch: pytest.MonkeyPatch, packages: str) -> None:
    make_program(nowhere / "path" / "everlink")
    program = make_program(nowhere / "prefix" / "bin" / "everlink")
    monkeypatch.setattr(_program, "__file__", str(nowhere / "prefix" / packages / "everlink" / "_program.py"))
    assert everlink.find_program() == str(program)


def test_file_that_cannot_be_executed_is_not_the_program(nowhere: Path) -> None:
    make_program(nowhere / "default" / "scripts" / "everlink").chmod(0o644)
    (nowhere / "interpreter" / "everlink").mkdir(parents=True)
    program = make_program(nowhere / "path" / "everlink")
    assert everlink.find_program() == str(program)


def test_environment_variable_takes_precedence(nowhere: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make_program(nowhere / "default" / "scripts" / "everlink")
    program = make_program(nowhere / "mine")
    monkeypatch.setenv("EVERLINK_PROGRAM", str(program))
    assert everlink.find_program() == str(program)
    program.unlink()
    with pytest.raises(everlink.ProgramNotFoundError, match="EVERLINK_PROGRAM is .*mine"):
        everlink.find_program()


def test_module_runs_the_program_in_its_own_process(program: str) -> None:
    command = [sys.executable, "-m", "everlink", "guard", "--log", "off", "--", "true"]
    with subprocess.Popen(command, stdin=subprocess.PIPE) as process:
        # No interpreter stays in between: signals of a host reach the program.
        end = time.monotonic() + DEADLINE
        while os.readlink(f"/proc/{process.pid}/exe") != str(Path(program).resolve()):
            assert process.poll() is None and time.monotonic() < end
            time.sleep(0.01)
        process.communicate()
        assert process.returncode == 0
    wrong = subprocess.run([sys.executable, "-m", "everlink", "no-such-command"], capture_output=True, text=True)
    assert wrong.returncode == 2 and "no-such-command" in wrong.stderr
    version = subprocess.run([sys.executable, "-m", "everlink", "--version"], capture_output=True, text=True, check=True)
    assert version.stdout.startswith("everlink ")


def test_module_without_the_program_says_what_to_do(tmp_path: Path) -> None:
    environment = {**os.environ, "EVERLINK_PROGRAM": str(tmp_path / "gone")}
    result = subprocess.run([sys.executable, "-m", "everlink"], capture_output=True, text=True, env=environment)
    assert result.returncode == 4
    assert result.stderr.startswith("everlink: EVERLINK_PROGRAM is ")


def test_package_works_without_the_sdk(tmp_path: Path, program: str) -> None:
    shutil.copytree(SOURCE, tmp_path / "everlink")
    # Without site packages, and so without `mcp` and `anyio`.
    script = """
import sys
import everlink
print(everlink.find_program())
print(everlink.guarded({"command": "my-server"})["args"])
assert not {"mcp", "anyio", "pydantic"} & set(sys.modules)
try:
    everlink.streamable_http_client("http://127.0.0.1:1/mcp")
except ImportError as error:
    print(error)
"""
    command = [sys.executable, "-I", "-S", "-W", "error", "-c", f"import sys; sys.path.insert(0, {str(tmp_path)!r})\n{script}"]
    result = subprocess.run(command, capture_output=True, text=True)
    assert result.stderr == ""
    assert result.stdout.splitlines() == [
        program,
        "['guard', '--', 'my-server']",
        "the clients of everlink need the MCP SDK: install it with `pip install mcp`",
    ]


def test_import_needs_only_the_standard_library() -> None:
    script = "import sys; import everlink; print(sorted({'mcp', 'anyio', 'pydantic', 'asyncio'} & set(sys.modules)))"
    result = subprocess.run([sys.executable, "-W", "error", "-c", script], capture_output=True, text=True, check=True)
    assert (result.stdout, result.stderr) == ("[]\n", "")
