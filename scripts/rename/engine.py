"""Symbols of a Python tree by ast scopes and mypy's types, and edits at byte positions."""

from __future__ import annotations

import ast
import fnmatch
import io
import re
import tokenize
from collections import defaultdict
from dataclasses import dataclass, field
from pathlib import Path

Pos = tuple[int, int, int, int]


def pos(node: ast.AST) -> Pos:
    return node.lineno, node.col_offset, node.end_lineno, node.end_col_offset


def like(name: str, patterns: list[str]) -> bool:
    return any(fnmatch.fnmatchcase(name, p) for p in patterns)


# -- scopes


@dataclass(eq=False)
class Scope:
    kind: str  # module class function comprehension
    node: ast.AST
    parent: "Scope | None"
    name: str
    bound: dict[str, list] = field(default_factory=lambda: defaultdict(list))
    globals: set[str] = field(default_factory=set)
    nonlocals: set[str] = field(default_factory=set)
    occurrences: dict[str, list] = field(default_factory=lambda: defaultdict(list))

    def find(self, name: str) -> "Scope | None":
        """The scope that binds a name as seen from here."""
        scope, first = self, True
        while scope is not None:
            if name in scope.globals:
                while scope.parent is not None:
                    scope = scope.parent
                return scope
            if name in scope.bound and name not in scope.nonlocals:
                if scope.kind != "class" or first:
                    return scope
            first = first and scope.kind == "comprehension"
            scope = scope.parent
        return None


class Scopes(ast.NodeVisitor):
    """Every name of a file under the scope that binds it."""

    def __init__(self, file: "File") -> None:
        self.file = file
        self.module = self.scope = Scope("module", file.tree, None, file.module)
        self.all = [self.module]
        self.uses: list[tuple[Scope, str, int, int, ast.AST, bool]] = []
        self.functions: dict[str, tuple[ast.AST, Scope]] = {}
        for statement in file.tree.body:
            self.visit(statement)
        for scope, name, start, end, node, stores in self.uses:
            owner = scope.find(name)
            if owner is not None and owner.kind == "class" and not stores and isinstance(node, ast.Name):
                found = file.facts["names"].get(pos(node))  # X = X: the right one is the module's
                if found and found[0] and found[0].rpartition(".")[0] != owner.name:
                    if name in self.module.bound:
                        owner = self.module
            if owner is not None:
                owner.occurrences[name].append((start, end, node, stores, scope))
            else:
                self.module.occurrences[name].append((start, end, node, stores, scope))

    def use(self, name: str, start: int, node: ast.AST, stores: bool, scope: Scope | None = None):
        scope = scope or self.scope
        if stores:
            target = scope
            if name not in scope.globals and name not in scope.nonlocals:
                target.bound[name].append(node)
        self.uses.append((scope, name, start, start + len(name.encode()), node, stores))

    def inside(self, kind: str, node: ast.AST, name: str) -> Scope:
        scope = Scope(kind, node, self.scope, name)
        self.all.append(scope)
        return scope

    def visit_Name(self, node: ast.Name) -> None:
        stores = not isinstance(node.ctx, ast.Load)
        start = self.file.at(node.lineno, node.col_offset)
        scope = self.scope
        if stores and getattr(node, "walrus", False):
            while scope.kind == "comprehension":
                scope = scope.parent
        self.use(node.id, start, node, stores, scope)

    def visit_NamedExpr(self, node: ast.NamedExpr) -> None:
        node.target.walrus = True
        self.visit(node.value)
        self.visit(node.target)

    def visit_Global(self, node: ast.Global) -> None:
        self.scope.globals |= set(node.names)

    def visit_Nonlocal(self, node: ast.Nonlocal) -> None:
        self.scope.nonlocals |= set(node.names)
        for name in node.names:
            start = self.file.word(name, node)
            if start is not None:
                self.uses.append((self.scope, name, start, start + len(name), node, False))

    def function(self, node) -> None:
        name = getattr(node, "name", "<lambda>")
        args = node.args
        everything = [*args.posonlyargs, *args.args, *args.kwonlyargs]
        everything += [a for a in (args.vararg, args.kwarg) if a]
        for decorator in getattr(node, "decorator_list", []):
            self.visit(decorator)
        for default in [*args.defaults, *args.kw_defaults]:
            if default is not None:
                self.visit(default)
        for arg in everything:
            if arg.annotation:
                self.visit(arg.annotation)
        if getattr(node, "returns", None):
            self.visit(node.returns)
        if name != "<lambda>":
            start = self.file.after_word(("def",), name, node)
            self.use(name, start, node, True)
        outer = self.scope
        self.scope = self.inside("function", node, f"{outer.name}.{name}")
        self.functions[self.scope.name] = (node, self.scope)
        for arg in everything:
            self.use(arg.arg, self.file.at(arg.lineno, arg.col_offset), arg, True)
        body = node.body if isinstance(node.body, list) else [node.body]
        for statement in body:
            self.visit(statement)
        self.scope = outer

    visit_FunctionDef = visit_AsyncFunctionDef = visit_Lambda = function

    def visit_ClassDef(self, node: ast.ClassDef) -> None:
        for part in [*node.decorator_list, *node.bases, *(k.value for k in node.keywords)]:
            self.visit(part)
        start = self.file.after_word(("class",), node.name, node)
        self.use(node.name, start, node, True)
        outer = self.scope
        self.scope = self.inside("class", node, f"{outer.name}.{node.name}")
        for statement in node.body:
            self.visit(statement)
        self.scope = outer

    def comprehension(self, node) -> None:
        first, *rest = node.generators
        self.visit(first.iter)
        outer = self.scope
        self.scope = self.inside("comprehension", node, outer.name)
        self.visit(first.target)
        for test in first.ifs:
            self.visit(test)
        for generator in rest:
            self.visit(generator.iter)
            self.visit(generator.target)
            for test in generator.ifs:
                self.visit(test)
        for part in ("key", "value", "elt"):
            if hasattr(node, part):
                self.visit(getattr(node, part))
        self.scope = outer

    visit_ListComp = visit_SetComp = visit_DictComp = visit_GeneratorExp = comprehension

    def alias(self, node) -> None:
        for alias in node.names:
            name = alias.asname or alias.name.split(".")[0]
            start = self.file.at(alias.lineno, alias.col_offset)
            if alias.asname:
                text = self.file.data[start : self.file.at(alias.end_lineno, alias.end_col_offset)]
                start += len(text) - len(alias.asname.encode())
            alias.statement = node
            self.use(name, start, alias, True)

    visit_Import = visit_ImportFrom = alias

    def visit_ExceptHandler(self, node: ast.ExceptHandler) -> None:
        if node.name:
            start = self.file.word(node.name, node, after=node.type)
            if start is not None:
                self.use(node.name, start, node, True)
        self.generic_visit(node)

    def visit_MatchAs(self, node) -> None:
        self.generic_visit(node)
        if node.name:
            end = self.file.at(node.end_lineno, node.end_col_offset)
            self.use(node.name, end - len(node.name.encode()), node, True)

    def visit_MatchStar(self, node) -> None:
        if node.name:
            end = self.file.at(node.end_lineno, node.end_col_offset)
            self.use(node.name, end - len(node.name.encode()), node, True)


# -- files


class File:
    def __init__(self, root: Path, path: str, module: str, facts: dict) -> None:
        self.root, self.path, self.module, self.facts = root, path, module, facts
        self.data = (root / path).read_bytes()
        self.text = self.data.decode("utf-8")
        self.lines = [0]
        for line in self.data.split(b"\n"):
            self.lines.append(self.lines[-1] + len(line) + 1)
        self.tree = ast.parse(self.data)
        for parent in ast.walk(self.tree):
            for child in ast.iter_child_nodes(parent):
                child.parent = parent
        self.edits: dict[tuple[int, int], str] = {}
        self.scopes = Scopes(self)
        self._comments: list[tuple[int, int]] | None = None

    def at(self, line: int, column: int) -> int:
        return self.lines[line - 1] + column

    def source(self, node: ast.AST) -> str:
        return self.data[self.at(node.lineno, node.col_offset) : self.at(node.end_lineno, node.end_col_offset)].decode()  # fmt: skip

    def span(self, node: ast.AST) -> tuple[int, int]:
        return self.at(node.lineno, node.col_offset), self.at(node.end_lineno, node.end_col_offset)

    def line_of(self, offset: int) -> int:
        return self.data.count(b"\n", 0, offset) + 1

    def word(self, name: str, node: ast.AST, after: ast.AST | None = None) -> int | None:
        start = self.span(after)[1] if after is not None else self.span(node)[0]
        found = re.compile(rb"\b" + name.encode() + rb"\b").search(self.data, start)
        return found.start() if found else None

    def after_word(self, keywords: tuple[str, ...], name: str, node: ast.AST) -> int:
        start = self.at(node.lineno, node.col_offset)
        pattern = rb"\b(?:" + b"|".join(k.encode() for k in keywords) + rb")\s+" + name.encode()
        found = re.compile(pattern).search(self.data, start)
        assert found, (self.path, name)
        return found.end() - len(name.encode())

    def comments(self) -> list[tuple[int, int]]:
        """Byte ranges of comments."""
        if self._comments is None:
            self._comments = []
            for token in tokenize.generate_tokens(io.StringIO(self.text).readline):
                if token.type == tokenize.COMMENT:
                    line = token.line
                    column = len(line[: token.start[1]].encode())
                    start = self.at(token.start[0], column)
                    self._comments.append((start, start + len(token.string.encode())))
        return self._comments

    def string_ranges(self) -> list[tuple[int, int, ast.AST]]:
        """Byte ranges of whole string literals (f-strings whole, with their code)."""
        out = []
        for node in ast.walk(self.tree):
            if isinstance(node, ast.JoinedStr) or (
                isinstance(node, ast.Constant)
                and isinstance(node.value, str)
                and not isinstance(getattr(node, "parent", None), ast.JoinedStr)
            ):
                if isinstance(getattr(node, "parent", None), ast.FormattedValue):
                    if isinstance(node.parent.parent, ast.JoinedStr):
                        continue
                out.append((*self.span(node), node))
        return out

    def edit(self, start: int, old: str, new: str, node: ast.AST | None = None) -> bool:
        end = start + len(old.encode())
        if self.data[start:end] != old.encode():
            place = self.in_joined(old, node)
            if place is None:
                return False
            start, end = place, place + len(old.encode())
        self.edits[(start, end)] = new
        return True

    def in_joined(self, old: str, node: ast.AST | None) -> int | None:
        """Python 3.11 misplaces code inside of some f-strings: find it by its text."""
        outer = node
        whole = None
        while outer is not None:
            if isinstance(outer, ast.JoinedStr):
                whole = outer
            outer = getattr(outer, "parent", None)
        if whole is None:
            return None
        start, end = self.span(whole)
        if isinstance(node, ast.Attribute):
            words = re.escape(ast.unparse(node.value)).replace("'", "['\"]") + r"\s*\." + re.escape(old)
            shift = -len(old)
        elif isinstance(node, ast.keyword):
            words, shift = rf"\b{re.escape(old)}(?=\s*=)", -len(old)
        else:
            words, shift = rf"(?<![\w.'\"]){re.escape(old)}\b", -len(old)
        text = self.data[start:end].decode()
        braces = [(m.start(), m.end()) for m in re.finditer(r"\{[^{}]*\}", text)]
        for found in re.finditer(words + r"\b" if not words.endswith(r"\b") else words, text):
            if any(a < found.start() < b for a, b in braces):
                at = start + len(text[: found.end() + shift].encode())
                if (at, at + len(old.encode())) not in self.edits:
                    return at
        return None

    def result(self) -> bytes:
        data, last, out = self.data, 0, []
        for (start, end), new in sorted(self.edits.items()):
            assert start >= last, (self.path, self.line_of(start), new)
            out += [data[last:start], new.encode()]
            last = end
        return b"".join([*out, data[last:]])


# -- the tree


class Tree:
    def __init__(self, root: Path, facts: dict) -> None:
        self.root, self.facts, self.classes = root, facts, facts["classes"]
        self.files: dict[str, File] = {}
        for path, own in facts["files"].items():
            if (root / path).is_file():
                self.files[path] = File(root, path, own["module"], own)
        self.modules = {f.module: f for f in self.files.values()}
        self.children = defaultdict(set)
        for name, held in self.classes.items():
            for base in held["mro"]:
                self.children[base].add(name)
        self.functions = {
            name: (file, node, scope)
            for file in self.files.values()
            for name, (node, scope) in file.scopes.functions.items()
        }
        self.undecided: list[str] = []
        self.log: list[str] = []

    def owner(self, kind: str, name: str) -> str | None:
        """The class that gives a class its attribute."""
        held = self.classes.get(kind)
        if held is None:
            return None
        for base in held["mro"]:
            if base in self.classes and name in self.classes[base]["own"]:
                return base
        return None

    def method(self, kind: str, name: str) -> list[str]:
        """A method of a class, and those of its subclasses that take its place."""
        owner = self.owner(kind, name)
        names = [f"{owner}.{name}"] if owner else []
        names += [f"{c}.{name}" for c in self.children.get(kind, ()) if name in self.classes[c]["own"]]
        return [n for n in names if n in self.functions]

    def called(self, target: str) -> list[str]:
        """The functions behind a call's target."""
        if target in self.functions:
            return [target]
        if target in self.classes:
            return self.method(target, "__init__")
        kind, _, name = target.rpartition(".")
        if kind in self.classes:
            if name == "__call__":
                return [*self.method(kind, "__call__"), *self.method(kind, "forward")]
            return self.method(kind, name)
        return []

    def imported(self, module: str, name: str, depth: int = 0) -> str:
        """The definition behind module.name, through re-exports."""
        file = self.modules.get(module)
        if file is None or depth > 6:
            return f"{module}.{name}"
        for node in file.scopes.module.bound.get(name, ()):
            if isinstance(node, ast.alias) and isinstance(node.statement, ast.ImportFrom):
                origin = self.absolute(file, node.statement)
                if f"{origin}.{node.name}" in self.modules:
                    return f"{origin}.{node.name}"
                return self.imported(origin, node.name, depth + 1)
        return f"{module}.{name}"

    def absolute(self, file: File, node: ast.ImportFrom) -> str:
        if not node.level:
            return node.module or ""
        parts = file.module.split(".")
        if not file.path.endswith("__init__.py"):
            parts = parts[:-1]
        parts = parts[: len(parts) - node.level + 1]
        return ".".join([*parts, *([node.module] if node.module else [])])

    def note(self, file: File, node, words: str) -> None:
        line = node if isinstance(node, int) else node.lineno
        text = file.text.split("\n")[line - 1].strip()
        self.undecided.append(f"{file.path}:{line}: {words}: {text}")

    def said(self, file: File, node, words: str) -> None:
        line = node if isinstance(node, int) else node.lineno
        self.log.append(f"{file.path}:{line}: {words}")

    def write(self) -> int:
        count = 0
        for file in self.files.values():
            if file.edits:
                count += 1
                (self.root / file.path).write_bytes(file.result())
        return count
