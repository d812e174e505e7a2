#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# Stands before qsub and qrsh on the PATH and plays ABCI's option -g GROUP, which Grid Engine does not have.
# Like there, a command without it is charged to a project named after the user, which does not exist.
project=$(id -un)
number=$#
while [ "$number" -gt 0 ]; do
    word=$1
    shift
    number=$((number - 1))
    if [ "$word" = -g ] && [ "$number" -gt 0 ]; then
        project=$1
        shift
        number=$((number - 1))
    else
        set -- "$@" "$word"
    fi
done
case " $* " in
    *" -inherit "* | *" -help "* | *" -verify "*) exec "/usr/lib/gridengine/${0##*/}" "$@" ;; # nothing new is charged
esac
exec "/usr/lib/gridengine/${0##*/}" -P "$project" "$@"
