"""Types of every expression of the tree, by mypy: the facts that rename.py resolves names with.

python facts.py ROOT OUT.pickle  — run by the project's own interpreter (its mypy, its torch).

For each file: position (line, column, end line, end column; columns are bytes, as ast has them) ->
a record. Positions are those of Python's own ast, because mypy parses with it.
"""

from __future__ import annotations

import pickle
import sys
import time
from pathlib import Path

import mypy.nodes as N
import mypy.types as T
from mypy import build, main

REFERENCES = {
    "node", "info", "type", "definition", "analyzed", "unanalyzed_type", "method_type",
    "inferred_type", "names", "mro", "unanalyzed_items", "original_def", "type_annotation",
    "annotation", "bound_typevars", "_fullname", "fullname", "def_extras", "local_definitions",
    "alias_deps", "plugin_deps", "future_import_flags", "imports", "special_alias", "base_type_exprs_",
}  # fmt: skip


INI = """[mypy]
python_version = 3.11
mypy_path = {root}:{root}/benchmarks:{root}/scripts
explicit_package_bases = True
namespace_packages = True
follow_imports = skip
ignore_missing_imports = True
check_untyped_defs = True
[mypy-torch.*,numpy.*,typer.*,rich.*,tokenizers.*,safetensors.*,pytest.*]
follow_imports = silent
check_untyped_defs = False
[mypy-torch._inductor.*,torch._dynamo.*,torch.onnx.*,torch.testing.*,torch.fx.*,torch.ao.*,torch.jit.*,torch._export.*,torch.export.*,torch._functorch.*,sympy.*,torch.distributed.*]
follow_imports = skip
"""


def attributes(kind: type, seen: dict[type, list[str]] = {}) -> list[str]:
    if kind not in seen:
        names: dict[str, None] = {}
        for base in kind.__mro__:
            for name, value in vars(base).items():
                if type(value).__name__ in ("getset_descriptor", "member_descriptor"):
                    names[name] = None
            for name in getattr(base, "__slots__", ()):
                names[name] = None
        seen[kind] = [n for n in names if n not in REFERENCES and not n.startswith("__")]
    return seen[kind]


def walk(root: object):
    stack, done = [root], set()
    while stack:
        node = stack.pop()
        if isinstance(node, (list, tuple)):
            stack.extend(node)
            continue
        if not isinstance(node, (N.Node,)) or isinstance(node, N.SymbolTable):
            continue
        if id(node) in done:
            continue
        done.add(id(node))
        yield node
        for name in attributes(type(node)):
            try:
                value = getattr(node, name)
            except Exception:
                continue
            if isinstance(value, (N.Node, list, tuple)):
                if isinstance(value, N.TypeInfo) and not isinstance(node, N.ClassDef):
                    continue
                stack.append(value)


def classes_of(typ, depth: int = 0) -> set[str]:
    """Full names of the classes that a value of this type may be; "Any" where mypy knows none."""
    if typ is None or depth > 6:
        return {"Any"}
    typ = T.get_proper_type(typ)
    if isinstance(typ, T.AnyType):
        return {"Any"}
    if isinstance(typ, T.Instance):
        return {typ.type.fullname}
    if isinstance(typ, T.UnionType):
        return set().union(*(classes_of(t, depth + 1) for t in typ.items)) if typ.items else set()
    if isinstance(typ, T.TypeVarType):
        return classes_of(typ.upper_bound, depth + 1)
    if isinstance(typ, T.TupleType):
        return classes_of(typ.partial_fallback, depth + 1)
    if isinstance(typ, T.LiteralType):
        return classes_of(typ.fallback, depth + 1)
    if isinstance(typ, T.TypeType):
        return {f"type:{c}" for c in classes_of(typ.item, depth + 1)}
    if isinstance(typ, T.FunctionLike):
        if typ.is_type_obj():
            return {f"type:{typ.type_object().fullname}"}
        return {"function"}
    if isinstance(typ, T.NoneType):
        return {"None"}
    if isinstance(typ, T.TypedDictType):
        return {"dict"}
    return {"Any"} if isinstance(typ, (T.PartialType, T.DeletedType, T.UninhabitedType)) else {type(typ).__name__}


def targets_of(callee, types) -> set[str]:
    """Full names of what a call calls: functions, methods where defined, classes; "Any"."""
    names: set[str] = set()
    node = getattr(callee, "node", None)
    if isinstance(callee, (N.NameExpr, N.MemberExpr)) and isinstance(
        node, (N.FuncDef, N.OverloadedFuncDef, N.Decorator, N.TypeInfo)
    ):
        return {node.fullname}
    typ = T.get_proper_type(types.get(callee))
    if isinstance(callee, N.MemberExpr):
        received = types.get(callee.expr)
        if received is not None:
            for name in classes_of(received):
                if name.startswith("type:"):
                    name = name[5:]
                names.add(f"{name}.{callee.name}" if name not in ("Any", "None") else name)
            names.discard("None")
    if typ is None:
        return names or {"Any"}
    for item in T.flatten_nested_unions([typ]) if isinstance(typ, T.UnionType) else [typ]:
        item = T.get_proper_type(item)
        if isinstance(item, T.FunctionLike):
            if item.is_type_obj():
                names.add(item.type_object().fullname)
            elif isinstance(item, T.CallableType) and item.definition is not None:
                names.add(item.definition.fullname)
            else:
                names.add("callable")
        elif isinstance(item, T.Instance):
            names.add(f"{item.type.fullname}.__call__")
        elif isinstance(item, T.TypeType):
            names |= {c for c in classes_of(item.item)}
        else:
            names |= classes_of(item)
    return names or {"Any"}


def position(node) -> tuple[int, int, int, int]:
    return node.line, node.column, node.end_line, node.end_column


def main_() -> None:
    began = time.time()
    root, out = Path(sys.argv[1]).resolve(), Path(sys.argv[2])
    import os

    os.chdir(root)
    sys.path.insert(0, str(root))
    config = out.with_suffix(".ini")
    config.write_text(INI.format(root=root))
    args = ["--config-file", str(config), "--no-incremental", "--no-error-summary",
            *(p for p in ("regard", "tests", "benchmarks", "scripts") if (root / p).is_dir())]  # fmt: skip
    sources, options = main.process_options(args)
    options.export_types = True
    options.preserve_asts = True
    options.incremental = False
    result = build.build(sources, options)
    types = result.types
    print(f"mypy: {len(result.files)} files, {len(types):,} expressions, {len(result.errors)} errors,"
          f" {time.time() - began:.0f} s", file=sys.stderr)  # fmt: skip
    files, classes = {}, {}
    for name, tree in result.files.items():
        if not tree.path or not Path(tree.path).resolve().is_relative_to(root):
            continue
        path = str(Path(tree.path).resolve().relative_to(root))
        members, calls, names, dicts, values = {}, {}, {}, {}, {}
        for node in walk(tree):
            if isinstance(node, N.MemberExpr):
                target = node.node.fullname if getattr(node, "node", None) is not None else ""
                kinds = classes_of(types.get(node.expr))
                if isinstance(getattr(node.expr, "node", None), N.MypyFile):
                    kinds = {f"module:{node.expr.node.fullname}"}
                members[position(node)] = (node.name, frozenset(kinds), target or "")
            elif isinstance(node, N.CallExpr):
                calls[position(node)] = frozenset(targets_of(node.callee, types))
                if getattr(node, "analyzed", None) is not None:
                    pass
            elif isinstance(node, N.NameExpr):
                full = node.node.fullname if node.node is not None else ""
                names[position(node)] = (full or "", frozenset(classes_of(types.get(node))))
            elif isinstance(node, N.DictExpr):
                typ = T.get_proper_type(types.get(node))
                if isinstance(typ, T.Instance) and len(typ.args) == 2:
                    dicts[position(node)] = frozenset(classes_of(typ.args[1]))
            elif isinstance(node, N.ClassDef):
                info = node.info
                base = {m.fullname for m in info.mro}
                own = {}
                for field, symbol in info.names.items():
                    held = symbol.node
                    kind = type(held).__name__
                    own[field] = (kind, sorted(classes_of(held.type)) if isinstance(held, N.Var) else [])
                data = "dataclass" in info.metadata or "dataclass_tag" in info.metadata
                classes[info.fullname] = {
                    "mro": [m.fullname for m in info.mro], "own": own, "dataclass": data,
                    "path": path, "line": node.line, "module": name,
                }  # fmt: skip
            if isinstance(node, N.Expression) and not isinstance(node, N.NameExpr):
                typ = types.get(node)
                if typ is not None:
                    values.setdefault(position(node), frozenset(classes_of(typ)))
        files[path] = {"module": name, "members": members, "calls": calls, "names": names,
                       "dicts": dicts, "values": values}  # fmt: skip
    out.write_bytes(pickle.dumps({"files": files, "classes": classes}))
    print(f"facts of {len(files)} files, {time.time() - began:.0f} s", file=sys.stderr)
    for error in result.errors[:5]:
        print(error, file=sys.stderr)


main_()
