# SPDX-License-Identifier: BSD-3-Clause
"""import graph of src/kedge: name -> set of (imported module)"""
import ast, sys
from pathlib import Path
def load(root):
    src=Path(root)/"src"; pk=src/"kedge"
    names={}
    for p in sorted(pk.rglob("*.py")):
        parts=p.relative_to(src).with_suffix("").parts
        names[".".join(parts[:-1] if parts[-1]=="__init__" else parts)]=p
    known=set(names); g={}
    for n,p in names.items():
        t=ast.parse(p.read_text()); s=set()
        for node in ast.walk(t):
            if isinstance(node,ast.Import):
                for a in node.names:
                    if a.name.startswith("kedge"): s.add(a.name)
            elif isinstance(node,ast.ImportFrom) and node.module and node.module.startswith("kedge"):
                for a in node.names:
                    d=f"{node.module}.{a.name}"
                    s.add(d if d in known else node.module)
        g[n]=s&known
    return g,names
