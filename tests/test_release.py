"""What is released: the archives hold the whole package, install without a compiler, and run."""

from __future__ import annotations

import json
import re
import sys
import tarfile
import tomllib
import zipfile
from pathlib import Path
from typing import Any

import pytest

import regard
from regard.cli.main import main
from regard.core import doctor
from regard.lab.claims import names as claims
from tests.files import script
from tests.refusals import refuses

ROOT = Path(__file__).parent.parent


@pytest.fixture(scope="module")
def release() -> Any:
    return script("release")


def test_the_version_is_the_same_everywhere(release: Any) -> None:
    assert release.version() == regard.__version__


@pytest.mark.long
def test_archives_hold_everything_and_install_without_a_compiler(
    release: Any, tmp_path: Path
) -> None:
    wheel, archive = release.build(tmp_path)
    release.check_content(wheel, archive)
    for file in (wheel, archive):
        facts = release.check_installed(file, Path(sys.executable))
        assert facts["compiler"] is None and facts["torch"]


def test_a_lacking_file_is_refused(
    release: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    wheel, archive = tmp_path / "regard-1-py3-none-any.whl", tmp_path / "regard-1.tar.gz"
    with zipfile.ZipFile(wheel, "w") as packed:
        packed.writestr("regard/__init__.py", "")
    with tarfile.open(archive, "w:gz"):
        pass
    with refuses(SystemExit, "lacks"):
        release.check_content(wheel, archive)
    with refuses(SystemExit, "every machine"):
        release.check_content(wheel.with_name("regard-1-cp311-linux_x86_64.whl"), archive)


def gallery_of(file: Path, *, without: str = "", index: str = "[a](compare/report.html)") -> Path:
    """A gallery as `make gallery` packs it, with a page of every claim but one."""
    pages = ["compare/report.html", "claims/gallery.html"]
    pages += [f"claims/{name}/claim.html" for name in claims()]
    with zipfile.ZipFile(file, "w") as packed:
        packed.writestr("README.md", f"# Gallery\n\n{index}\n")
        for page in pages:
            if page != without:
                packed.writestr(page, "<!doctype html>")
    return file


def test_a_whole_gallery_is_carried_beside_the_archives(release: Any, tmp_path: Path) -> None:
    out, file = tmp_path / "dist", gallery_of(tmp_path / "gallery.zip")
    copy = release.carry_gallery(file, out, needed=True)
    assert copy == out / f"regard-{regard.__version__}-gallery.zip"
    assert copy.read_bytes() == file.read_bytes()
    assert release.carry_gallery(tmp_path / "none.zip", out, needed=False) is None
    assert list(out.iterdir()) == []  # one of an older release does not stay


def test_without_a_gallery_nothing_is_tagged(
    release: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: Any
) -> None:
    lone = tmp_path / "gallery.zip"
    release.carry_gallery(lone, tmp_path, needed=False)
    assert "NOT A WHOLE RELEASE: there is no gallery.zip" in capsys.readouterr().out
    monkeypatch.setattr(release, "check_clean", lambda: None)
    words = ["release.py", "--tag", "--gallery", str(lone), "--out", str(tmp_path / "dist")]
    monkeypatch.setattr(sys, "argv", words)
    with refuses(SystemExit, "make gallery"):
        release.main()
    assert not (tmp_path / "dist").exists()  # and nothing was built before


@pytest.mark.parametrize("page", ["compare/report.html", "claims/scaling/claim.html"])
def test_a_gallery_that_lacks_a_page_is_refused(release: Any, tmp_path: Path, page: str) -> None:
    with refuses(SystemExit, f"lacks {page}"):
        release.check_gallery(gallery_of(tmp_path / "gallery.zip", without=page))


def test_a_gallery_that_links_to_nothing_or_is_damaged_is_refused(
    release: Any, tmp_path: Path
) -> None:
    lost = gallery_of(tmp_path / "gallery.zip", index="[a](compare/runs/gpt-1/report.html)")
    with refuses(SystemExit, "lacks compare/runs/gpt-1/report.html"):
        release.check_gallery(lost)
    whole = gallery_of(lost).read_bytes()
    lost.write_bytes(whole.replace(b"# Gallery", b"# gallery", 1))
    with refuses(SystemExit, "damaged at README.md"):
        release.check_gallery(lost)
    lost.write_bytes(whole[:100])
    with refuses(SystemExit, "not a zip"):
        release.check_gallery(lost)


def test_the_gallery_is_what_the_page_of_a_claim_is_called(release: Any) -> None:
    """The script that gathers the pages writes what the release looks for."""
    gallery = script("gallery")
    assert (gallery.NAME, "report.html" in gallery.REPORTS) == ("claim.html", True)


def test_nothing_is_sent_by_the_script() -> None:
    text = (ROOT / "scripts" / "release.py").read_text("utf-8")
    calls = re.findall(r'run\("git", "([\w-]+)"', text)
    assert set(calls) == {"ls-files", "status", "tag"}


# -- regard doctor


def test_the_doctor_names_what_is_there(capsys: pytest.CaptureFixture[str]) -> None:
    import torch

    code = main(["doctor", "--json"])
    facts = json.loads(capsys.readouterr().out)
    assert code == int(bool(facts["problems"]))
    assert facts["regard"]["version"] == regard.__version__
    assert facts["torch"]["version"] == torch.__version__
    assert facts["torch"]["threads"] == torch.get_num_threads()
    assert facts["python"]["path"] == sys.executable
    assert main(["doctor"]) == code
    shown = capsys.readouterr().out
    assert torch.__version__ in shown and "compiler" in shown


def test_extras_are_those_of_the_package(monkeypatch: pytest.MonkeyPatch) -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    lines = list(project["dependencies"])
    for extra, wanted in project["optional-dependencies"].items():
        lines += [f'{line}; extra == "{extra}"' for line in wanted]
    monkeypatch.setattr(doctor, "requires", lambda name: lines)
    known = {"torch": "2.5.0", "numpy": "1.26.0", "huggingface-hub": "1.0"}

    def version(name: str) -> str:
        if name not in known:
            raise doctor.PackageNotFoundError(name)
        return known[name]

    monkeypatch.setattr(doctor, "version", version)
    table = doctor.libraries()
    rows = {row["name"]: row for row in table[""]}
    assert rows["torch"] == {"name": "torch", "version": "2.5.0", "needs": "2.6"}
    assert rows["numpy"] == {"name": "numpy", "version": "1.26.0", "needs": None}
    assert rows["click"] == {"name": "click", "version": None, "needs": "8.2"}
    assert [row["name"] for row in table["sentencepiece"]] == ["sentencepiece", "protobuf"]
    assert "regard" not in {row["name"] for some in table.values() for row in some}
    facts = {"torch": None, "required": table[""], "places": []}
    problems = list(doctor.problems(facts))
    assert "pip install torch" in problems[0]
    assert any("click is missing" in problem for problem in problems)
    assert any("2.5.0" in problem and "2.6" in problem for problem in problems)


def test_the_doctor_works_without_torch(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch", None)
    facts = doctor.examine()
    assert facts["torch"] is None
    assert any("torch is not installed" in problem for problem in facts["problems"])


def test_a_place_that_is_not_there_is_a_problem(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("REGARD_DATA", "/nowhere/data")
    problems = doctor.examine()["problems"]
    assert any("REGARD_DATA" in problem and "/nowhere/data" in problem for problem in problems)
