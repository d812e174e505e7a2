# refused: the job requests 2 nodes; the local queue has one, this host
# request one node, or choose a cluster with --site
