"""Finds the program `everlink`. Depends on nothing but the standard library."""

from __future__ import annotations

import os
import shutil
import sys
import sysconfig
from collections.abc import Iterator
from pathlib import Path

_VARIABLE = "EVERLINK_PROGRAM"


class ProgramNotFoundError(FileNotFoundError):
    """The program `everlink` is at none of the places where it is looked for."""


def find_program() -> str:
    """Returns the path of the program `everlink`.

    The environment variable `EVERLINK_PROGRAM` takes precedence. Then come the places where installers put the program of this package: for a virtual environment,
    `--prefix`, `--target` and `--user`. Then comes the directory of the interpreter, and last `PATH`.

    Raises:
        ProgramNotFoundError: The program is at none of these places. The text lists them.
    """
    chosen = os.environ.get(_VARIABLE)
    if chosen:
        if _is_program(Path(chosen)):
            return chosen
        raise ProgramNotFoundError(f"{_VARIABLE} is {chosen!r}, which is not an executable file: correct or unset this environment variable")
    name = "everlink" + (sysconfig.get_config_var("EXE") or "")
    places = list(dict.fromkeys(_places()))
    for place in places:
        if _is_program(place / name):
            return str(place / name)
    found = shutil.which("everlink")
    if found is not None:
        return found
    looked = ", ".join(str(place) for place in places)
    raise ProgramNotFoundError(
        f"the program `everlink` was found neither in {looked} nor in PATH: install it with `pip install everlink` or "
        f"`cargo install everlink-cli`, or set {_VARIABLE} to its path"
    )


def _places() -> Iterator[Path]:
    """The directories where an installer may have put the program of this package, the most specific ones first."""
    scripts = "Scripts" if sys.platform == "win32" else "bin"
    site_packages = Path(__file__).resolve().parent.parent
    # `pip install --target DIRECTORY` puts programs into a directory beside the packages.
    yield site_packages / "bin"
    # A virtual environment or `--prefix`: PREFIX/lib/python3.11/site-packages, or PREFIX\Lib\site-packages.
    for parent in list(site_packages.parents)[:3]:
        if parent.name.lower() in ("lib", "lib64"):
            yield parent.parent / scripts
            # Debian: PREFIX/local/lib/python3.11/dist-packages.
            if parent.parent.name == "local":
                yield parent.parent.parent / scripts
            break
    yield Path(sysconfig.get_path("scripts"))
    yield Path(sysconfig.get_path("scripts", scheme=sysconfig.get_preferred_scheme("user")))
    yield Path(sysconfig.get_path("scripts", vars={"base": sys.base_prefix}))
    if sys.executable:
        yield Path(sys.executable).parent


def _is_program(path: Path) -> bool:
    return path.is_file() and os.access(path, os.X_OK)
