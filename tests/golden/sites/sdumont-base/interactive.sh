salloc --job-name=train --account=proj --partition=nvidia_small --gpus-per-node=1 --time=01:00:00 srun --interactive --preserve-env --pty kedge shell --nv /scratch/proj/ada/pytorch.sif
