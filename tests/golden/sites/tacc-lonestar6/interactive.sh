idev -p gpu-a100-small -N 1 -n 1 -m 60 -A proj
