qrsh -now n -g proj -N train -l h_rt=1:00:00 -l rt_G.small=1 -cwd -pty y 'kedge shell --nv /scratch/proj/ada/pytorch.sif'
