srun --job-name=train --account=proj --partition=interactive --gpus-per-node=1 --time=01:00:00 --pty kedge shell --nv /scratch/proj/ada/pytorch.sif
