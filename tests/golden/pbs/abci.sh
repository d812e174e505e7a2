#!/bin/bash
#PBS -N train
#PBS -l select=2
#PBS -l walltime=1:00:00
#PBS -q rt_HF
#PBS -P grp
#PBS -S /bin/bash
#PBS -j oe
#PBS -o /home/ada/.local/state/kedge/jobs/records/K/

# train: by kedge VERSION for the site abci3-like. To submit it by hand: qsub FILE

export KEDGE_JOB_ID="$PBS_JOBID" KEDGE_JOB_NAME=train
exec >/home/ada/code/train-"${KEDGE_JOB_ID%%[!0-9]*}".out 2>&1 || exit 1
# where 'kedge status' finds how it went, if the scheduler keeps no accounts
record=/home/ada/.local/state/kedge/jobs/records/K
streams=$(readlink "/proc/$$/fd/1" "/proc/$$/fd/2")
began="$KEDGE_JOB_ID $(hostname) $(date +%s)"
{ printf "%s\n" "$began" "$streams" >>"$record/began"; } 2>/dev/null
finish() { echo "${asked:-$1} $(date +%s) $began" >"$record/ended"; }
trap 'finish "$?" 2>/dev/null || true' EXIT
# signals are for the command: this script waits for its end
trap 'asked=143' TERM
trap : USR1 USR2

set -eo pipefail

cd /home/ada/code

kedge=/usr/bin/kedge
image=/scratch/ada/pytorch.sif

read -r first_node <"$PBS_NODEFILE"
export MASTER_ADDR="$first_node"
# a port that two jobs on one node hardly share, below those that the kernel gives away
export MASTER_PORT=$((20000 + ${PBS_JOBID%%[!0-9]*} % 12000))

# shellcheck disable=SC2016 # the rank of a node is known there only
mpirun -np 2 --map-by ppr:1:node -hostfile "$PBS_NODEFILE" -x KEDGE_JOB_ID -x KEDGE_JOB_NAME \
    -x MASTER_ADDR -x MASTER_PORT "$kedge" exec --nv "$image" sh -c \
    'exec torchrun --nnodes=2 --nproc_per_node=8 --node_rank="$OMPI_COMM_WORLD_RANK" \
        --master_addr="$MASTER_ADDR" --master_port="$MASTER_PORT" "$@"' \
    torchrun train.py
