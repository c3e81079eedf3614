"""Fixtures: the program, the backends of the installed SDK, and a check that nothing is left behind. Linux only, because they read /proc."""

from __future__ import annotations

import gc
import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from support import BACKENDS, Place

import everlink


@pytest.fixture(params=BACKENDS)
def backend(request: pytest.FixtureRequest) -> str:
    """The event loops on which the installed SDK is tested."""
    return str(request.param)


@pytest.fixture(scope="session")
def program() -> str:
    return everlink.find_program()


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, program: str) -> Iterator[Place]:
    """A directory and a mark for all processes of a test. At the end, no process has the mark, and no descriptor was added."""
    descriptors = len(os.listdir("/proc/self/fd"))
    # What a guard remembers of a server is not for other tests.
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    place = Place(tmp_path, program)
    monkeypatch.setenv(place.VARIABLE, place.mark)
    yield place
    left = place.wait_until_gone()
    place.kill_all()
    assert not left, f"processes are left: {left}"
    gc.collect()
    assert len(os.listdir("/proc/self/fd")) <= descriptors
