"""ONNX, read by onnxruntime and many others: the graphs of any model with attention."""

from __future__ import annotations

import contextlib
import io
import logging
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch

from regard.exports.base import ExportSource, Limit, Runtime, Target
from regard.exports.graphs import GraphRuntime, TracedGraph, graphs

OPSET = 20
LARGEST = 2**30  # bytes; the weights of larger models stand in a file beside the graph
PLAIN = {"pruned", "int8"}  # extensions that change sizes only; `settled` refuses the second

LIMITS: tuple[Limit, ...] = (
    ("a graph of any length cannot hold a recurrent layer, whose steps torch.export writes out",
     lambda s: not s.model.attends),
    ("its extensions change what a row computes, which no input of the graph tells",
     lambda s: set(s.model.extensions) - PLAIN),
    ("its head seeks the end of an answer for a given start, which is no graph",
     lambda s: s.head == "span"),
)  # fmt: skip


class OnnxRuntime(GraphRuntime):
    """The graphs of a directory, opened by onnxruntime."""

    def __init__(self, source: ExportSource, directory: Path) -> None:
        import onnxruntime

        super().__init__(source)
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = torch.get_num_threads()
        options.log_severity_level = 3
        self.sessions = {
            file.stem: onnxruntime.InferenceSession(
                file, options, providers=["CPUExecutionProvider"]
            )
            for file in sorted(directory.glob("*.onnx"))
        }

    def run(self, name: str, inputs: dict[str, np.ndarray]) -> list[np.ndarray]:
        session = self.sessions[name]
        used = {node.name for node in session.get_inputs()}
        outputs: list[np.ndarray] = session.run(None, {k: inputs[k] for k in used})
        return outputs


class Onnx(Target):
    name = "onnx"
    about = "ONNX graphs, for onnxruntime"
    packages = ("onnx", "onnxscript", "onnxruntime")
    limits = LIMITS

    def convert(self, source: ExportSource, directory: Path, precision: str) -> None:
        for graph in graphs(source):
            file = directory / f"{graph.name}.onnx"
            write(source, graph, file)
            if precision == "int8":
                quantize(file)

    def open(self, source: ExportSource, directory: Path, precision: str) -> Runtime:
        return OnnxRuntime(source, directory)


def write(source: ExportSource, graph: TracedGraph, file: Path) -> None:
    """Writes a graph as ONNX; it is traced once, also if the model becomes several exports."""
    numbers = sum(value.numel() * value.element_size() for value in source.model.parameters())
    with quiet():
        if graph.name not in source.traced:
            source.traced[graph.name] = trace(source, graph)
        source.traced[graph.name].save(file, external_data=numbers > LARGEST)


def trace(source: ExportSource, graph: TracedGraph) -> Any:
    """Records a graph, with the names of its inputs and outputs and dynamic lengths."""
    with torch.no_grad(), source.model.one_direction():
        return torch.onnx.export(
            graph.module.eval(),
            (),
            kwargs=graph.inputs,
            input_names=list(graph.inputs),
            output_names=list(graph.outputs),
            dynamic_shapes=graph.dimensions(),
            opset_version=OPSET,
            dynamo=True,
            verbose=False,
        )


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """Keeps remarks of the exporter and the quantizer about themselves from the user."""
    before = logging.root.manager.disable
    with warnings.catch_warnings(action="ignore"), contextlib.redirect_stdout(io.StringIO()):
        logging.disable(logging.WARNING)
        try:
            yield
        finally:
            logging.disable(before)


def quantize(file: Path) -> None:
    """Stores the matrices of a graph in 8 bits; activations are quantized when they are known."""
    import onnx
    from onnxruntime.quantization import QuantType, quantize_dynamic

    # The quantizer turns some weights around, and then trips over their shapes as they were noted.
    model = onnx.load(file, load_external_data=False)
    weights = {weight.name for weight in model.graph.initializer}
    others = [value for value in model.graph.value_info if value.name not in weights]
    del model.graph.value_info[:]
    model.graph.value_info.extend(others)
    onnx.save(model, file)
    draft = file.with_suffix(".int8")
    with quiet():
        quantize_dynamic(file, draft, weight_type=QuantType.QInt8, per_channel=True)
    draft.replace(file)


TARGET = Onnx()
