"""Describes how a field of a dataclass appears on the command line: once, in its annotation.

    rate: Annotated[float | None, Option("The highest learning rate.", "--lr")] = None

`regard.cli.options` builds the options of a command from these annotations; all other code ignores
them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any, get_type_hints


@dataclass(frozen=True)
class Option:
    """The help text and the option name of a field; without a name it is the field's own."""

    help: str
    name: str = ""  # such as "--lr"
    metavar: str = ""  # the placeholder of the value in the help
    default: str = ""  # the default in the help, if the field's own default is None
    commas: bool = False  # several values are given as one word with commas between them
    off: str = ""  # the option that turns a switch off which is on by default


@dataclass(frozen=True)
class Key:
    """What is said of a field that a recipe has, and the command line only as KEY=VALUE."""

    help: str


@dataclass(frozen=True)
class Argument:
    """A positional argument of a command, in the order of a function's parameters."""

    metavar: str
    help: str


def extras_of(kind: type, name: str) -> tuple[Any, ...]:
    return getattr(get_type_hints(kind, include_extras=True)[name], "__metadata__", ())


def declared(kind: type, name: str) -> Option | None:
    """Returns the Option in a field's annotation, or None."""
    return next((one for one in extras_of(kind, name) if isinstance(one, Option)), None)


def help_of(kind: type, name: str) -> str:
    """Returns the help of a field that is an option or a key; "" if it has none."""
    extras = extras_of(kind, name)
    return next((one.help for one in extras if isinstance(one, Option | Key)), "")


def has_option(kind: type, name: str) -> bool:
    return declared(kind, name) is not None


def option_of(kind: type, name: str) -> str:
    """Returns the command-line name of a field, for messages."""
    option = declared(kind, name)
    return (option.name if option else "") or f"--{name.replace('_', '-')}"


class PartialOptions:
    """Makes a command offer some fields of a dataclass and pass on only those that the user set, as
    a table by field name.

    `names` chooses fields, such as "budget" or "optimizer.lr"; a name with a minus sign before it
    is left out. `defaults` are shown in the help for fields whose default is another here.
    """

    def __init__(self, kind: type, *names: str, **defaults: str) -> None:
        self.kind, self.defaults = kind, defaults
        self.without = tuple(name[1:] for name in names if name.startswith("-"))
        self.names = tuple(name for name in names if not name.startswith("-"))

    def takes(self, path: str) -> bool:
        """Returns whether the field at this path is one of the chosen fields."""

        def under(names: tuple[str, ...]) -> bool:
            return any(path == name or path.startswith(f"{name}.") for name in names)

        return (not self.names or under(self.names)) and not under(self.without)


# -- options that several dataclasses share

FORMAT = Option("Read files in this format: jsonl, json, csv, tsv, conll, lines.", "--format",
                "NAME")  # fmt: skip
FIELD = Option(
    "Name a field of the records, such as text=review or label=2; may be repeated.",
    "--field",
    "ROLE=NAME",
)
HEADER = Option("Say whether the first line of a table names its columns.")
ALLOW_NAN = Option("Open weights that are NaN or infinite, which are refused otherwise.")
DOWNLOAD = Option("Allow downloads from the Hugging Face Hub (hub:NAME).")
MAX_BYTES = Option("Refuse a compressed file that unpacks to more than N bytes.", "--max-bytes",
                   "N")  # fmt: skip
CLASSES = Option("Treat the labels of the task similar as classes, not as scores.")
SKIP = Option("Skip records with this kind of error (see regard check); may be repeated.",
              metavar="KIND")  # fmt: skip
TASK = Option("The task: classify, tag, answer, … (regard check --help lists them).", metavar="T")
SPLIT = Option("The split of a prepared directory: train, valid or test.", metavar="NAME")
LIMIT = Option("Use at most N examples.", metavar="N")
LANGUAGE = Option("The language of the texts, such as zh.", "--language", "CODE",
                  "guessed from their letters")  # fmt: skip
SEQ_LEN = Option("The number of tokens that the model reads at once.", "--seq-len", "N",
                 "the length that the model was trained with")  # fmt: skip
LOG = Option(
    "Show the metrics of every step elsewhere, too: some of tensorboard,wandb,mlflow,trackio; "
    "they write into the run's directory, and send nothing.",
    metavar="NAME,…",
    default="tensorboard if it is installed",
    commas=True,
)
SEED = Option("The seed of every random choice.", metavar="N")
SEEDS = Option("Repeat everything with N seeds; 2 or more show the noise.", metavar="N")
Quiet = Annotated[bool, Option("Print nothing on standard error.")]
LR = Option(
    "The highest learning rate; with --schedule noam it is a factor.",
    "--lr",
    "X",
    "the recipe's: 0.005 for a new laptop-sized model, else the paper's",
)
BATCH_SIZE = Option("The number of samples of one step.", "--batch-size", "N",
                    "what fits into memory")  # fmt: skip
STEPS = Option("Train for N steps.", metavar="N")
VOCAB_SIZE = Option("The number of entries of the vocabulary.", "--vocab-size", "N")
PRECISION = Option("The number format to compute in: fp32 or bf16.", "--precision", "NAME")
CACHE = Option(
    "Keep the keys and values of earlier tokens in bf16 or int8: half or a quarter of the memory.",
    "--cache", "NAME", "the number format of the model",
)  # fmt: skip
THESAURUS = Option("A file with a word, a tab and its synonyms per line; or a WordNet directory.",
                   metavar="FILE", default="the WordNet of this machine")  # fmt: skip
VALID = Option("The examples of the validation set.", "--valid", "FILE", "a tenth of the data")
MAX_NEW_TOKENS = Option("Generate at most N new tokens.", "--max-new-tokens", "N")
TEXTS_AT_ONCE = Option("The most texts in one batch; this changes only the speed.", "--batch-size",
                       "N", "as many as some 8,000 tokens are")  # fmt: skip
NUM_BEAMS = Option("Use beam search with N beams.", "--num-beams", "N")
OUT = Option("The directory of the run.", "--out", "RUN")
DATA = Option(
    "The labeled examples: jsonl, csv, tsv, CoNLL, SQuAD, or hub:NAME. Two files whose lines "
    "belong together are written a.en,a.zh.",
    metavar="FILE",
)
RECIPE = Option(
    "budget trains with what learns most in minutes; paper with the settings of the paper.",
    metavar="NAME",
    default="budget for a laptop-sized model, else paper",
)
SIZE = Option(
    "The size of a new model: tiny, small, medium, or auto: what suits the budget.",
    metavar="NAME", default="auto for a family; a published size has its own",
)  # fmt: skip
