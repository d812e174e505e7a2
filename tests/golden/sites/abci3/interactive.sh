qsub -I -N train -l select=1 -l walltime=1:00:00 -q rt_HG -P proj
