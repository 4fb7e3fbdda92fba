"""The words of a comparison's page, in both languages."""

from __future__ import annotations

from regard.lab.compare.verdict import Said

WORDS = {
    "text": Said("Text", "文本"),
    "learned": Said("To learn from", "用于学习"),
    "unseen": Said("Unseen", "未曾读过"),
    "budget": Said("Budget of each model", "每个模型的预算"),
    "runs_each": Said("Runs of each model", "每个模型训练次数"),
    "size": Said("Size", "规模"),
    "sample": Said("Sample", "样本"),
    "tokens_long": Said("tokens", "个词元"),
    "documents": Said("documents", "篇文档"),
    "verdict": Said("What it showed", "结论"),
    # sections
    "exact": Said("Predicting unseen text", "预测未曾读过的文本"),
    "exact_note": Said(
        "How many bits a model needs for each byte of text that it has not read; less is better. "
        "These models give every text a probability, so their figures can be ranked. The bar is "
        "the 95% interval over documents.",
        "对没有读过的文本，模型平均每个字节需要多少比特；越少越好。这些模型能给任何文本一个概率，"
        "所以数值可以排名。横条是对文档重采样得到的 95% 区间。",
    ),
    "apart": Said(
        "Other figures in bits, not to be ranked with those", "另外的比特数，不可与上表排名"
    ),
    "prefix": Said("Given a prefix", "给定前文"),
    "prefix_note": Said(
        "The first part of each piece is read from both sides, and only the rest is predicted. "
        "That is an easier question, and another text.",
        "每一段的前半部分可以双向阅读，只预测其余部分。问题更容易，被预测的文本也不同。",
    ),
    "pseudo": Said("Pseudo-likelihood", "伪似然"),
    "pseudo_note": Said(
        "One word is hidden at a time and everything around it is seen. The sum over words is not "
        "the probability of a text, however small it is.",
        "每次只遮住一个词，其余全部可见。把各词加起来并不是文本的概率，数值再小也不是。",
    ),
    "hidden": Said("Guessing hidden words", "猜被遮住的词"),
    "hidden_note": Said(
        "Single words are hidden, the same ones for every model, and the share is counted that is "
        "guessed at the first try. Models that only read from left to right cannot be asked. The "
        "bar is the 95% interval over words.",
        "遮住单个词（对所有模型都是同样的词），数一次就猜中的比例。"
        "只从左往右读的模型无法参加。横条是对词重采样得到的 95% 区间。",
    ),
    "pairs": Said("Real sentences or counterfeits", "真句子还是假句子"),
    "pairs_note": Said(
        "Each sentence stands beside a copy in which two words have changed places. Counted is how "
        "often the real one is found more likely; guessing gives 50%. Models that see both sides "
        "add up how likely each word is among the others. The bar is the 95% interval over "
        "sentences.",
        "每个句子旁边有一个调换了两个词的副本，数真句子被认为更可能的比例；瞎猜是 50%。"
        "能看到两侧的模型，把每个词在其余各词之中的可能性加起来。"
        "横条是对句子重采样得到的 95% 区间。",
    ),
    "probe": Said("What the layers know", "各层知道什么"),
    "probe_note": Said(
        "A linear classifier on frozen states answers two questions that the text sets itself: "
        "does a punctuation mark follow this word, and which frequent word came before it? The "
        "figure is the mean of both; beside it stands the same for a model that has learned "
        "nothing.",
        "用冻结的隐藏状态训练线性分类器，回答文本自带的两个问题：这个词后面是不是标点？"
        "它前面是哪个常见词？数值是两者的平均；旁边是什么都没学过的同形模型的成绩。",
    ),
    "curves": Said("Learning", "学习过程"),
    "curves_note": Said(
        "Measured on the validation text on the way; each seed is a line. Only lines in one "
        "picture can be compared. The dashed line is the n-gram on the test text.",
        "训练途中在验证文本上测得；每个种子一条线。只有同一张图里的线才能相互比较。"
        "虚线是 n 元模型在测试文本上的成绩。",
    ),
    "by": Said("Along", "横轴"),
    "seconds": Said("time", "时间"),
    "tokens": Said("tokens", "词元"),
    "operations": Said("operations", "运算量"),
    "spent": Said("What it cost", "花费"),
    "spent_note": Said(
        "Of the training alone, means over the seeds; memory is the most a run held, Python and "
        "libraries included. Operations are counted, not measured: matrix products, forward and "
        "back.",
        "只计训练，是各种子的平均；内存是一次训练占用的最大值，包括 Python 和程序库。"
        "运算量是算出来的，不是测出来的：前向与反向的矩阵乘法。",
    ),
    "reads_span": Said(
        "Who learns by missing spans is counted by what its encoder reads; with what its decoder "
        "writes, that stands for about a tenth more of the text.",
        "以缺失片段学习的模型，按其编码器读入的词元计数；连同解码器写出的部分，"
        "对应的文本约多十分之一。",
    ),
    "growth": Said("When texts grow longer", "文本变长时"),
    "growth_note": Said(
        "A forward pass over one text, measured with fresh weights of the same shape. An encoder "
        "with a decoder reads one half and goes through the other; Transformer-XL and XLNet begin "
        "without a memory. Memory is what is held beyond the weights. Both axes grow by factors.",
        "对一段文本做一次前向计算，用同样形状的新权重测得。编码器—解码器模型读一半，"
        "解码另一半；Transformer-XL 与 XLNet 从没有记忆开始。内存是权重之外同时占用的部分。"
        "两个坐标轴都是对数的。",
    ),
    "growth_seconds": Said("Time of a forward pass", "前向计算的时间"),
    "growth_bytes": Said("Memory of a forward pass", "前向计算的内存"),
    "length": Said("tokens read at once", "一次读入的词元数"),
    "numbers": Said("The numbers", "数值"),
    "samples": Said("In their own words", "它们写的文字"),
    "samples_note": Said(
        "All models are given the same beginnings; those that fill blanks get one in the middle. "
        "Each model's first seed.",
        "所有模型得到同样的开头；会填空的模型在中间得到一个空。取每个模型的第一个种子。",
    ),
    "generated": Said("goes on", "续写"),
    "filled": Said("fills the blank", "填空"),
    "attention": Said("Where they look", "它们看哪里"),
    "attention_note": Said(
        "The same sentence, read by every model. Each row is a word, each column a word it looks "
        "at; the stronger the colour, the more, as a mean over the heads of a layer. Of an "
        "encoder with a decoder the encoder is shown. The first seed.",
        "同一个句子，由每个模型来读。每一行是一个词，每一列是它所看的词；颜色越浓看得越多，"
        "是一层中各注意力头的平均。编码器—解码器模型显示编码器。取第一个种子。",
    ),
    "no_attention": Said("has no attention to look at", "没有注意力可看"),
    "repeat": Said("Do it again", "重做一遍"),
    "repeat_note": Said(
        "This command repeats the comparison. With a budget in tokens or operations the same "
        "versions give the same figures, but for times and memory.",
        "这条命令重做整个比较。预算以词元或运算量给出时，同样的版本会得到同样的数值，"
        "时间与内存除外。",
    ),
    "plan": Said("The plan", "计划"),
    "machine": Said("Versions and machine", "版本与机器"),
    "reports": Said("Every run has a report of its own", "每次训练都有自己的报告"),
    "single": Said("To repeat a single run", "单独重做一次训练"),
    # columns
    "model": Said("model", "模型"),
    "value": Said("value", "数值"),
    "interval": Said("95% interval", "95% 区间"),
    "interval_first": Said("95% interval, first seed", "95% 区间（首个种子）"),
    "spread": Said("between seeds", "种子之间"),
    "untrained": Said("untrained", "未训练"),
    "majority": Said("always the commonest", "总猜最常见的"),
    "parameters": Said("parameters", "参数量"),
    "tokens_read": Said("tokens read", "读过的词元"),
    "time": Said("time", "时间"),
    "speed": Said("tokens a second", "每秒词元数"),
    "memory": Said("memory", "内存"),
    "bits_per_byte": Said("bits per byte", "每字节比特数"),
    "perplexity": Said("perplexity", "困惑度"),
    "masked_perplexity": Said("perplexity of hidden words", "被遮住的词的困惑度"),
    "permuted_perplexity": Said("perplexity in a shuffled order", "打乱次序后的困惑度"),
    "objective_prefix": Said("Given a prefix", "给定前文"),
    "objective_masked": Said("Hidden words", "被遮住的词"),
    "objective_permuted": Said("In any order", "任意次序"),
    "objective_span": Said("Missing spans", "缺失的片段"),
    "objective_exact": Said("From left to right", "从左往右"),
    # small things
    "ngram": Said("n-gram", "n 元模型"),
    "seed": Said("seed", "种子"),
    "not_apart": Said(
        "In bold: the best, and what cannot be told from it.",
        "粗体：最好的，以及与它分不出高下的。",
    ),
    "nothing": Said("Nothing has been measured yet.", "还没有测得任何结果。"),
    "skip": Said("To the findings", "跳到结论"),
    "chart_keys": Said("Arrow keys go from point to point.", "用方向键在各点之间移动。"),
}
