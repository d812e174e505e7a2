#!/bin/bash
#SBATCH --job-name=hello
#SBATCH --output=/scratch/ada/%x-%j.out
#SBATCH --open-mode=append
# hello: by kedge VERSION for the site generic-slurm. To submit it by hand: sbatch FILE

export KEDGE_JOB_ID="${SLURM_ARRAY_JOB_ID:-$SLURM_JOB_ID}" KEDGE_JOB_NAME=hello
# where 'kedge status' finds how it went, if the scheduler keeps no accounts
record=/scratch/ada/records/KEY
streams=$(readlink "/proc/$$/fd/1"; readlink "/proc/$$/fd/2")
began="$KEDGE_JOB_ID $(hostname) $(date +%s)"
{ printf "%s\n" "$began" "$streams" >>"$record/began"; } 2>/dev/null
finish() { echo "${asked:-$1} $(date +%s) $began" >"$record/ended"; }
trap 'finish "$?" 2>/dev/null || true' EXIT
# signals are for the command: this script waits for its end
trap 'asked=143' TERM
trap : USR1 USR2

set -eo pipefail

cd /scratch/ada

hostname
