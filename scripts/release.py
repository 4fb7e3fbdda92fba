"""Makes a release: builds the wheel and the source archive, checks both, and tags the commit here.

    python scripts/release.py                 # build into dist/ and check
    python scripts/release.py --tag           # and tag this commit, if the tree is clean

A release carries the gallery: gallery.zip, which `make gallery` makes, is checked and put beside
the archives. Without it nothing is tagged. Nothing leaves this machine: sending the tag (git push)
and the archives (twine upload) is left to a person, and the last lines say how.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
import sysconfig
import tarfile
import tempfile
import zipfile
from pathlib import Path

from regard.lab.claims import names as claims

ROOT = Path(__file__).resolve().parent.parent
HOOKS = "from setuptools import build_meta as b; b.build_wheel({0!r}); b.build_sdist({0!r})"


def run(*words: str | Path, cwd: Path = ROOT, **variables: str) -> str:
    """Runs a program; if it fails, the release fails with what it printed."""
    done = subprocess.run(
        list(map(str, words)), cwd=cwd, env=os.environ | variables, capture_output=True, text=True
    )
    if done.returncode:
        raise SystemExit(f"{' '.join(map(str, words))} failed:\n{done.stdout}{done.stderr}")
    return done.stdout


def version() -> str:
    """Returns the version, which the package, the changelog and the citation must agree on."""
    text = (ROOT / "regard" / "core" / "__init__.py").read_text("utf-8")
    found_in = {"regard/core/__init__.py": re.search(r'VERSION = "(.+)"', text)}
    for name, pattern in (
        ("CITATION.cff", r"^version: (.+)$"),
        ("CHANGELOG.md", r"^## \[(\d.+?)\]"),  # the newest section
    ):
        found_in[name] = re.search(pattern, (ROOT / name).read_text("utf-8"), re.MULTILINE)
    names = {name: match[1] if match else "no version" for name, match in found_in.items()}
    if len(set(names.values())) != 1:
        raise SystemExit(f"the versions differ: {names}; write the same one into each")
    return next(iter(names.values()))


def sources() -> list[str]:
    """Returns the files of the package that git knows."""
    return run("git", "ls-files", "regard").split()


def build(out: Path) -> tuple[Path, Path]:
    """Builds a wheel and a source archive from what git knows, whatever else lies around."""
    out.mkdir(parents=True, exist_ok=True)
    for old in (*out.glob("regard-*.whl"), *out.glob("regard-*.tar.gz")):
        old.unlink()
    with tempfile.TemporaryDirectory() as scratch:
        tree = Path(scratch, "tree")
        for name in run("git", "ls-files").splitlines():
            if (ROOT / name).is_file():
                (tree / name).parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(ROOT / name, tree / name)
        run(sys.executable, "-c", HOOKS.format(str(out.resolve())), cwd=tree)
    (wheel,), (archive,) = out.glob("regard-*.whl"), out.glob("regard-*.tar.gz")
    return wheel, archive


def check_content(wheel: Path, archive: Path) -> None:
    """Refuses archives that lack a file of the package, or that hold something compiled."""
    if not wheel.name.endswith("-py3-none-any.whl"):
        raise SystemExit(f"{wheel.name} is not for every machine; nothing may be compiled into it")
    with zipfile.ZipFile(wheel) as packed:
        inside = set(packed.namelist())
    with tarfile.open(archive) as packed_sources:
        names = packed_sources.getnames()
    in_archive = {name.partition("/")[2] for name in names}
    for name in sources():
        for file, content in ((wheel, inside), (archive, in_archive)):
            if name not in content:
                raise SystemExit(f"{file.name} lacks {name}; see package-data in pyproject.toml")


def check_installed(file: Path, python: Path) -> dict[str, object]:
    """Installs an archive into a fresh environment without a compiler, and uses it there. Libraries
    are those of this environment."""
    with tempfile.TemporaryDirectory() as scratch:
        place = Path(scratch)
        run(python, "-m", "venv", place / "venv")
        inner = place / "venv" / "bin" / "python"
        # the new environment's own setuptools may be too old to build; that of here is used
        run(inner, "-m", "pip", "uninstall", "-q", "-y", "setuptools")
        ours = run(inner, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))").strip()
        Path(ours, "libraries.pth").write_text(sysconfig.get_path("purelib") + "\n")
        tools = place / "tools"  # a search path without g++
        tools.mkdir()
        run(inner, "-m", "pip", "install", "-q", "--disable-pip-version-check", "--no-deps",
            "--no-build-isolation", "--no-index", file.resolve(), PATH=str(tools))  # fmt: skip
        command = place / "venv" / "bin" / "regard"
        alone = {"PATH": str(tools), "PYTHONPATH": "", "REGARD_NATIVE": ""}
        shown = run(command, "--version", cwd=place, **alone).split()[-1]
        facts: dict[str, object] = json.loads(run(command, "doctor", "--json", cwd=place, **alone))
        regard = facts["regard"]
        assert isinstance(regard, dict)
        if shown != version() or not regard["path"].startswith(ours) or facts["compiler"]:
            raise SystemExit(f"{file.name} installs as {shown} in {regard['path']}")
        run(command, "recipes", "bert-ner", cwd=place, **alone)
        run(command, "models", "--family", "t5", cwd=place, **alone)
        run(command, "draw", "masks", "causal", "--out", "mask.svg", cwd=place, **alone)
    return facts


def check_gallery(file: Path) -> None:
    """Refuses a gallery that lacks the comparison, the page of a claim, or what a page links to."""
    if not zipfile.is_zipfile(file):
        raise SystemExit(f"{file} is not a zip archive; make gallery makes it")
    with zipfile.ZipFile(file) as packed:
        if damaged := packed.testzip():
            raise SystemExit(f"{file.name} is damaged at {damaged}; make gallery makes it again")
        pages = set(packed.namelist())
        index = packed.read("README.md").decode() if "README.md" in pages else ""
    wanted = [
        "README.md",
        "compare/report.html",
        "claims/gallery.html",
        *(f"claims/{name}/claim.html" for name in claims()),
        *re.findall(r"\]\((?!https?:)([^)\s#]+)", index),
    ]
    if lacking := sorted(set(wanted) - pages):
        more = f" and {len(lacking) - 3} more" if len(lacking) > 3 else ""
        raise SystemExit(
            f"{file.name} lacks {', '.join(lacking[:3])}{more}; make gallery measures the rest"
        )


def carry_gallery(file: Path, out: Path, needed: bool) -> Path | None:
    """Puts the gallery beside the archives; without one, says so, or refuses if needed."""
    for old in out.glob("regard-*-gallery.zip"):
        old.unlink()
    if not file.is_file():
        problem = (
            f"there is no {file.name}, and a release carries it; make gallery makes it (hours)"
        )
        if needed:
            raise SystemExit(problem)
        print(f"NOT A WHOLE RELEASE: {problem}")
        return None
    check_gallery(file)
    out.mkdir(parents=True, exist_ok=True)
    return Path(shutil.copyfile(file, out / f"regard-{version()}-gallery.zip"))


def check_clean() -> None:
    if dirty := run("git", "status", "--porcelain").strip():
        raise SystemExit(f"the tree is not clean; commit or remove:\n{dirty}")


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--out", type=Path, default=ROOT / "dist", help="where archives go")
    parser.add_argument(
        "--gallery", type=Path, default=ROOT / "gallery.zip", help="what make gallery made"
    )
    parser.add_argument("--tag", action="store_true", help="tag this commit, if all is well")
    options = parser.parse_args()
    if options.tag:
        check_clean()
    name = f"v{version()}"
    if gallery := carry_gallery(options.gallery, options.out, needed=options.tag):
        print(f"{gallery.name}: {gallery.stat().st_size:,} bytes, with a page of every claim")
    wheel, archive = build(options.out)
    check_content(wheel, archive)
    for file in (wheel, archive):
        check_installed(file, Path(sys.executable))
        print(f"{file.name}: {file.stat().st_size:,} bytes, installs and runs without a compiler")
    if not options.tag:
        return
    if name in run("git", "tag").split():
        raise SystemExit(f"there is a tag {name} already; raise the version")
    run("git", "tag", "-a", name, "-m", f"regard {name}")
    print(
        f"tagged {name} here; to send it: git push origin {name} && twine upload {wheel} {archive}"
    )
    print(f"attach {gallery} to the release {name} on the repository's page")


if __name__ == "__main__":
    main()
