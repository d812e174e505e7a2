#!/bin/bash
#SBATCH --job-name=train
#SBATCH --account=proj
#SBATCH --partition=gpu
#SBATCH --nodes=2
#SBATCH --ntasks-per-node=1
#SBATCH --gpus-per-node=4
#SBATCH --time=02:00:00
#SBATCH --output=/scratch/proj/ada/code/%x-%j.out
#SBATCH --open-mode=append
# train: by kedge VERSION for the site nvidia-pyxis. To submit it by hand: sbatch FILE

export KEDGE_JOB_ID="${SLURM_ARRAY_JOB_ID:-$SLURM_JOB_ID}" KEDGE_JOB_NAME=train
# where 'kedge status' finds how it went, if the scheduler keeps no accounts
record=/scratch/proj/ada/.kedge/jobs/records/KEY
streams=$(readlink "/proc/$$/fd/1"; readlink "/proc/$$/fd/2")
began="$KEDGE_JOB_ID $(hostname) $(date +%s)"
{ printf "%s\n" "$began" "$streams" >>"$record/began"; } 2>/dev/null
finish() { echo "${asked:-$1} $(date +%s) $began" >"$record/ended"; }
trap 'finish "$?" 2>/dev/null || true' EXIT
# signals are for the command: this script waits for its end
trap 'asked=143' TERM
trap : USR1 USR2

export OMP_NUM_THREADS=8
export NOTE="a 'b' \$(c)"
set -eo pipefail

cd /scratch/proj/ada/code

nodes=$(scontrol show hostnames "$SLURM_JOB_NODELIST")
first_node=${nodes%%$'\n'*}
export MASTER_ADDR="$first_node"
# a port that nobody can tell before, below those that the kernel gives away
export MASTER_PORT=$((20000 + ${SRANDOM:-$RANDOM} % 12000))

# shellcheck disable=SC2016 # the rank of a node is known there only
srun --container-env=OMP_NUM_THREADS,NOTE --container-image='nvcr.io#nvidia/pytorch:24.03-py3' \
    --container-workdir="$PWD" --container-mounts="$PWD:$PWD",/scratch/proj/ada/data:/data:ro sh \
    -c \
    'exec torchrun --nnodes=2 --nproc_per_node=4 --node_rank="$SLURM_NODEID" \
        --master_addr="$MASTER_ADDR" --master_port="$MASTER_PORT" "$@"' \
    torchrun train.py --note "it's \$5"
# submitted with: sbatch --parsable job.sh
