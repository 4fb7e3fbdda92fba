"""Who sees whom, asked of the Patterns themselves: one small function a kind of mask."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from regard.core.errors import InputError, UnknownName
from regard.core.text import Bilingual
from regard.report.drawings import WIDEST, HeatDrawing, Text, check_range


def masks(kind: str, length: int = 16, **options: int) -> HeatDrawing:
    """Who sees whom, as the Pattern of such a model says it."""
    if kind not in MASKS:
        raise UnknownName("mask", kind, MASKS)
    check_range("length", length, 1, WIDEST)
    make, known = MASKS[kind]
    for name, value in options.items():
        if name not in known:
            raise InputError(f"a {kind} mask has no {name}; it has {', '.join(known) or 'none'}")
        check_range(name, value, 0, WIDEST)
    return make(length, **{name: options.get(name, usual) for name, usual in known.items()})


def seen(title: Text, pattern: Any, rows: int, keys: int, first: int = 0) -> HeatDrawing:
    """Of a pattern; `first` keys come before the rows."""
    import torch

    table = pattern.dense(1, rows, keys, torch.device("cpu"))[0].float().tolist()
    own = [str(i + 1) for i in range(rows)]
    columns = [f"m{i + 1}" for i in range(first)] + [str(i + 1) for i in range(keys - first)]
    return HeatDrawing(title, table, own, columns)


def ordered(query: Sequence[int], key: Sequence[int]) -> Any:
    import torch

    from regard.attention.pattern import Ordered

    return Ordered(torch.tensor([list(query)]), torch.tensor([list(key)]), torch.float32)


def full(length: int) -> HeatDrawing:
    from regard.attention.pattern import Full

    title = Bilingual("full: everything sees everything", "完全可见：每个位置看见所有位置")
    return seen(title, Full(), length, length)


def causal(length: int, past: int) -> HeatDrawing:
    from regard.attention.pattern import Causal

    title = Bilingual("causal", "因果掩码")
    if past:
        title = Bilingual(f"causal, with {past} remembered", f"因果掩码，记住 {past} 行")
    return seen(title, Causal(past), length, past + length, past)


def prefix(length: int, prefix: int) -> HeatDrawing:
    """The prefix is all of order 0; what follows is causal."""
    order = [max(0, i - prefix + 1) for i in range(length)]
    title = Bilingual(f"prefix of {prefix}", f"长度为 {prefix} 的前缀")
    return seen(title, ordered(order, order), length, length)


def window(length: int, window: int) -> HeatDrawing:
    return longformer(length, window, 0)


def longformer(length: int, window: int, globals: int) -> HeatDrawing:
    """A window, and global tokens that see everything and are seen by everything."""
    import torch

    from regard.attention.window import Window

    side = window // 2
    if window < 2 or window % 2:
        raise InputError(f"a window of {window}; it counts both sides, so it is even and above 0")
    if globals > length:
        raise InputError(f"{globals} global tokens in a text of {length}; choose fewer")
    far = torch.arange(globals)[None] if globals else None
    pattern = Window(side, side, length, torch.float32, torch.device("cpu"), None, far)
    title = Bilingual(f"window of {side} on each side", f"两侧各 {side} 的窗口")
    if globals:
        title = Bilingual(f"{title.en}, {globals} global", f"{title.zh}，{globals} 个全局词元")
    local = seen(title, pattern, length, length)
    whole = full(length)  # global rows are a second attention that reads every row
    values = [whole.values[i] if i < globals else row for i, row in enumerate(local.values)]
    return HeatDrawing(title, values, local.rows, local.columns)


def bigbird(length: int, block: int, random: int, globals: int, seed: int) -> HeatDrawing:
    """Blocks that read themselves, their neighbors and a few that are drawn; global tokens."""
    import torch

    from regard.attention.bigbird import BigBird

    if block < 1:
        raise InputError(f"a block of {block} tokens; it has at least 1")
    if globals > length:
        raise InputError(f"{globals} global tokens in a text of {length}; choose fewer")
    far, cpu = torch.arange(globals)[None] if globals else None, torch.device("cpu")
    pattern = BigBird(block, 1, random, length, torch.float32, cpu, None, far, seed)
    title = Bilingual(
        f"BigBird, blocks of {block}, {random} drawn" + (f", {globals} global" if globals else ""),
        f"BigBird，块长 {block}，随机 {random} 块" + (f"，{globals} 个全局词元" if globals else ""),
    )
    return seen(title, pattern, length, length)


def xlnet(length: int, seed: int, memory: int) -> HeatDrawing:
    """The content stream of one permutation; `order` draws both streams."""
    rank = ranks(length, seed)
    order = [-1] * memory + rank
    shown = order_of(rank)
    title = Bilingual(f"XLNet, order {shown}", f"XLNet，次序 {shown}")
    return seen(title, ordered(rank, order), length, memory + length, memory)


def ranks(length: int, seed: int) -> list[int]:
    """Of each word, its place in a permutation that the seed draws."""
    from regard.core.seeding import permutation

    places = [0] * length
    for place, word in enumerate(permutation(length, seed, "picture", "order").tolist()):
        places[word] = place
    return places


def order_of(rank: Sequence[int]) -> str:
    by_rank = sorted(range(len(rank)), key=rank.__getitem__)
    return " ".join(str(i + 1) for i in by_rank)


def knowledge(length: int, branches: int) -> HeatDrawing:
    """A sentence of `length` words, whose second and fourth word have branches of two tokens."""
    import torch

    from regard.attention.pattern import Full
    from regard.attention.tree_pattern import Branches, TreePattern
    from regard.data.knowledge.tree import KnowledgeTree, Node

    def grown(number: int) -> list[list[Node]]:
        count = branches if number in (1, 3) else 0
        return [
            [Node([f"w{number + 1}.{b + 1}a", f"w{number + 1}.{b + 1}b"])] for b in range(count)
        ]

    flat = KnowledgeTree([Node([f"w{i + 1}"], grown(i)) for i in range(length)]).flatten()
    tables = (torch.tensor([column]) for column in (flat.line, flat.word, flat.owner))
    pattern = TreePattern(Full(), Branches(*tables), torch.float32)
    size = len(flat.tokens)
    check_range("number of tokens", size, 1, 2 * WIDEST)
    title = Bilingual(
        "the visible matrix: branches are seen by their word alone",
        "可见矩阵：分支只被它所属的词看见",
    )
    picture = seen(title, pattern, size, size)
    return HeatDrawing(picture.title, picture.values, flat.tokens, flat.tokens)


MASKS: dict[str, tuple[Callable[..., HeatDrawing], dict[str, int]]] = {  # with their options
    "full": (full, {}),
    "causal": (causal, {"past": 0}),
    "prefix": (prefix, {"prefix": 5}),
    "window": (window, {"window": 4}),
    "longformer": (longformer, {"window": 4, "globals": 1}),
    "bigbird": (bigbird, {"block": 2, "random": 1, "globals": 1, "seed": 1}),
    "xlnet": (xlnet, {"seed": 1, "memory": 0}),
    "knowledge": (knowledge, {"branches": 1}),
}


def order(words: Sequence[str], seed: int = 1, memory: int = 0) -> HeatDrawing:
    """XLNet's two streams in one picture: content rows see themselves, query rows do not."""
    check_range("number of words", len(words), 1, WIDEST // 2)
    check_range("memory", memory, 0, WIDEST // 2)
    rank = ranks(len(words), seed)
    keys = [-1] * memory + rank
    table = seen("", ordered([*rank, *(r - 1 for r in rank)], keys), 2 * len(words), len(keys))
    rows = [*(f"h {word}" for word in words), *(f"g {word}" for word in words)]
    columns = [*(f"m{i + 1}" for i in range(memory)), *words]
    title = Bilingual(
        f"XLNet, order {order_of(rank)}: content h, query g",
        f"XLNet，次序 {order_of(rank)}：内容流 h，查询流 g",
    )
    return HeatDrawing(title, table.values, rows, columns)
