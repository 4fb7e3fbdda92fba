"""How a field of a dataclass is asked for on the command line: declared once, in its annotation.

    rate: Annotated[float | None, Option("The highest learning rate.", "--lr")] = None

`regard.cli.options` makes the options of a command from such fields; all else ignores them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import get_type_hints


@dataclass(frozen=True)
class Option:
    """What the help says of a field, and its name there; without one it is the field's own."""

    help: str
    name: str = ""  # such as "--lr"
    metavar: str = ""  # what stands for the value in the help
    default: str = ""  # what the help says is the default, where the field holds None
    commas: bool = False  # several values are one word with commas between them
    off: str = ""  # of a switch that is on unless it is turned off: the name that turns it off


@dataclass(frozen=True)
class Argument:
    """A word that stands without an option, in the order of a function's parameters."""

    metavar: str
    help: str


def declared(kind: type, name: str) -> Option | None:
    """What a field's annotation says of it as an option."""
    extras = getattr(get_type_hints(kind, include_extras=True)[name], "__metadata__", ())
    return next((one for one in extras if isinstance(one, Option)), None)


def has_option(kind: type, name: str) -> bool:
    return declared(kind, name) is not None


def option_of(kind: type, name: str) -> str:
    """What a field is called on the command line, for messages."""
    option = declared(kind, name)
    return (option.name if option else "") or f"--{name.replace('_', '-')}"


class PartialOptions:
    """Of a dataclass only what was asked for, as a table by the names of its fields.

    `names` chooses fields, such as "budget" or "optimizer.lr"; one with a minus before it is left
    out.
    """

    def __init__(self, kind: type, *names: str) -> None:
        self.kind = kind
        self.without = tuple(name[1:] for name in names if name.startswith("-"))
        self.names = tuple(name for name in names if not name.startswith("-"))

    def takes(self, path: str) -> bool:
        """Is the field of this path one of those that were chosen?"""

        def under(names: tuple[str, ...]) -> bool:
            return any(path == name or path.startswith(f"{name}.") for name in names)

        return (not self.names or under(self.names)) and not under(self.without)


# -- what several dataclasses ask for alike

FORMAT = Option("The format, whatever the name: jsonl, json, csv, tsv, conll, lines.", "--format",
                "NAME")  # fmt: skip
FIELD = Option(
    "Name a field of the records, such as text=review or label=2; may be repeated.",
    "--field",
    "ROLE=NAME",
)
HEADER = Option("Does the first line of a table name its columns?")
DOWNLOAD = Option("Allow names of the Hugging Face Hub (hub:NAME) to be fetched.")
CLASSES = Option("The labels of the task similar are classes, not scores.")
SKIP = Option("Leave out records with this kind of error (regard check); may be repeated.",
              metavar="KIND")  # fmt: skip
TASK = Option("The task: classify, tag, answer, … (regard check --help lists them).", metavar="T")
SPLIT = Option("The split of a prepared directory: train, valid or test.", metavar="NAME")
LIMIT = Option("Use at most N examples.", metavar="N")
LANGUAGE = Option("The language of the texts, such as zh.", "--language", "CODE",
                  "by their letters")  # fmt: skip
SEQ_LEN = Option("Tokens that are read at once.", "--seq-len", "N", "what the model has learned")
SEED = Option("Decides every random choice.", metavar="N")
SEEDS = Option("Repeat everything with N seeds; noise shows from 2 on.", metavar="N")
LR = Option(
    "The highest learning rate; with --schedule noam a factor.",
    "--lr",
    "X",
    "the recipe's: with --size 0.005, else the paper's",
)
BATCH_SIZE = Option("Samples of a step.", "--batch-size", "N", "what fits")
STEPS = Option("Learn for N steps.", metavar="N")
VOCAB_SIZE = Option("Entries of the vocabulary.", "--vocab-size", "N")
PRECISION = Option("The numbers to compute with: fp32 or bf16.", "--precision", "NAME")
THESAURUS = Option("A word, a tab and its synonyms in each line; or a directory of WordNet.",
                   metavar="FILE", default="the WordNet of this machine")  # fmt: skip
VALID = Option("Examples to validate with.", "--valid", "FILE", "a tenth of the data")
MAX_NEW_TOKENS = Option("Write at most N new tokens.", "--max-new-tokens", "N")
TEXTS_AT_ONCE = Option("Texts at a time; it changes the speed alone.", "--batch-size", "N")
NUM_BEAMS = Option("Search with N beams.", "--num-beams", "N")
OUT = Option("The directory of the run.", "--out", "RUN")
DATA = Option(
    "Labeled examples: jsonl, csv, tsv, CoNLL, SQuAD, or hub:NAME. Two texts whose lines belong "
    "together are written a.en,a.zh.",
    metavar="FILE",
)
RECIPE = Option(
    "budget: what learns most in minutes; paper: what its paper trained with.",
    metavar="NAME",
    default="budget for a laptop's size",
)
SIZE = Option("A shape for a laptop instead of the published one: tiny, small or medium.",
              metavar="NAME")  # fmt: skip
