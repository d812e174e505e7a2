#!/bin/bash
#SBATCH --job-name=train
#SBATCH --partition=rtx
#SBATCH --nodes=2
#SBATCH --ntasks-per-node=4
#SBATCH --time=01:00:00
#SBATCH --output=/scratch/ada/%x-%j.out
#SBATCH --open-mode=append
# train: by kedge VERSION for the site tacc-like. To submit it by hand: sbatch FILE

export KEDGE_JOB_ID="${SLURM_ARRAY_JOB_ID:-$SLURM_JOB_ID}" KEDGE_JOB_NAME=train
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

if ! type module >/dev/null 2>&1; then
    for file in /etc/profile.d/lmod.sh /etc/profile.d/modules.sh /usr/share/modules/init/bash; do
        # shellcheck disable=SC1090
        [ -r "$file" ] && . "$file" && break
    done
fi
module load tacc-apptainer || exit

set -eo pipefail

cd /scratch/ada

image=/scratch/ada/pytorch.sif

ibrun apptainer exec --nv "$image" python train.py
