srun --job-name=train --account=proj --partition=interactive --gpus-per-node=1 --time=01:00:00 --pty kedge shell --nv docker://nvcr.io/nvidia/pytorch:24.03-py3
