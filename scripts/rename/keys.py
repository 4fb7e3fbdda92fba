"""Writes out/old_keys.py and out/old_keys.json: old recipe key -> new, from table.toml; for messages."""
import json
from pathlib import Path
from rename import HERE, read_table
import sys
stages = {int(s) for s in (sys.argv[1] if len(sys.argv) > 1 else "3,4,6").split(",")}
keys, options = {}, {}
for rule in read_table()["field"]:
    if rule["stage"] in stages:
        for section in rule.get("sections", []):
            if section != "config":
                keys[f"{section}.{rule['old']}"] = f"{section}.{rule['new']}"
        if not rule.get("sections") and any("options" in c or "Plan" in c for c in rule["classes"]):
            options[rule["old"]] = rule["new"]
keys = dict(sorted(keys.items()))
(HERE / "out").mkdir(exist_ok=True)
(HERE / "out" / "old_keys.json").write_text(json.dumps(keys, indent=1) + "\n")
body = "".join(f'    "{a}": "{b}",\n' for a, b in keys.items())
(HERE / "out" / "old_keys.py").write_text(f'# Keys of recipes that have another name now.\nOLD_KEYS = {{\n{body}}}\n')
# for scripts/freeze.py --compare --renamed: paths in snapshots
names = {}
for k, v in keys.items():
    a, b = k.split("."), v.split(".")
    names["/".join(a)] = "/".join(b)
    if a[0] == "shape":
        names[f"config/{a[1]}"] = f"config/{b[1]}"
(HERE / "out" / "freeze_names.json").write_text(json.dumps(names, indent=1))
print(len(keys), "keys")
