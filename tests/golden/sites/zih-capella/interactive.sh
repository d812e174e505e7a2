srun --job-name=train --account=proj --partition=capella --gres=gpu:1 --time=01:00:00 --pty kedge shell --nv /scratch/proj/ada/pytorch.sif
