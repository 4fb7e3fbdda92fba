"""Renames by resolving symbols: python rename.py ROOT [--stages 1,2,3,4,5] [--facts FILE] [--dry]

Reads table.toml beside this file. Writes out/report-STAGES.md: what was undecidable, what was
renamed in strings (to be read by a human), and where a new name would have collided.
"""

from __future__ import annotations

import argparse
import ast
import difflib
import os
import pickle
import re
import subprocess
import sys
import time
import tomllib
from collections import Counter, defaultdict
from pathlib import Path

from engine import File, Tree, like, pos

HERE = Path(__file__).resolve().parent
PYTHON = os.environ.get("RENAME_PYTHON", sys.executable)
RUFF = str(Path(PYTHON).parent / "ruff")
TEXTS = ("*.md", "docs/*.md", "Makefile", "scripts/*.sh", "benchmarks/*.sh", "regard/recipes/*.toml",
         "tests/**/*.toml", "tests/**/*.md", "pyproject.toml", "docs/**/*.md",
         "regard/**/*.md")  # fmt: skip
ANCHORS = {"width", "layers", "heads", "head_size", "context"}
TABLES = "regard/formats/"  # their names in these never change


def read_table() -> dict:
    table = tomllib.loads((HERE / "table.toml").read_text(encoding="utf-8"))
    rules = {kind: [dict(rule) for rule in table.get(kind, [])] for kind in
             ("module", "symbol", "field", "param", "item", "doc", "spelling", "single")}  # fmt: skip
    for rule in list(rules["field"]):
        if isinstance(rule["old"], str) and " " in rule["old"]:
            rules["field"].remove(rule)
            for old, new in zip(rule["old"].split(), rule["new"].split(), strict=True):
                rules["field"].append(rule | {"old": old, "new": new})
    for rule in list(rules["param"]):
        if " " in rule["old"]:
            rules["param"].remove(rule)
            for old, new in zip(rule["old"].split(), rule["new"].split(), strict=True):
                rules["param"].append(rule | {"old": old, "new": new})
    return rules


class Renamer:
    def __init__(self, tree: Tree, rules: dict, stages: set[int]) -> None:
        self.tree = tree
        self.rules = {k: [r for r in rs if r["stage"] in stages] for k, rs in rules.items()}
        self.settle_symbols()
        self.count: Counter = Counter()
        # (function's full name, old parameter) -> new
        self.params: dict[tuple[str, str], str] = {}
        self.fields: dict[str, list[dict]] = defaultdict(list)  # old -> rules
        for rule in self.rules["field"]:
            rule["matched"] = self.matched(rule)
            if not rule["matched"]:
                tree.undecided.append(f"table.toml: field {rule['old']} -> {rule['new']} of "
                                      f"{rule['classes']}: no such class field (renamed already?)")  # fmt: skip
            self.fields[rule["old"]].append(rule)
        self.sections = defaultdict(dict)  # section -> {old: new}
        self.section_fields = defaultdict(set)
        for rule in self.rules["field"]:
            for section in rule.get("sections", ()):
                self.sections[section][rule["old"]] = rule["new"]
                for name in rule["matched"]:
                    self.section_fields[section] |= self.names(name)
        self.flows: dict[str, tuple[frozenset[str], bool]] = {}
        self.backticks: dict[str, list] = defaultdict(list)  # path -> [(start, end, old, new)]

    def settle_symbols(self) -> None:
        """Classes and functions that others have moved since the table was written."""
        there = set(self.tree.classes) | set(self.tree.functions)
        short = defaultdict(list)
        for name in there:
            if self.tree.modules.get(name.rpartition(".")[0]):
                short[name.split(".")[1] if name.count(".") else "", name.rpartition(".")[2]].append(name)
        for rule in list(self.rules["symbol"]):
            if "*" in rule["old"] or rule["old"] in there:
                continue
            other = short.get((rule["old"].split(".")[1], rule["old"].rpartition(".")[2]), [])
            if len(other) == 1 and not any(r["old"] == other[0] for r in self.rules["symbol"]):
                self.tree.log.append(f"table.toml: {rule['old']} is now {other[0]}")
                rule["old"] = other[0]
            else:
                self.tree.undecided.append(f"table.toml: no {rule['old']} (for {rule['new']}); like it: {other}")
                self.rules["symbol"].remove(rule)
        names = {n.rpartition(".")[2] for n in there if n.startswith("regard.")}
        for rule in self.rules["symbol"]:
            if rule["new"] in names and rule["new"][0].isupper():
                self.tree.undecided.append(f"table.toml: {rule['old']} -> {rule['new']}: a class has that name already")

    # -- which

    def names(self, kind: str) -> set[str]:
        out: set[str] = set()
        for base in self.tree.classes[kind]["mro"]:
            held = self.tree.classes.get(base)
            if held:
                out |= {n for n, (k, _) in held["own"].items() if k == "Var"}
        return out

    def matched(self, rule: dict) -> set[str]:
        out = set()
        for name, held in self.tree.classes.items():
            if not like(name, rule["classes"]) or like(name, rule.get("exclude", [])):
                continue
            if rule["old"] in held["own"]:
                kind, types = held["own"][rule["old"]]
                wanted = rule.get("types")
                if wanted and not set(types) & set(wanted):
                    continue
                out.add(name)
        return out

    def new_field(self, file: File, node, old: str, kinds, text: str, what: str) -> str | None:
        """What an attribute of these classes is called; None where it keeps its name."""
        rules = self.fields.get(old)
        if not rules:
            return None
        yes, no, unknown = set(), False, False
        for kind in kinds:
            kind = kind.removeprefix("type:")
            if kind == "None":
                continue
            if kind in ("Any", "callable", "builtins.object"):
                unknown = True
                continue
            owner = self.tree.owner(kind, old)
            rule = next((r for r in rules if owner in r["matched"]), None)
            if rule:
                yes.add(rule["new"])
            elif owner is None and kind in self.tree.classes and self.below(kind, old, rules):
                yes.add(self.below(kind, old, rules))  # a base class; the field is its children's
            else:
                no = True
        if not yes and not no and unknown:
            for rule in rules:
                patterns = rule.get("any" if what == "attribute" else "calls", ())
                if any(re.fullmatch(p, text) for p in patterns):
                    if like(file.path, rule.get("any_not_in", [])):
                        continue
                    self.tree.said(file, node, f"by its receiver: {text} .{old} -> {rule['new']}")
                    return rule["new"]
            quiet = any(
                re.fullmatch(p, text) for r in rules for p in r.get("never", ())
            )
            if not quiet:
                self.tree.note(file, node, f"undecided {what} {old} of {text}")
            return None
        if len(yes) > 1 or (yes and no):
            self.tree.note(file, node, f"mixed classes for {old}: {sorted(kinds)}")
        return yes.pop() if len(yes) == 1 else None

    def below(self, kind: str, old: str, rules: list) -> str | None:
        for child in self.tree.children.get(kind, ()):
            for rule in rules:
                if child in rule["matched"]:
                    return rule["new"]
        return None

    # -- expressions

    def kinds(self, file: File, node: ast.AST):
        if isinstance(node, ast.Name):
            found = file.facts["names"].get(pos(node))
            return found[1] if found else frozenset({"Any"})
        if isinstance(node, ast.Attribute):
            found = file.facts["values"].get(pos(node)) or file.facts.get("attribute_types", {}).get(pos(node))
            return found or frozenset({"Any"})
        return file.facts["values"].get(pos(node), frozenset({"Any"}))

    def run(self) -> None:
        self.find_params()
        for file in self.tree.files.values():
            for node in ast.walk(file.tree):
                if isinstance(node, ast.Attribute):
                    self.attribute(file, node)
                elif isinstance(node, ast.Call):
                    self.call(file, node)
                elif isinstance(node, ast.ClassDef):
                    pass
                elif isinstance(node, ast.Dict):
                    self.dictionary(file, node)
                elif isinstance(node, (ast.Tuple, ast.List, ast.Set)):
                    self.words(file, node)
                elif isinstance(node, ast.Subscript):
                    self.subscript(file, node)
                elif isinstance(node, ast.Compare):
                    self.compare(file, node)
                elif isinstance(node, ast.Constant) and isinstance(node.value, str):
                    self.exact(file, node)
                elif isinstance(node, (ast.For, ast.comprehension)):
                    self.loop(file, node)
                elif isinstance(node, ast.MatchClass):
                    self.match_class(file, node)
            self.class_bodies(file)
            self.parameters(file)
            self.symbols(file)
        for file in self.tree.files.values():
            self.strings(file)

    def exact(self, file: File, node: ast.Constant) -> None:
        """Names that mean nothing else, and names that stand beside these in one expression."""
        rule = next((r for r in self.rules["item"] if r["old"] == node.value), None)
        if rule is None:
            return
        others = {r["old"] for r in self.rules["item"] if r.get("exact")}
        if node.value not in others:
            top = node
            while isinstance(getattr(top, "parent", None), ast.expr):
                top = top.parent
            beside = {n.value for n in ast.walk(top) if isinstance(n, ast.Constant)}
            if not beside & others:
                return
        if not like(file.path, rule.get("not_in", [])):
            self.constant(file, node, rule["new"])

    def attribute(self, file: File, node: ast.Attribute) -> None:
        if node.attr not in self.fields:
            return
        found = file.facts["members"].get(pos(node))
        kinds = found[1] if found else frozenset({"Any"})
        text = file.source(node.value) if "\n" not in file.source(node.value) else ast.unparse(node.value)
        if any(k.startswith("module:") for k in kinds):
            return
        called = isinstance(node.parent, ast.Call) and node.parent.func is node
        if called and kinds <= {"Any", "None"} and not any(r.get("method") for r in self.fields[node.attr]):
            return  # numbers and tensors are not called
        new = self.new_field(file, node, node.attr, kinds, text, "attribute")
        if new:
            end = file.at(node.end_lineno, node.end_col_offset)
            if not file.edit(end - len(node.attr.encode()), node.attr, new, node):
                self.tree.note(file, node, f"could not place .{node.attr} -> {new}")
            self.count[f"attribute {node.attr}"] += 1

    def targets(self, file: File, node: ast.Call) -> frozenset[str]:
        return file.facts["calls"].get(pos(node), frozenset({"Any"}))

    def call(self, file: File, node: ast.Call) -> None:
        text = ast.unparse(node.func)
        name = text.split(".")[-1]
        if name in ("getattr", "hasattr", "setattr", "delattr") and len(node.args) > 1:
            word = node.args[1]
            if isinstance(word, ast.Constant) and word.value in self.fields:
                kinds = self.kinds(file, node.args[0])
                received = ast.unparse(node.args[0])
                self.constant(file, word, self.new_field(file, node, word.value, kinds, received, "attribute"))
        if name in ("get", "pop", "setdefault") and node.args and isinstance(node.func, ast.Attribute):
            self.item(file, node.func.value, node.args[0], node)
        keywords = [k for k in node.keywords if k.arg]
        if not keywords:
            return
        targets = self.targets(file, node)
        if name == "partial" and node.args:
            targets, text = self.value_targets(file, node.args[0]), ast.unparse(node.args[0])
        made = self.made_class(file, node, name, text, targets)
        for keyword in keywords:
            new = None
            if made is not None:
                if keyword.arg in self.fields:
                    new = self.new_field(file, keyword.value, keyword.arg, made, text, "keyword")
            else:
                new = self.keyword(file, node, keyword, targets, text)
            if new:
                start = file.at(keyword.lineno, keyword.col_offset)
                if not file.edit(start, keyword.arg, new, keyword):
                    self.tree.note(file, keyword.value, f"could not place {keyword.arg}= -> {new}")
                self.count[f"keyword {keyword.arg}"] += 1
            if keyword.arg in self.sections and isinstance(keyword.value, (ast.Dict, ast.Call)):
                self.section(file, keyword.arg, keyword.value)

    def value_targets(self, file: File, node: ast.AST) -> frozenset[str]:
        if isinstance(node, ast.Name) and (found := file.facts["names"].get(pos(node))):
            return frozenset({found[0]}) | frozenset(k.removeprefix("type:") for k in found[1] if k.startswith("type:"))  # fmt: skip
        if isinstance(node, ast.Attribute) and (found := file.facts["members"].get(pos(node))):
            if found[2]:
                return frozenset({found[2]})
            return frozenset(f"{k.removeprefix('type:')}.{node.attr}" for k in found[1])
        return frozenset({"Any"})

    def made_class(self, file: File, node: ast.Call, name: str, text: str, targets):
        """The classes whose fields the keywords of a call are; None: it calls functions."""
        if name in ("replace", "_replace", "copy_with"):
            if text in ("replace", "dataclasses.replace") and node.args:
                return self.kinds(file, node.args[0])
            if isinstance(node.func, ast.Attribute):
                found = file.facts["members"].get(pos(node.func))
                kinds = found[1] if found else frozenset({"Any"})
                own = {k for k in kinds if k.removeprefix("type:") in self.tree.classes}
                if own or kinds <= {"Any"}:
                    return kinds
        if text in ("dict",):
            return None
        classes = {t for t in targets if t in self.tree.classes}
        plain = {t for t in classes if not any("__init__" in self.tree.classes[b]["own"] and self.tree.classes[b]["own"]["__init__"][0] == "FuncDef" and f"{b}.__init__" in self.tree.functions for b in self.tree.classes[t]["mro"] if b in self.tree.classes)}  # fmt: skip
        return frozenset(plain) if plain and plain == classes else None

    def keyword(self, file: File, node, keyword, targets, text: str) -> str | None:
        old = keyword.arg
        rules = [r for r in self.rules["param"] if r["old"] == old]
        fields = self.fields.get(old, [])
        if text == "dict":
            self.dict_call(file, node, keyword)
            return None
        if not rules and not fields:
            return None
        yes, known = set(), False
        for target in targets:
            for function in self.tree.called(target):
                known = True
                if (function, old) in self.params:
                    yes.add(self.params[function, old])
                elif self.takes_any(function, old):
                    # **changes: what they flow into, or what the table says
                    sinks, whole = self.sinks(function)
                    if sinks and fields:
                        new = self.new_field(file, keyword.value, old, sinks, text, "flow")
                        if new:
                            yes.add(new)
                            continue
                        if whole:
                            continue
                    for rule in fields:
                        if any(re.fullmatch(p, text) for p in rule.get("calls", ())):
                            yes.add(rule["new"])
                    for rule in rules:
                        if any(re.fullmatch(p, text) for p in rule.get("calls", ())):
                            yes.add(rule["new"])
                    if not yes:
                        known = None
        if len(yes) == 1:
            return yes.pop()
        if known or (known is False and targets and not targets & {"Any", "callable", "function"}
                     and not any(t.endswith("Module.__call__") for t in targets)):  # fmt: skip
            if yes:
                self.tree.note(file, keyword.value, f"mixed functions for {old}=")
            return None
        for rule in [*rules, *fields]:
            if any(re.fullmatch(p, text) for p in rule.get("calls", ())):
                self.tree.said(file, keyword.value, f"by its callee: {text}({old}=) -> {rule['new']}")
                return rule["new"]
        self.tree.note(file, keyword.value, f"undecided keyword {old}= of {text} {sorted(targets)[:3]}")
        return None

    def sinks(self, function: str, seen: frozenset = frozenset()) -> tuple[frozenset[str], bool]:
        """The classes that a function's **keywords become fields of; and: is that all they become?"""
        if function in self.flows:
            return self.flows[function]
        if function in seen:
            return frozenset(), True
        file, node, scope = self.tree.functions[function]
        seen |= {function}
        held = {node.args.kwarg.arg}
        whole = True

        def carries(value: ast.AST) -> bool:
            if isinstance(value, ast.Name):
                return value.id in held
            if isinstance(value, ast.BinOp):
                return carries(value.left) or carries(value.right)
            if isinstance(value, ast.IfExp):
                return carries(value.body) or carries(value.orelse)
            if isinstance(value, ast.Dict):
                return any(k is None and carries(v) for k, v in zip(value.keys, value.values, strict=True))
            if isinstance(value, ast.Call) and ast.unparse(value.func) == "dict":
                return any(carries(a) for a in value.args) or any(k.arg is None and carries(k.value) for k in value.keywords)
            return False

        for _ in range(2):
            for inner in ast.walk(node):
                if isinstance(inner, ast.Assign) and carries(inner.value):
                    held |= {t.id for t in inner.targets if isinstance(t, ast.Name)}
                elif isinstance(inner, ast.AnnAssign) and inner.value and carries(inner.value) and isinstance(inner.target, ast.Name):
                    held.add(inner.target.id)
                elif isinstance(inner, ast.AugAssign) and carries(inner.value) and isinstance(inner.target, ast.Name):
                    held.add(inner.target.id)
        out: set[str] = set()
        for inner in ast.walk(node):
            if not isinstance(inner, ast.Call):
                continue
            text = ast.unparse(inner.func)
            stars = [k for k in inner.keywords if k.arg is None and carries(k.value)]
            plain = [a for a in inner.args if carries(a)]
            if not stars and not plain:
                continue
            targets = self.targets(file, inner)
            if stars:
                made = self.made_class(file, inner, text.split(".")[-1], text, targets)
                if made is not None and made - {"Any", "None"}:
                    out |= made - {"Any", "None"}
                    continue
                if any(t in self.tree.classes for t in targets):
                    out |= {t for t in targets if t in self.tree.classes}
                    continue
                if re.search(r"Config$|\.config$|config\.replace$", text):
                    out.add("regard.models.config.Config")
                    continue
                below = [f for t in targets for f in self.tree.called(t)]
                for f in below:
                    if self.tree.functions[f][1].args.kwarg is not None:
                        more, all_ = self.sinks(f, seen)
                        out |= more
                        whole = whole and all_
                if not below:
                    whole = False
            elif text.endswith(".of"):
                out |= {t.rpartition(".")[0] for t in targets if t.rpartition(".")[0] in self.tree.classes}
                if text.endswith("onfig.of"):
                    out.add("regard.models.config.Config")
            else:
                whole = False
        result = frozenset(out), whole and bool(out)
        self.flows[function] = result
        return result

    def takes_any(self, function: str, old: str) -> bool:
        node = self.tree.functions[function][1]
        names = {a.arg for a in (*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs)}
        return node.args.kwarg is not None and old not in names

    def constant(self, file: File, node: ast.Constant, new: str | None) -> None:
        """A string that is a name, whole."""
        if new is None:
            return
        start, end = file.span(node)
        text = file.data[start:end].decode()
        found = re.fullmatch(r"([rbuRBU]?)(['\"])" + re.escape(node.value) + r"\2", text)
        if not found:
            self.tree.note(file, node, f"string {text} should say {new}")
            return
        self.tree.said(file, node, f"string {text} -> {new}")
        file.edits[(start, end)] = f"{found[1]}{found[2]}{new}{found[2]}"
        self.count[f"string {node.value}"] += 1

    # -- tables

    def section(self, file: File, section: str, node: ast.AST) -> None:
        """A dict that is a part of a recipe."""
        names = self.sections[section]
        if isinstance(node, ast.Call) and ast.unparse(node.func) == "dict":
            for keyword in node.keywords:
                if keyword.arg in names:
                    file.edit(file.at(keyword.lineno, keyword.col_offset), keyword.arg, names[keyword.arg], keyword)
            return
        if isinstance(node, ast.BinOp):
            self.section(file, section, node.left)
            self.section(file, section, node.right)
        if isinstance(node, ast.IfExp):
            self.section(file, section, node.body)
            self.section(file, section, node.orelse)
        if isinstance(node, ast.Dict):
            for key, value in zip(node.keys, node.values, strict=True):
                if key is None:
                    self.section(file, section, value)
                elif isinstance(key, ast.Constant) and key.value in names:
                    self.constant(file, key, names[key.value])

    def dictionary(self, file: File, node: ast.Dict) -> None:
        keys = [k.value for k in node.keys if isinstance(k, ast.Constant) and isinstance(k.value, str)]
        for key, value in zip(node.keys, node.values, strict=True):
            if isinstance(key, ast.Constant) and key.value in self.sections:
                self.section(file, key.value, value)
        for rule in self.rules["item"]:
            if rule["old"] in keys and set(keys) & set(rule["beside"]):
                if like(file.path, rule.get("files", ["*"])) and not like(file.path, rule.get("not_in", [])):
                    self.constant(file, next(k for k in node.keys if isinstance(k, ast.Constant) and k.value == rule["old"]), rule["new"])  # fmt: skip
        if not set(keys) & set(self.fields):
            return
        if len(node.keys) == 1 and not self.under_other(node) and not self.left_out(file, "shape"):
            key, value = node.keys[0], node.values[0]
            for rule in self.rules["single"]:
                names = self.sections.get(rule["section"], {})
                flag = isinstance(value, ast.Constant) and type(value.value) is bool
                if like(file.path, rule["files"]) and key.value in names and (not flag or rule["section"] != "shape"):
                    self.constant(file, key, names[key.value])
                    return
            number = value.operand if isinstance(value, ast.UnaryOp) else value
            if key.value in self.sections.get("shape", {}) and not isinstance(getattr(node, "parent", None), ast.keyword):
                whole = isinstance(number, ast.Constant) and type(number.value) is int
                if whole and key.value not in ("start", "end", "memory"):
                    self.constant(file, key, self.sections["shape"][key.value])
                else:
                    self.tree.note(file, node, f"undecided dict of one key: {key.value}")
            elif any(key.value in names for names in self.sections.values()) and not isinstance(getattr(node, "parent", None), (ast.keyword, ast.Dict)):
                self.tree.note(file, node, f"undecided dict of one key: {key.value}")
        kinds = file.facts["dicts"].get(pos(node), frozenset())
        parent = getattr(node, "parent", None)
        if "regard.formats.format.Field" in kinds:
            self.section(file, "shape", node)
        elif len(keys) == len(node.keys) >= 4 and (whole := self.whole_class(keys)):
            for key in node.keys:
                if key.value in whole:
                    self.constant(file, key, whole[key.value])
        elif len(keys) == len(node.keys) or None in node.keys:
            self.alike(file, [k for k in node.keys if k is not None], keys, node, 1 if TABLES in file.path else 2)

    def whole_class(self, keys: list[str]) -> dict[str, str]:
        """The new names, if the keys are fields of one renamed class that is no part of a recipe."""
        found = {}
        for old in set(keys) & set(self.fields):
            for rule in self.fields[old]:
                if rule.get("sections"):
                    continue
                for name in rule["matched"]:
                    if self.tree.classes[name]["dataclass"] and set(keys) <= self.names(name):
                        found.setdefault(name, {})[old] = rule["new"]
        return found.popitem()[1] if len(found) == 1 else {}

    def alike(self, file: File, nodes, keys: list[str], node, least: int) -> None:
        """Strings that are all names of fields of one part of a recipe, or of configurations."""
        if len(keys) < least or len(set(keys)) != len(keys):
            return
        fitting = [
            s for s, names in self.section_fields.items()
            if set(keys) <= names and set(keys) & set(self.sections[s])
            and not self.left_out(file, s)
        ]  # fmt: skip
        if len(fitting) > 1 and len({tuple(self.sections[s].get(k) for k in keys) for s in fitting}) == 1:
            fitting = fitting[:1]
        if fitting and self.under_other(node) and not set(keys) & ANCHORS:
            self.tree.note(file, node, f"left as it is, under another key: {keys}")
            return
        if len(fitting) == 1:
            for key in nodes:
                if isinstance(key, ast.Constant) and key.value in self.sections[fitting[0]]:
                    self.constant(file, key, self.sections[fitting[0]][key.value])
        elif fitting:
            self.tree.note(file, node, f"strings that fit {fitting}: {keys}")

    def under_other(self, node: ast.AST) -> bool:
        """Does a dict belong to a key that is no part of a recipe?"""
        parent = getattr(node, "parent", None)
        if isinstance(parent, ast.Dict) and node in parent.values:
            key = parent.keys[parent.values.index(node)]
            return isinstance(key, ast.Constant) and key.value not in self.sections
        if isinstance(parent, (ast.Assign, ast.AugAssign)):
            target = parent.target if isinstance(parent, ast.AugAssign) else parent.targets[0]
            if isinstance(target, ast.Subscript) and isinstance(target.slice, ast.Constant):
                return target.slice.value not in self.sections
        if isinstance(parent, ast.keyword):
            return parent.arg is not None and parent.arg not in self.sections
        return False

    def left_out(self, file: File, section: str) -> bool:
        rules = [r for r in self.rules["field"] if section in r.get("sections", ())]
        return any(like(file.path, r.get("strings_not_in", [])) for r in rules)

    def words(self, file: File, node) -> None:
        if any(isinstance(e, ast.Starred) for e in node.elts) and len(node.elts) < 3:
            return
        keys = [e.value for e in node.elts if isinstance(e, ast.Constant) and isinstance(e.value, str)]
        for rule in self.rules["item"]:
            if rule["old"] in keys and set(keys) & set(rule["beside"]):
                for e in node.elts:
                    if isinstance(e, ast.Constant) and e.value == rule["old"]:
                        self.constant(file, e, rule["new"])
        self.own_words(file, node, keys)
        if len(keys) == len(node.elts) and set(keys) & set(self.fields) and not isinstance(getattr(node, "ctx", None), ast.Store):  # fmt: skip
            self.alike(file, node.elts, keys, node, 3)

    def own_words(self, file: File, node, keys: list[str]) -> None:
        """Names of fields in the file of their class: ("worst", 0), OF_BEAMS = ("best", "alpha")."""
        if not set(keys) & set(self.fields):
            return
        outer = node
        while outer is not None and not isinstance(outer, ast.ClassDef):
            outer = getattr(outer, "parent", None)
        inside = f"{file.module}.{outer.name}" if outer is not None else ""
        for old in set(keys) & set(self.fields):
            for rule in self.fields[old]:
                for name in rule["matched"]:
                    home = self.tree.classes[name]["module"]
                    near = home.rpartition(".")[0] == file.module.rpartition(".")[0] and len(keys) > 2
                    if (home != file.module and not near) or name.startswith("regard.models."):
                        continue
                    whole = len(keys) == len(node.elts) > 1 and set(keys) <= self.names(name)
                    first = isinstance(node.elts[0], ast.Constant) and node.elts[0].value == old
                    if (first and inside == name and len(node.elts) > 1) or whole:
                        for e in node.elts:
                            if isinstance(e, ast.Constant) and e.value == old:
                                self.constant(file, e, rule["new"])

    def dict_call(self, file: File, node: ast.Call, keyword) -> None:
        keys = [k.arg for k in node.keywords if k.arg]
        for rule in self.rules["item"]:
            if rule["old"] == keyword.arg and set(keys) & set(rule["beside"]):
                file.edit(file.at(keyword.lineno, keyword.col_offset), keyword.arg, rule["new"], keyword)
                return
        if keyword.arg not in self.fields:
            return
        fitting = [s for s, names in self.section_fields.items()
                   if len(keys) > 1 and set(keys) <= names and keyword.arg in self.sections[s]
                   and not self.left_out(file, s)]  # fmt: skip
        parent = getattr(node, "parent", None)
        if isinstance(parent, ast.keyword) and parent.arg in self.sections:
            return
        if len(fitting) > 1 and len({tuple(self.sections[s].get(k) for k in keys) for s in fitting}) == 1:
            fitting = fitting[:1]
        if len(fitting) == 1:
            file.edit(file.at(keyword.lineno, keyword.col_offset), keyword.arg, self.sections[fitting[0]][keyword.arg], keyword)  # fmt: skip
            self.tree.said(file, keyword.value, f"dict({keyword.arg}=) of {fitting[0]}")
        else:
            self.tree.note(file, keyword.value, f"undecided dict({keyword.arg}=) {fitting}")

    def subscript(self, file: File, node: ast.Subscript) -> None:
        self.item(file, node.value, node.slice, node)

    def item(self, file: File, received: ast.AST, word: ast.AST, node: ast.AST) -> None:
        """received[word]: of a part of a recipe, or of a batch."""
        if not isinstance(word, ast.Constant) or not isinstance(word.value, str):
            return
        text = ast.unparse(received)
        for rule in self.rules["item"]:
            if rule["old"] == word.value and any(re.fullmatch(p, text) for p in rule["receivers"]):
                if like(file.path, rule.get("files", ["*"])) and not like(file.path, rule.get("not_in", [])):
                    self.constant(file, word, rule["new"])
                    return
        for rule in self.fields.get(word.value, ()):
            if any(re.fullmatch(p, text) for p in rule.get("items", ())) and not like(file.path, rule.get("strings_not_in", [])):
                self.constant(file, word, rule["new"])
                return
        outer = None
        if isinstance(received, ast.Subscript) and isinstance(received.slice, ast.Constant):
            outer = received.slice.value
        elif isinstance(received, ast.Call) and received.args and isinstance(received.args[0], ast.Constant):
            outer = received.args[0].value
        elif isinstance(received, (ast.Name, ast.Attribute)):
            outer = text.split(".")[-1]
            if outer in ("batch", "examples", "augment", "robust"):
                outer = outer if text in ("recipe.batch",) else None
        if outer in self.sections and word.value in self.sections[outer]:
            self.constant(file, word, self.sections[outer][word.value])
        elif any(re.fullmatch(p, text) for r in self.fields.get(word.value, ()) for p in r.get("items_never", ())):
            return
        elif any(r.get("items") for r in self.fields.get(word.value, ())) or any(
            word.value == r["old"] for r in self.rules["item"]
        ):
            self.tree.note(file, node, f"undecided item {text}[{word.value!r}]")

    def compare(self, file: File, node: ast.Compare) -> None:
        """"real" in batch, name == "hidden"."""
        if isinstance(node.ops[0], (ast.In, ast.NotIn)):
            self.item(file, node.comparators[0], node.left, node)

    def loop(self, file: File, node) -> None:
        """for name in ("depth", "tokens"): getattr(x, name)"""
        if not isinstance(node.target, ast.Name) or not isinstance(node.iter, (ast.Tuple, ast.List, ast.Set)):
            return
        words = [e for e in node.iter.elts if isinstance(e, ast.Constant) and e.value in self.fields]
        if not words:
            return
        body = node if isinstance(node, ast.For) else node.parent
        for call in ast.walk(body):
            if isinstance(call, ast.Call) and ast.unparse(call.func) in ("getattr", "hasattr", "setattr") and len(call.args) > 1:
                if isinstance(call.args[1], ast.Name) and call.args[1].id == node.target.id:
                    for word in words:
                        kinds = self.kinds(file, call.args[0])
                        new = self.new_field(file, word, word.value, kinds, ast.unparse(call.args[0]), "attribute")
                        if new and file.span(word) not in file.edits:
                            self.constant(file, word, new)

    def match_class(self, file: File, node: ast.MatchClass) -> None:
        for name in node.kwd_attrs:
            if name in self.fields:
                self.tree.note(file, node, f"match pattern with {name}=")

    # -- definitions

    def class_bodies(self, file: File) -> None:
        for scope in file.scopes.all:
            if scope.kind != "class":
                continue
            for old, occurrences in scope.occurrences.items():
                rule = next((r for r in self.fields.get(old, ()) if scope.name in r["matched"]), None)
                if rule is None:
                    continue
                if rule["new"] in self.tree.classes[scope.name]["own"]:
                    self.tree.note(file, scope.node, f"{scope.name} has {rule['new']} already")
                for start, _, node, _, _ in occurrences:
                    file.edit(start, old, rule["new"], node)
                self.count[f"definition {old}"] += 1
                self.backticks[file.path].append((*file.span(scope.node), old, rule["new"]))

    # -- parameters and local names

    def find_params(self) -> None:
        for name, (file, node, scope) in self.tree.functions.items():
            for rule in self.rules["param"]:
                old = rule["old"]
                if not self.param_applies(rule, file, node, scope):
                    continue
                args = [*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs]
                arg = next((a for a in args if a.arg == old), None)
                if arg is None:
                    continue
                if not self.annotated(rule, file, arg, scope):
                    continue
                if (name, old) in self.params:
                    continue
                self.params[name, old] = rule["new"]

    def param_applies(self, rule, file: File, node, scope) -> bool:
        if not like(file.module, rule.get("modules", ["*"])):
            return False
        if like(file.module, rule.get("exclude_modules", [])):
            return False
        if like(scope.name, rule.get("exclude_functions", [])):
            return False
        return not any(n in scope.bound for n in rule.get("not_with", ()))

    def annotated(self, rule, file: File, arg: ast.arg, scope) -> bool:
        if arg.annotation is not None:
            words = ast.unparse(arg.annotation).strip("'\"")
            return re.fullmatch(rule.get("annotation", ".*"), words) is not None
        types: set[str] = set()
        for *_, node, _, _ in scope.occurrences.get(arg.arg, ()):
            if isinstance(node, ast.Name):
                types |= self.kinds(file, node)
        types -= {"None"}
        wanted = set(rule.get("types", ()))
        if rule.get("unannotated") and types <= {"Any"} | wanted:
            return True
        return bool(types) and bool(wanted) and types <= wanted

    def parameters(self, file: File) -> None:
        for scope in file.scopes.all:
            if scope.kind not in ("function", "comprehension", "module"):
                continue
            for old in list(scope.occurrences):
                new = None
                if scope.kind == "function":
                    new = self.params.get((scope.name, old))
                    if new and isinstance(scope.node, ast.Lambda):
                        pass
                if new is None:
                    new = self.local(file, scope, old)
                if new is None or old not in scope.bound:
                    continue
                if self.collides(scope, new):
                    self.tree.note(file, scope.node if scope.kind != "module" else 1,
                                   f"{scope.name}: {new} is there already; {old} stays")  # fmt: skip
                    self.params.pop((scope.name, old), None)
                    continue
                for start, _, node, _, _ in scope.occurrences[old]:
                    if isinstance(node, ast.alias):
                        continue
                    if not file.edit(start, old, new, node):
                        self.tree.note(file, node, f"could not place {old} -> {new}")
                    pair = getattr(node, "parent", None)
                    if isinstance(pair, ast.Tuple) and len(pair.elts) == 2 and pair.elts[1] is node:
                        word = pair.elts[0]  # ("rate", rate): the name in a message
                        if isinstance(word, ast.Constant) and word.value == old:
                            self.constant(file, word, new)
                self.count[f"name {old}"] += 1
                span = file.span(scope.node) if scope.kind != "module" else (0, len(file.data))
                self.backticks[file.path].append((*span, old, new))

    def collides(self, scope, new: str) -> bool:
        if new in scope.bound or new in scope.occurrences:
            return True
        # used inside under another binding, or bound in an inner scope
        uses = [s for *_, s in sum(scope.occurrences.values(), [])]
        return any(new in s.bound for s in uses if s.kind in ("function", "comprehension"))

    def local(self, file: File, scope, old: str) -> str | None:
        """Local variables that hold what a renamed parameter is called after."""
        for rule in self.rules["param"]:
            if rule["old"] != old or not rule.get("locals") or old not in scope.bound:
                continue
            if scope.kind == "module" and not rule.get("globals"):
                continue
            holder = scope
            while holder.kind == "comprehension":
                holder = holder.parent
            if not self.param_applies(rule, file, scope.node, holder):
                continue
            if any(isinstance(n, (ast.arg, ast.alias, ast.FunctionDef, ast.ClassDef)) for n in scope.bound[old]):
                continue
            types: set[str] = set()
            for *_, node, _, _ in scope.occurrences[old]:
                if isinstance(node, ast.Name):
                    found = file.facts["names"].get(pos(node))
                    types |= found[1] if found else {"Any"}
            types -= {"None"}
            wanted = set(rule.get("types", ()))
            if types and types <= wanted | ({"Any"} if rule.get("unannotated") else set()):
                return rule["new"]
        return None

    # -- classes, functions and modules' names

    def symbols(self, file: File) -> None:
        """Names that are imported or defined at the top of a module."""
        rules = {rule["old"]: rule["new"] for rule in self.rules["symbol"]}
        for rule in self.rules["module"]:
            if (self.tree.root / rule["old"]).exists():
                rules[dotted_name(rule["old"])] = dotted_name(rule["new"]).rpartition(".")[2]
        if not rules:
            return
        for scope in file.scopes.all:
            for name, nodes in scope.bound.items():
                for node in nodes:
                    full = None
                    if isinstance(node, ast.alias) and isinstance(node.statement, ast.ImportFrom):
                        full = self.tree.imported(self.tree.absolute(file, node.statement), node.name)
                    elif isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)) and scope.kind == "module":
                        full = f"{file.module}.{name}"
                    elif isinstance(node, ast.Name) and scope.kind == "module":
                        full = f"{file.module}.{name}"
                    new = self.symbol(full, rules)
                    if new is None:
                        continue
                    self.rename_symbol(file, scope, name, node, new)
                    break
        shorts = {old.rpartition(".")[2] for old in rules}
        anywhere = re.compile(r"\b(" + "|".join(map(re.escape, sorted(shorts, key=len, reverse=True))) + r")\b")
        for node in ast.walk(file.tree):
            if isinstance(node, (ast.Tuple, ast.Dict)):
                self.lazy(file, node, rules)
            if isinstance(node, ast.Attribute):
                if node.attr not in shorts:
                    continue
                found = file.facts["members"].get(pos(node))
                if found and any(k.startswith("module:") for k in found[1]):
                    module = next(k for k in found[1] if k.startswith("module:"))[7:]
                    new = self.symbol(self.tree.imported(module, node.attr), rules)
                    if new:
                        end = file.at(node.end_lineno, node.end_col_offset)
                        file.edit(end - len(node.attr.encode()), node.attr, new, node)
            elif isinstance(node, ast.Constant) and isinstance(node.value, str) and (hits := set(anywhere.findall(node.value))):
                self.quoted(file, node, {o: n for o, n in rules.items() if o.rpartition(".")[2] in hits})

    def lazy(self, file: File, node, rules: dict) -> None:
        """("objectives.span", "Span") and {"Options": "options"}: tables of what is imported late."""
        package = file.module if file.path.endswith("__init__.py") else file.module.rpartition(".")[0]

        def new(module: str, name: str) -> str | None:
            for prefix in ("", "regard.", f"{package}."):
                full = f"{prefix}{module}.{name}"
                if full in rules:
                    return rules[full]
            return None

        pairs = []
        if isinstance(node, ast.Tuple) and len(node.elts) == 2:
            pairs = [(node.elts[0], node.elts[1])]
        elif isinstance(node, ast.Dict):
            pairs = [(value, key) for key, value in zip(node.keys, node.values, strict=True)]
        for module, name in pairs:
            if isinstance(module, ast.Constant) and isinstance(name, ast.Constant):
                if isinstance(module.value, str) and isinstance(name.value, str):
                    fresh = new(module.value, name.value)
                    if fresh and file.span(name) not in file.edits:
                        self.constant(file, name, fresh)

    def symbol(self, full: str | None, rules: dict) -> str | None:
        if full is None:
            return None
        return rules.get(full)

    def rename_symbol(self, file: File, scope, name: str, node, new: str) -> None:
        if isinstance(node, ast.alias) and node.asname and node.asname != node.name:
            file.edit(file.at(node.lineno, node.col_offset), node.name, new)
            return
        local = new
        if local in scope.bound or local in scope.occurrences:
            self.tree.note(file, node, f"{local} is there already; imported as {name}")
            if isinstance(node, ast.alias):
                file.edit(file.at(node.lineno, node.col_offset), node.name, f"{new} as {name}")
            return
        if isinstance(node, ast.alias):
            start = file.at(node.lineno, node.col_offset)
            file.edit(start, node.name, new)
            if node.asname:
                end = file.at(node.end_lineno, node.end_col_offset)
                file.edit(end - len(node.asname), node.asname, new)
        for start, _, held, _, _ in scope.occurrences[name]:
            if isinstance(held, ast.alias):
                continue
            if not file.edit(start, name, local, held):
                self.tree.note(file, held, f"could not place {name} -> {local}")
        self.count[f"symbol {name}"] += 1
        self.backticks[file.path].append((0, len(file.data), name, local))

    def quoted(self, file: File, node: ast.Constant, rules: dict) -> None:
        """__all__, string annotations and monkeypatched dotted names."""
        for old, new in rules.items():
            if "*" in old:
                continue
            module, _, name = old.rpartition(".")
            if old in node.value:
                start, end = file.span(node)
                text = file.data[start:end].decode()
                if re.search(rf"{re.escape(old)}\b", text):
                    file.edits[(start, end)] = re.sub(rf"{re.escape(old)}\b", f"{module}.{new}", text)
            elif node.value == name and isinstance(node.parent, (ast.List, ast.Tuple)):
                owner = getattr(node.parent, "parent", None)
                if isinstance(owner, ast.Assign) and ast.unparse(owner.targets[0]) == "__all__":
                    if self.tree.imported(file.module, name) == old:
                        self.constant(file, node, new)
            elif re.fullmatch(rf"(.*\W)?{name}(\W.*)?", node.value) and isinstance(
                node.parent, (ast.AnnAssign, ast.arg, ast.FunctionDef, ast.Subscript, ast.BinOp)
            ) and name[0].isupper() and self.tree.imported(file.module, name) == old:
                start, end = file.span(node)
                text = file.data[start:end].decode()
                file.edits[(start, end)] = re.sub(rf"\b{name}\b", new, text)

    # -- words in strings and comments

    def strings(self, file: File) -> None:
        ranges = [(a, b, isinstance(n, ast.JoinedStr), n) for a, b, n in file.string_ranges()]
        ranges += [(a, b, False, None) for a, b in file.comments()]
        pattern = self.dotted()
        ticks = self.backticks.get(file.path, [])
        shape = self.sections.get("shape", {})
        for start, end, joined, node in ranges:
            text = file.data[start:end].decode()
            code = [(m.start(), m.end()) for m in re.finditer(r"\{[^{}]*\}", text)] if joined else []
            found: list[tuple[int, int, str]] = []
            if pattern:
                for m in pattern.finditer(text):
                    found.append((m.start(2), m.end(2), self.sections[m[1]][m[2]]))
            if node is not None and shape:
                m = re.fullmatch(r"[rf]?(['\"])(\w+)=(.*)\1", text, re.S)
                if m and m[2] in shape and re.match(r"[\d{]", m[3]) and not self.left_out(file, "shape"):
                    found.append((m.start(2), m.end(2), shape[m[2]]))
            if file.path.startswith("tests/") and node is not None and " is " in text:
                for names in self.sections.values():
                    for m in re.finditer(r"(?<![\w.])(\w+) is (?=[-\d'\"]|None|True|False)", text):
                        if m[1] in names and m[1] not in ("start", "end", "memory", "length", "more", "samples"):
                            found.append((m.start(1), m.end(1), names[m[1]]))
            if "`" not in text and not found:
                continue
            for a, b, old, new in ticks:
                if a <= start < b or (node is None and a - 200 <= start < b):
                    for m in re.finditer(rf"`{re.escape(old)}(?=[`.(=])", text):
                        found.append((m.start() + 1, m.end(), new))
            for rule in self.rules["field"]:
                for old in [rule["old"]] if rule.get("text") else []:
                    for m in re.finditer(rf"`{re.escape(old)}`", text):
                        found.append((m.start() + 1, m.end() - 1, rule["new"]))
            for a, b, new in found:
                if any(x < a < y for x, y in code):
                    continue
                at = start + len(text[:a].encode())
                span = (at, at + len(text[a:b].encode()))
                if any(s <= span[0] < e or span[0] <= s < span[1] for s, e in file.edits):
                    continue
                file.edits[span] = new
                self.tree.said(file, file.line_of(at), f"in text: {text[a:b]} -> {new}")

    def dotted(self) -> re.Pattern | None:
        parts = [
            rf"(?<![\w./])({section})\.({'|'.join(map(re.escape, names))})(?![\w/(])"
            for section, names in self.sections.items()
        ]
        if not parts:
            return None
        sections = "|".join(map(re.escape, self.sections))
        olds = "|".join(sorted({o for n in self.sections.values() for o in n}, key=len, reverse=True))
        pattern = re.compile(rf"(?<![\w./])({sections})\.({olds})(?![\w/(])(?!\.py)")

        class Checked:
            def finditer(_, text: str):
                for m in pattern.finditer(text):
                    if m[2] in self.sections[m[1]]:
                        yield m

        return Checked()


# -- other files


def toml_keys(text: str, sections: dict) -> str:
    out, section = [], ""
    for line in text.split("\n"):
        if head := re.match(r"\s*\[+([\w.]+)\]+", line):
            section = head[1]
        elif key := re.match(r"(\s*)(\w+)(\s*=.*)$", line):
            new = sections.get(section.split(".")[-1], {}).get(key[2])
            if new:
                line = f"{key[1]}{new}{key[3]}"
        out.append(line)
    return "\n".join(out)


def inline_toml(text: str, sections: dict) -> str:
    """[batch] blocks inside of documents and strings."""
    return toml_keys(text, sections) if re.search(r"^\s*\[(batch|optimizer|schedule|robust|examples|shape)\]", text, re.M) else text


def modules(tree: Tree, rules: list[dict]) -> dict[str, str]:
    return {r["old"]: r["new"] for r in rules if (tree.root / r["old"]).exists()}


def dotted_name(path: str) -> str:
    return path.removesuffix(".py").removesuffix("/__init__").replace("/", ".")


def move_modules(root: Path, moves: dict[str, str]) -> None:
    for old, new in moves.items():
        (root / new).parent.mkdir(parents=True, exist_ok=True)
        subprocess.run(["git", "mv", old, new], cwd=root, check=True)
    names = {dotted_name(o): dotted_name(n) for o, n in moves.items()}
    names = dict(sorted(names.items(), key=lambda x: -len(x[0])))
    files = subprocess.run(["git", "ls-files"], cwd=root, capture_output=True, text=True).stdout.split()
    for path in files:
        file = root / path
        if not file.is_file() or file.suffix not in (".py", ".md", ".toml", ".sh", ".js", "") or file.stat().st_size > 3_000_000:
            continue
        try:
            text = before = file.read_text(encoding="utf-8")
        except UnicodeDecodeError:
            continue
        for (old, new), (a, b) in zip(names.items(), sorted(moves.items(), key=lambda x: -len(dotted_name(x[0]))), strict=True):
            text = re.sub(rf"(?<![\w.]){re.escape(old)}(?![\w])", new, text)
            text = re.sub(rf"(?<![\w]){re.escape(a)}(?![\w])", b, text)
            package, _, name = old.rpartition(".")
            fresh = new.rpartition(".")[2]
            if package in ("benchmarks", "scripts") and path.endswith(".py"):
                text = re.sub(rf"^(\s*(?:from|import) ){name}\b", rf"\g<1>{fresh}", text, flags=re.M)
        if text != before:
            file.write_text(text, encoding="utf-8")


def texts(root: Path, renamer: Renamer) -> None:
    pattern = renamer.dotted()
    ticked = [r for r in renamer.rules["field"] + renamer.rules["symbol"] if r.get("docs")]
    paths = sorted({p for g in TEXTS for p in root.glob(g) if ".venv" not in p.parts})
    for path in paths:
        text = before = path.read_text(encoding="utf-8")
        if path.suffix == ".toml" and path.name != "pyproject.toml":
            text = toml_keys(text, renamer.sections)
        elif path.suffix == ".md":
            text = inline_toml(text, renamer.sections)
        if path.name == "CHANGELOG.md":
            continue
        if pattern:
            pieces, last = [], 0
            for m in pattern.finditer(text):
                pieces += [text[last : m.start(2)], renamer.sections[m[1]][m[2]]]
                last = m.end(2)
            text = "".join([*pieces, text[last:]])
        for rule in ticked:
            old = rule["old"].rpartition(".")[2]
            text = re.sub(rf"`{re.escape(old)}(?=[`(])", f"`{rule['new']}", text)
        if text != before:
            path.write_text(text, encoding="utf-8")
            renamer.tree.log.append(f"{path.relative_to(root)}: text")


def long_lines(root: Path) -> list[str]:
    """Breaks lines that grew over 100 columns, where that is safe; the rest is listed."""
    import json

    for _ in range(4):
        run = subprocess.run([RUFF, "check", "--select", "E501", "--output-format", "json", "."],
                             cwd=root, capture_output=True, text=True)  # fmt: skip
        found = json.loads(run.stdout or "[]")
        if not found:
            return []
        by_file = defaultdict(set)
        for each in found:
            by_file[each["filename"]].add(each["location"]["row"])
        for name, rows in by_file.items():
            path = Path(name)
            path.write_text(broken(path.read_text(encoding="utf-8"), rows), encoding="utf-8")
        subprocess.run([RUFF, "format", "--quiet", "."], cwd=root)
    run = subprocess.run([RUFF, "check", "--select", "E501", "--output-format", "concise", "."],
                         cwd=root, capture_output=True, text=True)  # fmt: skip
    return run.stdout.splitlines()


def split_string(line: str, indent: str) -> list[str] | None:
    """A line that is one piece of a string in several."""
    found = re.fullmatch(r"\s*([rf]?)(\"|')((?:(?!\2).)*)\2([,)]*)", line)
    if not found:
        return None
    at, depth = None, 0
    for i, c in enumerate(line):
        depth += (c == "{") - (c == "}")
        if c == " " and not depth and len(indent) + 2 < i < 97:
            at = i
    if at is None:
        return None
    quote, first, second = found[2], line[len(indent) + len(found[1]) + 1 : at + 1], line[at + 1 :]

    def piece(body: str) -> str:
        return ("f" if found[1] and "{" in body else "") + quote + body

    return [f"{indent}{piece(first)}{quote}", f"{indent}{piece(second)}"]


def split_items(lines: list[str], row: int, indent: str) -> list[str] | None:
    """Items of a table that is not formatted: the last ones go to a line of their own."""
    line = lines[row - 1]
    before = ast.dump(ast.parse("\n".join(lines)))
    cut = 99
    while (cut := line.rfind(", ", len(indent), cut)) > 0:
        pieces = [line[: cut + 1], f"{indent} {line[cut + 2 :]}"]
        text = "\n".join([*lines[: row - 1], *pieces, *lines[row:]])
        try:
            if ast.dump(ast.parse(text)) == before and "# fmt: skip" in text:
                return pieces
        except SyntaxError:
            pass
    return None


def broken(text: str, rows: set[int]) -> str:
    lines = text.split("\n")
    tree = ast.parse(text)
    strings = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            for row in range(node.lineno, node.end_lineno + 1):
                strings[row] = node
    for row in sorted(rows, reverse=True):
        line = lines[row - 1]
        indent = line[: len(line) - len(line.lstrip())]
        node = strings.get(row)
        triple = node is not None and text.split("\n")[node.lineno - 1][node.col_offset :].lstrip("rf").startswith('\"\"\"')
        if line.lstrip().startswith("# ") and not triple:
            cut = line.rfind(" ", 0, 100)
            rest = line[cut + 1 :]
            follows = lines[row] if row < len(lines) else ""
            if follows.startswith(indent + "# ") and follows.strip() != "#":
                lines[row] = f"{indent}# {rest} {follows[len(indent) + 2 :]}"
                lines[row - 1] = line[:cut]
            else:
                lines[row - 1 : row] = [line[:cut], f"{indent}# {rest}"]
        elif triple:
            cut = line.rfind(" ", 0, 100)
            rest = line[cut + 1 :]
            if rest.endswith('\"\"\"') and node.end_lineno == row:
                rest = rest[:-3]
                lines[row - 1 : row] = [line[:cut], *([f"{indent}{rest}"] if rest else []), f'{indent}\"\"\"']
            else:
                follows = lines[row]
                flush = follows.startswith(indent) and follows[len(indent) :][:1] not in ("", " ") and '\"\"\"' not in follows and not follows.lstrip().startswith((">>>", "*", "-"))
                if flush:
                    lines[row] = f"{indent}{rest} {follows.strip()}"
                    lines[row - 1] = line[:cut]
                else:
                    lines[row - 1 : row] = [line[:cut], f"{indent}{rest}"]
        elif (pieces := split_string(line, indent)) is not None:
            lines[row - 1 : row] = pieces
        elif (pieces := split_items(lines, row, indent)) is not None:
            lines[row - 1 : row] = pieces
        elif "  # " in line and not line.rstrip().endswith("# fmt: skip") and "# type:" not in line:
            code, comment = line.split("  # ", 1)
            lines[row - 1 : row] = [f"{indent}# {comment}", code]
        else:  # code that is not formatted: let it be
            for at in range(row - 1, min(row + 15, len(lines))):
                if lines[at].rstrip().endswith("# fmt: skip"):
                    lines[at] = lines[at].rstrip().removesuffix("# fmt: skip").rstrip()
                    break
    return "\n".join(lines)


def documents(root: Path, rules: list[dict], tree: Tree) -> None:
    """Words in documents that no program can decide, as the table has them."""
    for rule in rules:
        done = False
        for pattern in rule["files"]:
            for path in root.glob(pattern):
                text = path.read_text(encoding="utf-8")
                if rule["old"] in text:
                    path.write_text(text.replace(rule["old"], rule["new"]), encoding="utf-8")
                    done = True
        if not done:
            tree.undecided.append(f"table.toml: no {rule['old']!r} in {rule['files']}")


SOURCE = re.compile(r"\]\(((?:\.\./)?regard/[\w./]+\.py)\)")


def quotations(root: Path, old: dict[str, list[str]], edited: dict[str, list[str]], moves: dict[str, str], tree: Tree) -> None:
    """Quotations in documents follow the files they quote."""
    back = {n: o for o, n in moves.items()}
    for page in [*root.glob("*.md"), *root.glob("docs/*.md")]:
        text = page.read_text(encoding="utf-8")
        out, last = [], 0
        for found in re.finditer(r"^```python\n(.*?)^```$", text, re.DOTALL | re.MULTILINE):
            named = SOURCE.findall(text[: found.start()])
            if not named:
                continue
            path = os.path.relpath((page.parent / named[-1]).resolve(), root)
            source = back.get(path, path)
            if source not in old:
                continue
            new = requoted(found[1].splitlines(), old[source], edited[source], (root / path).read_text(encoding="utf-8").splitlines())
            if new is None:
                tree.undecided.append(f"{page.name}: a quotation of {path} was not found: {found[1].splitlines()[0]}")
                continue
            out += [text[last : found.start(1)], "\n".join(new) + "\n"]
            last = found.end(1)
        if out:
            page.write_text("".join([*out, text[last:]]), encoding="utf-8")


def requoted(lines: list[str], old: list[str], edited: list[str], final: list[str]) -> list[str] | None:
    """The lines of a quotation as the file has them now."""
    matcher = difflib.SequenceMatcher(None, edited, final, autojunk=False)
    place = {}
    for tag, i1, i2, j1, j2 in matcher.get_opcodes():
        for i in range(i1, i2 + 1):
            if tag == "equal":
                place[i] = j1 + i - i1
            elif i == i1:
                place.setdefault(i, j1)
            elif i == i2:
                place[i] = j2
    out, chunk, at = [], [], 0
    for line in [*lines, "…END"]:
        if line.strip() not in ("…", "…END"):
            chunk.append(line)
            continue
        if chunk:
            start = next((i for i in range(at, len(old) - len(chunk) + 1) if old[i : i + len(chunk)] == chunk), None)
            if start is None or start not in place or start + len(chunk) not in place:
                return None
            at = start + len(chunk)
            out += final[place[start] : place[at]]
            chunk = []
        if line != "…END":
            out.append(line)
    return out


def spelling(root: Path, rules: list[dict]) -> None:
    """Words with one meaning and another spelling, everywhere: names, strings and text."""
    files = subprocess.run(["git", "ls-files"], cwd=root, capture_output=True, text=True).stdout.split()
    for path in files:
        file = root / path
        if file.suffix not in (".py", ".md", ".toml", ".sh", ".js", ".css", "") or not file.is_file():
            continue
        if file.name in ("CHANGELOG.md", "LICENSE", "constraints.txt"):
            continue
        text = before = file.read_text(encoding="utf-8")
        for rule in rules:
            if not like(path, rule.get("not_in", [])):
                text = re.sub(rule["old"], rule["new"], text)
        if text != before:
            file.write_text(text, encoding="utf-8")
    for path in files:
        new = path
        for rule in rules:
            if not like(path, rule.get("not_in", [])):
                new = "/".join([*path.split("/")[:-1], re.sub(rule["old"], rule["new"], new.split("/")[-1])])
        if new != path and (root / path).is_file() and not (root / new).exists():
            subprocess.run(["git", "mv", path, new], cwd=root, check=True)


def main() -> None:
    began = time.time()
    parser = argparse.ArgumentParser()
    parser.add_argument("root", type=Path)
    parser.add_argument("--stages", default="1,2,3,4,5")
    parser.add_argument("--facts", type=Path, help="use these instead of running mypy")
    parser.add_argument("--dry", action="store_true")
    given = parser.parse_args()
    root = given.root.resolve()
    stages = {int(s) for s in given.stages.split(",")}
    (HERE / "out").mkdir(exist_ok=True)
    facts = given.facts or HERE / "out" / "facts.pickle"
    if not given.facts:
        env = os.environ | {"PYTHONPATH": str(root)}
        subprocess.run([PYTHON, str(HERE / "facts.py"), str(root), str(facts)], check=True, env=env)
    tree = Tree(root, pickle.loads(facts.read_bytes()))
    print(f"tree of {len(tree.files)} files: {time.time() - began:.0f} s", file=sys.stderr)
    renamer = Renamer(tree, read_table(), stages)
    renamer.run()
    for file in tree.files.values():  # what was noted first and decided by another rule later
        for start, _ in file.edits:
            mark = f"{file.path}:{file.line_of(start)}: undecided dict of one key"
            tree.undecided[:] = [n for n in tree.undecided if not (n.startswith(mark) and file.data[start : start + 40].split(b'"')[1:2] == [n.split(": ")[2].split(":")[0].encode()])]
    moves = modules(tree, renamer.rules["module"])
    old = {p: f.text.splitlines() for p, f in tree.files.items()}
    edited = {p: f.result().decode().splitlines() for p, f in tree.files.items()}
    for p, f in tree.files.items():
        if f.edits:
            try:
                ast.parse(f.result())
            except SyntaxError as error:
                tree.undecided.append(f"{p}: no longer parses: {error}")
    print(f"edits: {sum(len(f.edits) for f in tree.files.values())}; {time.time() - began:.0f} s", file=sys.stderr)
    if not given.dry:
        tree.write()
        texts(root, renamer)
        documents(root, renamer.rules["doc"], tree)
        if moves:
            move_modules(root, moves)
        spelling(root, renamer.rules["spelling"])
        subprocess.run([RUFF, "check", "--select", "I,RUF022,UP", "--fix", "--quiet", "."], cwd=root)
        subprocess.run([RUFF, "format", "--quiet", "."], cwd=root)
        for line in long_lines(root):
            tree.undecided.append(f"too long: {line}")
        quotations(root, old, edited, moves, tree)
    name = HERE / "out" / f"report-{given.stages.replace(',', '-')}.md"
    name.write_text(
        "\n".join(
            [f"# stages {given.stages}: {time.time() - began:.0f} s", "", "## counts", ""]
            + [f"- {k}: {v}" for k, v in sorted(renamer.count.items())]
            + ["", f"## undecided, for a human ({len(tree.undecided)})", ""]
            + [f"- {line}" for line in sorted(set(tree.undecided))]
            + ["", f"## decided by receivers, strings and text: read through ({len(tree.log)})", ""]
            + [f"- {line}" for line in sorted(set(tree.log))]
        )
        + "\n",
        encoding="utf-8",
    )
    print(f"{len(tree.undecided)} undecided: {name}; {time.time() - began:.0f} s", file=sys.stderr)


if __name__ == "__main__":
    main()
