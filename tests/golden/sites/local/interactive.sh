KEDGE local-queue run --name=train --time=1:00:00 --gpus=1 -- kedge shell --nv /scratch/proj/ada/pytorch.sif
