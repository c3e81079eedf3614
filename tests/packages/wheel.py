"""Checks an installed wheel. Run it with the interpreter of the environment: wheel.py VERSION WHEEL."""

import base64
import csv
import hashlib
import importlib.metadata
import io
import json
import subprocess
import sys
import sysconfig
import zipfile
from pathlib import Path


def main(version: str, wheel: str) -> None:
    suffix = ".exe" if sys.platform == "win32" else ""
    program = Path(sysconfig.get_path("scripts")) / f"everlink{suffix}"
    expected = f"everlink {version}"
    for command in ([str(program)], [sys.executable, "-m", "everlink"]):
        printed = subprocess.run([*command, "--version"], capture_output=True, text=True, check=True).stdout.strip()
        expect(printed == expected, f"{command} prints {printed!r} instead of {expected!r}")
    check_archive(zipfile.ZipFile(wheel))
    metadata = importlib.metadata.metadata("everlink")
    expect(metadata["License-Expression"] == "MIT OR Apache-2.0", "the metadata has no licence")
    print(f"the wheel works: {expected}")


def check_archive(archive: zipfile.ZipFile) -> None:
    """The list of files must be complete, with the right hashes. The program must be executable."""
    names = archive.namelist()
    (record,) = (name for name in names if name.endswith(".dist-info/RECORD"))
    rows = list(csv.reader(io.StringIO(archive.read(record).decode())))
    expect(sorted(row[0] for row in rows) == sorted(names), "RECORD does not list the files of the wheel")
    for name, digest, size in rows:
        if name == record:
            continue
        content = archive.read(name)
        right = base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=").decode()
        expect(digest == f"sha256={right}", f"RECORD has a wrong hash of {name}")
        expect(int(size) == len(content), f"RECORD has a wrong size of {name}")
    (program,) = (info for info in archive.infolist() if "/scripts/everlink" in info.filename)
    expect(program.external_attr >> 16 == 0o100755, "the program is not executable")
    (sbom,) = (name for name in names if name.endswith(".dist-info/sboms/everlink.cyclonedx.json"))
    expect(json.loads(archive.read(sbom))["bomFormat"] == "CycloneDX", "the list of packages is no CycloneDX document")
    for licence in ("LICENSE-MIT", "LICENSE-APACHE", "THIRD-PARTY-LICENSES.txt", "RUST-STANDARD-LIBRARY.html"):
        expect(any(name.endswith(f".dist-info/licenses/{licence}") for name in names), f"{licence} is missing")


def expect(condition: bool, problem: str) -> None:
    if not condition:
        sys.exit(f"wrong: {problem}")


main(*sys.argv[1:])
