qsub -I -N train -l select=1:ngpus=1 -l walltime=1:00:00 -A proj
