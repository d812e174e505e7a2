# SPDX-License-Identifier: BSD-3-Clause
import sys; from pathlib import Path; sys.path.insert(0, str(Path(__file__).parent))
from graph import load; from newmap import new_name
from collections import Counter, defaultdict
ROOMS=["__main__","cli","","tools","api","answers","jobs","launch","builds","container","compat","image","cluster","system","base","errors"]
g,names=load(sys.argv[1] if len(sys.argv)>1 else ".")
isp={n for n,p in names.items() if p.name=="__init__.py"}
new={}
byn=defaultdict(list)
for n in g:
    m=new_name(n,g); new[n]=m; byn[m].append(n)
for m,o in sorted(byn.items()):
    if len([x for x in o if x not in isp])>1 or (len(o)>1 and any(x not in isp for x in o)): print("CLASH",m,o)
room=lambda m:[*m.split("."),""][1]
rank={r:i for i,r in enumerate(ROOMS)}
c=Counter(); lines=[]
tot=0
for n,s in g.items():
    for d in s:
        a,b=room(new[n]),room(new[d])
        if a==b: continue
        tot+=1
        if rank[b]<=rank[a]:
            c[a,b]+=1; lines.append((a,b,n,d,new[n],new[d]))
print(tot,"between rooms;",sum(c.values()),"up")
for k,v in c.most_common(): print(v,k)
for l in sorted(lines): print(l[0],"->",l[1],":",l[2],"->",l[3])

# cycles among siblings at each level
import graphlib
def sccs(graph):
    idx={};low={};st=[];on=set();out=[]
    sys.setrecursionlimit(10000)
    def f(v):
        idx[v]=low[v]=len(idx); st.append(v); on.add(v)
        for w in graph.get(v,()):
            if w not in idx: f(w); low[v]=min(low[v],low[w])
            elif w in on: low[v]=min(low[v],idx[w])
        if low[v]==idx[v]:
            c=[]
            while True:
                w=st.pop(); on.discard(w); c.append(w)
                if w==v: break
            if len(c)>1: out.append(c)
    for v in list(graph): 
        if v not in idx: f(v)
    return out
packs=sorted({".".join(m.split(".")[:i]) for m in new.values() for i in range(2,len(m.split(".")))})
for pk in packs:
    depth=pk.count(".")+1
    gr=defaultdict(set); why=defaultdict(list)
    for n,s in g.items():
        if not new[n].startswith(pk+"."): continue
        a=new[n].split(".")[depth]
        gr[a]
        for d in s:
            if new[d].startswith(pk+"."):
                b=new[d].split(".")[depth]
                if a!=b: gr[a].add(b); why[a,b].append((n,d))
    for c in sccs(gr):
        print("CYCLE in",pk,sorted(c))
        for (a,b),w in sorted(why.items(), key=lambda x:len(x[1])):
            if a in c and b in c: print("    ",a,"->",b,len(w),[f"{x[0][6:]}>{x[1][6:]}" for x in w[:4]])
