"""The cache folder: which folders code may be loaded from, and the package as executors unpack it."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pytest

from ddcore.base.cache import (
    cache_folder,
    distrust,
    kernel_folder,
    make_private,
    note_use,
    remove_unused,
    remove_unused_daily,
    unpacked,
)
from ddcore.base.errors import StorageError
from ddcore.jobs.spark import class_archive, jars
from ddcore.jobs.spark.shipping import package_zip

STRANGER = 54_321  # a user id that is neither ours nor root's


def hand_over(path: Path) -> None:
    """Make a folder look like another user's: by its owner where this process may change it, else by its mode."""
    if os.geteuid() == 0:
        os.chown(path, STRANGER, -1)
    else:
        path.chmod(0o777)


# --- trust ------------------------------------------------------------------------------------------------------------


def test_a_folder_of_ours_is_trusted_before_and_after_it_is_made(tmp_path: Path) -> None:
    folder = tmp_path / "a" / "b"
    assert distrust(folder) == ""
    make_private(folder)
    assert distrust(folder) == ""
    assert [oct(location.stat().st_mode & 0o777) for location in (folder, folder.parent)] == ["0o700", "0o700"]
    make_private(folder)


@pytest.mark.parametrize(("mode", "trusted"), [(0o755, True), (0o500, True), (0o775, False), (0o1777, False)])
def test_only_the_owner_may_write_to_the_folder(tmp_path: Path, mode: int, trusted: bool) -> None:
    (tmp_path / "code").mkdir()
    (tmp_path / "code").chmod(mode)
    assert (distrust(tmp_path / "code") == "") is trusted


@pytest.mark.parametrize(("mode", "trusted"), [(0o775, True), (0o1777, True), (0o777, False)])
def test_nobody_else_may_exchange_the_folder(tmp_path: Path, mode: int, trusted: bool) -> None:
    make_private(tmp_path / "above" / "code")
    (tmp_path / "above").chmod(mode)
    assert (distrust(tmp_path / "above" / "code") == "") is trusted
    assert (distrust(tmp_path / "above" / "not yet") == "") is trusted


@pytest.mark.parametrize("name", ["code", "above"])
def test_a_folder_of_another_user_is_refused(tmp_path: Path, name: str) -> None:
    folder = tmp_path / "above" / "code"
    make_private(folder)
    hand_over({"code": folder, "above": folder.parent}[name])
    assert str(tmp_path / "above") in distrust(folder)
    with pytest.raises(PermissionError):
        make_private(folder)


def test_links_count_as_what_they_lead_to(tmp_path: Path) -> None:
    make_private(tmp_path / "real")
    (tmp_path / "link").symlink_to("real")
    assert distrust(tmp_path / "link") == ""
    (tmp_path / "real").chmod(0o777)
    assert str(tmp_path / "real") in distrust(tmp_path / "link")
    (tmp_path / "loop").symlink_to("loop")
    assert distrust(tmp_path / "loop") != "" or not (tmp_path / "loop").exists()
    with pytest.raises(OSError):
        make_private(tmp_path / "loop" / "code")


def test_a_user_without_a_home_gets_a_private_folder_of_the_temporary_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("DDCORE_CACHE", raising=False)
    monkeypatch.setattr(os.path, "expanduser", lambda path: path)  # as it does for a user that nobody knows
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    assert cache_folder() == tmp_path / f"ddcore-{os.getuid()}"


def test_jars_and_class_archives_of_a_folder_of_others_are_not_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DDCORE_CACHE", str(tmp_path))
    make_private(jars.folder())
    for name in jars.JARS:
        (jars.folder() / name).write_bytes(b"jar")
    assert len(jars.paths()) == len(jars.JARS)
    archive = class_archive._file("/bin/sh", tmp_path)
    make_private(archive.parent)
    archive.write_bytes(b"classes")
    assert class_archive.archive("/bin/sh", tmp_path) == archive
    hand_over(jars.folder())
    hand_over(archive.parent)
    with pytest.raises(StorageError, match="cannot be trusted") as caught:
        jars.paths()
    assert "DDCORE_CACHE" in caught.value.hint
    assert class_archive.archive("/bin/sh", tmp_path) is None


# --- the package, unpacked --------------------------------------------------------------------------------------------


@pytest.fixture
def archive(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """The package's zip; the cache folder and the temporary directory are new."""
    zip_file = package_zip()
    monkeypatch.setenv("DDCORE_CACHE", str(tmp_path / "cache"))
    (tmp_path / "tmp").mkdir()
    (tmp_path / "tmp").chmod(0o1777)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "tmp"))
    return str(zip_file)


def init_file(target: str) -> Path:
    return Path(target, "ddcore", "__init__.py")


@pytest.mark.sample(2)
@pytest.mark.parametrize("damage", ["changed", "missing", "added", "open to others", "a link"])
def test_what_was_unpacked_before_is_used_only_if_it_is_what_the_zip_holds(
    archive: str, tmp_path: Path, damage: str
) -> None:
    target = unpacked(archive)
    assert target == str(tmp_path / "cache" / "code" / Path(archive).stem)
    first = Path(target).stat().st_ino
    assert unpacked(archive) == target and Path(target).stat().st_ino == first, "used as it is"
    content = init_file(target).read_bytes()
    if damage == "changed":
        init_file(target).write_bytes(content.replace(b"import", b"export"))
    elif damage == "missing":
        init_file(target).unlink()
    elif damage == "added":
        init_file(target).with_name("json.py").write_text("raise SystemExit")
    elif damage == "open to others":
        Path(target).chmod(0o777)
    else:
        Path(target).rename(tmp_path / "moved")
        Path(target).symlink_to(tmp_path / "moved")
    assert unpacked(archive) == target
    assert Path(target).stat().st_ino != first and not Path(target).is_symlink()
    assert init_file(target).read_bytes() == content
    assert not init_file(target).with_name("json.py").exists()
    assert os.listdir(Path(target).parent) == [Path(target).name], "nothing half-unpacked is left"


def test_without_a_cache_folder_code_and_kernels_go_to_a_private_folder(archive: str, tmp_path: Path) -> None:
    (tmp_path / "cache").write_text("a file, where the folder should be")
    private = tmp_path / "tmp" / f"ddcore-{os.getuid()}"
    assert unpacked(archive) == str(private / "code" / Path(archive).stem)
    assert oct(private.stat().st_mode & 0o777) == "0o700"
    assert cache_folder() == private


@pytest.mark.sample(2)
@pytest.mark.parametrize("kind", ["another user's", "open to others", "readable by others", "a link", "a file"])
def test_a_temporary_folder_that_somebody_prepared_is_not_used(archive: str, tmp_path: Path, kind: str) -> None:
    (tmp_path / "cache").write_text("a file, where the folder should be")
    name = f"ddcore-{os.getuid()}"
    prepared = tmp_path / ("elsewhere" if kind == "a link" else "tmp") / name
    trap = prepared / "code" / Path(archive).stem / "ddcore" / "__init__.py"
    if kind == "a file":
        prepared.write_text("")
    else:
        trap.parent.mkdir(parents=True)
        trap.write_text("raise SystemExit('the trap')")
        prepared.chmod(0o700)
    if kind == "another user's":
        hand_over(prepared)
    elif kind in ("open to others", "readable by others"):
        prepared.chmod(0o777 if kind == "open to others" else 0o755)
    elif kind == "a link":
        (tmp_path / "tmp" / name).symlink_to(prepared)
    target = unpacked(archive)
    assert not Path(target).is_relative_to(tmp_path / "tmp" / name)
    assert Path(target).is_relative_to(tmp_path / "tmp")
    assert oct(Path(target).parent.stat().st_mode & 0o777) == "0o700"
    assert "trap" not in init_file(target).read_text()
    assert kind == "a file" or "the trap" in trap.read_text()


def test_an_executor_does_not_run_code_that_somebody_prepared(archive: str, tmp_path: Path) -> None:
    """The whole way: Python imports the package from the zip."""
    (tmp_path / "cache").write_text("a file, where the folder should be")
    trap = tmp_path / "tmp" / f"ddcore-{os.getuid()}" / "code" / Path(archive).stem / "ddcore" / "__init__.py"
    trap.parent.mkdir(parents=True)
    trap.write_text(f"open({str(tmp_path / 'trapped')!r}, 'w')")
    (tmp_path / "tmp" / f"ddcore-{os.getuid()}").chmod(0o777)
    done = subprocess.run(
        [sys.executable, "-c", "import ddcore.io.storage.warehouse; print(ddcore.__path__[0])"],
        env={**os.environ, "PYTHONPATH": archive, "TMPDIR": str(tmp_path / "tmp")},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=True,
    )
    assert not (tmp_path / "trapped").exists()
    assert not Path(done.stdout.strip()).exists(), "the folder of this process alone is gone with it"


# --- what is not used any more ----------------------------------------------------------------------------------------

DAY = 86_400.0


def used(kind: str, *days_ago: float) -> list[Path]:
    """Entries of the cache that were last used so many days ago."""
    locations = []
    for number, days in enumerate(days_ago):
        entry = cache_folder() / kind / f"entry-{number}"
        if kind in ("kernels", "code"):
            (entry / "below").mkdir(parents=True)
        else:
            entry.parent.mkdir(parents=True, exist_ok=True)
            entry.touch()
        os.utime(entry, (time.time() - days * DAY,) * 2)
        locations.append(entry)
    return locations


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    make_private(tmp_path / "cache")
    monkeypatch.setenv("DDCORE_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.mark.parametrize(("kind", "kept"), [("kernels", 16), ("code", 16), ("ship", 16), ("cds", 4), ("plans", 64)])
def test_what_was_not_used_for_long_is_removed(kind: str, kept: int, cache: Path) -> None:
    entries = used(kind, 1.0, 1.0, 31.0, *[8.0] * (kept + 2))
    remove_unused()
    assert [entry.exists() for entry in entries[:3]] == [True, True, False]
    assert sum(entry.exists() for entry in entries) == kept


def test_commands_look_for_what_is_unused_once_a_day(cache: Path) -> None:
    (entry,) = used("plans", 31.0)
    remove_unused_daily()
    assert not entry.exists()
    (entry,) = used("plans", 31.0)
    remove_unused_daily()
    assert entry.exists()
    yesterday = time.time() - 90_000
    os.utime(cache / "removed", (yesterday, yesterday))
    remove_unused_daily()
    assert not entry.exists()


def test_however_many_were_used_lately_stay(cache: Path) -> None:
    entries = used("kernels", *[6.0] * 40)
    remove_unused()
    assert all(entry.exists() for entry in entries)


def test_a_use_is_noted(cache: Path) -> None:
    entries = used("kernels", 31.0, 31.0)
    note_use(entries[0])
    remove_unused()
    assert [entry.exists() for entry in entries] == [True, False]
    note_use(cache / "kernels" / "missing")


def test_only_what_can_be_made_again_is_removed_and_no_link_is_followed(cache: Path, tmp_path: Path) -> None:
    (entry,) = used("jars", 400.0)
    target = tmp_path / "mine"
    target.mkdir()
    (cache / "code").mkdir()
    (cache / "code" / "link").symlink_to(target)
    os.utime(cache / "code" / "link", (0, 0), follow_symlinks=False)
    remove_unused()
    assert entry.exists() and target.exists() and not (cache / "code" / "link").is_symlink()


def test_nothing_is_removed_from_a_folder_that_another_user_may_have_filled(cache: Path) -> None:
    (entry,) = used("code", 400.0)
    hand_over(cache / "code")
    remove_unused()
    assert entry.exists()


def test_a_process_notes_the_kernels_that_it_loads(cache: Path) -> None:
    """Also where all that they are is a folder: the kernels of this state are in use."""
    program = (
        "from pathlib import Path; import os\n"
        "from ddcore.compiling import kernel_cache\n"
        "from ddcore.base.cache import kernel_folder\n"
        "kernel_folder().mkdir(parents=True, mode=0o700); os.utime(kernel_folder(), (0, 0))\n"
        "kernel_cache.current_kernels()"
    )
    subprocess.run([sys.executable, "-c", program], check=True)
    assert time.time() - kernel_folder().stat().st_mtime < DAY
