# SPDX-License-Identifier: BSD-3-Clause
"""Writes the `__init__` of each room: what it promises, and which of its modules other rooms import."""
import sys; from pathlib import Path
sys.path.insert(0, str(Path(__file__).parent))
from graph import load
root=Path(sys.argv[1]); g,names=load(root)
DOCS={
"cli":"kedge's command line: a file for each verb, what it prints, its help; and the command lines of other tools.",
"tools":"What stands on top and could be left out: measuring, notebooks, kedge in one file, Python functions as jobs.",
"answers":"What a user asks: explain, recommend, search, diagnose, doctor; and the pages that show it.",
"jobs":"One description of a job for any scheduler: submitted, watched, recorded; scripts of others; the local queue.",
"launch":"One program on many ranks and nodes: the plan, the ranks, the checks, what programs expect of their launcher.",
"builds":"A recipe becomes an image: Dockerfiles and definition files, their steps, bases, copies, cache, and commits.",
"container":"One program in one image on this host: options and facts → plan (pure) → operations → enter.",
"compat":"What is in an image, what a host has, and whether the one runs on the other; what failures mean.",
"image":"What an image is and where it comes from: registries, formats, layers, the store, trust, pull, push, convert.",
"cluster":"What cluster this is: schedulers (pure text), sites, allocations, launchers' words, the variables of ranks.",
"system":"The kernel and other programs: files, locks, processes, settings, what this host has.",
"base":"Values: references, digests, sizes, times, names. No input or output.",
}
def room(n): return [*n.split("."),""][1]
for r,doc in DOCS.items():
    used=sorted({d[len(f"kedge.{r}."):] for n,s in g.items() if room(n)!=r for d in s if d.startswith(f"kedge.{r}.")})
    text=f'# SPDX-License-Identifier: BSD-3-Clause\n"""{doc}"""\n'
    if used:
        text+="\n# The modules that other rooms import; tests/architecture/test_imports.py holds them to it.\nPUBLIC = (\n"+"".join(f'    "{u}",\n' for u in used)+")\n"
    (root/"src/kedge"/r/"__init__.py").write_text(text)
    print(r,len(used))
