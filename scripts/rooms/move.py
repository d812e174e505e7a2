# SPDX-License-Identifier: BSD-3-Clause
"""Moves the modules of src/kedge into the twelve rooms, and every name and path that points to them.

usage: move.py ROOT   (a clean worktree)
"""
import ast, re, subprocess, sys
from pathlib import Path
sys.path.insert(0, str(Path(__file__).parent))
from newmap import EXACT, PREFIX, new_name
root = Path(sys.argv[1]); src = root / "src"; pk = src / "kedge"
def git(*a): return subprocess.run(["git", "-C", str(root), *a], check=True, text=True, stdout=subprocess.PIPE).stdout
def dotted(p):
    parts = p.relative_to(src).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
paths = sorted(pk.rglob("*.py"))
names = {dotted(p): p for p in paths}
packages = {n for n, p in names.items() if p.name == "__init__.py"}
new = {n: new_name(n, names) for n in names}
new["kedge.ops"] = "kedge"  # gone
modules = {n for n in names if n not in packages}

# 1. files of the package
moves = []
made = set()
for n in sorted(modules):
    if new[n] == n: continue
    target = src / (new[n].replace(".", "/") + ".py")
    moves.append((names[n], target))
keep_inits = {}
for n in sorted(packages):
    code = [b for b in ast.parse(names[n].read_text()).body if not isinstance(b, ast.Expr)]
    target = src / new[n].replace(".", "/") / "__init__.py"
    keep_inits.setdefault(target, []).append((bool(code), n))
for target, olds in keep_inits.items():
    olds.sort(reverse=True)
    if sum(o[0] for o in olds) > 1: sys.exit(f"two packages with code: {olds}")
    # the one with code, else the one that is there already, else the first
    there = [o for o in olds if names[o[1]] == target]
    chosen = olds[0][1] if olds[0][0] else there[0][1] if there else olds[0][1]
    for _, n in olds:
        if n == "kedge.ops":
            moves.append((names[n], None))
        elif n != chosen: moves.append((names[n], None))
        elif names[n] != target: moves.append((names[n], target))
# other files beside modules
for p in sorted(pk.rglob("*")):
    if p.is_file() and p.suffix not in (".py", ".pyc") and "__pycache__" not in p.parts and p.parent != pk and pk / "data" not in p.parents:
        d = p.parent
        rest = [p.name]
        while not (d / "__init__.py").exists(): rest.insert(0, d.name); d = d.parent
        target = src / new[dotted(d / "__init__.py")].replace(".", "/") / Path(*rest)
        if target != p: moves.append((p, target))
if (pk/"launch/probe/probe.c").exists(): pass

# 2. unit tests beside their subjects
unit = root / "tests/unit"
def new_package(old):  # where a package's tests go
    return new.get(old) or PREFIX.get(old)
test_moves = {}
for p in sorted(unit.rglob("*")):
    if not p.is_file() or "__pycache__" in p.parts: continue
    rel = p.relative_to(unit)
    pkg = "kedge" + "".join("." + x for x in rel.parts[:-1])
    extra = ()
    while pkg not in packages: pkg, _, last = pkg.rpartition("."); extra = (last, *extra)
    stem = p.stem[5:] if p.name.startswith("test_") else ""
    module = f"{pkg}.{stem}"
    if stem and module in modules: dest = new[module].rpartition(".")[0]
    else: dest = "kedge" if pkg == "kedge.ops" else new[pkg]
    name = p.name
    if stem and module in modules and new[module].rpartition(".")[2] != stem: name = f"test_{new[module].rpartition('.')[2]}.py"
    if pkg == "kedge" and stem and stem not in ("api", "mutation", "rows"):
        m = f"kedge.{stem}"
        if m in new: dest = new[m].rpartition(".")[0]
    target = unit / Path(*dest.split(".")[1:]) / Path(*extra) / name
    test_moves.setdefault(target, []).append(p)
for target, olds in sorted(test_moves.items()):
    if target.name == "__init__.py":
        first = olds[0]
        for o in olds:
            if o == target: first = o
        for o in olds:
            if o != first: moves.append((o, None))
        if first != target: moves.append((first, target))
        continue
    if len(olds) > 1: print("two tests of one name:", [str(o.relative_to(unit)) for o in olds], "->", target.relative_to(unit))
    for k, o in enumerate(sorted(olds, key=lambda o: o != target)):
        t = target
        if k: t = target.with_name(f"test_{o.parent.name}_{o.name[5:]}")
        if t != o: moves.append((o, t))

# 3. carry out in two steps, so that names may be exchanged
text_of = {}
stage = root / ".moving"; stage.mkdir()
renamed = {}
for k, (old, target) in enumerate(moves):
    if target is None:
        git("rm", "-q", str(old)); continue
    git("mv", str(old), str(stage / str(k)))
for k, (old, target) in enumerate(moves):
    if target is None: continue
    if target.exists(): sys.exit(f"{old} -> {target}: exists")
    target.parent.mkdir(parents=True, exist_ok=True)
    git("mv", str(stage / str(k)), str(target))
    renamed[str(old.relative_to(root))] = str(target.relative_to(root))
if stage.exists(): stage.rmdir()
for d in sorted((d for d in [*pk.rglob("*"), *unit.rglob("*")] if d.is_dir()), reverse=True):
    left = [x for x in d.rglob("*") if x.is_file() and "__pycache__" not in x.parts]
    if not left: subprocess.run(["rm", "-rf", str(d)], check=True)
for base in (pk, unit):
    for d in base.rglob("*"):
        if d.is_dir() and "__pycache__" not in d.parts and not (d / "__init__.py").exists() and any(d.glob("*.py")):
            print("no __init__:", d.relative_to(root))
            (d / "__init__.py").write_text("# SPDX-License-Identifier: BSD-3-Clause\n"); git("add", str(d / "__init__.py"))

# 4. names: dotted ones everywhere; `from package import module`; paths
old_dotted = sorted((n for n in new if n != "kedge" and new[n] != n and n != "kedge.ops"), key=len, reverse=True)
pattern = re.compile(r"(?<![\w./])(" + "|".join(re.escape(n) for n in old_dotted) + r")(?!\w)")
tests_old = {}
for o, t in renamed.items():
    if o.startswith("tests/unit/") and o.endswith(".py"): tests_old[o[:-3].replace("/", ".")] = t[:-3].replace("/", ".")
tests_pattern = re.compile(r"(?<![\w./])(" + "|".join(re.escape(n) for n in sorted(tests_old, key=len, reverse=True)) + r")(?!\w)") if tests_old else None
# paths: full, and as prose has them, from a room on
path_map = dict(renamed)
for o, t in renamed.items():
    if o.startswith("src/kedge/"): path_map[o[len("src/kedge/"):]] = t[len("src/kedge/"):]; path_map[o[4:]] = t[4:]
dirs = {}
for n in packages:
    if n in ("kedge", "kedge.ops"): continue
    o, t = n.replace(".", "/"), new[n].replace(".", "/")
    if o != t:
        for cut in ("src/", "", None):
            a, b = (o[6:], t[6:]) if cut is None else (cut + o, cut + t)
            dirs[a] = b
for n in packages:
    if n in ("kedge", "kedge.ops"): continue
    o, t = n.replace(".", "/")[6:], new[n].replace(".", "/")[6:]
    if o != t: dirs["tests/unit/" + o] = "tests/unit/" + t
for o in ("hostpack/bundle/head", "sites/profiles"):
    pack = "kedge." + o.rpartition("/")[0].replace("/", ".")
    t = new[pack].replace(".", "/")[6:] + "/" + o.rpartition("/")[2]
    for a in ("src/kedge/", "kedge/", ""): dirs[a + o] = a + t
tail = r"(?![\w-]*\.\w*[a-z]{2})"
path_pattern = re.compile(r"(?<![\w./-])(" + "|".join(re.escape(p) for p in sorted(path_map, key=len, reverse=True) if "/" in p) + r")(?![\w])")
stems = {o[:-3]: t[:-3] for o, t in path_map.items() if o.endswith(".py") and o.count("/") and not o.startswith(("src/", "tests/", "kedge/"))}
stem_pattern = re.compile(r"(?<![\w./-])(" + "|".join(re.escape(p) for p in sorted(stems, key=len, reverse=True)) + r")(?=[.`)][\w` ,;:]|$)")
# a directory in prose: `system/`, or `ops/images` in backticks; never words like and/or
dir_keys = sorted(dirs, key=len, reverse=True)
dir_pattern = re.compile(r"(?<![\w./-])((?:src/)?kedge/(?:" + "|".join(re.escape(d[6:]) for d in dir_keys if d.startswith("kedge/")) + r")|(?:" + "|".join(re.escape(d) for d in dir_keys if not d.startswith(("kedge/", "src/")) ) + r")(?=/[*`,. )'\"]|/$))(?=[/`\"',. )*|{}]|$)", re.M)
unit_dirs = re.compile(r"(?<=`)(" + "|".join(re.escape(d) for d in dir_keys if d.startswith("tests/unit/")) + r")(?=`)")
def fix_dirs(m):
    return dirs.get(m[1], m[1])

def fix_python(text):
    try: tree = ast.parse(text)
    except SyntaxError: return text
    lines = text.split("\n"); edits = []
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module and node.module in packages and not node.level:
            groups = {}
            hit = False
            for a in node.names:
                full = f"{node.module}.{a.name}"
                if full in new and full in (modules | packages):
                    n2 = new[full]; pack, _, last = n2.rpartition(".")
                    as_ = a.asname or (a.name if last != a.name else None)
                    if as_ == last: as_ = None
                    groups.setdefault(pack, []).append((last, as_)); hit = True
                else:
                    groups.setdefault(new[node.module], []).append((a.name, a.asname))
            if hit:
                ind = " " * node.col_offset
                out = "\n".join(f"{ind}from {p} import " + ", ".join(n if not s else f"{n} as {s}" for n, s in g) for p, g in groups.items())
                tailc = ""
                last_line = lines[node.end_lineno - 1][node.end_col_offset:]
                edits.append((node.lineno, node.end_lineno, out + last_line))
    for a, b, out in sorted(edits, reverse=True):
        lines[a - 1:b] = out.split("\n")
    return "\n".join(lines)

again = [n for n in set(new.values()) if new.get(n, n) != n]
if again: sys.exit(f"new names that are old names of something else: {again}")
for name in git("ls-files").split("\n"):
    p = root / name
    if not name or not p.is_file() or p.is_symlink() or name == "CHANGELOG.md": continue
    try: text = p.read_text()
    except UnicodeDecodeError: continue
    t = text
    if name.endswith(".py") or t.startswith("#!/usr/bin/env python") or "python" in t[:60]:
        t = fix_python(t)
    t = pattern.sub(lambda m: new[m[1]], t)
    if tests_pattern: t = tests_pattern.sub(lambda m: tests_old[m[1]], t)
    t = path_pattern.sub(lambda m: path_map[m[1]], t)
    if not name.startswith('tests/') or name.endswith('.md'): t = stem_pattern.sub(lambda m: stems[m[1]], t)
    t = unit_dirs.sub(fix_dirs, dir_pattern.sub(fix_dirs, t))
    if t != text: p.write_text(t)
print(len(renamed), "files moved")
