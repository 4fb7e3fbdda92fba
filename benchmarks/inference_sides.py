"""The sides of benchmarks/inference.py: how each one loads the same GPT-2 and continues texts.

Every side answers `measure(prompts, new)` with the seconds of the whole, and the new tokens (none
where the side is a program of its own, which reads random tokens). The first new token follows from
reading the prompt, so every side takes new - 1 steps of one token.
"""

from __future__ import annotations

import importlib.util
import json
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

Prompts = list[list[int]]
Measure = Callable[[Prompts, int], tuple[float, Prompts]]

THREADS = 2
OURS = {"ours, fp32": None, "ours, bf16": "bf16", "ours, int8": "weight",
        "ours, int8 dynamic": "dynamic", "ours, int4": "int4"}  # fmt: skip
LLAMA = {"llama.cpp, fp32": "F32", "llama.cpp, bf16": "BF16", "llama.cpp, Q8_0": "Q8_0",
         "llama.cpp, Q4_K_M": "Q4_K_M"}  # fmt: skip
NEEDED = {"Hugging Face, fp32": "transformers", "Hugging Face, bf16": "transformers",
          "CTranslate2, int8": "ctranslate2"} | dict.fromkeys(LLAMA, "gguf")  # fmt: skip
SIDES = (*OURS, *NEEDED)


def there(side: str, tools: Path | None) -> bool:
    """Returns whether the library of a side, or its program, is installed."""
    if side in LLAMA and tools is None:
        return False
    return side not in NEEDED or importlib.util.find_spec(NEEDED[side]) is not None


def made(place: Path, tiny: bool, tools: Path | None) -> Path:
    """Saves a GPT-2 with random weights, in a directory that transformers opens, and for llama.cpp
    in files of its own number formats."""
    from regard.core.seeding import seed_torch
    from regard.formats.directory import save
    from regard.models.gpt import GPT, SIZES

    config = SIZES["gpt2"]
    config = config.replace(layers=2, width=256, heads=4, vocab_size=1024) if tiny else config
    seed_torch(0, "weights")
    directory = save(GPT(config).initialize(), place / "gpt2")
    if tools is not None:
        plain = place / "F32.gguf"
        written(directory, plain, small=False)
        for kind in (kind for kind in LLAMA.values() if kind != "F32"):
            command = [tools / "llama-quantize", plain, place / f"{kind}.gguf", kind]
            subprocess.run(command, check=True, capture_output=True)
    return directory


def build(side: str, model: Path, tools: Path | None) -> tuple[Measure, int]:
    """Returns the function with which a side continues texts, and the bytes of its weights."""
    if side in LLAMA:
        assert tools is not None
        return llama(model.parent / f"{LLAMA[side]}.gguf", tools)
    if side in OURS:
        write, size = ours(model, OURS[side])
    elif side.startswith("Hugging"):
        write, size = huggingface(model, side.endswith("bf16"))
    else:
        write, size = ctranslate2(model)

    def measure(prompts: Prompts, new: int) -> tuple[float, Prompts]:
        start = time.perf_counter()
        ids = write(prompts, new)
        return time.perf_counter() - start, ids

    return measure, size


def weight(place: Path, pattern: str) -> int:
    return sum(file.stat().st_size for file in place.glob(pattern))


Continue = Callable[[Prompts, int], Prompts]  # (prompts, number of new tokens) -> new tokens


def ours(model: Path, kind: str | None) -> tuple[Continue, int]:
    import torch

    from regard.api import load
    from regard.decoding import generate
    from regard.models.extensions import extend
    from regard.training.hardware import quick_malloc

    quick_malloc()
    torch.set_num_threads(THREADS)
    place = model
    if kind is not None:
        loaded = load(model)
        extend(loaded.model, "int8", {"kind": kind})
        place = loaded.save(model.parent / f"ours-{kind}")
    opened = load(place)

    def write(prompts: Prompts, new: int) -> Prompts:
        answers = generate(opened, prompts, max_new_tokens=new, eos_ids=[], suppress_tokens=[])
        return [best[0].ids for best in answers]

    return write, weight(place, "*.safetensors")


def huggingface(model: Path, half: bool) -> tuple[Continue, int]:
    import torch
    from transformers import GPT2LMHeadModel

    torch.set_num_threads(THREADS)
    dtype = torch.bfloat16 if half else torch.float32
    opened: Any = GPT2LMHeadModel.from_pretrained(model, dtype=dtype).eval()

    def write(prompts: Prompts, new: int) -> Prompts:
        ids = torch.tensor(prompts)
        with torch.inference_mode():
            tokens = opened.generate(
                ids, attention_mask=torch.ones_like(ids), max_new_tokens=new, min_new_tokens=new,
                do_sample=False, pad_token_id=0,
            )  # fmt: skip
        return [row[ids.size(1) :] for row in tokens.tolist()]

    return write, weight(model, "*.safetensors") // (2 if half else 1)


def ctranslate2_model(model: Path) -> tuple[Path, list[str]]:
    """Converts the model to int8; returns its directory and the words of its ids."""
    from ctranslate2.converters import TransformersConverter
    from tokenizers import Tokenizer
    from tokenizers.models import WordLevel
    from transformers import AutoConfig, PreTrainedTokenizerFast

    words = [f"t{i}" for i in range(AutoConfig.from_pretrained(model).vocab_size)]

    class Converter(TransformersConverter):  # type: ignore[misc]
        def load_tokenizer(self, *args: Any, **more: Any) -> Any:
            table = WordLevel({word: i for i, word in enumerate(words)}, unk_token=words[0])
            last = words[-1]
            return PreTrainedTokenizerFast(
                tokenizer_object=Tokenizer(table), unk_token=last, bos_token=last, eos_token=last
            )

    place = model.parent / "ctranslate2"
    Converter(str(model)).convert(str(place), quantization="int8", force=True)
    return place, words


def ctranslate2(model: Path) -> tuple[Continue, int]:
    from ctranslate2 import Generator

    place, words = ctranslate2_model(model)
    opened = Generator(str(place), device="cpu", compute_type="int8", inter_threads=1,
                       intra_threads=THREADS)  # fmt: skip

    def write(prompts: Prompts, new: int) -> Prompts:
        rows = [[words[i] for i in prompt] for prompt in prompts]
        results = opened.generate_batch(
            rows, max_length=new, min_length=new, sampling_topk=1, beam_size=1,
            include_prompt_in_result=False,
        )  # fmt: skip
        return [result.sequences_ids[0] for result in results]

    return write, weight(place, "model.bin")


def llama(file: Path, tools: Path) -> tuple[Measure, int]:
    """Uses llama.cpp's own program for several texts, which reports the time of prompts and of new
    tokens; its texts are random tokens."""

    def measure(prompts: Prompts, new: int) -> tuple[float, Prompts]:
        before, count = len(prompts[0]), len(prompts)
        words = {"-m": file, "-c": 8192, "-b": 2048, "-ub": 512, "-npp": before,
                 "-ntg": max(1, new - 1), "-npl": count, "-t": THREADS, "-tb": THREADS}  # fmt: skip
        command = [tools / "llama-batched-bench", "--output-format", "jsonl"]
        command += [str(x) for pair in words.items() for x in pair]
        done = subprocess.run(command, check=True, stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT, text=True)  # fmt: skip
        row, _ = json.JSONDecoder().raw_decode(done.stdout, done.stdout.index('{"n_kv_max"'))
        return float(row["t_pp"] + (row["t_tg"] if new > 1 else 0.0)), []

    return measure, file.stat().st_size


NAMES = {"ln_1": "attn_norm", "attn.c_attn": "attn_qkv", "attn.c_proj": "attn_output",
         "ln_2": "ffn_norm", "mlp.c_fc": "ffn_up", "mlp.c_proj": "ffn_down"}  # fmt: skip
AROUND = {"wte": "token_embd", "wpe": "position_embd", "ln_f": "output_norm"}


def written(model: Path, file: Path, small: bool = True) -> int:
    """Writes the GGUF file: matrices as Q8_0 if they are to be `small`, the rest in 32 bits.
    Returns the vocabulary size."""
    import gguf
    from safetensors.numpy import load_file
    from transformers import AutoConfig

    config = AutoConfig.from_pretrained(model)
    writer = gguf.GGUFWriter(file, "gpt2")
    writer.add_context_length(config.n_positions)
    writer.add_embedding_length(config.n_embd)
    writer.add_feed_forward_length(4 * config.n_embd)
    writer.add_block_count(config.n_layer)
    writer.add_head_count(config.n_head)
    writer.add_layer_norm_eps(config.layer_norm_epsilon)
    kinds = gguf.LlamaFileType
    writer.add_file_type(kinds.MOSTLY_Q8_0 if small else kinds.ALL_F32)
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("gpt-2")
    words = [f"t{i}" for i in range(config.vocab_size)]
    writer.add_token_list(words)
    writer.add_token_types([gguf.TokenType.NORMAL] * len(words))
    writer.add_token_merges(["t 0"])
    writer.add_bos_token_id(len(words) - 1)
    writer.add_eos_token_id(len(words) - 1)
    q8 = gguf.GGMLQuantizationType.Q8_0
    for key, value in load_file(model / "model.safetensors").items():
        parts = key.removeprefix("transformer.").split(".")
        layer = f"blk.{parts[1]}." if parts[0] == "h" else ""
        name, kind = ".".join(parts[2:-1] if layer else parts[:-1]), parts[-1]
        if name not in NAMES and name not in AROUND:
            continue  # masks, and an output that is tied to the embeddings
        turned = value.T.copy() if name.count(".") == 1 and value.ndim == 2 else value
        title = f"{layer}{NAMES.get(name) or AROUND[name]}.{kind}"
        if small and turned.ndim == 2 and name != "wpe":
            writer.add_tensor(title, gguf.quants.quantize(turned, q8), raw_dtype=q8)
        else:
            writer.add_tensor(title, turned)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return len(words)
