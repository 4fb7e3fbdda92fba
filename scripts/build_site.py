"""Builds the documentation as a site: all pages of docs, the project's own pages, and a reference
of commands, recipe keys and Python that is written from the code.

    python scripts/build_site.py [--out site] [--gallery gallery]     # make site
    python -m http.server -b 127.0.0.1 -d site                        # to read and search it

MkDocs with the theme Material does the work (the extra `site`). The pages need no network: fonts
are those of the system, and scripts and styles come with the site. A link that leads nowhere is an
error.
"""

from __future__ import annotations

import argparse
import html
import inspect
import json
import os
import re
import shutil
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click

import regard
from regard.cli.main import program
from regard.training.keys import matching

ROOT = Path(__file__).resolve().parent.parent
# The pages that are not in docs, by their names on the site.
PROJECT = {
    "index": "README", "contributing": "CONTRIBUTING", "changelog": "CHANGELOG",
    "security": "SECURITY",
}  # fmt: skip
# A page of docs that stands in no section is in the last but one, so that none is lost.
SECTIONS: dict[str, tuple[str, ...]] = {
    "Learn": ("tutorial", "concepts", "guide", "misstatements"),
    "Use": ("coming-from", "serving", "exports", "sharing", "many-machines"),
    "Reference": ("models", "reference/commands", "reference/recipe", "reference/python"),
    "Measured": ("results", "speed", "quality", "reliability", "gallery"),
    "More": (),
    "Project": ("contributing", "changelog", "security"),
}
CHINESE = {
    "Home": "首页", "Learn": "学习", "Use": "使用", "Reference": "参考", "Measured": "实测",
    "More": "其他", "Project": "项目",
}  # fmt: skip
COLUMNS = 78  # of code on a page of the reference, so that nothing is cut
QUOTED = re.compile(r"""(: |-> )(['"])(.*?)\2""")  # an annotation that is a string
LITERAL = re.compile(r"Literal\[([^\]]*)\]")
WIDE = "---\nhide: [toc]\n---\n\n"  # a page that is one table has no list of contents
STYLE = "td:first-child code { white-space: nowrap; }\n"  # a key is never broken
LINK = re.compile(r"(!?)\[((?:[^\[\]]|\[[^\]]*\])*)\]\(([^)\s]+)\)")
OTHER_LANGUAGE = re.compile(r"^.*\[(?:中文|English)\]\([^)]*\.md\).*\n", re.MULTILINE)
FENCE = re.compile(r"(^ *```.*?^ *```[^\n]*$)", re.MULTILINE | re.DOTALL)
CONFIG = """\
site_name: regard
docs_dir: {source}
site_dir: {out}
use_directory_urls: false
theme:
  name: material
  font: false
  features: [navigation.sections, navigation.top, search.highlight, content.code.copy]
  palette:
    - media: "(prefers-color-scheme: light)"
      scheme: default
      toggle: {{icon: material/weather-night, name: Dark}}
    - media: "(prefers-color-scheme: dark)"
      scheme: slate
      toggle: {{icon: material/weather-sunny, name: Light}}
extra: {{generator: false}}
extra_css: [style.css]
plugins:
  - search: {{lang: [en]}}
  - i18n:
      docs_structure: suffix
      fallback_to_default: true
      languages:
        - {{locale: en, name: English, default: true, build: true}}
        - {{locale: zh, name: 中文, build: true, nav_translations: {chinese}}}
markdown_extensions:
  - tables
  - admonition
  - pymdownx.superfences
  - pymdownx.highlight
  - toc:
      permalink: true
      slugify: !!python/object/apply:pymdownx.slugs.slugify {{kwds: {{case: lower}}}}
validation: {{nav: {{omitted_files: warn}}, links: {{not_found: warn, anchors: warn}}}}
nav:
{nav}
"""


def page_of(file: Path) -> str | None:
    """Returns the name on the site of a file of this project; None if it is no page."""
    stem = file.name.removesuffix(".md").removesuffix(".zh")
    if file.suffix != ".md":
        return None
    if file.parent == ROOT:
        return next((page for page, name in PROJECT.items() if name == stem), None)
    return stem if file.parent == ROOT / "docs" else None


def relinked(text: str, file: Path) -> str:
    """Returns a page as the site has it: links lead to its pages, and what is no page (a file of
    the code) is named without a link. Blocks of code stay as they are."""

    def link(match: re.Match[str]) -> str:
        mark, words, target = match.groups()
        if re.match(r"[a-z]+:|#", target):
            return match[0]
        path, _, anchor = target.partition("#")
        place = (file.parent / path).resolve()
        if page := page_of(place):
            return f"{mark}[{relinked(words, file)}]({page}.md{'#' + anchor if anchor else ''})"
        inside = ROOT / "docs"
        if place.is_relative_to(inside) and place.is_file():
            return f"{mark}[{words}]({place.relative_to(inside).as_posix()})"
        return relinked(words, file)

    parts = FENCE.split(OTHER_LANGUAGE.sub("", text, count=1))
    return "".join(p if i % 2 else LINK.sub(link, p) for i, p in enumerate(parts))


def sources() -> Iterator[tuple[str, Path]]:
    """Yields every page in both languages: its name on the site, and its file."""
    for page, name in PROJECT.items():
        yield f"{page}.md", ROOT / f"{name}.md"
        if (ROOT / f"{name}.zh.md").is_file():
            yield f"{page}.zh.md", ROOT / f"{name}.zh.md"
    for file in sorted((ROOT / "docs").glob("*.md")):
        yield file.name, file


# -- the reference, from the code


def commands() -> str:
    """Returns the help of every command, as the command line prints it."""
    top = click.Context(
        program, info_name="regard", terminal_width=COLUMNS, max_content_width=COLUMNS
    )
    return "".join(helps(program, top, 2))


def helps(group: Any, context: click.Context, level: int) -> Iterator[str]:
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        inner = click.Context(
            command, context, name, terminal_width=COLUMNS, max_content_width=COLUMNS
        )
        words = inner.command_path
        yield f"\n{'#' * level} {words}\n\n```text\n{command.get_help(inner).rstrip()}\n```\n"
        if isinstance(command, click.Group):
            yield from helps(command, inner, level + 1)


def recipe_keys(head: str) -> str:
    rows = [head, "| --- | --- | --- | --- | --- |"]
    for row in matching():
        option = f"`{row['option']}`" if row["option"] else ""
        default = f"`{row['default']}`" if row["default"] else ""
        about = html.escape(row["about"], quote=False).replace("|", "\\|")
        kind = LITERAL.sub(lambda match: match[1].replace("'", ""), row["kind"])
        kind = kind.replace("|", "\\|")
        rows.append(f"| `{row['key']}` | {about} | {kind} | {default} | {option} |")
    return "\n".join(rows) + "\n"


def python() -> str:
    """Returns the public names of the package with their signatures and docstrings."""
    parts = []
    for name in sorted({*regard.__all__, *regard.VERBS} - {"__version__"}):
        value = getattr(regard, name)
        parts.append(described(f"regard.{name}", value, 2))
        if inspect.isclass(value):
            for inner, method in inspect.getmembers(value, inspect.isfunction):
                if not inner.startswith("_"):
                    parts.append(described(f"{name}.{inner}", method, 3))
    return "".join(parts)


def described(name: str, value: Any, level: int) -> str:
    try:
        signature = QUOTED.sub(r"\1\3", str(inspect.signature(value)))
    except (TypeError, ValueError):  # a group of functions, such as regard.draw
        signature = ""
    lines = [f"{name}{signature}"]
    if len(lines[0]) > COLUMNS:
        inside = signature[1 : signature.rindex(")")]
        wrapped = textwrap.fill(inside, COLUMNS - 4, break_long_words=False, break_on_hyphens=False)
        lines = [f"{name}(", textwrap.indent(wrapped, "    "), signature[signature.rindex(")") :]]
    text = "\n".join(lines)
    about = "\n\n".join(paragraphs(inspect.getdoc(value) or ""))
    return f"\n{'#' * level} {name}\n\n```text\n{text}\n```\n\n{about}\n"


def paragraphs(about: str) -> Iterator[str]:
    """Yields the paragraphs of a docstring; those with lines of their own stay as they are."""
    for part in about.split("\n\n"):
        part = part.removeprefix("\b").strip("\n")
        if any(line.startswith((" ", ">>>")) for line in part.splitlines()):
            yield f"```text\n{part}\n```"
        else:
            yield html.escape(part, quote=False)


def reference() -> Iterator[tuple[str, str]]:
    """Yields the pages of the reference. Help and docstrings are English in both languages."""
    keys = {
        "": ("Recipe keys", "Every key that a recipe can have, and KEY=VALUE on the command line.",
             "| key | meaning | type | default | option |"),
        ".zh": ("配方的键", "配方可以有的每一个键；在命令行上写作 KEY=VALUE。",
                "| 键 | 含义 | 类型 | 默认值 | 选项 |"),
    }  # fmt: skip
    for suffix, (title, about, head) in keys.items():
        yield f"reference/recipe{suffix}.md", f"{WIDE}# {title}\n\n{about}\n\n{recipe_keys(head)}"
    help_texts, names = commands(), python()
    for suffix, title, other in (("", "Commands", "Python"), (".zh", "命令", "Python 接口")):
        yield f"reference/commands{suffix}.md", f"# {title}\n{help_texts}"
        yield f"reference/python{suffix}.md", f"# {other}\n{names}"


def title_of(file: Path) -> str:
    """Returns the title of a page that was measured, or else its name."""
    title = re.search(r"<title>(.*?)</title>", file.read_text("utf-8"), re.DOTALL)
    words = " ".join(html.unescape(title[1]).split()) if title else ""
    return re.sub(r"[\[\]]", "", words) or file.name


def gallery(place: Path) -> dict[str, str]:
    """Returns the page of the gallery: links to what `make gallery` measured, if it is there."""
    pages = sorted(place.rglob("*.html")) if place.is_dir() else []
    links = [f"- [{title_of(file)}](gallery/{file.relative_to(place)})" for file in pages]
    how = {
        "": "# Gallery\n\nThe pages of a real comparison and of every claim, as they were "
            "measured. `make gallery` makes them (hours), and `make site` shows them here.\n",
        ".zh": "# 画廊\n\n一次真实比较与每个论断的页面，都来自实测。"
               "`make gallery` 生成它们（需数小时），`make site` 把它们放在这里。\n",
    }  # fmt: skip
    return {f"gallery{s}.md": "\n".join([text, *links]) + "\n" for s, text in how.items()}


# -- the site


def navigation(pages: set[str]) -> str:
    named = {page for inner in SECTIONS.values() for page in inner}
    lines = ["  - Home: index.md"]
    for title, inner in SECTIONS.items():
        known = [page for page in inner if page in pages]
        if not inner:
            known = sorted(pages - named - {"index"})
        if known:
            lines += [f"  - {title}:", *(f"      - {page}.md" for page in known)]
    return "\n".join(lines)


def write_sources(place: Path, measured: Path) -> set[str]:
    """Writes everything that MkDocs reads; returns the names of the pages."""
    texts = {name: relinked(file.read_text("utf-8"), file) for name, file in sources()}
    texts |= dict(reference()) | gallery(measured)
    for name, text in texts.items():
        (place / name).parent.mkdir(parents=True, exist_ok=True)
        (place / name).write_text(text, "utf-8")
    (place / "style.css").write_text(STYLE, "utf-8")
    shutil.copytree(ROOT / "docs" / "figures", place / "figures")
    for picture in (ROOT / "docs").glob("*.svg"):
        shutil.copyfile(picture, place / picture.name)
    if measured.is_dir():
        shutil.copytree(measured, place / "gallery")
    return {name.removesuffix(".md").removesuffix(".zh") for name in texts}


def build(out: Path, measured: Path, work: Path) -> None:
    source = work / "pages"
    shutil.rmtree(work, ignore_errors=True)
    source.mkdir(parents=True)
    pages = write_sources(source, measured)
    config = work / "mkdocs.yml"
    paths = {"source": source.resolve(), "out": out.resolve()}
    chinese = json.dumps(CHINESE, ensure_ascii=False)
    config.write_text(CONFIG.format(nav=navigation(pages), chinese=chinese, **paths), "utf-8")
    mkdocs(config)
    # the switch of languages looks for a list of pages beside every home page
    shutil.copyfile(out / "sitemap.xml", out / "zh" / "sitemap.xml")


def mkdocs(config: Path) -> None:
    """Runs MkDocs. With --quiet it would not count warnings, so that --strict would do nothing:
    what it says is read here, and warnings are shown."""
    done = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "-f", str(config)],
        env=os.environ | {"DISABLE_MKDOCS_2_WARNING": "true", "NO_MKDOCS_2_WARNING": "true"},
        capture_output=True, text=True,
    )  # fmt: skip
    if done.returncode:
        lines = done.stderr.splitlines()
        shown = [line for line in lines if line.startswith(("WARNING", "ERROR"))] or lines
        raise SystemExit("the site was not built:\n" + "\n".join(shown))


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--out", type=Path, default=ROOT / "site", help="where the site goes")
    parser.add_argument("--gallery", type=Path, default=ROOT / "gallery", help="what was measured")
    options = parser.parse_args()
    build(options.out, options.gallery, ROOT / "build" / "site")
    print(f"the site is {options.out / 'index.html'}; its search needs a server: "
          f"python -m http.server -b 127.0.0.1 -d {options.out}")  # fmt: skip


if __name__ == "__main__":
    main()
