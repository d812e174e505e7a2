#!/usr/bin/env python3
"""Merges modules of one subject: merge.py PLAN; each line of PLAN is `target: module module` (below kedge)."""
import ast, graphlib, io, re, sys, textwrap, tokenize
from pathlib import Path

SRC = Path("src")
HACK = "TYPE_CHECKING = False"

def path_of(name):
    p = SRC / (name.replace(".", "/") + ".py")
    return p

def all_modules():
    found = {}
    for f in SRC.rglob("*.py"):
        n = ".".join(f.with_suffix("").parts[1:])
        found[n[:-9] if n.endswith(".__init__") else n] = f
    return found

def imports_of(tree, mods, own):
    out = set()
    for n in ast.walk(tree):
        if isinstance(n, ast.ImportFrom) and n.module:
            for a in n.names:
                t = f"{n.module}.{a.name}"
                t = t if t in mods else n.module
                if t in mods: out.add(t)
        elif isinstance(n, ast.Import):
            out |= {a.name for a in n.names if a.name in mods}
    out.discard(own)
    return out

def check_plan(plan):
    mods = all_modules()
    graph = {m: imports_of(ast.parse(f.read_text()), mods, m) for m, f in mods.items()}
    into = {m: t for t, ms in plan.items() for m in ms}
    bad = []
    for t, ms in plan.items():
        for m in (t, *ms):
            if m not in mods: bad.append(f"no module {m}")
    def merged(g):
        out = {}
        for m, d in g.items():
            k = into.get(m, m)
            out.setdefault(k, set()).update(into.get(x, x) for x in d)
        for k in out: out[k].discard(k)
        return out
    try:
        list(graphlib.TopologicalSorter(merged(graph)).static_order())
    except graphlib.CycleError as e:
        bad.append("cycle: " + " -> ".join(e.args[1]))
    return bad

def parts(text):
    """docstring, import nodes, type blocks, hack lines, body text."""
    tree = ast.parse(text)
    lines = text.splitlines(keepends=True)
    drop, imports, typed, hack = set(), [], [], False
    doc = ast.get_docstring(tree)
    for i, node in enumerate(tree.body):
        span = range(node.lineno - 1, node.end_lineno)
        seg = "".join(lines[node.lineno - 1: node.end_lineno])
        if i == 0 and isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
            drop.update(span)
        elif isinstance(node, ast.ImportFrom) and node.module == "__future__":
            drop.update(span)
        elif isinstance(node, (ast.Import, ast.ImportFrom)):
            imports.append(seg); drop.update(span)
        elif isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING":
            typed.append("".join(lines[node.body[0].lineno - 1: node.end_lineno])); drop.update(span)
        elif isinstance(node, ast.Assign) and ast.unparse(node).startswith(HACK):
            hack = True; drop.update(span)
    if lines and lines[0].startswith("# SPDX"): drop.add(0)
    body = "".join(l for i, l in enumerate(lines) if i not in drop).strip("\n")
    return doc, imports, typed, hack, body

def top_names(tree):
    defs, imps = {}, {}
    for node in tree.body:
        if isinstance(node, (ast.FunctionDef, ast.ClassDef, ast.AsyncFunctionDef)): defs[node.name] = node
        elif isinstance(node, ast.Assign):
            for t in node.targets:
                for n in ast.walk(t):
                    if isinstance(n, ast.Name): defs[n.id] = node
        elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name): defs[node.target.id] = node
        elif isinstance(node, ast.TypeAlias) if hasattr(ast, "TypeAlias") else False: defs[node.name.id] = node
        elif isinstance(node, ast.ImportFrom):
            for a in node.names: imps[a.asname or a.name] = (node.module, a.name)
        elif isinstance(node, ast.Import):
            for a in node.names: imps[a.asname or a.name.split(".")[0]] = ("", a.name)
        elif isinstance(node, ast.If):
            for s in node.body:
                if isinstance(s, ast.ImportFrom):
                    for a in s.names: imps.setdefault(a.asname or a.name, (s.module, a.name))
    return defs, imps

def rename(text, old, new):
    out, last = [], None
    toks = list(tokenize.generate_tokens(io.StringIO(text).readline))
    lines = text.splitlines(keepends=True)
    edits = []
    for i, t in enumerate(toks):
        if t.type == tokenize.NAME and t.string == old and not (i and toks[i-1].string == "."):
            edits.append((t.start, t.end, new))
    # inside f-strings python 3.11 tokenizes the whole as STRING: replace there in braces
    for t in toks:
        if t.type == tokenize.STRING and re.match(r"[rR]?[fF]", t.string) and re.search(r"\{[^}]*\b%s\b" % re.escape(old), t.string):
            if t.start[0] == t.end[0]:
                edits.append((t.start, t.end, re.sub(r"\{[^{}]*\}", lambda f: re.sub(r"(?<![\w.])%s\b" % re.escape(old), new, f.group(0)), t.string)))
            else:
                print("   f-string names", old, "by hand:", t.string[:80])
    for (l, c), (l2, c2), put in sorted(edits, reverse=True):
        s = lines[l-1]; lines[l-1] = s[:c] + put + s[c2:]
    return "".join(lines)

def new_name(old, stem):
    bare = old.lstrip("_")
    lead = old[: len(old) - len(bare)]
    if bare.isupper() or (bare.upper() == bare): return f"{lead}{stem.upper()}_{bare}"
    if bare[0].isupper(): return f"{lead}{''.join(w.title() for w in stem.split('_'))}{bare}"
    return f"{lead}{bare}_of_{stem}" if not stem.startswith(bare) else f"{lead}{bare}_{stem}"

def merge(target, module, renames):
    tp, mp = path_of(target), path_of(module)
    tt, mt = tp.read_text(), mp.read_text()
    tdefs, timps = top_names(ast.parse(tt)); mdefs, mimps = top_names(ast.parse(mt))
    stem = module.rpartition(".")[2]
    local = {}
    for n, (mod, orig) in mimps.items():
        if mod == target: continue
        if n in tdefs: raise SystemExit(f"{module}: imports {n}, which {target} defines")
        if n in timps and timps[n] != (mod, orig) and timps[n][0] != target: raise SystemExit(f"{module}: {n} is {mod}.{orig} here and {timps[n]} in {target}")
    moved, cut = {}, []
    for n in list(mdefs):
        if n in tdefs and not isinstance(mdefs[n], ast.ClassDef) and ast.unparse(mdefs[n]) == ast.unparse(tdefs[n]):
            print(f"   {module}: {n} is the same in both")
            cut.append(mdefs.pop(n))
    lines = mt.splitlines(keepends=True)
    for node in sorted(cut, key=lambda node: -node.lineno): lines[node.lineno - 1 : node.end_lineno] = []
    mt = "".join(lines)
    for n in list(mdefs):
        clash = n in tdefs or (n in timps and timps[n][0] != target)
        if clash and n != "TYPE_CHECKING":
            want = renames.get(f"{stem}.{n}")
            if not want and not n.startswith("_"): raise SystemExit(f"{module}: public {n} stands in {target} too")
            want = want or new_name(n, stem)
            print(f"   {module}: {n} -> {want}")
            mt = rename(mt, n, want); moved[n] = want
    doc, mi, mty, mh, body = parts(mt)
    _, ti, tty, th, tbody = parts(tt)
    def keep(seg, other):
        node = ast.parse(seg.strip()).body[0]
        return not (isinstance(node, ast.ImportFrom) and node.module == other)
    for seg in ti:
        node = ast.parse(seg).body[0]
        if isinstance(node, ast.ImportFrom) and node.module == target:
            for a in node.names:
                if a.asname: raise SystemExit(f"{target} imports {a.name} of {module} as {a.asname}")
    ti = [s for s in ti if keep(s, target)]; mi = [s for s in mi if keep(s, target) and not re.search(r"import TYPE_CHECKING\n", s)]
    def split_typed(blocks):
        out = []
        for b in blocks:
            for node in ast.parse("if 1:\n" + b).body[0].body:
                u = ast.unparse(node)
                if isinstance(node, ast.ImportFrom) and node.module in (target, module): continue
                out.append("    " + u + "\n")
        return out
    typed = list(dict.fromkeys(split_typed(tty) + split_typed(mty)))
    runtime = set()
    for s in ti + mi:
        node = ast.parse(s).body[0]
        if isinstance(node, ast.ImportFrom): runtime |= {(node.module, a.name, a.asname) for a in node.names}
        else: runtime |= {("", a.name, a.asname) for a in node.names}
    kept = []
    for s in typed:
        node = ast.parse(s.strip()).body[0]
        if isinstance(node, ast.ImportFrom):
            names = [a for a in node.names if (node.module, a.name, a.asname) not in runtime]
            if not names: continue
            node.names = names
            s = "    " + ast.unparse(node) + "\n"
        elif isinstance(node, ast.Import) and all(("", a.name, a.asname) in runtime for a in node.names): continue
        kept.append(s)
    has_typing = "from typing import" in "".join(ti) and any("TYPE_CHECKING" in s for s in ti)
    head = tt.splitlines(keepends=True)
    tree = ast.parse(tt)
    first = "".join(head[: tree.body[0].end_lineno])
    hack = ""
    if kept:
        if th or (not has_typing and mh):
            hack = next((l for l in (tt + "\n" + mt).splitlines() if l.startswith(HACK)), HACK) + "\n"
        elif not has_typing:
            ti.append("from typing import TYPE_CHECKING\n")
    elif has_typing:
        ti = [s for s in ti if s.strip() != "from typing import TYPE_CHECKING"]
    text = first + "\nfrom __future__ import annotations\n\n" + "".join(s if s.endswith("\n") else s + "\n" for s in ti + mi) + "\n"
    if kept: text += hack + "if TYPE_CHECKING:\n" + "".join(kept) + "\n"
    note = "\n#\n".join("\n".join("# " + l for l in textwrap.wrap(" ".join(each.split()), 118)) for each in (doc or "").strip().split("\n\n"))
    # after, where nothing that runs at import needs it
    needs = set()
    for node in ast.parse(tbody).body:
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            for d in node.decorator_list + node.args.defaults + [x for x in node.args.kw_defaults if x]:
                needs |= {n.id for n in ast.walk(d) if isinstance(n, ast.Name)}
        elif isinstance(node, ast.ClassDef):
            for d in node.decorator_list + node.bases + [s for s in node.body if not isinstance(s, (ast.FunctionDef, ast.AsyncFunctionDef))]:
                needs |= {n.id for n in ast.walk(d) if isinstance(n, ast.Name)}
            for s in node.body:
                if isinstance(s, (ast.FunctionDef, ast.AsyncFunctionDef)):
                    for d in s.decorator_list + s.args.defaults + [x for x in s.args.kw_defaults if x]:
                        needs |= {n.id for n in ast.walk(d) if isinstance(n, ast.Name)}
        else:
            needs |= {n.id for n in ast.walk(node) if isinstance(node, ast.AST) and isinstance(n, ast.Name)}
    mnames = set(top_names(ast.parse(body))[0])
    block = (note + "\n\n" if note else "") + body
    if needs & mnames: text += block + "\n\n\n" + tbody + "\n"
    else: text += tbody + "\n\n\n" + block + "\n"
    # late imports of the one by the other
    text = drop_late(text, {module, target})
    tp.write_text(text); mp.unlink()
    return moved

def drop_late(text, names):
    lines = text.splitlines(keepends=True)
    tree = ast.parse(text)
    cut = []
    for node in ast.walk(tree):
        for field in ("body", "orelse", "finalbody"):
            block = getattr(node, field, None)
            if not isinstance(block, list): continue
            for s in block:
                if isinstance(s, ast.ImportFrom) and s.module in names:
                    cut.append((s.lineno - 1, s.end_lineno, len(block) == 1, s.col_offset))
    for a, b, only, col in sorted(set(cut), reverse=True):
        lines[a:b] = [" " * col + "pass\n"] if only else []
    return "".join(lines)

def point_all(into):
    """Every mention of a module that goes names the one that takes it."""
    slashes = {m.removeprefix("kedge.").replace(".", "/"): t.removeprefix("kedge.").replace(".", "/") for m, t in into.items()}
    names = re.compile(r"(?<![\w.])kedge(?:\.\w+)+")
    paths = re.compile(r"(?<![\w])(?:" + "|".join(sorted(map(re.escape, slashes), key=len, reverse=True)) + r")(?=\.py\b|`)")
    stems = {}
    for m in into: stems.setdefault(m.rpartition(".")[0], set()).add(m.rpartition(".")[2])
    def dotted(found):
        word, rest = found.group(0), ""
        while word and word not in into:
            word, _, last = word.rpartition(".")
            rest = f".{last}{rest}"
        return into[word] + rest if word else found.group(0)
    tops = [Path(x) for x in ("src", "tests", "bench", "scripts", "docs", "examples", "CONTRIBUTING.md", "README.md", "pyproject.toml", "mkdocs.yml", "Makefile")]
    for f in (f for t in tops for f in ([t] if t.is_file() else t.rglob("*")) if f.is_file() and "__pycache__" not in f.parts):
        try: text = old = f.read_text()
        except (UnicodeDecodeError, OSError): continue
        if "kedge" not in text and "/" not in text: continue
        text = names.sub(dotted, text)
        text = paths.sub(lambda found: slashes[found.group(0)], text)
        for m in re.finditer(r"from (kedge[\w.]*) import \(?([^\n)]*)", text):
            hit = stems.get(m.group(1), set()) & set(re.findall(r"\w+", m.group(2)))
            if hit: print("   module imported by name, by hand:", f, m.group(0))
        if text != old: f.write_text(text)


def publish(module, target):
    room = module.split(".")[1]
    init = SRC / "kedge" / room / "__init__.py"
    short, tshort = module.split(".", 2)[2], target.split(".", 2)[2]
    text = init.read_text()
    if f'"{short}",' in text:
        if f'"{tshort}",' in text: text = re.sub(r'\n    "%s",' % re.escape(short), "", text)
        else: text = text.replace(f'"{short}",', f'"{tshort}",')
        init.write_text(text)

def main():
    plan, renames = {}, {}
    for line in Path(sys.argv[1]).read_text().splitlines():
        line = line.partition("#")[0].strip()
        if not line: continue
        if "->" in line:
            a, b = line.split("->"); renames[a.strip()] = b.strip(); continue
        t, _, ms = line.partition(":")
        t = "kedge." + t.strip(); p = t.rpartition(".")[0]
        plan.setdefault(t, []).extend((f"{p}.{m}" if "." not in m else "kedge." + m) for m in ms.split())
    bad = check_plan(plan)
    if bad: sys.exit("\n".join(bad))
    if "--check" in sys.argv: return
    point_all({m: t for t, ms in plan.items() for m in ms})
    for t, ms in plan.items():
        for m in ms:
            print(m, "->", t)
            moved = merge(t, m, renames)
            publish(m, t)
main()
