#!/bin/bash
#$ -N j1_it_s__a____job___of___________
#$ -S /bin/bash
#$ -wd /
#$ -j y
#$ -o /dev/null

# 1 it's "a"/$(job):`of` 日本 # *?@\: by kedge VERSION for the site generic-gridengine. To submit it by hand: qsub FILE

export KEDGE_JOB_ID="$JOB_ID" KEDGE_JOB_NAME="1 it's \"a\"/\$(job):\`of\`
日本 # *?@\\"
exec >>"/home/ada/a:b, 'c'/"'1_it_s__a____job___of__日本_____@_'-"${KEDGE_JOB_ID%%[!0-9]*}".out 2>&1 || exit 1
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

export NOTE="it's
\$(id) \"x\""
export MORE='a
''#$ -P y'
set -eo pipefail

cd "/home/ada/a:b, 'c'"

 #$ -l comment=1
true

# shellcheck disable=SC2016 # dollar signs are the program's, not this shell's
printf '%s\n' 'a b' "it's
#\$ -q x" '"q"' '$(id)' 'two
''#$ -l gpu=9
lines' 'é日本' ''
