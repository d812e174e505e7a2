#!/bin/bash
#$ -N train
#$ -l h_rt=1:00:00
#$ -S /bin/bash
#$ -cwd
#$ -j y
#$ -o /dev/null
#$ -t 1-10
#$ -tc 3
#$ -hold_jid 11,12

# train: by kedge VERSION for the site generic-gridengine. To submit it by hand: qsub FILE

export KEDGE_JOB_ID="$JOB_ID" KEDGE_JOB_NAME=train
export KEDGE_ARRAY_INDEX=$((0 + (SGE_TASK_ID - 1) * 1))
exec >>/home/ada/code/train-"${KEDGE_JOB_ID%%[!0-9]*}"_"$KEDGE_ARRAY_INDEX".out 2>&1 || exit 1
# where 'kedge status' finds how it went, if the scheduler keeps no accounts
record=/home/ada/.local/state/kedge/jobs/records/K
streams=$(readlink "/proc/$$/fd/1"; readlink "/proc/$$/fd/2")
began="$KEDGE_JOB_ID $(hostname) $(date +%s)"
{ printf "%s\n" "$began" "$streams" >>"$record/began.$KEDGE_ARRAY_INDEX"; } 2>/dev/null
finish() { echo "${asked:-$1} $(date +%s) $began" >"$record/ended.$KEDGE_ARRAY_INDEX"; }
trap 'finish "$?" 2>/dev/null || true' EXIT
# signals are for the command: this script waits for its end
trap 'asked=143' TERM
trap : USR1 USR2
# what it uses is written beside its output, for 'kedge jobs --efficiency' and 'kedge rerun'
log=${streams%%$'\n'*}
run_record="$log.$KEDGE_ARRAY_INDEX.record.json"
if ! [ -f "$log" ] || ! [ -w "${log%/*}" ]; then
    run_record="$record/run.$KEDGE_ARRAY_INDEX.record.json"
fi

set -eo pipefail

for file in /home/ada/records/J/began*; do
    ended=$(cut -d" " -f1 "${file/%began*/ended}${file##*/began}" 2>/dev/null || echo killed)
    if ! [ "$ended" = 0 ]; then
        echo kedge: job 11 ended with "$ended, and this one wants it afterok" >&2
        exit 1
    fi
done

cd /home/ada/code

kedge=/usr/bin/kedge
image=/scratch/ada/pytorch.sif

"$kedge" exec --record-to "$run_record" "$image" python train.py
