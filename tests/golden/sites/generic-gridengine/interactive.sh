qrsh -now n -N train -l h_rt=1:00:00 -l gpu=1 -P proj -cwd -pty y 'kedge shell --nv /scratch/proj/ada/pytorch.sif'
