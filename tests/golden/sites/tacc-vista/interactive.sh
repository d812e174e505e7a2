idev -p gh -N 1 -n 1 -m 60 -A proj
