"""OpenVINO's format, made from the ONNX graphs.

On processors with bf16 instructions OpenVINO computes in bf16 unless it is told otherwise: the
precision is asked for when a graph is compiled, and stands in the files as a hint.

With int8 the matrices are stored in 8 bits with a scale for each output, in the form that OpenVINO
knows as compressed weights: no tool beside OpenVINO itself is needed for it.
"""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import torch

from regard.exports.base import ExportSource, Runtime, Target
from regard.exports.graphs import GraphRuntime
from regard.exports.onnx import LIMITS
from regard.exports.onnx import TARGET as ONNX

HINT = "INFERENCE_PRECISION_HINT"


class OpenVinoRuntime(GraphRuntime):
    """The graphs of a directory, compiled by OpenVINO for this processor, which computes in
    `hint`."""

    def __init__(self, source: ExportSource, directory: Path, hint: str = "f32") -> None:
        import openvino

        super().__init__(source)
        core = openvino.Core()
        settings = {HINT: hint, "INFERENCE_NUM_THREADS": torch.get_num_threads()}
        self.compiled: dict[str, Any] = {
            file.stem: core.compile_model(file, "CPU", settings)
            for file in sorted(directory.glob("*.xml"))
        }

    def run(self, name: str, inputs: dict[str, np.ndarray]) -> list[np.ndarray]:
        compiled = self.compiled[name]
        used = {port.get_any_name() for port in compiled.inputs}
        results = compiled({key: inputs[key] for key in used})
        return [np.array(results[port]) for port in compiled.outputs]


class OpenVino(Target):
    name = "openvino"
    about = "OpenVINO's graphs (xml and bin)"
    packages = ("openvino", "onnx", "onnxscript")
    limits = LIMITS

    def convert(self, source: ExportSource, directory: Path, precision: str) -> None:
        import openvino

        with tempfile.TemporaryDirectory() as scratch:
            ONNX.convert(source, Path(scratch), "fp32")
            for file in sorted(Path(scratch).glob("*.onnx")):
                graph = openvino.convert_model(file)
                if precision == "int8":
                    compress(graph, source.config.vocab_size)
                graph.set_rt_info("f32", ["runtime_options", HINT])
                openvino.save_model(graph, directory / f"{file.stem}.xml", compress_to_fp16=False)

    def open(self, source: ExportSource, directory: Path, precision: str) -> Runtime:
        return OpenVinoRuntime(source, directory)


def compress(graph: Any, vocab_size: int) -> None:
    """Stores the matrices of linear layers, and the tables of the vocabulary, in 8 bits."""
    from openvino import Type

    for node in graph.get_ordered_ops():
        if node.get_type_name() != "Constant" or node.get_element_type() != Type.f32:
            continue
        uses = [(use.get_node(), use.get_index()) for use in node.output(0).get_target_inputs()]
        layers = [user for user, place in uses if user.get_type_name() == "MatMul" and place == 1]
        table = len(node.shape) == 2 and node.shape[0] == vocab_size
        if len(node.shape) == 2 and (layers or table):
            in_rows = all(layer.get_attributes()["transpose_b"] for layer in layers)
            small = compressed(node.data, 1 if in_rows else 0)
            node.output(0).replace(small.output(0))


def compressed(weight: np.ndarray, axis: int) -> Any:
    """Returns a matrix as 8-bit numbers and their scales: one for each row or, along axis 0, for
    each column."""
    from openvino import Type, opset13

    scale = np.maximum(np.abs(weight).max(axis, keepdims=True) / 127, np.finfo(np.float32).tiny)
    numbers = opset13.constant(np.rint(weight / scale).astype(np.int8), Type.i8)
    return opset13.multiply(opset13.convert(numbers, "f32"), opset13.constant(scale, Type.f32))


TARGET = OpenVino()
