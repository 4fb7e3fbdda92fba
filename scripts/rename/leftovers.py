"""Lists what remains: vague local names, classes and functions that share a name. ROOT"""
import ast, sys
from collections import defaultdict
from pathlib import Path
root = Path(sys.argv[1]); VAGUE = set("found made given held told said kept asked taken".split())
places, classes, functions = defaultdict(list), defaultdict(list), defaultdict(list)
for path in sorted([*root.glob("regard/**/*.py"), *root.glob("tests/**/*.py"), *root.glob("benchmarks/*.py"), *root.glob("scripts/*.py")]):
    rel = str(path.relative_to(root)); tree = ast.parse(path.read_text())
    for node in ast.walk(tree):
        name = node.id if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store) else node.arg if isinstance(node, ast.arg) else None
        if name in VAGUE:
            places[name].append(f"{rel}:{node.lineno}")
    if rel.startswith("regard"):
        for node in tree.body:
            if isinstance(node, ast.ClassDef) and node.name[0] != "_": classes[node.name].append(rel)
            if isinstance(node, ast.FunctionDef) and node.name[0] != "_": functions[node.name].append(rel)
out = ["# Vague local names"]
for name, held in sorted(places.items()):
    out.append(f"\n## {name}: {len(held)} ({sum(p.startswith('regard') for p in held)} in regard)\n"); out += [f"- {p}" for p in held]
out.append("\n# Public classes that share a name\n"); out += [f"- {n}: {', '.join(p)}" for n, p in sorted(classes.items()) if len(p) > 1]
out.append("\n# Public functions that share a name (3 or more)\n"); out += [f"- {n} ({len(p)}): {', '.join(p)}" for n, p in sorted(functions.items(), key=lambda x: -len(x[1])) if len(p) > 2]
(Path(__file__).parent / "out" / "leftovers.md").write_text("\n".join(out) + "\n")
print({n: len(p) for n, p in places.items()}, sum(len(p) > 1 for p in classes.values()), "class homonyms")
