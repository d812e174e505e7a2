#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
# Plays ABCI's resource types: a job names one of them, and becomes whole nodes (rt_F) or a part of one.
# bash, not sh: with dash the protocol breaks.

jsv_on_start() {
    return
}

jsv_on_verify() {
    local kind amount
    for kind in rt_F rt_G.large rt_G.small rt_C.large rt_C.small; do
        amount=$(jsv_sub_get_param l_hard "$kind")
        [ -n "$amount" ] || continue
        jsv_sub_del_param l_hard "$kind"
        if [ "$kind" != rt_F ] && [ "$amount" != 1 ]; then
            jsv_reject "$kind is a part of one node: its amount can only be 1"
            return
        fi
        case $kind in
            rt_F) ask rack "$((amount * SLOTS))" ;;
            rt_G.large) ask smp 4 && jsv_sub_add_param l_hard gpu 1 ;; # a consumable is counted for each slot
            rt_G.small) ask smp 1 && jsv_sub_add_param l_hard gpu 1 ;;
            rt_C.large) ask smp 4 ;;
            rt_C.small) ask smp 1 ;;
        esac
        jsv_correct "$kind"
        return
    done
    jsv_reject "Resource type is not specified."
}

ask() {
    jsv_set_param pe_name "$1"
    jsv_set_param pe_min "$2"
    jsv_set_param pe_max "$2"
}

# SLOTS: a node's, written here by who installs this file
# shellcheck source=/dev/null
. "$SGE_ROOT/util/resources/jsv/jsv_include.sh"
jsv_main
