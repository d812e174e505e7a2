#!/bin/bash
#SBATCH --job-name="it's \"a\" $(job) `of` 日本 # %j/\\"
#SBATCH --output=/scratch/ada/it_s__a____job___of__日本____j__-%j.out
#SBATCH --open-mode=append
#SBATCH --comment="a # 'b'"
# it's "a" $(job) `of` 日本 # %j/\: by kedge VERSION for the site generic-slurm. To submit it by hand: sbatch FILE

export KEDGE_JOB_ID="${SLURM_ARRAY_JOB_ID:-$SLURM_JOB_ID}" KEDGE_JOB_NAME="it's \"a\" \$(job) \`of\`
日本 # %j/\\"
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

export NOTE="it's
\$(id) \"x\""
set -eo pipefail

cd /scratch/ada

# shellcheck disable=SC2016 # dollar signs are the program's, not this shell's
printf '%s\n' 'a b' "it's" '"q"' '$(id)' '`id`' 'two
lines' '\' 'é日本' '' -n
