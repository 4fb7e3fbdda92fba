"""Every sentence of the page, in English and Chinese. {name} is filled in by the page."""

from __future__ import annotations

WORDS: dict[str, tuple[str, str]] = {
    "title": ("Attention", "注意力"),
    "language": ("中文", "English"),
    "language_hint": ("用中文显示", "Show in English"),
    "show_all": ("Show all of it", "显示全文"),
    "show_less": ("Show less", "收起"),
    "heads": ("Layers and heads", "层与头"),
    "heads_hint": (
        "A row is a layer, a column a head; μ is their mean, R the rollout. Arrow keys move, Enter "
        "chooses.",
        "每行一层，每列一个头；μ 为平均，R 为展开。方向键移动，回车选择。",
    ),
    "stack": ("What attends", "注意力种类"),
    "self": ("Self-attention", "自注意力"),
    "encoder": ("Encoder", "编码器"),
    "decoder": ("Decoder", "解码器"),
    "cross": ("Target → source", "目标 → 源"),
    "content": ("Content stream", "内容流"),
    "query": ("Query stream", "查询流"),
    "about_self": (
        "Every row reads the columns it may see.",
        "每一行读取它可见的各列。",
    ),
    "about_encoder": ("The source reads itself.", "源文本读取自身。"),
    "about_decoder": (
        "Each row is an input of the decoder: it sees itself and what came before, and guesses "
        "the next token.",
        "每一行是解码器的一个输入：它看到自己和之前的内容，并预测下一个词元。",
    ),
    "about_cross": (
        "Each row of the decoder reads the source.",
        "解码器的每一行读取源文本。",
    ),
    "about_content": (
        "A content row knows its own word, and sees words guessed before it and itself.",
        "内容行知道自己的词，能看到先于它被预测的词和它自己。",
    ),
    "about_query": (
        "A query row stands for a word that is to be guessed: it knows only the place, and never "
        "sees the word itself.",
        "查询行代表一个待预测的词：它只知道位置，永远看不到这个词本身。",
    ),
    "layer_head": ("Layer {layer}, head {head}", "第 {layer} 层，第 {head} 头"),
    "layer_mean": (
        "Layer {layer}, mean of {count} heads",
        "第 {layer} 层，{count} 个头的平均",
    ),
    "layer_rolled": (
        "Rolled out up to layer {layer}",
        "展开到第 {layer} 层",
    ),
    "mean": ("μ", "μ"),
    "rolled": ("R", "R"),
    "about_rolled": (
        "Rollout (Abnar and Zuidema 2020): half of each row is kept, half is the mean of the "
        "heads (0.5·A + 0.5·I), and the layers are multiplied. It shows how much of each token "
        "may have arrived in a row.",
        "注意力展开（Abnar 与 Zuidema 2020）：每行一半保留自身，一半为各头平均"
        "（0.5·A + 0.5·I），逐层相乘。它表示每个词元可能有多少到达某一行。",
    ),
    "rolled_decoder": (
        "Each cross-attention gives half of a row to the source, so above the first layer the "
        "shares of the target add up to less than 1.",
        "每次交叉注意力都把一行的一半让给源文本，因此第一层以上目标词元的份额之和小于 1。",
    ),
    "rolled_cross": (
        "These are the shares of the source, rolled out through the encoder as well; the rest of a "
        "row is the target's.",
        "这里是源文本的份额，也经过编码器展开；一行中其余的部分属于目标文本。",
    ),
    "rolled_query": (
        "A query row begins as nobody's word, so its shares add up to less than 1.",
        "查询行起初不属于任何词，因此它的份额之和小于 1。",
    ),
    "view": ("View", "视图"),
    "asking": ("asks", "提问"),
    "read": ("is read", "被读取"),
    "arcs": ("Arcs", "弧线"),
    "matrix": ("Matrix", "矩阵"),
    "numbers": ("Numbers", "数字"),
    "numbers_hint": (
        "Write the weights into the matrix",
        "在矩阵中写出权重",
    ),
    "smaller": ("Smaller", "缩小"),
    "larger": ("Larger", "放大"),
    "fit": ("Fit", "适合"),
    "linked": ("Both sides together", "两侧联动"),
    "svg": ("Save SVG", "保存 SVG"),
    "png": ("Save PNG", "保存 PNG"),
    "export_hint": (
        "Saves the whole picture, or what is in view where it is very large",
        "保存整幅图；图很大时保存当前可见部分",
    ),
    "picture": (
        "Attention of {what}. Up and down choose a row, left and right a column, Enter holds it, "
        "Escape lets go, + and − zoom.",
        "{what} 的注意力。上下键选择行，左右键选择列，回车固定，Esc 取消，+ 和 − 缩放。",
    ),
    "hint": (
        "Point at a token to see its weights; click or press Enter to hold it. Stronger colour is "
        "more weight: full colour is what nine rows in ten do not exceed, and at least four times "
        "an even share.",
        "指向一个词元可查看其权重；点击或按回车固定。颜色越深权重越大：最深表示九成的行不超过的权"
        "重，且不低于平均份额的四倍。",
    ),
    "looks_at": ("{token} looks at", "{token} 看向"),
    "seen_by": ("{token} is looked at by", "看向 {token} 的有"),
    "nothing": ("It sees nothing.", "它什么也看不到。"),
    "nobody": ("Nobody looks at it.", "没有词元看向它。"),
    "cell": ("{row} → {column}: {weight}", "{row} → {column}：{weight}"),
    "rest": ("all others together", "其余合计"),
    "kept_only": (
        "Only where it is among the stored weights of a row.",
        "只包括它属于该行已保存权重的情形。",
    ),
    "all": ("All {count} numbers", "全部 {count} 个数字"),
    "few": ("Only the strongest", "只看最强的"),
    "legend": ("Marks", "标记"),
    "mark_memory": ("memory, before the text", "记忆（文本之前）"),
    "mark_global": ("global token", "全局词元"),
    "mark_branch": ("fact from the knowledge graph", "来自知识图谱的事实"),
    "mark_entity": ("entity of the knowledge graph", "知识图谱中的实体"),
    "mark_special": ("mark of the tokenizer", "分词器的特殊标记"),
    "mark_start": ("start of the decoder", "解码器的起始"),
    "mark_rank": ("#n: guessed as the n-th", "#n：第 n 个被预测"),
    "mark_part": (
        "₁₂: bytes of one character in several tokens",
        "₁₂：一个字符的字节分在几个词元中",
    ),
    "facts": ("Facts from the graph", "图谱中的事实"),
    "note_memory": (
        "The model remembers {count} tokens before the text (of {given} that it read).",
        "模型记得文本之前的 {count} 个词元（共读了 {given} 个）。",
    ),
    "note_order": (
        "Words are guessed in the order {order}; all others are given.",
        "按 {order} 的顺序预测；其余的词是已知的。",
    ),
    "note_window": (
        "Each token sees a window of {window} neighbours (both sides together); global tokens: "
        "{count}.",
        "每个词元看到两侧共 {window} 个邻居的窗口；全局词元：{count} 个。",
    ),
    "note_written": (
        "The target was written by the model itself ({count} tokens).",
        "目标文本由模型自己生成（{count} 个词元）。",
    ),
    "note_branches": (
        "Branches from the knowledge graph: {count}; left out for want of room: {left}.",
        "来自知识图谱的分支：{count} 条；因空间不足略去：{left} 条。",
    ),
    "note_entities": (
        "Entities of the knowledge graph in the text: {count}. They guide the attention.",
        "文本中的知识图谱实体：{count} 个。它们引导注意力。",
    ),
    "precision": ("Precision of the numbers", "数字的精度"),
    "precision_f4": (
        "The weights are stored as recorded, as 32-bit floats.",
        "权重按记录原样保存为 32 位浮点数。",
    ),
    "precision_u2": (
        "The weights are stored in 16 bits: a number is off by at most 1/131,070 of the largest "
        "weight of its row, so the three digits shown are those recorded, up to rounding.",
        "权重以 16 位保存：误差不超过所在行最大权重的 1/131,070，所示三位数字与记录一致"
        "（至多差一次舍入）。",
    ),
    "precision_u1": (
        "The text is long, so the weights are stored in 8 bits: a number is off by at most 1/510 "
        "of the largest weight of its row.",
        "文本较长，权重以 8 位保存：误差不超过所在行最大权重的 1/510。",
    ),
    "precision_top": (
        "The text is long, so of each row only the {count} largest weights are stored, in 8 bits "
        "(off by at most 1/510 of the largest); the sum of the others is shown.",
        "文本较长，每行只保存最大的 {count} 个权重，以 8 位表示（误差不超过最大值的 1/510），"
        "其余的只显示总和。",
    ),
    "precision_rolled": (
        "Of the rolled-out attention, and of the mean of heads whose windows differ, only the 32 "
        "largest weights of a row are stored, in 8 bits.",
        "展开注意力以及窗口不同的各头的平均，每行只保存最大的 32 个权重，以 8 位表示。",
    ),
    "weights_note": (
        "Attention shows where a head reads, not why the model answers as it does.",
        "注意力显示一个头从哪里读取信息，并不等于模型作答的原因。",
    ),
    "no_script": (
        "This page draws with JavaScript; please allow it.",
        "本页用 JavaScript 绘制，请允许运行。",
    ),
}  # fmt: skip
