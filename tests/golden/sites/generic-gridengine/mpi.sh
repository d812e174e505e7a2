# refused: kedge does not know a parallel environment for 2 nodes at the site 'generic-gridengine'
# 'qconf -spl' lists them; put one that gives a fixed number of slots per node into the profile, as options.mpi_environment = 'mpi-{tasks}' ({tasks} becomes the slots per node), or give --nodes 1
