"""The commands `regard generate`, `fill`, `chat`, `predict` and `embed`, which use a model."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

from regard.cli.guess import check_asked, check_order
from regard.cli.options import AskedFor, Command
from regard.cli.output import json_text, notes, say, text_or_input, unescaped, utf8
from regard.core.errors import InputError, counted
from regard.core.options import (
    CACHE,
    DOWNLOAD,
    MAX_NEW_TOKENS,
    PRECISION,
    Argument,
    Option,
    PartialOptions,
)
from regard.core.tables import Table
from regard.core.text import shown
from regard.data.readers import ReaderOptions as Reading
from regard.decoding.options import DecodingOptions as Decoding
from regard.evaluation.options import EmbedOptions

HELP = "/reset forgets the conversation, /quit or Ctrl-D ends it"
SAMPLING = (
    "max_new_tokens", "temperature", "top_k", "top_p", "repetition_penalty", "no_repeat_ngram_size",
    "seed", "stop",
)  # fmt: skip
WRITING = ("max_new_tokens", "num_beams", "length_penalty", "batch_size")  # for generated answers
LEARNED = "the length of the longest text in training"
TEXTS = Argument("[TEXT]…", "Texts; without them standard input is read, one text per line.")
Model = Annotated[str, Argument("MODEL", "A run or a model directory.")]
File = Annotated[
    Path | None,
    Option("Read the texts from this file: jsonl, json, csv, tsv, conll, or one text per line.",
           metavar="FILE"),
]  # fmt: skip
Download = Annotated[bool, DOWNLOAD]
Precision = Annotated[str, PRECISION]
Cache = Annotated[Literal["bf16", "int8"] | None, CACHE]
AsLines = Annotated[bool, Option("Print one JSON object per line, as soon as it is ready.")]


def opened(
    model: str, precision: str = "fp32", download: bool = False, cache: str | None = None
) -> Any:
    """Loads a model directory onto the fastest device, with weights in this precision, and caches
    in bf16 or int8 if that is asked for."""
    import torch

    from regard.core.errors import UnknownName
    from regard.formats.directory import load
    from regard.training.hardware import quick_malloc
    from regard.training.run import pick_device

    kinds = {"fp32": torch.float32, "bf16": torch.bfloat16}
    if precision not in kinds:
        raise UnknownName("precision", precision, kinds)
    quick_malloc()
    loaded = load(model, dtype=kinds[precision], download=download)
    if cache is not None:
        from regard.models.state import compact_caches

        compact_caches(loaded.model, cache)
    loaded.model.to(pick_device(None))
    return loaded


# -- generate

GENERATED = ("text", "reason", "score", "ids", "logprobs")


def generate(
    model: Model,
    prompts: Annotated[
        Sequence[str], Argument("[PROMPT]…", "Texts; - reads one from standard input.")
    ] = (),
    *,
    file: Annotated[Path | None, Option("Read the prompt from this file.", metavar="FILE")] = None,
    lines: Annotated[bool, Option("Every line of the file or input is a prompt.")] = False,
    decoding: Annotated[Table, PartialOptions(Decoding)],
    precision: Precision = "fp32",
    cache: Cache = None,
    stream: Annotated[
        bool | None, Option("Print the text as it grows.", default="yes, for one text")
    ] = None,
    download: Download = False,
    typed: AskedFor,
) -> Table | None:
    """Continue a text (GPT, Llama, Transformer-XL, XLNet, LSTM, …), or turn a source into a text
    (T5, Transformer).

    Without --temperature, --top-k, --top-p, --typical-p or --num-samples decoding is greedy: it
    takes the likeliest token at each step. With --num-beams it searches for the likeliest text.

    \b
    Examples:
      regard generate ./my-gpt "Once upon a time" --max-new-tokens 50 --top-p 0.9 --seed 1
      regard generate ./my-gpt "Dear" --num-samples 3 --temperature 0.8 --stop "\\n"
      regard generate ./my-t5 "translate English to German: Hello" --num-beams 4
      regard generate ./my-gpt "The" --max-new-tokens 5 --logprobs 5 --json
      regard generate ./my-marian - --lines --num-beams 4 --json < sentences.txt
    """
    check_asked("generate", model, prompts, file)
    decoding["stop"] = tuple(unescaped(word) for word in decoding.get("stop", ()))
    texts = prompts_of(prompts, file, lines)
    several = len(texts) > 1 or any(
        decoding.get(n, 1) > 1 for n in ("num_samples", "num_return_sequences", "num_beams")
    )
    check_printed(decoding, stream, several, "--json" in typed)
    Decoding.of(decoding)  # refuses wrong options before a model is opened
    loaded = opened(model, precision, download, cache)
    from regard import decoding as decoder
    from regard.decoding.generation_config import options_for

    if stream is None:  # the directory may ask for several texts or beams
        options = options_for(loaded, decoding)
        several = several or options.num_samples > 1 or options.num_beams > 1
    if not several and "--json" not in typed and stream is not False:
        for piece in decoder.stream(loaded, texts[0], **decoding):
            print(shown(piece), end="", flush=True)
        print()
        return None
    generations = decoder.generate(loaded, texts, **decoding)
    return {
        "model": model,
        "results": [
            {"prompt": prompt, "texts": [vars_of(one) for one in several]}
            for prompt, several in zip(texts, generations, strict=True)
        ],
    }


def check_printed(decoding: Table, stream: bool | None, several: bool, as_json: bool) -> None:
    """Raises InputError if the output cannot show what is asked for."""
    if decoding.get("top_logprobs") and not as_json:
        raise InputError("--logprobs records more than a text can show; add --json")
    if stream and (several or as_json):
        raise InputError("--stream shows one text as it grows; leave out --json, --num-samples, "
                         "--num-beams and further prompts")  # fmt: skip


def vars_of(generation: Any) -> Table:
    """Returns what is printed of a generation as JSON."""
    facts = {name: getattr(generation, name) for name in GENERATED}
    if generation.top_logprobs:
        facts["top_logprobs"] = [
            [{"id": token, "text": text, "logprob": logprob}
             for (token, logprob), (text, _) in zip(best, texts, strict=True)]
            for best, texts in zip(
                generation.top_logprobs, generation.alternatives(), strict=True
            )
        ]  # fmt: skip
    return facts


def prompts_of(words: Sequence[str], file: Path | None, lines: bool) -> list[str]:
    """Returns all prompts, from the words, the file, or standard input."""
    if words and file is not None:
        raise InputError("give a prompt or --file, not both")
    if file is not None:
        return in_prompts(utf8(lambda: file.read_text("utf-8"), str(file)), lines)
    if lines and list(words) != ["-"]:
        raise InputError("--lines needs --file, or - for standard input")
    if not words and sys.stdin.isatty():
        raise InputError(
            'PROMPT is missing; give a text, --file, or - for standard input ("": none)'
        )
    prompts: list[str] = []
    for word in words or ["-"]:
        prompts += in_prompts(utf8(sys.stdin.read), lines) if word == "-" else [word]
    return prompts


def in_prompts(text: str, lines: bool) -> list[str]:
    """Returns a file as one prompt, without its last line break, or as one prompt per line."""
    if not lines:
        return [text.removesuffix("\n")]
    prompts = text.removesuffix("\n").split("\n") if text else []
    empty = next((number for number, line in enumerate(prompts, 1) if not line.strip()), None)
    if empty is not None or not prompts:
        raise InputError(f"line {empty or 1} of the prompts is empty; give a prompt in every line")
    return prompts


def generated_lines(result: Table) -> Iterator[str]:
    """Yields one text as it is; several texts have a number before each."""
    rows = [row["texts"] for row in result["results"]]
    for number, texts in enumerate(rows, 1):
        for which, each in enumerate(texts, 1):
            label = f"[{number}.{which}] " if len(rows) > 1 else f"[{which}] "
            yield (label if len(texts) > 1 else "") + each["text"]


# -- fill


def fill(
    model: Model,
    text: Annotated[
        str, Argument("TEXT", "A text with blanks, [MASK] or ___; - reads standard input.")
    ],
    *,
    candidates: Annotated[int, Option("Show N candidates for each blank.", metavar="N")] = 5,
    fill_order: Annotated[
        Literal["confident", "left", "each"],
        Option("The order of several blanks: the most confident first, from the left, or each as "
               "if the others stayed blank."),
    ] = "confident",
    max_new_tokens: Annotated[int, MAX_NEW_TOKENS] = 10,
    download: Download = False,
) -> Table:  # fmt: skip
    """Fill the blanks of a text (BERT, RoBERTa, Longformer, XLNet, T5).

    \b
    Examples:
      regard fill ./my-bert "The [MASK] sat on the mat."
      regard fill ./my-bert "The ___ sat on the ___." --fill-order left --candidates 3
      regard fill ./my-t5 "Thank you <extra_id_0> me to your party." --json
    """
    check_order("fill", model)
    blanked = text_or_input(text)
    loaded = opened(model, download=download)
    from regard.decoding import fill as run

    filled = run(
        loaded, blanked, top_k=candidates, order=fill_order, max_new_tokens=max_new_tokens
    )[0]
    blanks = [
        [{"text": c.text, "ids": c.ids, "probability": c.probability} for c in blank]
        for blank in filled.blanks
    ]
    return {"model": model, "given": blanked, "text": filled.text, "blanks": blanks}


def filled_lines(result: Table) -> Iterator[str]:
    yield result["text"]
    for number, blank in enumerate(result["blanks"], 1):
        if len(result["blanks"]) > 1:
            yield f"blank {number}"
        for each in blank:
            yield f"  {100 * each['probability']:6.2f}%  {each['text']}"


# -- chat


def chat(
    model: Model,
    *,
    system: Annotated[
        str | None, Option("The system message of a chat template.", metavar="TEXT")
    ] = None,
    decoding: Annotated[Table, PartialOptions(Decoding, *SAMPLING)],
    max_turns: Annotated[
        int | None,
        Option("Show the model N turns before the newest one.", metavar="N",
               default="all; a model with an encoder: none"),
    ] = None,
    plain: Annotated[bool, Option("Do not use the tokenizer's chat template.")] = False,
    precision: Precision = "fp32",
    cache: Cache = None,
    download: Download = False,
) -> None:  # fmt: skip
    """Chat with a model that was trained on dialogue.

    Turns are formatted by the tokenizer's chat template, which runs in a sandbox; without one every
    turn ends with the end token. Turns that no longer fit the context are dropped, oldest first.
    /reset forgets the conversation, /quit or Ctrl-D ends it. Without other options it samples with
    --temperature 0.8 --top-p 0.9.

    \b
    Examples:
      regard chat ./my-gpt
      regard chat ./my-gpt --temperature 0.7 --top-p 0.95 --seed 3
      echo "How are you?" | regard chat ./my-gpt --temperature 0
    """
    decoding["stop"] = tuple(unescaped(word) for word in decoding.get("stop", ()))
    Decoding.of(decoding)  # what cannot be is refused before a model is opened
    check_order("chat", model)
    loaded = opened(model, precision, download, cache)
    from regard.decoding.dialogue import Conversation

    dialogue = Conversation.begin(loaded, decoding, system, plain, max_turns)
    talk(dialogue, sys.stdin.isatty())


def talk(dialogue: Any, asks: bool) -> None:
    """Chats until the input ends. If input is piped, only the answers are printed."""
    if asks:
        print(HELP)
    while True:
        try:
            line = utf8(lambda: input("> " if asks else ""))
        except EOFError:
            print(end="\n" if asks else "")
            return
        match line.strip():
            case "":
                continue
            case "/quit":
                return
            case "/reset":
                dialogue.reset()
            case text if text.startswith("/"):
                say(f"there is no command {text}; {HELP}")
            case text:
                answer(dialogue, text)


def answer(dialogue: Any, text: str) -> None:
    """Prints an answer as it grows. Ctrl-C stops it, and then it is not part of the dialogue."""
    begun = False
    pieces = dialogue.say(text)
    try:
        for piece in pieces:
            rest = piece if begun else piece.lstrip()
            begun = begun or bool(rest)
            print(shown(rest), end="", flush=True)
    except KeyboardInterrupt:
        pieces.close()
    print()


# -- predict


@dataclass(frozen=True)
class PredictOptions:
    """The options of a prediction."""

    pair: Annotated[
        str | None, Option("The second text, if the model compares two.", metavar="TEXT")
    ] = None
    question: Annotated[
        str | None,
        Option("choose: the question about the premise, such as cause or effect.", metavar="TEXT"),
    ] = None
    file: File = None
    task: Annotated[
        str | None,
        Option(
            "The task, for a published model that does not name it (T5).",
            metavar="T",
            default="the task of the model",
        ),
    ] = None
    prefix: Annotated[
        str | None,
        Option(
            "The prefix of every text for a published T5, such as 'summarize: '.", metavar="TEXT"
        ),
    ] = None
    precision: Precision = "fp32"
    download: Download = False
    jsonl: AsLines = False


def predict(
    model: Model,
    texts: Annotated[Sequence[str], TEXTS] = (),
    *,
    options: PredictOptions,
    reading: Annotated[Table, PartialOptions(Reading, "form", "fields", "max_bytes")],
    decoding: Annotated[Table, PartialOptions(Decoding, *WRITING, max_new_tokens=LEARNED)],
    typed: AskedFor,
) -> Table | None:
    """Predict with a fine-tuned model: classes, tags of words, answers to questions, the best of
    several choices, how similar texts are, translations, summaries, replies, how good a reply is.

    The model knows its task, and each example gets one line. The texts of an example (question and
    passage; premise and choices) stand in a line with tabs between, or are given as arguments.

    \b
    Examples:
      regard predict reviewer "a warm film" "a dull plot"
      regard predict reviewer --file reviews.csv --field text=review --jsonl
      regard predict entailer "A man sleeps." --pair "A man is awake."
      regard predict tagger "Angela Merkel visited Paris."
      regard predict reader "Who sat?" "The cat sat on the mat."
      regard predict translator --num-beams 4 --file book.en > book.zh
      regard predict judge "How are you?" "Fine, thanks!"
      regard predict t5-small "Hi." --task translate --prefix "translate English to German: "
    """
    if "--json" in typed and options.jsonl:
        raise InputError("--json prints one object and --jsonl many; choose one of them")
    check_asked("predict", model, texts, options.file)
    from regard.cli.asking import described, examples_of, learned
    from regard.tasks import task as find

    wanted = options.task or learned(model)
    source = texts, options.file, reading, options.pair, options.question
    if wanted:  # refuses wrong inputs before a model is opened
        examples, remarks = examples_of(find(wanted), *source)
    loaded = opened(model, download=options.download)
    from regard.evaluation.predict import facts_of
    from regard.evaluation.predictors import check_task, predictor_for, task_of

    if not wanted:
        wanted = task_of(loaded) or facts_of(loaded)["task"]
        examples, remarks = examples_of(find(wanted), *source)
    name = check_task(loaded, [wanted])
    for example in examples:
        find(name).check_asked(example, model)
    more = decoding | ({} if options.prefix is None else {"prefix": options.prefix})
    predictor = predictor_for(loaded, task=name, precision=options.precision, **more)
    as_json, rows = "--json" in typed, []
    for example, answer in zip(examples, predictor.stream(examples), strict=True):
        row = described(find(name), example, answer, predictor.labels)
        rows += [row] * as_json
        line = find(name).line(example, answer, predictor.labels)
        if not as_json:
            print(json_text(row) if options.jsonl else shown(line), flush=True)
    remarks += predictor.notes
    if as_json:
        return {"model": model, "task": name, "answers": rows, "notes": remarks}
    notes(remarks)
    return None


# -- embed


def embed(
    model: Model,
    texts: Annotated[Sequence[str], TEXTS] = (),
    *,
    file: File = None,
    reading: Annotated[Table, PartialOptions(Reading, "form", "fields", "max_bytes")],
    out: Annotated[
        Path | None, Option("Write a numpy array with one row per text.", metavar="FILE.npy")
    ] = None,
    options: EmbedOptions,
    download: Download = False,
    jsonl: AsLines = False,
    typed: AskedFor,
) -> Table | None:
    """Compute text embeddings with any model: one line per text, or a numpy array.

    \b
    Examples:
      regard embed my-bert --file texts.txt --out vectors.npy
      regard embed my-bert "a film" "a book" --json
    """
    if out is not None and (out.suffix != ".npy" or jsonl or "--json" in typed):
        raise InputError(
            f"--out is {out}; give a name that ends in .npy, without --json or --jsonl"
        )
    check_asked("embed", model, texts, file)
    from dataclasses import asdict

    from regard.cli.asking import examples_of
    from regard.evaluation.embeddings import embed as embedded
    from regard.tasks import task as find

    examples, remarks = examples_of(find("classify"), texts, file, reading, whole=True)
    loaded = opened(model, download=download)
    vectors = embedded(loaded, [example.text for example in examples], **asdict(options))
    if out is None and not jsonl:
        return {"model": model, "vectors": vectors.tolist(), "notes": remarks}
    notes(remarks)
    if out is not None:
        import numpy as np

        from regard.core.files import replacing

        with replacing(out) as part, part.open("wb") as written:
            np.save(written, vectors)
        rows, width = vectors.shape
        say(f"{out} has {counted(rows, 'vector')} of {counted(width, 'number')}")
    else:
        for row in vectors.tolist():
            print(json.dumps({"vector": row}))
    return None


def embedded_lines(result: Table) -> Iterator[str]:
    for row in result["vectors"]:
        yield " ".join(f"{x:.6g}" for x in row)


COMMANDS = {
    "generate": Command(generate, generated_lines, opens=True),
    "fill": Command(fill, filled_lines, opens=True),
    "chat": Command(chat, json=False, opens=True),
    "predict": Command(predict, opens=True),
    "embed": Command(embed, embedded_lines, opens=True),
}
