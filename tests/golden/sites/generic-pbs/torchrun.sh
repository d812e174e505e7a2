#!/bin/bash
#PBS -N train
#PBS -l select=2:ngpus=4
#PBS -l place=scatter
#PBS -l walltime=2:00:00
#PBS -A proj
#PBS -S /bin/bash
#PBS -j oe
#PBS -o /scratch/proj/ada/.kedge/jobs/records/KEY/

# train: by kedge VERSION for the site generic-pbs. To submit it by hand: qsub FILE

export KEDGE_JOB_ID="$PBS_JOBID" KEDGE_JOB_NAME=train
exec >/scratch/proj/ada/code/train-"${KEDGE_JOB_ID%%[!0-9]*}".out 2>&1 || exit 1
# where 'kedge status' finds how it went, if the scheduler keeps no accounts
record=/scratch/proj/ada/.kedge/jobs/records/KEY
streams=$(readlink "/proc/$$/fd/1" "/proc/$$/fd/2")
began="$KEDGE_JOB_ID $(hostname) $(date +%s)"
{ printf "%s\n" "$began" "$streams" >>"$record/began"; } 2>/dev/null
finish() { echo "${asked:-$1} $(date +%s) $began" >"$record/ended"; }
trap 'finish "$?" 2>/dev/null || true' EXIT
# signals are for the command: this script waits for its end
trap 'asked=143' TERM
trap : USR1 USR2

export OMP_NUM_THREADS=8
export KEDGEENV_OMP_NUM_THREADS=8
export NOTE="a 'b' \$(c)"
export KEDGEENV_NOTE="a 'b' \\\$(c)"
set -eo pipefail

cd /scratch/proj/ada/code

kedge=/scratch/proj/ada/bin/kedge
image=/scratch/proj/ada/pytorch.sif

read -r first_node <"$PBS_NODEFILE"
export MASTER_ADDR="$first_node"
# a port that two jobs on one node hardly share, below those that the kernel gives away
export MASTER_PORT=$((20000 + ${PBS_JOBID%%[!0-9]*} % 12000))

# shellcheck disable=SC2016 # the rank of a node is known there only
mpirun -np 2 --map-by ppr:1:node -hostfile "$PBS_NODEFILE" -x KEDGE_JOB_ID -x KEDGE_JOB_NAME \
    -x OMP_NUM_THREADS -x KEDGEENV_OMP_NUM_THREADS -x NOTE -x KEDGEENV_NOTE -x MASTER_ADDR \
    -x MASTER_PORT "$kedge" exec --nv --bind /scratch/proj/ada/data:/data:ro "$image" sh -c \
    'exec torchrun --nnodes=2 --nproc_per_node=4 --node_rank="$OMPI_COMM_WORLD_RANK" \
        --master_addr="$MASTER_ADDR" --master_port="$MASTER_PORT" "$@"' \
    torchrun train.py --note "it's \$5"
# submitted with: qsub job.sh
