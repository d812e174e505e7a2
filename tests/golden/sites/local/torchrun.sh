# refused: the job asks for 2 nodes, and this machine is one
# ask for one node, or choose a cluster with --site
