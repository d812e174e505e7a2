#!/bin/bash
#$ -N train
#$ -l h_rt=1:00:00
#$ -l rt_F=2
#$ -S /bin/bash
#$ -cwd
#$ -j y
#$ -o /home/ada/code/train-$JOB_ID.out

# train: by kedge VERSION for the site abci-like. To submit it by hand: qsub -g grp FILE

export KEDGE_JOB_ID="$JOB_ID" KEDGE_JOB_NAME=train
# where 'kedge status' finds how it went, if the scheduler keeps no accounts
record=/home/ada/.local/state/kedge/jobs/records/K
streams=$(readlink "/proc/$$/fd/1"; readlink "/proc/$$/fd/2")
began="$KEDGE_JOB_ID $(hostname) $(date +%s)"
{ printf "%s\n" "$began" "$streams" >>"$record/began"; } 2>/dev/null
finish() { echo "${asked:-$1} $(date +%s) $began" >"$record/ended"; }
trap 'finish "$?" 2>/dev/null || true' EXIT
# signals are for the command: this script waits for its end
trap 'asked=143' TERM
trap : USR1 USR2
# what it uses is written beside its output, for 'kedge jobs --efficiency' and 'kedge rerun'
log=${streams%%$'\n'*}
run_record="$log.record.json"
if ! [ -f "$log" ] || ! [ -w "${log%/*}" ]; then
    run_record="$record/run.record.json"
fi

source /etc/profile.d/modules.sh
module load openmpi/4.0.5 || exit

set -eo pipefail

cd /home/ada/code

kedge=/usr/bin/kedge
image=/scratch/ada/pytorch.sif

"$kedge" launch --site abci-like --torchrun --processes 4 --nv --record-to "$run_record" "$image" \
    train.py
